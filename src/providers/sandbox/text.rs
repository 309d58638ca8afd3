//! Text of the sandbox: equal calls get the same few sentences.
//!
//! A token is a word, or a piece of a tool call's arguments. Streams send it word by word.

use std::time::Duration;

use async_trait::async_trait;

use super::{Faults, fault::Fault, seed::Seed, tools};
use crate::{
    domain::{
        conversation::{Conversation, Delta, ImageSource, Part, Role, Stop, ToolCall, texts},
        usage::TokenCounts,
    },
    providers::{DeltaSink, ProviderError, TextAnswer, TextCall, TextProvider, answer::PartBuffer},
};

/// Words before `[[fail]]` and `[[timeout]]` end a stream.
const WORDS_BEFORE_FAULT: usize = 5;
/// Characters per piece of a tool call's arguments.
const PIECE_CHARS: usize = 8;
/// Limits of the quote from the prompt.
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

#[derive(Debug, Clone, Copy, Default)]
pub struct SandboxText {
    word_delay: Duration,
}

impl SandboxText {
    /// `word_delay`: the pause between two streamed words; other answers are not delayed.
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
        let conversation = &*call.conversation.get();
        let input = input_tokens(call);
        if call
            .max_input_tokens
            .is_some_and(|most| input > most.into())
        {
            let message = "the input is longer than the model's context";
            return Err(ProviderError::rejected(message));
        }
        let faults = Faults::of(&conversation.last_user_text());
        if !faults.slow.is_zero() {
            tokio::time::sleep(faults.slow).await;
        }
        let seed = seed(call);
        let result = last_result(conversation);
        let calls = match result {
            None => tools::calls(conversation, &faults.tools, &seed),
            Some(_) => Vec::new(),
        };
        let mut stop = Stop::Done;
        let deltas_of_answer = if calls.is_empty() {
            let topic = result.as_deref().unwrap_or(&faults.rest);
            let mut text = compose(topic, &seed);
            if let Some(seen) = seen(conversation) {
                text = format!("{seen} {text}");
            }
            text = tools::structured(&conversation.format, &text).unwrap_or(text);
            let found = call.sampling.stop.iter();
            let found = found.filter_map(|sequence| Some((text.find(sequence)?, sequence)));
            if let Some((at, sequence)) = found.min_by_key(|(at, _)| *at) {
                stop = Stop::Sequence(sequence.clone());
                text.truncate(at);
            }
            words(&text)
        } else {
            stop = Stop::Tools;
            calls.into_iter().flat_map(pieces).collect()
        };
        let limit = usize::try_from(call.max_tokens).unwrap_or(usize::MAX);
        if deltas_of_answer.len() > limit {
            stop = Stop::Limit;
        }
        // A late fault sends part of the stream first, like an upstream that disconnects.
        let shown = match faults.fault {
            Some(fault) if !fault.is_late() || deltas.is_none() => 0,
            Some(_) => limit.min(WORDS_BEFORE_FAULT),
            None => limit,
        };
        let mut parts = PartBuffer::new(deltas);
        let mut written: u64 = 0;
        for (index, piece) in deltas_of_answer.into_iter().take(shown).enumerate() {
            if index > 0 && deltas.is_some() && !self.word_delay.is_zero() {
                tokio::time::sleep(self.word_delay).await;
            }
            parts.push(piece)?;
            written += 1;
        }
        if let Some(fault) = faults.fault {
            return Err(Fault::happen(fault).await);
        }
        Ok(TextAnswer {
            parts: parts.end(),
            stop,
            usage: TokenCounts {
                input: Some(input),
                cached_input: faults.cached.map(|tokens| tokens.min(input)),
                output: Some(written),
                ..TokenCounts::default()
            },
            request_id: Some(seed.request_id()),
            ..TextAnswer::default()
        })
    }

    fn may_hide_reasoning(&self, _call: &TextCall) -> bool {
        false
    }
}

