//! What the clients saw, to be compared with the ledger.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Instant,
};

use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::tally::Tally;

/// The outcome of a generation, as a client saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub status: String,
    /// In credits, as the API writes them.
    pub charged: String,
    /// Of text: the text itself. Of files: their digests.
    pub result: String,
}

/// A generation that a client knows of.
#[derive(Debug, Clone)]
pub struct Known {
    pub account: usize,
    pub mark: String,
    /// Its outcome, once a client saw it.
    pub outcome: Option<Outcome>,
    /// A DELETE was sent.
    pub deleted: bool,
    /// When its outcome was first seen.
    outcome_at: Option<Instant>,
}

/// An operator's grant, which is carried out once however often it is requested.
#[derive(Debug, Clone)]
pub struct Grant {
    pub account: usize,
    pub reference: String,
    pub amount: i64,
}

/// A key with a spend limit.
#[derive(Debug, Clone, Copy)]
pub struct Cap {
    pub account: usize,
    pub id: i64,
    /// The period in which it is used.
    pub round: u32,
}

/// A time in which an account was certainly suspended.
#[derive(Debug, Clone, Copy)]
pub struct Suspension {
    pub account: usize,
    pub from: DateTime<Utc>,
    pub to: DateTime<Utc>,
}

/// Everything that is known outside the servers.
pub struct Seen {
    tally: Arc<Tally>,
    state: Mutex<State>,
}

#[derive(Default)]
pub struct State {
    pub known: HashMap<String, Known>,
    /// The generation that an account's idempotency key created.
    pub keyed: HashMap<(usize, String), String>,
    /// Marks of requests that were completed after the revocation of their key was acknowledged.
    pub forbidden: HashSet<String>,
    pub grants: Vec<Grant>,
    pub caps: Vec<Cap>,
    pub suspensions: Vec<Suspension>,
    /// Generations whose text was streamed, at least in part.
    pub delivered: Vec<String>,
}

impl Seen {
    pub fn new(tally: &Arc<Tally>) -> Self {
        Self {
            tally: Arc::clone(tally),
            state: Mutex::default(),
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Stores a record, and reports a violation if it contradicts what was seen before `asked`.
    pub fn record(&self, account: usize, key: Option<&str>, record: &Value, asked: Instant) {
        let (Some(uuid), Some(status)) = (record["uuid"].as_str(), record["status"].as_str())
        else {
            return;
        };
        let mut state = self.state();
        if let Some(key) = key {
            let made = state.keyed.entry((account, key.to_owned()));
            let made = made.or_insert_with(|| uuid.to_owned());
            if made != uuid {
                let detail = format!("{key} made {made}, then {uuid}");
                self.tally
                    .violation("an idempotency key made two generations", detail);
            }
        }
        let prompt = record["prompt"].as_str().unwrap_or_default();
        let mark = crate::upstream::mark(prompt).unwrap_or_default();
        let known = state.known.entry(uuid.to_owned()).or_insert_with(|| Known {
            account,
            mark: mark.to_owned(),
            outcome: None,
            deleted: false,
            outcome_at: None,
        });
        if known.account != account {
            let detail = format!("{uuid} of account {} was shown to {account}", known.account);
            self.tally.violation("another account's generation", detail);
        }
        if !matches!(status, "completed" | "failed") {
            if known.outcome_at.is_some_and(|at| at < asked) {
                let detail = format!("{uuid} is {status} again");
                self.tally.violation("an end was taken back", detail);
            }
            return;
        }
        let outcome = Outcome::of(record);
        if status == "failed" && outcome.charged != "0" {
            let detail = format!("{uuid}: {}", outcome.charged);
            self.tally.violation("a failure was charged", detail);
        }
        if record["type"] == "text"
            && status == "completed"
            && !outcome.result.contains(&known.mark)
        {
            let detail = format!("{uuid} asked for {}, got {}", known.mark, outcome.result);
            self.tally.violation("somebody else's answer", detail);
        }
        match &known.outcome {
            Some(before) if *before != outcome => {
                let detail = format!("{uuid}: {before:?}, then {outcome:?}");
                self.tally
                    .violation("a generation ended in two ways", detail);
            }
            Some(_) => {}
            None => (known.outcome, known.outcome_at) = (Some(outcome), Some(Instant::now())),
        }
    }
}

impl Outcome {
    fn of(record: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let result = match record["outputs"].as_array() {
            Some(outputs) if !outputs.is_empty() => {
                let digests: Vec<String> = outputs.iter().map(|o| text(&o["sha256"])).collect();
                digests.join(" ")
            }
            _ => text(&record["result"]),
        };
        Self {
            status: text(&record["status"]),
            charged: text(&record["credits"]["charged"]),
            result,
        }
    }
}
