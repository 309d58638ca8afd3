//! What came of a load.

use std::{
    collections::BTreeMap,
    ops::Range,
    time::{Duration, Instant},
};

use crate::{
    quantile::quantile,
    wire::{self, Answer},
};

#[derive(Debug, Default)]
pub struct Outcome {
    /// Good answers in the part of the slice that is counted.
    pub counted: u64,
    /// Of each good answer, in milliseconds.
    latencies: Vec<f64>,
    /// To the first piece of each good stream, in milliseconds.
    firsts: Vec<f64>,
    /// How often which.
    pub failures: BTreeMap<String, u64>,
}

impl Outcome {
    /// Takes in an answer to what was due then.
    pub fn note(
        &mut self,
        due: Instant,
        counted: &Range<Instant>,
        answer: std::io::Result<Answer<'_>>,
    ) {
        match answer {
            Ok(answer) if is_good(&answer) => {
                let now = Instant::now();
                self.counted += u64::from(counted.contains(&now));
                self.latencies.push(ms(now - due));
                self.firsts
                    .extend(answer.first.map(|first| ms(first - due)));
            }
            Ok(answer) => self.fail(failure(&answer)),
            Err(error) => self.fail(format!("no answer: {}", error.kind())),
        }
    }

    pub fn fail(&mut self, what: String) {
        *self.failures.entry(what).or_default() += 1;
    }

    pub fn merge(&mut self, other: Self) {
        self.counted += other.counted;
        self.latencies.extend(other.latencies);
        self.firsts.extend(other.firsts);
        for (what, times) in other.failures {
            *self.failures.entry(what).or_default() += times;
        }
    }

    /// All good answers.
    pub fn answered(&self) -> usize {
        self.latencies.len()
    }

    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// Within how many milliseconds that part of the good answers came.
    pub fn latency(&self, part: f64) -> f64 {
        quantile(&self.latencies, part)
    }

    /// As [`Self::latency`], to the first piece of a stream.
    pub fn first(&self, part: f64) -> f64 {
        quantile(&self.firsts, part)
    }
}

fn is_good(answer: &Answer<'_>) -> bool {
    let ended = |what: &[u8]| wire::contains(answer.body, what);
    match answer.status {
        200 if answer.first.is_some() => {
            ended(b"event: completed") || ended(b"[DONE]") || ended(b"event: message_stop")
        }
        200 | 202 => true,
        _ => false,
    }
}

/// The status and the code of an error.
fn failure(answer: &Answer<'_>) -> String {
    let body: serde_json::Value = serde_json::from_slice(answer.body).unwrap_or_default();
    let code = body["error"]["code"].as_str().unwrap_or("of another kind");
    format!("{} {code}", answer.status)
}

fn ms(length: Duration) -> f64 {
    length.as_secs_f64() * 1000.0
}
