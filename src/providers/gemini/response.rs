//! Parses a `GenerateContentResponse`, whole or chunk by chunk (each chunk is a complete one).
//!
//! Source: google-genai 3.4.0 (`PyPI`) `google/genai/types.py` (`FinishReason`,
//! `GenerateContentResponseUsageMetadata`).

use serde_json::Value;

use super::{
    super::{
        ProviderError, ProviderErrorKind, TextAnswer,
        answer::{TextBuffer, count, count_or_zero, note_model, part},
        http::classify::{self, ErrorInfo, Head, clean_id},
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
    finish: Option<String>,
    usage: Option<Value>,
    id: Option<String>,
    model_noted: bool,
}

impl<'a> ResponseParser<'a> {
    pub fn new(provider: &'a str, asked: &'a str, head: &'a Head, pieces: TextBuffer<'a>) -> Self {
        Self {
            provider,
            asked: asked.strip_prefix("models/").unwrap_or(asked),
            head,
            pieces,
            finish: None,
            usage: None,
            id: None,
            model_noted: false,
        }
    }

    /// Parses a whole response or one chunk. Fails on an error object, a blocked prompt and a
    /// content policy finish reason.
    pub fn feed(&mut self, root: &Value) -> Result<(), ProviderError> {
        if errors::error_of(root).is_some() {
            return Err(classify::from_error_in_body(
                self.provider,
                self.head,
                &errors::error_info(Some(root)),
            ));
        }
        if !root.is_object() {
            return Err(self.head.failed("answer is no object"));
        }
        if self.id.is_none() {
            self.id = root
                .get("responseId")
                .and_then(Value::as_str)
                .and_then(clean_id);
        }
        if !self.model_noted && root.get("modelVersion").is_some() {
            self.model_noted = true;
            note_model(self.provider, self.asked, root.get("modelVersion"));
        }
        // On every chunk and cumulative.
        let usage = root.get("usageMetadata").filter(|usage| usage.is_object());
        if let Some(usage) = usage {
            self.usage = Some(usage.clone());
        }
        let blocked = root
            .pointer("/promptFeedback/blockReason")
            .and_then(Value::as_str);
        if let Some(reason) = blocked.filter(|r| *r != "BLOCKED_REASON_UNSPECIFIED") {
            return Err(self.head.refused(Some(reason)));
        }
        match root.get("candidates") {
            None | Some(Value::Null) => {}
            Some(Value::Array(candidates)) => {
                if let Some(candidate) = candidates.first() {
                    self.candidate(candidate)?;
                }
            }
            Some(_) => return Err(self.head.failed("candidates are no array")),
        }
        let usage = usage.map(|usage| reported(usage, self.pieces.is_empty()));
        let id = self.head.request_id.as_ref().or(self.id.as_ref());
        self.pieces.note(usage, id);
        Ok(())
    }

    fn candidate(&mut self, candidate: &Value) -> Result<(), ProviderError> {
        let reason = candidate.get("finishReason").and_then(Value::as_str);
        if let Some(reason) = reason {
            if is_policy(reason) {
                return Err(self.head.refused(Some(reason)));
            }
            if reason == "PUP_LIMITED_DISABLED" {
                let error_info = ErrorInfo {
                    code: Some(reason.to_owned()),
                    kind: Some(ProviderErrorKind::Account),
                    ..ErrorInfo::default()
                };
                return Err(classify::from_error_in_body(
                    self.provider,
                    self.head,
                    &error_info,
                ));
            }
            if reason != "FINISH_REASON_UNSPECIFIED" {
                self.finish = Some(reason.to_owned());
            }
        }
        let parts = match candidate.pointer("/content/parts") {
            None | Some(Value::Null) => return Ok(()),
            Some(Value::Array(parts)) => parts,
            Some(_) => return Err(self.head.failed("parts are no array")),
        };
        for part in parts {
            if part.get("thought").and_then(Value::as_bool) == Some(true) {
                continue;
            }
            match part.get("text") {
                None | Some(Value::Null) => {}
                Some(Value::String(text)) => {
                    self.pieces
                        .push(text)
                        .map_err(|error| self.head.with_context(error))?;
                }
                Some(_) => return Err(self.head.failed("text is no string")),
            }
        }
        Ok(())
    }

    /// The answer. A stream must have had a finish reason; an empty text is valid only at the token
    /// limit, which thoughts may have used up.
    pub fn end(self, streamed: bool) -> Result<TextAnswer, ProviderError> {
        let at_limit = match self.finish.as_deref() {
            None if streamed => return Err(self.head.failed("stream was cut")),
            None | Some("STOP") => false,
            // CONTINUATION: the same limit, with an offer to continue.
            Some("MAX_TOKENS" | "CONTINUATION") => true,
            // LANGUAGE, OTHER, MALFORMED_RESPONSE and the like.
            Some(_) => return Err(self.head.failed("generation ended in an error")),
        };
        if self.pieces.is_empty() && !at_limit {
            return Err(self.head.failed("empty answer"));
        }
        Ok(TextAnswer {
            usage: self
                .usage
                .as_ref()
                .map(|u| reported(u, self.pieces.is_empty()))
                .unwrap_or_default(),
            text: self.pieces.into_text(),
            request_id: self.head.request_id.clone().or(self.id),
        })
    }
}

/// The content policy finish reasons. `ESCALATION` is "filtered by an escalation rule";
/// `IMAGE_OTHER` and `NO_IMAGE` are not refusals.
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

/// Thoughts are billed as output and not included in the candidates' count. Zero counts are
/// omitted, so a missing one means zero beside a prompt count, unless there is text.
fn reported(usage: &Value, no_text: bool) -> TokenCounts {
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
        cached_input: part(count(field("cachedContentTokenCount")), input),
        reasoning: part(count(field("thoughtsTokenCount")), output),
        ..TokenCounts::default()
    }
}
