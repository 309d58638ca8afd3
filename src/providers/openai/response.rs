//! Parses a Chat Completions response, whole or chunk by chunk.
//!
//! Both forms share their fields (`message` and `delta`), so one parser serves both. It tolerates
//! differences between compatible servers, but fails on anything that would be charged wrongly: an
//! empty answer, a truncated stream, an unknown finish reason, and a refusal before any text.
//! Source: openai 3.51.0 (`PyPI`) `chat_completion.py`, `chat_completion_chunk.py`,
//! `completion_usage.py`.

use std::mem::take;

use serde_json::{Map, Value, json};

use super::{
    super::{
        ProviderError, TextAnswer,
        answer::merge_usage,
        exchange::{AnswerBuilder, TextParser},
        sse::Event,
    },
    calls::{self, Calls},
    errors,
    own_members::OwnMembers,
    usage,
};
use crate::domain::{
    conversation::{Delta, ReasoningField, Stop, ended},
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
    usage: Map<String, Value>,
    /// As many as were requested.
    choices: Vec<Choice>,
    /// Whether the stream said that it is complete.
    is_done: bool,
}

#[derive(Debug, Default)]
struct Choice {
    stop: Option<Stop>,
    is_refused: bool,
    /// Whether any part of it has arrived.
    is_begun: bool,
    calls: Calls,
    /// For callers of the same API.
    members: OwnMembers,
}

impl<'a> TextParser<'a> for ResponseParser<'a> {
    fn new(answer: AnswerBuilder<'a>) -> Self {
        let choices = (0..answer.call.choices())
            .map(|_| Choice::default())
            .collect();
        Self {
            answer,
            usage: Map::new(),
            choices,
            is_done: false,
        }
    }

    fn whole(&mut self, root: &Value) -> Result<(), ProviderError> {
        self.feed(root, Place::Message)
    }

    fn event(&mut self, event: &Event) -> Result<bool, ProviderError> {
        if event.data.trim() == "[DONE]" {
            self.is_done = true;
            return Ok(true);
        }
        let root = self.answer.json(event)?;
        if root.is_null() {
            return Ok(false);
        }
        if event.name.as_deref() == Some("error") {
            return Err(self.answer.error(&root));
        }
        self.feed(&root, Place::Delta)?;
        Ok(false)
    }

    fn end(mut self, streamed: bool) -> Result<TextAnswer, ProviderError> {
        let choices = (0..).zip(take(&mut self.choices));
        let mut choices: Vec<(u32, Choice)> = choices.collect();
        // A server that ignores `n` sends one choice. The caller received it, so it is charged.
        if streamed && self.is_done && self.answer.parts.has_delivered() {
            choices.retain(|(_, choice)| choice.is_begun);
        }
        if streamed && choices.iter().any(|(_, choice)| choice.stop.is_none()) {
            return Err(self.answer.head.failed("stream was cut"));
        }
        if choices.iter().any(|(_, choice)| !choice.is_begun) {
            return Err(self.answer.head.failed("fewer choices than requested"));
        }
        let mut stops = Vec::new();
        for (at, mut choice) in choices {
            self.enter(at);
            choice.calls.end(&mut self.answer)?;
            if let Some(members) = choice.members.end() {
                self.answer.push(Delta::from_members(&members))?;
            }
            let stop = match choice.stop {
                _ if choice.is_refused => Stop::ContentFilter,
                // Some compatible servers omit the finish reason of a non-streamed answer.
                stop => stop.unwrap_or_default(),
            };
            stops.push((at, stop));
        }
        let counts = usage::counts(&self.usage);
        let (_, first) = stops.first().cloned().unwrap_or_default();
        if self.answer.call.choices() == 1 {
            return self.answer.finish(counts, first);
        }
        let is_refused = stops.iter().all(|(_, stop)| *stop == Stop::ContentFilter);
        if is_refused && self.answer.is_empty() && !self.answer.parts.has_delivered() {
            return Err(self.answer.head.refused(None));
        }
        let answer = self.answer.finish(counts, first)?;
        Ok(TextAnswer {
            parts: ended(&answer.parts, stops),
            ..answer
        })
    }
}

