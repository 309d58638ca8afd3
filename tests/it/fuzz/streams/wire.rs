//! Requests in the dialects of callers, and events in those of vendors.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::expected::End;
use crate::{
    common::upstream::steps::CUT,
    surfaces::{CHAT, MESSAGES, RESPONSES, events},
};

const GENERATE: &str = "/v1/generate/text";
pub const PROMPT: &str = "Tell me of the sea";
const MAX_TOKENS: u32 = 500;
/// The end of an answer without a finish reason.
pub const BY_ITSELF: &str = "by itself";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vendor {
    OpenAi,
    Anthropic,
    Gemini,
}

/// What is asked of whom.
#[derive(Debug, Clone)]
pub struct Ask {
    pub vendor: Vendor,
    /// Whether the model may reason unseen.
    pub hides: bool,
    path: &'static str,
}

/// What a vendor sends.
#[derive(Debug, Clone)]
pub enum Event {
    Text(u8),
    Thinking(u8),
    Signature(u8),
    Redacted(u8),
    Call(u8),
    /// Counts so far, of which each adds to the one before.
    Usage(u16),
    Reason(usize),
    /// An error in the stream.
    Error,
}

/// Reasons of the end: of a success, of a policy, and one that no vendor has.
const REASONS: [[&str; 5]; 3] = [
    [
        "stop",
        "length",
        "content_filter",
        "length",
        "network_error",
    ],
    [
        "end_turn",
        "max_tokens",
        "refusal",
        "end_turn",
        "network_error",
    ],
    [
        "STOP",
        "MAX_TOKENS",
        "SAFETY",
        "MALFORMED_FUNCTION_CALL",
        "NETWORK_ERROR",
    ],
];

impl Event {
    pub fn any() -> impl Strategy<Value = Self> {
        prop_oneof![
            4 => any::<u8>().prop_map(Self::Text),
            2 => any::<u8>().prop_map(Self::Thinking),
            1 => any::<u8>().prop_map(Self::Signature),
            1 => any::<u8>().prop_map(Self::Redacted),
            1 => any::<u8>().prop_map(Self::Call),
            2 => (1..2_000_u16).prop_map(Self::Usage),
            4 => (0..REASONS[0].len()).prop_map(Self::Reason),
            1 => Just(Self::Error),
        ]
    }

    /// A string of its own size that no other event has. `at`: its place.
    pub fn marker(&self, at: usize) -> String {
        let (name, n) = match self {
            Self::Text(n) => ("text", n),
            Self::Thinking(n) => ("hmm", n),
            Self::Signature(n) => ("sig", n),
            Self::Redacted(n) => ("red", n),
            Self::Call(n) => ("call", n),
            Self::Usage(_) | Self::Reason(_) | Self::Error => return String::new(),
        };
        format!("{name}{at}_{}", "x".repeat(usize::from(*n % 7)))
    }
}

impl Ask {
    pub fn any() -> impl Strategy<Value = Self> {
        let vendors = prop::sample::select(vec![Vendor::OpenAi, Vendor::Anthropic, Vendor::Gemini]);
        let paths = prop::sample::select(vec![GENERATE, CHAT, MESSAGES, RESPONSES]);
        (vendors, any::<bool>(), paths).prop_map(|(vendor, hides, path)| Self {
            vendor,
            hides,
            path,
        })
    }

