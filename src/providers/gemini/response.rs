//! Parses a `GenerateContentResponse`, whole or chunk by chunk (each chunk is a complete one).
//!
//! Source: google-genai 3.4.0 (`PyPI`) `google/genai/types.py` (`FinishReason`,
//! `GenerateContentResponseUsageMetadata`).

use serde_json::{Map, Value};

use super::{
    super::{
        ProviderError, ProviderErrorKind, TextAnswer,
        answer::{count, count_or_zero, merge_usage, object_arguments},
        exchange::{AnswerBuilder, TextParser},
        sse::Event,
    },
    error_of,
};
use crate::domain::{
    conversation::{Stop, ToolCall},
    usage::TokenCounts,
};

/// The members of a part that are read, and those that are no content.
const KNOWN: &[&str] = &[
    "text",
    "thought",
    "thoughtSignature",
    "functionCall",
    "mediaResolution",
    "partMetadata",
    "videoMetadata",
];

#[derive(Debug)]
pub struct ResponseParser<'a> {
    answer: AnswerBuilder<'a>,
    stop: Option<Stop>,
    usage: Map<String, Value>,
}

impl<'a> TextParser<'a> for ResponseParser<'a> {
    fn new(answer: AnswerBuilder<'a>) -> Self {
        Self {
            answer,
            stop: None,
            usage: Map::new(),
        }
    }

    /// Parses a response or a chunk. Fails on an error object, and on a blocked prompt or a finish
    /// reason that ends the answer early before any of it was delivered.
    fn whole(&mut self, root: &Value) -> Result<(), ProviderError> {
        if error_of(root).is_some() {
            return Err(self.answer.error(root));
        }
        if !root.is_object() {
            return Err(self.answer.head.failed("answer is no object"));
        }
        self.answer
            .identify(root.get("responseId"), root.get("modelVersion"));
        // Every chunk has the cumulative usage.
        let usage = root["usageMetadata"].as_object();
        if let Some(usage) = usage {
            merge_usage(&mut self.usage, usage);
        }
        let blocked = root
            .pointer("/promptFeedback/blockReason")
            .and_then(Value::as_str);
        if let Some(reason) = blocked.filter(|r| *r != "BLOCKED_REASON_UNSPECIFIED") {
            let refused = self.answer.head.refused(Some(reason));
            self.answer.end_early(Stop::ContentFilter, refused)?;
            self.stop = Some(Stop::ContentFilter);
        }
        let candidates = root.get("candidates");
        let candidates = self.answer.items(candidates, "candidates are no array")?;
        if let Some(candidate) = candidates.first() {
            self.candidate(candidate)?;
        }
        let no_text = self.answer.is_empty();
        let counts = usage.map(|usage| TokenCounts {
            output: reported(usage, no_text).output,
            ..reported(&self.usage, no_text)
        });
        self.answer.note(counts);
        Ok(())
    }

    fn event(&mut self, event: &Event) -> Result<bool, ProviderError> {
        let root = self.answer.json(event)?;
        self.whole(&root)?;
        Ok(false)
    }

    fn end(self, streamed: bool) -> Result<TextAnswer, ProviderError> {
        if streamed && self.stop.is_none() {
            return Err(self.answer.head.failed("stream was cut"));
        }
        // An enum's default value is omitted from a whole answer.
        let stop = self.stop.unwrap_or_default();
        let counts = reported(&self.usage, self.answer.is_empty());
        self.answer.finish(counts, stop)
    }
}

