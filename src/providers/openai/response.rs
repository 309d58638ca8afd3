//! Parses a Chat Completions response, whole or chunk by chunk.
//!
//! Both forms share their fields (`message` and `delta`), so one parser serves both. Lenient
//! where compatible servers differ, strict where it costs money: an answer without text, a
//! truncated stream and a refusal are failures. Source: openai 3.51.0 (`PyPI`)
//! `chat_completion.py`, `chat_completion_chunk.py`, `completion_usage.py`.

use serde_json::Value;

use super::{
    super::{
        ProviderError, TextAnswer,
        answer::{TextBuffer, count, note_model, part},
        http::classify::{self, Head, clean_id},
    },
    errors,
};
use crate::domain::usage::TokenCounts;

/// Which field of a choice has the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Message,
    /// A chunk of a stream.
    Delta,
}

#[derive(Debug)]
pub struct ResponseParser<'a> {
    provider: &'a str,
    asked: &'a str,
    head: &'a Head,
    pieces: TextBuffer<'a>,
    finish: Option<String>,
    usage: Option<TokenCounts>,
    id: Option<String>,
    model_noted: bool,
}

impl<'a> ResponseParser<'a> {
    pub fn new(provider: &'a str, asked: &'a str, head: &'a Head, pieces: TextBuffer<'a>) -> Self {
        Self {
            provider,
            asked,
            head,
            pieces,
            finish: None,
            usage: None,
            id: None,
            model_noted: false,
        }
    }

    /// Parses a whole response or one chunk. Fails on an error object, a refusal, and fields of a
    /// wrong type.
    pub fn feed(&mut self, root: &Value, place: Place) -> Result<(), ProviderError> {
        if errors::is_error(root) {
            return Err(classify::from_error_in_body(
                self.provider,
                self.head,
                &errors::error_info(Some(root)),
            ));
        }
        let Some(fields) = root.as_object() else {
            return Err(self.head.failed("answer is no object"));
        };
        if self.id.is_none() {
            self.id = fields.get("id").and_then(Value::as_str).and_then(clean_id);
        }
        if !self.model_noted && fields.get("model").is_some_and(Value::is_string) {
            self.model_noted = true;
            note_model(self.provider, self.asked, fields.get("model"));
        }
        // Groq also reports usage under its own name; the last one counts.
        let usage = fields.get("usage").filter(|usage| usage.is_object());
        let usage = usage.or_else(|| root.pointer("/x_groq/usage").filter(|u| u.is_object()));
        let usage = usage.map(reported);
        self.usage = usage.or(self.usage);
        let choice = match fields.get("choices") {
            None | Some(Value::Null) => None,
            Some(Value::Array(choices)) => choices.first(),
            Some(_) => return Err(self.head.failed("choices are no array")),
        };
        match choice {
            // The usage chunk has no choices.
            None if place == Place::Delta => {}
            None => return Err(self.head.failed("no choices")),
            Some(choice) => self.choice(choice, place)?,
        }
        let id = self.head.request_id.as_ref().or(self.id.as_ref());
        self.pieces.note(usage, id);
        Ok(())
    }

    fn choice(&mut self, choice: &Value, place: Place) -> Result<(), ProviderError> {
        let reason = choice.get("finish_reason").and_then(Value::as_str);
        if reason == Some("content_filter") {
            return Err(self.head.refused(reason));
        }
        if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
            self.finish = Some(reason.to_owned());
        }
        let body = match place {
            Place::Message => choice.get("message"),
            Place::Delta => choice.get("delta"),
        };
        let body = match body {
            Some(Value::Object(body)) => body,
            None | Some(Value::Null) if place == Place::Delta => return Ok(()),
            _ => return Err(self.head.failed("choice without a message")),
        };
        // Text in `refusal` instead of the content: the model declined.
        if body
            .get("refusal")
            .and_then(Value::as_str)
            .is_some_and(|text| !text.is_empty())
        {
            return Err(self.head.refused(None));
        }
        match body.get("content") {
            None | Some(Value::Null) => Ok(()),
            Some(Value::String(text)) => self.push(text),
            // Mistral's reasoning models answer in parts; those of type `text` are visible.
            Some(Value::Array(parts)) => {
                for part in parts {
                    if part.get("type").and_then(Value::as_str) == Some("text") {
                        self.push(part.get("text").and_then(Value::as_str).unwrap_or_default())?;
                    }
                }
                Ok(())
            }
            Some(_) => Err(self.head.failed("content is no text")),
        }
    }

    fn push(&mut self, text: &str) -> Result<(), ProviderError> {
        self.pieces
            .push(text)
            .map_err(|error| self.head.with_context(error))
    }

    /// The answer. A stream must have had a finish reason; an empty text is valid only at the token
    /// limit, which reasoning may have used up.
    pub fn end(self, streamed: bool) -> Result<TextAnswer, ProviderError> {
        let finish = self.finish.as_deref();
        if streamed && finish.is_none() {
            return Err(self.head.failed("stream was cut"));
        }
        // OpenRouter and Mistral; DeepSeek.
        if matches!(finish, Some("error" | "insufficient_system_resource")) {
            return Err(self.head.failed("generation ended in an error"));
        }
        // `model_length`: Mistral's full context.
        let at_limit = matches!(finish, Some("length" | "model_length"));
        if self.pieces.is_empty() && !at_limit {
            return Err(self.head.failed("empty answer"));
        }
        Ok(TextAnswer {
            text: self.pieces.into_text(),
            usage: self.usage.unwrap_or_default(),
            request_id: self.head.request_id.clone().or(self.id),
        })
    }
}

/// xAI excludes reasoning from `completion_tokens`, but not from the total; everyone else includes
/// it in both, so the larger figure is right for all.
fn reported(usage: &Value) -> TokenCounts {
    let field = |name: &str| count(usage.get(name));
    let input = field("prompt_tokens");
    let rest = field("total_tokens")
        .zip(input)
        .and_then(|(total, input)| total.checked_sub(input));
    let output =
        field("completion_tokens").map(|stated| rest.map_or(stated, |rest| stated.max(rest)));
    let cached = count(usage.pointer("/prompt_tokens_details/cached_tokens"))
        .or_else(|| field("prompt_cache_hit_tokens"));
    let reasoning = count(usage.pointer("/completion_tokens_details/reasoning_tokens"));
    TokenCounts {
        input,
        output,
        cached_input: part(cached, input),
        reasoning: part(reasoning, output),
        ..TokenCounts::default()
    }
}