/// Splits an answer into words. The limit may cut after any word; the last one has no space.
fn words(text: &str) -> Vec<Delta> {
    let words = text.split_inclusive(' ').enumerate().map(|(index, word)| {
        let bare = word.trim_end();
        Delta::Text(if index > 0 {
            format!(" {bare}")
        } else {
            bare.to_owned()
        })
    });
    words.collect()
}

/// Splits a tool call into its start and pieces of its arguments.
fn pieces(call: ToolCall) -> Vec<Delta> {
    let arguments: Vec<char> = call.arguments.chars().collect();
    let begin = Delta::ToolCall(ToolCall {
        arguments: String::new(),
        ..call
    });
    let chunks = arguments.chunks(PIECE_CHARS);
    let rest = chunks.map(|piece| Delta::Arguments(piece.iter().collect()));
    [begin].into_iter().chain(rest).collect()
}

/// Returns the names and results of the tools in the last message.
fn last_result(conversation: &Conversation) -> Option<String> {
    let calls = conversation.calls();
    let parts = conversation
        .messages
        .last()
        .map(|message| &message.parts[..]);
    let results = parts
        .unwrap_or_default()
        .iter()
        .filter_map(|part| match part {
            Part::ToolResult(result) => {
                let name = calls.get(&*result.call_id).unwrap_or(&"a tool");
                Some(format!("{name}: {}", texts(&result.parts, " ")))
            }
            _ => None,
        });
    let results: Vec<String> = results.collect();
    (!results.is_empty()).then(|| results.join(", "))
}

/// Returns a sentence about the images, with the sizes of those in the request.
fn seen(conversation: &Conversation) -> Option<String> {
    let images = conversation.images().map(|image| match &image.source {
        ImageSource::Url(_) => "one by its URL".to_owned(),
        ImageSource::Base64 {
            media_type, size, ..
        } => {
            let size = size.map(|(width, height)| format!(" of {width}x{height} pixels"));
            format!("{media_type}{}", size.unwrap_or_default())
        }
    });
    let images: Vec<String> = images.collect();
    let many = if images.len() == 1 { "" } else { "s" };
    (!images.is_empty()).then(|| {
        format!(
            "I was shown {} image{many}: {}.",
            images.len(),
            images.join(", ")
        )
    })
}

/// Counts a quarter of the bytes, rounded up, and the images: similar to real tokenizers, and never
/// above the hold's estimate.
fn input_tokens(call: &TextCall) -> u64 {
    (call.conversation.get().bytes().div_ceil(4) + call.media_tokens) as u64
}

/// Hashes everything that may change the answer.
fn seed(call: &TextCall) -> Seed {
    let sampling =
        [call.sampling.temperature, call.sampling.top_p].map(|v| v.map(f64::to_le_bytes));
    let [temperature, top_p] = &sampling;
    let conversation = call.conversation.get();
    let system = conversation.system.as_deref().unwrap_or_default();
    let max_tokens = call.max_tokens.to_le_bytes();
    let mut fields = vec![
        call.model.as_bytes(),
        &max_tokens,
        temperature.as_ref().map_or(&[], |bytes| &bytes[..]),
        system.as_bytes(),
    ];
    fields.extend(top_p.as_ref().map(|bytes| &bytes[..]));
    for message in &conversation.messages {
        fields.push(match message.role {
            Role::System => &b"system"[..],
            Role::User => b"user",
            Role::Assistant => b"assistant",
        });
        fields.extend(message.parts.iter().map(|part| match part {
            Part::Text { text } => text.as_bytes(),
            Part::ToolCall(call) => call.id.as_bytes(),
            Part::ToolResult(result) => result.call_id.as_bytes(),
            Part::Image(image) => match &image.source {
                ImageSource::Base64 { data, .. } => data.as_str().as_bytes(),
                ImageSource::Url(url) => url.as_bytes(),
            },
            _ => &[],
        }));
    }
    Seed::of(&fields)
}

/// Returns four to six sentences, chosen by the seed, that quote the start of the prompt.
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