    pub fn path(&self) -> &'static str {
        self.path
    }

    /// Chat Completions has no standard field for thinking, and Gemini's is not read; a plain text
    /// is asked for no calls.
    pub fn knows(&self, event: &Event) -> bool {
        match event {
            Event::Thinking(_) | Event::Signature(_) | Event::Redacted(_) => {
                self.vendor == Vendor::Anthropic
            }
            Event::Call(_) => self.path != GENERATE,
            _ => true,
        }
    }

    /// Whether the caller is sent it.
    pub fn shows(&self, event: &Event) -> bool {
        match event {
            Event::Text(_) => true,
            Event::Call(_) => self.path != GENERATE,
            Event::Thinking(_) => self.path == MESSAGES || self.path == RESPONSES,
            Event::Signature(_) | Event::Redacted(_) => self.path == MESSAGES,
            Event::Usage(_) | Event::Reason(_) | Event::Error => false,
        }
    }

    pub fn body(&self) -> Value {
        let (provider, model) = match (self.vendor, self.hides) {
            (Vendor::OpenAi, true) => ("openai", "gpt-6.1-sol"),
            (Vendor::OpenAi, false) => ("openai", "gpt-4.1"),
            (Vendor::Anthropic, true) => ("anthropic", "claude-opus-5-5"),
            (Vendor::Anthropic, false) => ("anthropic", "claude-haiku-4-5"),
            (Vendor::Gemini, true) => ("gemini", "gemini-3.5-flash-lite"),
            (Vendor::Gemini, false) => ("gemini", "gemini-2.5-flash-lite"),
        };
        let name = format!("{provider}/{model}");
        match self.path {
            GENERATE => json!({"prompt": PROMPT, "provider": provider, "model": model,
                "stream": true, "parameters": {"max_tokens": MAX_TOKENS}}),
            RESPONSES => json!({"model": name, "input": PROMPT, "stream": true,
                "max_output_tokens": MAX_TOKENS}),
            _ => json!({"model": name, "stream": true, "max_tokens": MAX_TOKENS,
                "messages": [{"role": "user", "content": PROMPT}]}),
        }
    }

    /// How many events come before the case's own.
    pub fn opening(&self) -> usize {
        usize::from(self.vendor == Vendor::Anthropic)
    }

    /// The events as the vendor sends them, each in one piece.
    pub fn render(&self, events: &[Event]) -> Vec<String> {
        let start = json!({"type": "message_start", "message": {"id": "m", "model": "m",
            "usage": {"input_tokens": 100, "output_tokens": 1}}});
        let opening = (self.vendor == Vendor::Anthropic).then(|| data(&[start]));
        let mut counted = 0;
        let own = events.iter().enumerate().map(|(at, event)| {
            if let Event::Usage(more) = event {
                counted += u64::from(*more);
            }
            match self.vendor {
                Vendor::OpenAi => chat(event, counted, at),
                Vendor::Anthropic => anthropic(event, counted, at),
                Vendor::Gemini => gemini(event, counted, at),
            }
        });
        opening.into_iter().chain(own).collect()
    }

    /// What comes after the case's own events.
    pub fn last(&self, end: End) -> Vec<String> {
        match (end, self.vendor) {
            (End::Cut, _) => vec![CUT.to_owned()],
            (End::Whole, Vendor::OpenAi) => vec!["data: [DONE]\n\n".to_owned()],
            (End::Whole, Vendor::Anthropic) => vec![data(&[json!({"type": "message_stop"})])],
            // What holds back the end.
            (End::Whole, Vendor::Gemini) | (End::Clean, _) => vec![": end\n\n".to_owned()],
        }
    }

    /// Whether a stream that ends cleanly without its last event is whole.
    pub fn ends_anyhow(&self) -> bool {
        self.vendor != Vendor::Anthropic
    }

    /// The finish reason of the `n`th reason, or [`BY_ITSELF`]; `None` is no success.
    pub fn reason(&self, n: usize) -> Option<&'static str> {
        match (REASONS[self.row()][n], n) {
            (_, 0) | ("end_turn", _) => Some(BY_ITSELF),
            (_, 1) | ("length", _) => Some("length"),
            (_, 2) => Some("content_filter"),
            ("MALFORMED_FUNCTION_CALL", _) => Some("malformed_function_call"),
            _ => None,
        }
    }

    fn row(&self) -> usize {
        match self.vendor {
            Vendor::OpenAi => 0,
            Vendor::Anthropic => 1,
            Vendor::Gemini => 2,
        }
    }

    /// Asserts that the last event agrees with the record.
    #[track_caller]
    pub fn check_last(&self, text: &str, record: &Value) {
        let reason = &record["metadata"]["finish_reason"];
        let is_answer = record["status"] == "completed" && reason != "cancelled";
        if self.path == GENERATE {
            let last = text.trim_end().rsplit("\n\n").next().unwrap();
            let (name, data) = last.split_once('\n').unwrap();
            assert_eq!(
                name,
                format!("event: {}", record["status"].as_str().unwrap())
            );
            let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            assert_eq!(&data, record);
            return;
        }
        if let Ok(error) = serde_json::from_str::<Value>(text) {
            assert!(!is_answer && error["error"].is_object(), "{error} {record}");
            return;
        }
        let events = events(self.path, text);
        let last = events.last().unwrap();
        let end = match self.path {
            CHAT if last == "[DONE]" => &events[events.len() - 2]["choices"][0]["finish_reason"],
            MESSAGES if last["type"] == "message_stop" => {
                &events[events.len() - 2]["delta"]["stop_reason"]
            }
            RESPONSES if last["type"] == "response.completed" => &Value::Null,
            RESPONSES if last["type"] == "response.incomplete" => {
                &last["response"]["incomplete_details"]["reason"]
            }
            _ => {
                assert!(!is_answer, "{last} {record}");
                assert!(last.to_string().contains("error"), "{last}");
                return;
            }
        };
        assert!(is_answer, "{last} {record}");
        let reason = match reason.as_str() {
            Some("malformed_function_call") => Some("length"),
            reason => reason,
        };
        let expected = match (self.path, reason) {
            (CHAT, Some("length")) => &["length"][..],
            (CHAT, Some("content_filter")) => &["content_filter"],
            (CHAT, _) => &["stop", "tool_calls"],
            (MESSAGES, Some("length")) => &["max_tokens"],
            (MESSAGES, Some("content_filter")) => &["refusal"],
            (MESSAGES, _) => &["end_turn", "tool_use"],
            (_, Some("length")) => &["max_output_tokens"],
            (_, Some("content_filter")) => &["content_filter"],
            _ => &[],
        };
        assert_eq!(end.is_null(), expected.is_empty(), "{end} {record}");
        assert!(
            end.as_str().is_none_or(|end| expected.contains(&end)),
            "{end} {record}"
        );
    }
}

