//! Text of the sandbox: the same call always gets the same few sentences.
//!
//! A word is a token here. Streaming sends word by word.

use std::time::Duration;

use async_trait::async_trait;

use super::{Faults, fault::Fault, seed::Seed};
use crate::{
    domain::{
        conversation::{Part, Role, Stop},
        usage::TokenCounts,
    },
    providers::{DeltaSink, ProviderError, TextAnswer, TextCall, TextProvider, answer::TextBuffer},
};

/// Words before `[[fail]]` and `[[timeout]]` end a stream.
const WORDS_BEFORE_FAULT: usize = 5;
/// How much of the prompt is quoted, in words and in characters.
const TOPIC_WORDS: usize = 12;
const TOPIC_CHARS: usize = 100;

const OPENINGS: [&str; 6] = [
    "You wrote:",
    "Here is what I can say about your request,",
    "Let me take this up:",
    "Thank you for your message,",
    "I have read your prompt,",
    "This is an answer to",
];
const MIDDLES: [&str; 8] = [
    "There is more than one way to look at it, and the simplest is often the best.",
    "A good start is to name what is known and to leave open what is not.",
    "Small steps that can be checked lead further than one great leap.",
    "It helps to say first who will read the result and what they need from it.",
    "Most of the work lies in the details, so they deserve a second look.",
    "An example usually explains it better than a rule does.",
    "What matters most should come first, and the rest may follow in short.",
    "If two answers seem equally right, the one that is easier to change wins.",
];
const ENDINGS: [&str; 4] = [
    "This text was made by the sandbox, without any model behind it.",
    "The sandbox wrote these lines, and it will write the same ones again.",
    "No model was asked: the sandbox made this answer by itself.",
    "Configure a provider to replace this sandbox text with a real one.",
];

/// The sandbox's text adapter.
#[derive(Debug, Clone, Copy, Default)]
pub struct SandboxText {
    word_delay: Duration,
}

impl SandboxText {
    /// `word_delay` is the pause between two streamed words. Answers without streaming are never
    /// delayed.
    pub fn new(word_delay: Duration) -> Self {
        Self { word_delay }
    }
}

#[async_trait]
impl TextProvider for SandboxText {
    async fn generate(
        &self,
        call: &TextCall,
        deltas: Option<&DeltaSink>,
    ) -> Result<TextAnswer, ProviderError> {
        let faults = Faults::of(&call.conversation.last_user_text());
        if !faults.slow.is_zero() {
            tokio::time::sleep(faults.slow).await;
        }
        let seed = seed(call);
        let mut text = compose(&faults.rest, &seed);
        let mut stop = Stop::Done;
        let found = call.sampling.stop.iter();
        let found = found.filter_map(|sequence| Some((text.find(sequence)?, sequence)));
        if let Some((at, sequence)) = found.min_by_key(|(at, _)| *at) {
            stop = Stop::Sequence(sequence.clone());
            text.truncate(at);
        }
        let limit = usize::try_from(call.max_tokens).unwrap_or(usize::MAX);
        if text.split_inclusive(' ').nth(limit).is_some() {
            stop = Stop::Limit;
        }
        // A late fault sends part of the stream first, like an upstream that breaks off.
        let shown = match faults.fault {
            Some(fault) if !fault.is_late() || deltas.is_none() => 0,
            Some(_) => limit.min(WORDS_BEFORE_FAULT),
            None => limit,
        };
        let mut pieces = TextBuffer::new(deltas);
        let mut words: u64 = 0;
        for (index, word) in text.split_inclusive(' ').take(shown).enumerate() {
            if index > 0 && deltas.is_some() && !self.word_delay.is_zero() {
                tokio::time::sleep(self.word_delay).await;
            }
            // The limit may cut after any word, and an answer does not end in a space.
            let bare = word.trim_end();
            if index > 0 {
                pieces.push(&format!(" {bare}"))?;
            } else {
                pieces.push(bare)?;
            }
            words += 1;
        }
        if let Some(fault) = faults.fault {
            return Err(Fault::happen(fault).await);
        }
        let input = input_tokens(call);
        Ok(TextAnswer {
            text: pieces.into_text(),
            stop,
            usage: TokenCounts {
                input: Some(input),
                cached_input: faults.cached.map(|tokens| tokens.min(input)),
                output: Some(words),
                ..TokenCounts::default()
            },
            request_id: Some(seed.request_id()),
        })
    }
}

/// A quarter of the bytes, rounded up: close to real tokenizers, and always below the ceiling of a
/// hold.
fn input_tokens(call: &TextCall) -> u64 {
    u64::try_from(call.conversation.bytes().div_ceil(4)).unwrap_or(u64::MAX)
}

/// The seed of everything that may change the answer.
fn seed(call: &TextCall) -> Seed {
    let sampling =
        [call.sampling.temperature, call.sampling.top_p].map(|v| v.map(f64::to_le_bytes));
    let [temperature, top_p] = &sampling;
    let system = call.conversation.system.as_deref().unwrap_or_default();
    let max_tokens = call.max_tokens.to_le_bytes();
    let mut fields = vec![
        call.model.as_bytes(),
        &max_tokens,
        temperature.as_ref().map_or(&[], |bytes| &bytes[..]),
        system.as_bytes(),
    ];
    fields.extend(top_p.as_ref().map(|bytes| &bytes[..]));
    for message in &call.conversation.messages {
        fields.push(match message.role {
            Role::System => &b"system"[..],
            Role::User => b"user",
            Role::Assistant => b"assistant",
        });
        fields.extend(message.parts.iter().map(|part| match part {
            Part::Text(text) => text.as_bytes(),
        }));
    }
    Seed::of(&fields)
}

/// Four to six sentences, chosen by the seed, around the first words of the prompt.
fn compose(prompt: &str, seed: &Seed) -> String {
    let topic = prompt
        .split_whitespace()
        .take(TOPIC_WORDS)
        .collect::<Vec<_>>()
        .join(" ");
    let topic: String = topic.chars().take(TOPIC_CHARS).collect();
    let [opening, first, more, ending] = [0, 1, 2, 3].map(|i| usize::from(seed.choice(i, u8::MAX)));
    let mut text = if topic.is_empty() {
        "You wrote nothing that I could take up.".to_owned()
    } else {
        let topic = topic.trim_end_matches(['.', ',', ';', ':', ' ']);
        let stop = if topic.ends_with(['?', '!']) { "" } else { "." };
        format!(
            "{} \u{201c}{topic}\u{201d}{stop}",
            OPENINGS[opening % OPENINGS.len()]
        )
    };
    // Consecutive entries, so that no sentence is repeated.
    for step in 0..2 + more % 3 {
        text.push(' ');
        text.push_str(MIDDLES[(first + step) % MIDDLES.len()]);
    }
    text.push(' ');
    text.push_str(ENDINGS[ending % ENDINGS.len()]);
    text
}

#[cfg(test)]
mod tests;
