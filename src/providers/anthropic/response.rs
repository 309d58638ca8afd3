//! Parses an Anthropic message, whole or event by event.
//!
//! Visible text is in `text` blocks; thinking, signatures, tools and unknown events are skipped.
//! Source: anthropic 2.10.0 (`PyPI`) `anthropic/types/message.py`,
//! `raw_message_stream_event.py`, `usage.py`, `message_delta_usage.py`.

use serde_json::{Map, Value};

use super::{
    super::{
        ProviderError, TextAnswer,
        answer::{TextBuffer, count, count_or_zero, note_model, part},
        http::classify::{self, Head, clean_id},
    },
    errors,
};
use crate::domain::usage::TokenCounts;

#[derive(Debug)]
pub struct ResponseParser<'a> {
    provider: &'a str,
    asked: &'a str,
    head: &'a Head,
    pieces: TextBuffer<'a>,
    stop: Option<String>,
    usage: Map<String, Value>,
    id: Option<String>,
}

impl<'a> ResponseParser<'a> {
    pub fn new(provider: &'a str, asked: &'a str, head: &'a Head, pieces: TextBuffer<'a>) -> Self {
        Self {
            provider,
            asked,
            head,
            pieces,
            stop: None,
            usage: Map::new(),
            id: None,
        }
    }

    /// Parses a whole message.
    pub fn whole(&mut self, root: &Value) -> Result<(), ProviderError> {
        self.check_error(root)?;
        self.note(root);
        self.merge_usage(root.get("usage"));
        self.stop(root)?;
        let Some(blocks) = root.get("content").and_then(Value::as_array) else {
            return Err(self.head.failed("content is no array"));
        };
        blocks.iter().try_for_each(|block| self.block(block))
    }

    /// Parses one event of a stream; true when it was the last.
    pub fn event(&mut self, root: &Value) -> Result<bool, ProviderError> {
        self.check_error(root)?;
        match root.get("type").and_then(Value::as_str) {
            Some("message_start") => {
                let message = root.get("message").unwrap_or(&Value::Null);
                self.note(message);
                self.merge_usage(message.get("usage"));
                // About 1 at the start: only the last delta has the real count.
                self.usage.remove("output_tokens");
                self.report();
            }
            Some("content_block_start") => {
                self.block(root.get("content_block").unwrap_or(&Value::Null))?;
            }
            Some("content_block_delta") => {
                let delta = root.get("delta").unwrap_or(&Value::Null);
                if delta.get("type").and_then(Value::as_str) == Some("text_delta") {
                    self.text(delta)?;
                }
            }
            Some("message_delta") => {
                self.merge_usage(root.get("usage"));
                self.stop(root.get("delta").unwrap_or(&Value::Null))?;
                self.report();
            }
            Some("message_stop") => return Ok(true),
            Some(_) => {}
            None => return Err(self.head.failed("event without a type")),
        }
        Ok(false)
    }

    fn check_error(&self, root: &Value) -> Result<(), ProviderError> {
        let typed = root.get("type").and_then(Value::as_str) == Some("error");
        if typed || root.get("error").is_some_and(Value::is_object) {
            return Err(classify::from_error_in_body(
                self.provider,
                self.head,
                &errors::error_info(Some(root)),
            ));
        }
        Ok(())
    }

    fn note(&mut self, message: &Value) {
        self.id = message.get("id").and_then(Value::as_str).and_then(clean_id);
        note_model(self.provider, self.asked, message.get("model"));
    }

    /// Forwards the counts and the id so far.
    fn report(&self) {
        let id = self.head.request_id.as_ref().or(self.id.as_ref());
        self.pieces.note(Some(reported(&self.usage)), id);
    }

    /// A refusal may follow text, which is then discarded.
    fn stop(&mut self, holder: &Value) -> Result<(), ProviderError> {
        let reason = holder.get("stop_reason").and_then(Value::as_str);
        if reason == Some("refusal") {
            let category = holder
                .pointer("/stop_details/category")
                .and_then(Value::as_str);
            return Err(self.head.refused(category));
        }
        if let Some(reason) = reason {
            self.stop = Some(reason.to_owned());
        }
        Ok(())
    }

    fn block(&mut self, block: &Value) -> Result<(), ProviderError> {
        if block.get("type").and_then(Value::as_str) == Some("text") {
            self.text(block)?;
        }
        Ok(())
    }

    fn text(&mut self, holder: &Value) -> Result<(), ProviderError> {
        let Some(text) = holder.get("text").and_then(Value::as_str) else {
            return Err(self.head.failed("text block without text"));
        };
        self.pieces
            .push(text)
            .map_err(|error| self.head.with_context(error))
    }

    /// Fields that are missing from a later usage keep their earlier value.
    fn merge_usage(&mut self, usage: Option<&Value>) {
        for (name, value) in usage.and_then(Value::as_object).into_iter().flatten() {
            if !value.is_null() {
                self.usage.insert(name.clone(), value.clone());
            }
        }
    }

    /// The answer. An empty text is valid only at a token limit, which thinking may have used up.
    pub fn end(self) -> Result<TextAnswer, ProviderError> {
        let at_limit = matches!(
            self.stop.as_deref(),
            Some("max_tokens" | "model_context_window_exceeded")
        );
        if self.pieces.is_empty() && !at_limit {
            return Err(self.head.failed("empty answer"));
        }
        Ok(TextAnswer {
            text: self.pieces.into_text(),
            usage: reported(&self.usage),
            request_id: self.head.request_id.clone().or(self.id),
        })
    }
}

/// `input_tokens` excludes cache writes and reads; `output_tokens` includes thinking.
fn reported(usage: &Map<String, Value>) -> TokenCounts {
    let input = count(usage.get("input_tokens"));
    let written = count_or_zero(usage.get("cache_creation_input_tokens"));
    let read = count_or_zero(usage.get("cache_read_input_tokens"));
    let sum = |a: Option<u64>, b: Option<u64>| a.zip(b).and_then(|(a, b)| a.checked_add(b));
    let input = sum(sum(input, written), read);
    let output = count(usage.get("output_tokens"));
    let thinking = usage
        .get("output_tokens_details")
        .and_then(|d| d.get("thinking_tokens"));
    TokenCounts {
        input,
        output,
        cached_input: part(count(usage.get("cache_read_input_tokens")), input),
        reasoning: part(count(thinking), output),
        ..TokenCounts::default()
    }
}