impl ResponseParser<'_> {
    fn candidate(&mut self, candidate: &Value) -> Result<(), ProviderError> {
        match candidate.get("finishReason") {
            None | Some(Value::Null) => {}
            reason => self.finish(reason.and_then(Value::as_str).unwrap_or_default())?,
        }
        let parts = candidate.pointer("/content/parts");
        for part in self.answer.items(parts, "parts are no array")? {
            if part["thought"].as_bool() == Some(true) {
                continue;
            }
            match part.get("text") {
                None | Some(Value::Null) => {}
                Some(Value::String(text)) => self.answer.text(text)?,
                Some(_) => return Err(self.answer.head.failed("text is no string")),
            }
            let members = part.as_object().into_iter().flatten();
            let mut others = members.filter(|(name, _)| !KNOWN.contains(&name.as_str()));
            // An image, or code that ran at the provider.
            if others.any(|(_, value)| !value.is_null()) {
                self.answer.note_unread();
            }
            if let Some(call) = part.get("functionCall")
                && !self.answer.has_only_call()
            {
                self.call(call, part.get("thoughtSignature"))?;
            }
        }
        Ok(())
    }

    /// Reads a finish reason. Unlisted reasons are failures.
    fn finish(&mut self, reason: &str) -> Result<(), ProviderError> {
        let head = &self.answer.head;
        let failed = head.failed("generation ended in an error");
        let (stop, error) = match reason {
            "FINISH_REASON_UNSPECIFIED" => return Ok(()),
            "STOP" => (Stop::Done, None),
            // CONTINUATION: the same limit, with an offer to continue.
            "MAX_TOKENS" | "CONTINUATION" => (Stop::Limit, None),
            reason if is_policy(reason) => (Stop::ContentFilter, Some(head.refused(Some(reason)))),
            "MALFORMED_FUNCTION_CALL" => (Stop::MalformedFunctionCall, Some(failed)),
            "LANGUAGE"
            | "OTHER"
            | "IMAGE_OTHER"
            | "NO_IMAGE"
            | "UNEXPECTED_TOOL_CALL"
            | "TOO_MANY_TOOL_CALLS"
            | "MALFORMED_RESPONSE"
            | "MISSING_THOUGHT_SIGNATURE" => (Stop::Other, Some(failed)),
            "PUP_LIMITED_DISABLED" => {
                let error = self
                    .answer
                    .error_of_code(reason, ProviderErrorKind::Account);
                (Stop::Other, Some(error))
            }
            _ => return Err(failed),
        };
        if let Some(error) = error {
            self.answer.end_early(stop.clone(), error)?;
        }
        self.stop = Some(stop);
        Ok(())
    }

    /// Adds a call, which is never split.
    fn call(&mut self, call: &Value, signature: Option<&Value>) -> Result<(), ProviderError> {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let Some(name) = text(call.get("name")) else {
            return Err(self.answer.head.failed("function call without a name"));
        };
        let Some(arguments) = object_arguments(call.get("args")) else {
            return Err(self.answer.head.failed("args are no object"));
        };
        self.answer.begin_call(ToolCall {
            id: text(call.get("id")).unwrap_or_default(),
            name,
            arguments,
            thought_signature: text(signature),
        })
    }
}

/// Whether a finish reason is a content policy refusal. `ESCALATION` is "filtered by an escalation
/// rule"; `IMAGE_OTHER` and `NO_IMAGE` are not refusals.
pub fn is_policy(reason: &str) -> bool {
    matches!(
        reason,
        "SAFETY"
            | "RECITATION"
            | "BLOCKLIST"
            | "PROHIBITED_CONTENT"
            | "SPII"
            | "MODEL_ARMOR"
            | "ESCALATION"
            | "IMAGE_SAFETY"
            | "IMAGE_PROHIBITED_CONTENT"
            | "IMAGE_RECITATION"
    )
}

/// Reads the counts. Thoughts are billed as output and not included in the candidates' count. Zero
/// counts are omitted, so if there is a prompt count, a missing count means zero, unless there is
/// text.
fn reported(usage: &Map<String, Value>, no_text: bool) -> TokenCounts {
    let field = |name: &str| usage.get(name).filter(|value| !value.is_null());
    let sum = |a: Option<u64>, b: Option<u64>| a.zip(b).and_then(|(a, b)| a.checked_add(b));
    let prompt = count(field("promptTokenCount"));
    let input = sum(prompt, count_or_zero(field("toolUsePromptTokenCount")));
    let candidates = match field("candidatesTokenCount") {
        None if no_text && prompt.is_some() => Some(0),
        stated => count(stated),
    };
    let output = sum(candidates, count_or_zero(field("thoughtsTokenCount")));
    TokenCounts {
        input,
        output,
        cached_input: count(field("cachedContentTokenCount")),
        reasoning: count(field("thoughtsTokenCount")),
        ..TokenCounts::default()
    }
}