/// Maps the finish reasons of an answer that is complete or was ended by a limit or a policy. Any
/// other reason is a failure: `error` (`OpenRouter`, Mistral), `insufficient_system_resource`
/// (`DeepSeek`), `network_error` (Zhipu), `abort` (vLLM, `SGLang`), and unknown ones.
fn stop_of(reason: &str) -> Option<Stop> {
    // Proxies of Gemini and Cohere use capitals.
    Some(match reason.to_ascii_lowercase().as_str() {
        // `eos`: Together. `eos_token`, `stop_sequence`: Text Generation Inference. `end_turn`:
        // xAI. `complete`: Cohere.
        "stop" | "eos" | "eos_token" | "stop_sequence" | "end_turn" | "complete" => Stop::Done,
        // `model_length`: Mistral's full context. `model_context_window_exceeded`: Zhipu's.
        "length" | "max_tokens" | "model_length" | "model_context_window_exceeded" => Stop::Limit,
        // `tool_use`, `refusal`: proxies of Anthropic.
        "tool_calls" | "tool_call" | "function_call" | "tool_use" => Stop::Tools,
        // `sensitive`: Zhipu. `safety`, `recitation`: proxies of Gemini.
        "content_filter" | "sensitive" | "refusal" | "safety" | "recitation" => Stop::ContentFilter,
        _ => return None,
    })
}