fn data(events: &[Value]) -> String {
    let events = events.iter().map(|event| format!("data: {event}\n\n"));
    events.collect()
}

fn chat(event: &Event, counted: u64, at: usize) -> String {
    let delta = |delta: Value| json!({"choices": [{"delta": delta}]});
    data(&[match event {
        Event::Call(_) => delta(json!({"tool_calls": [{"index": at, "id": event.marker(at),
            "function": {"name": "f", "arguments": "{ }"}}]})),
        Event::Usage(_) => json!({"choices": [], "usage": {"prompt_tokens": 100,
            "completion_tokens": counted, "total_tokens": 100 + counted}}),
        Event::Reason(n) => json!({"choices": [{"delta": {}, "finish_reason": REASONS[0][*n]}]}),
        Event::Error => json!({"error": {"message": "no", "code": 500}}),
        _ => delta(json!({"content": event.marker(at)})),
    }])
}

fn anthropic(event: &Event, counted: u64, at: usize) -> String {
    let start =
        |block: Value| json!({"type": "content_block_start", "index": 0, "content_block": block});
    let delta = |delta: Value| json!({"type": "content_block_delta", "index": 0, "delta": delta});
    let (text, empty) = (
        event.marker(at),
        json!({"type": "thinking", "thinking": ""}),
    );
    data(&match event {
        Event::Text(_) => vec![
            start(json!({"type": "text", "text": ""})),
            delta(json!({"type": "text_delta", "text": text})),
        ],
        Event::Thinking(_) => vec![
            start(empty),
            delta(json!({"type": "thinking_delta", "thinking": text})),
        ],
        Event::Signature(_) => vec![
            start(empty),
            delta(json!({"type": "signature_delta", "signature": text})),
        ],
        Event::Redacted(_) => vec![start(json!({"type": "redacted_thinking", "data": text}))],
        Event::Call(_) => vec![
            start(json!({"type": "tool_use", "id": text, "name": "f", "input": {}})),
            delta(json!({"type": "input_json_delta", "partial_json": "{}"})),
        ],
        Event::Usage(_) => vec![json!({"type": "message_delta", "delta": {},
            "usage": {"output_tokens": counted}})],
        Event::Reason(n) => {
            vec![json!({"type": "message_delta", "delta": {"stop_reason": REASONS[1][*n]}})]
        }
        Event::Error => {
            vec![json!({"type": "error", "error": {"type": "api_error", "message": "no"}})]
        }
    })
}

fn gemini(event: &Event, counted: u64, at: usize) -> String {
    let part = |part: Value| json!({"candidates": [{"content": {"parts": [part]}}]});
    data(&[match event {
        Event::Call(_) => {
            part(json!({"functionCall": {"id": event.marker(at), "name": "f", "args": {}}}))
        }
        Event::Usage(_) => json!({"usageMetadata": {"promptTokenCount": 100,
            "candidatesTokenCount": 1, "thoughtsTokenCount": counted - 1}}),
        Event::Reason(n) => json!({"candidates": [{"finishReason": REASONS[2][*n]}]}),
        Event::Error => json!({"error": {"code": 500, "status": "INTERNAL", "message": "no"}}),
        _ => part(json!({"text": event.marker(at)})),
    }])
}
