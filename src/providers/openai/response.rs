//! Parses a Chat Completions response, whole or chunk by chunk.
//!
//! Both forms share their fields (`message` and `delta`), so one parser serves both. Lenient
//! where compatible servers differ, strict where it costs money: an empty answer, a
//! truncated stream, an unknown reason of the end, and a refusal before any text are failures. Source: openai 3.51.0 (`PyPI`)
//! `chat_completion.py`, `chat_completion_chunk.py`, `completion_usage.py`.

use serde_json::Value;

use super::{
    super::{
        ProviderError, TextAnswer,
        answer::count,
        exchange::{AnswerBuilder, TextParser},
        http::classify::ErrorInfo,
        sse::Event,
    },
    errors,
};
use crate::domain::{
    conversation::{Delta, Stop, ToolCall},
    usage::TokenCounts,
};

/// Which field of a choice has the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Message,
    /// A chunk of a stream.
    Delta,
}

#[derive(Debug)]
pub struct ResponseParser<'a> {
    answer: AnswerBuilder<'a>,
    stop: Option<Stop>,
    usage: Option<TokenCounts>,
    /// The calls of a stream, by the vendor's index and id; the last is open.
    calls: Vec<(u64, String)>,
}

impl<'a> TextParser<'a> for ResponseParser<'a> {
    fn new(answer: AnswerBuilder<'a>) -> Self {
        Self {
            answer,
            stop: None,
            usage: None,
            calls: Vec::new(),
        }
    }

    fn error_info(root: Option<&Value>) -> ErrorInfo {
        errors::error_info(root)
    }

    fn whole(&mut self, root: &Value) -> Result<(), ProviderError> {
        self.feed(root, Place::Message)
    }

    fn event(&mut self, event: &Event) -> Result<bool, ProviderError> {
        if event.data.trim() == "[DONE]" {
            return Ok(true);
        }
        let root = self.answer.json(event)?;
        if event.name.as_deref() == Some("error") {
            return Err(self.answer.error(&errors::error_info(Some(&root))));
        }
        self.feed(&root, Place::Delta)?;
        Ok(false)
    }

    fn end(self, streamed: bool) -> Result<TextAnswer, ProviderError> {
        if streamed && self.stop.is_none() {
            return Err(self.answer.head.failed("stream was cut"));
        }
        // Some compatible servers leave the reason out of a whole answer.
        let stop = self.stop.unwrap_or_default();
        self.answer.finish(self.usage.unwrap_or_default(), stop)
    }
}

/// The reasons of an answer that is complete or that a limit or a policy ended. Any other one is a
/// breakdown: `error` (`OpenRouter`, Mistral), `insufficient_system_resource` (`DeepSeek`),
/// `network_error` (Zhipu), `abort` (vLLM, `SGLang`), and whatever servers make up.
fn stop_of(reason: &str) -> Option<Stop> {
    Some(match reason {
        // `eos`: Together. `eos_token`, `stop_sequence`: Text Generation Inference. `end_turn`: xAI.
        "stop" | "eos" | "eos_token" | "stop_sequence" | "end_turn" => Stop::Done,
        // `model_length`: Mistral's full context. `model_context_window_exceeded`: Zhipu's.
        "length" | "max_tokens" | "model_length" | "model_context_window_exceeded" => Stop::Limit,
        "tool_calls" | "function_call" => Stop::Tools,
        // `sensitive`: Zhipu.
        "content_filter" | "sensitive" => Stop::ContentFilter,
        _ => return None,
    })
}