impl ResponseParser<'_> {
    /// Parses a response or a chunk. Fails on an error object, a refusal, and wrong types.
    fn feed(&mut self, root: &Value, place: Place) -> Result<(), ProviderError> {
        if errors::is_error(root) {
            return Err(self.answer.error(root));
        }
        let Some(fields) = root.as_object() else {
            return Err(self.answer.head.failed("answer is no object"));
        };
        self.answer.identify(fields.get("id"), fields.get("model"));
        let choices = fields.get("choices");
        let choices = self.answer.items(choices, "choices are no array")?;
        // The usage chunk has no choices.
        if choices.is_empty() && place == Place::Message {
            return Err(self.answer.head.failed("no choices"));
        }
        // If one choice was requested, the first is used, whatever its index.
        let is_one = self.choices.len() == 1;
        let read = if is_one { 1 } else { choices.len() };
        for (at, choice) in choices.iter().take(read).enumerate() {
            let index = choice.get("index").filter(|_| !is_one);
            let index = index.map_or(Some(at as u64), Value::as_u64);
            let index = index.and_then(|index| usize::try_from(index).ok());
            match index.filter(|&index| index < self.choices.len()) {
                Some(index) if place == Place::Message && self.choices[index].is_begun => {
                    return Err(self.answer.head.failed("the answer repeats a choice"));
                }
                Some(index) => self.choice(index, choice, place)?,
                None => return Err(self.answer.head.failed("a choice that was not requested")),
            }
        }
        let counts = usage::find(root).map(|usage| self.count(usage));
        self.answer.note(counts);
        Ok(())
    }

    /// Merges a usage with earlier ones. The result has output only if this usage has it.
    fn count(&mut self, usage: &Map<String, Value>) -> TokenCounts {
        let own = usage::counts(usage).output;
        merge_usage(&mut self.usage, usage);
        let all = usage::counts(&self.usage);
        TokenCounts {
            output: own.and(all.output),
            ..all
        }
    }

    /// Sets the choice of the following pieces, if there are several.
    fn enter(&mut self, at: u32) {
        if self.answer.call.choices() > 1 {
            self.answer.parts.enter(at);
        }
    }

    fn choice(&mut self, at: usize, choice: &Value, place: Place) -> Result<(), ProviderError> {
        // OpenRouter sends an error together with text.
        if errors::is_error(choice) {
            return Err(self.answer.error(choice));
        }
        let member = |name: &str| choice.get(name).filter(|body| !body.is_null());
        let body = match place {
            Place::Message => member("message"),
            // Some servers stream the whole message, or repeat it at the end.
            Place::Delta => {
                let whole = || member("message").filter(|_| !self.choices[at].is_begun);
                let delta = member("delta");
                delta
                    .filter(|delta| **delta != json!({}))
                    .or_else(whole)
                    .or(delta)
            }
        };
        match choice.get("finish_reason") {
            None | Some(Value::Null) => {}
            Some(Value::String(reason)) if reason.is_empty() => {}
            reason => self.finish(at, reason.and_then(Value::as_str))?,
        }
        let body = match body {
            Some(Value::Object(body)) => body,
            None if place == Place::Delta => return Ok(()),
            _ => return Err(self.answer.head.failed("choice without a message")),
        };
        self.enter(u32::try_from(at).unwrap_or_default());
        self.choices[at].is_begun = true;
        // Text in `refusal` instead of the content means that the model declined.
        let refusal = body.get("refusal").and_then(Value::as_str);
        if refusal.is_some_and(|text| !text.is_empty()) {
            self.refused(at, None)?;
        }
        if self.answer.is_passed() {
            let is_piece = place == Place::Delta;
            self.choices[at].members.read(body, is_piece);
        }
        for &field in ReasoningField::ALL {
            // Some servers send the same text in both fields.
            if let Some(text) = body.get(field.as_str()).and_then(Value::as_str)
                && !text.is_empty()
            {
                self.push(at, Delta::Reasoning(field, text.to_owned()))?;
                break;
            }
        }
        match body.get("content") {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) => self.push(at, Delta::Text(text.clone()))?,
            Some(Value::Array(parts)) => {
                for part in parts {
                    self.part(at, part)?;
                }
            }
            Some(_) => return Err(self.answer.head.failed("content is no text")),
        }
        // OpenRouter sends generated images next to the text, OpenAI speech.
        let mut others = ["images", "audio"]
            .iter()
            .filter_map(|name| body.get(*name));
        if others.any(is_given) {
            self.answer.note_unread();
        }
        let calls = body.get("tool_calls");
        let calls = self.answer.items(calls, "tool calls are no array")?;
        for call in calls {
            self.call(at, call, place)?;
        }
        match body.get("function_call").filter(|_| calls.is_empty()) {
            None | Some(Value::Null) => Ok(()),
            // The older form of a single call.
            Some(function) => {
                let call = json!({"index": 0, "function": function});
                self.call(at, &call, place)
            }
        }
    }

    /// Reads a part of the content. Mistral's reasoning models answer in parts.
    fn part(&mut self, at: usize, part: &Value) -> Result<(), ProviderError> {
        match part["type"].as_str() {
            Some("text" | "output_text") => {
                let text = part["text"].as_str().unwrap_or_default();
                self.push(at, Delta::Text(text.to_owned()))
            }
            // Mistral refuses `reasoning_content`, so callers of Chat Completions, who would send it
            // back, do not get it.
            Some("thinking") => {
                let text = match &part["thinking"] {
                    Value::String(text) => text.clone(),
                    texts => {
                        let texts = texts.as_array().into_iter().flatten();
                        texts.filter_map(|text| text["text"].as_str()).collect()
                    }
                };
                self.push(at, Delta::Thinking(text))
            }
            Some("refusal") if is_given(&part["refusal"]) => self.refused(at, None),
            Some("refusal") => Ok(()),
            _ => {
                self.answer.note_unread();
                Ok(())
            }
        }
    }

    /// Reads the reason of the end. Only those of [`stop_of`] are no failure.
    fn finish(&mut self, at: usize, reason: Option<&str>) -> Result<(), ProviderError> {
        let Some(stop) = reason.and_then(stop_of) else {
            return Err(self.answer.head.failed("generation ended in an error"));
        };
        if stop == Stop::ContentFilter {
            self.refused(at, reason)?;
        }
        let choice = &mut self.choices[at];
        choice.is_begun = true;
        choice.stop = Some(stop);
        Ok(())
    }

    /// Ends the answer, or only this choice if several were requested.
    fn refused(&mut self, at: usize, reason: Option<&str>) -> Result<(), ProviderError> {
        if self.choices.len() > 1 {
            self.choices[at].is_refused = true;
            return Ok(());
        }
        let refused = self.answer.head.refused(reason);
        self.answer.end_early(Stop::ContentFilter, refused)
    }

    fn push(&mut self, at: usize, piece: Delta) -> Result<(), ProviderError> {
        self.choices[at].calls.push(piece, &mut self.answer)
    }

    fn call(&mut self, at: usize, call: &Value, place: Place) -> Result<(), ProviderError> {
        match place {
            Place::Delta => self.choices[at].calls.read(call, &mut self.answer),
            Place::Message => {
                let call = calls::whole(call).map_err(|detail| self.answer.head.failed(detail))?;
                call.map_or(Ok(()), |call| self.answer.begin_call(call))
            }
        }
    }
}

/// Whether a member is neither null nor empty.
fn is_given(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        _ => true,
    }
}