impl ResponseParser<'_> {
    /// Parses a whole response or one chunk. Fails on an error object, a refusal, and fields of a
    /// wrong type.
    fn feed(&mut self, root: &Value, place: Place) -> Result<(), ProviderError> {
        if errors::is_error(root) {
            return Err(self.answer.error(&errors::error_info(Some(root))));
        }
        let Some(fields) = root.as_object() else {
            return Err(self.answer.head.failed("answer is no object"));
        };
        self.answer.identify(fields.get("id"), fields.get("model"));
        // Groq also reports usage under its own name; the last one counts.
        let usage = fields.get("usage").filter(|usage| usage.is_object());
        let usage = usage.or_else(|| root.pointer("/x_groq/usage").filter(|u| u.is_object()));
        let usage = usage.map(reported);
        // Some repeat it in part.
        self.usage = match (usage, self.usage) {
            (Some(usage), Some(before)) => Some(usage.or(before)),
            (usage, before) => usage.or(before),
        };
        let choice = match fields.get("choices") {
            None | Some(Value::Null) => None,
            Some(Value::Array(choices)) => choices.first(),
            Some(_) => return Err(self.answer.head.failed("choices are no array")),
        };
        match choice {
            // The usage chunk has no choices.
            None if place == Place::Delta => {}
            None => return Err(self.answer.head.failed("no choices")),
            Some(choice) => self.choice(choice, place)?,
        }
        self.answer.note(usage);
        Ok(())
    }

    fn choice(&mut self, choice: &Value, place: Place) -> Result<(), ProviderError> {
        match choice.get("finish_reason") {
            None | Some(Value::Null) => {}
            Some(Value::String(reason)) if reason.is_empty() => {}
            reason => self.finish(reason.and_then(Value::as_str))?,
        }
        let body = match place {
            Place::Message => choice.get("message"),
            Place::Delta => choice.get("delta"),
        };
        let body = match body {
            Some(Value::Object(body)) => body,
            None | Some(Value::Null) if place == Place::Delta => return Ok(()),
            _ => return Err(self.answer.head.failed("choice without a message")),
        };
        // Text in `refusal` instead of the content: the model declined.
        if !text(body.get("refusal")).is_empty() {
            let refused = self.answer.head.refused(None);
            self.answer.end_early(Stop::ContentFilter, refused)?;
        }
        match body.get("content") {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) => self.answer.text(text)?,
            // Mistral's reasoning models answer in parts; those of type `text` are visible.
            Some(Value::Array(parts)) => {
                for part in parts {
                    if part.get("type").and_then(Value::as_str) == Some("text") {
                        let text = part.get("text").and_then(Value::as_str);
                        self.answer.text(text.unwrap_or_default())?;
                    }
                }
            }
            Some(_) => return Err(self.answer.head.failed("content is no text")),
        }
        match body.get("tool_calls") {
            None | Some(Value::Null) => Ok(()),
            Some(Value::Array(calls)) => calls.iter().try_for_each(|call| self.call(call)),
            Some(_) => Err(self.answer.head.failed("tool calls are no array")),
        }
    }

    /// Reads the reason of the end. Only those of [`stop_of`] are no failure.
    fn finish(&mut self, reason: Option<&str>) -> Result<(), ProviderError> {
        let Some(stop) = reason.and_then(stop_of) else {
            return Err(self.answer.head.failed("generation ended in an error"));
        };
        if stop == Stop::ContentFilter {
            let refused = self.answer.head.refused(reason);
            self.answer.end_early(Stop::ContentFilter, refused)?;
        }
        self.stop = Some(stop);
        Ok(())
    }

    /// A whole call, or the beginning of one, or more of its arguments. Some servers give several
    /// calls one index: a new id is a new call.
    fn call(&mut self, call: &Value) -> Result<(), ProviderError> {
        let id = text(call.get("id")).to_owned();
        let function = call.get("function");
        let name = text(function.and_then(|function| function.get("name")));
        let arguments = text(function.and_then(|function| function.get("arguments"))).to_owned();
        let index = call.get("index").and_then(Value::as_u64);
        let index = index.unwrap_or(self.calls.len() as u64);
        let same = |known: &(u64, String)| known.0 == index && (id.is_empty() || known.1 == id);
        if let Some(at) = self.calls.iter().rposition(same) {
            let open = at + 1 == self.calls.len();
            if !open && !arguments.is_empty() {
                return Err(self.answer.head.failed("tool calls are mixed"));
            }
            return self.answer.push(Delta::Arguments(arguments));
        }
        if name.is_empty() {
            return Err(self.answer.head.failed("tool call without a name"));
        }
        self.calls.push((index, id.clone()));
        let signature = call.pointer("/extra_content/google/thought_signature");
        self.answer.call(ToolCall {
            id,
            name: name.to_owned(),
            arguments,
            thought_signature: signature.and_then(Value::as_str).map(str::to_owned),
        })
    }
}

fn text(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
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
    // The second is the name of proxies that have other providers behind them.
    let written = count(usage.pointer("/prompt_tokens_details/cache_write_tokens"))
        .or_else(|| field("cache_creation_input_tokens"));
    TokenCounts {
        input,
        output,
        cached_input: cached,
        cache_write: written,
        reasoning: count(usage.pointer("/completion_tokens_details/reasoning_tokens")),
        ..TokenCounts::default()
    }
}
