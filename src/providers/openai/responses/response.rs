//! Parses a response, whole or event by event.
//!
//! The items of an output come one after the other. A vendor's own items are passed to callers of
//! the same dialect; unknown events are skipped. Source: openai 3.57.0 (`PyPI`)
//! `openai/types/responses/response.py`, `response_stream_event.py`, `response_usage.py`.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::super::{
    super::{
        ProviderError, TextAnswer,
        answer::{arguments, count},
        exchange::{AnswerBuilder, TextParser},
        http::TEXT_BODY_CAP,
        sequence::{Blocks, Sequence},
        sse::Event,
    },
    errors, usage,
};
use crate::domain::{
    conversation::{Delta, EncryptedReasoning, Stop, ToolCall},
    usage::TokenCounts,
};

const ITEMS: Blocks = Blocks {
    index: "output_index",
    ids: &["/item_id", "/item/id"],
    begin: "response.output_item.added",
    piece: ".delta",
    end: "response.output_item.done",
    whole: Some("item"),
    after: &[
        "response.completed",
        "response.incomplete",
        "response.failed",
    ],
    is_text: |_| false,
};

#[derive(Debug)]
pub struct ResponseParser<'a> {
    answer: AnswerBuilder<'a>,
    sequence: Sequence,
    stop: Option<Stop>,
    usage: TokenCounts,
    /// The item of a stream that is not complete.
    open: Option<OpenItem>,
    /// The items of a stream so far.
    known: Known,
    /// The phase of the next text's message, for a caller of the same dialect.
    phase: Option<Delta>,
}

#[derive(Debug, Default)]
struct OpenItem {
    has_pieces: bool,
    names: Vec<Name>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Name {
    /// Its id, or its call's id.
    Id(String),
    /// Its index and type.
    Place(u64, String),
}

/// Items that were streamed. Some servers list them in the last event with other indexes or ids.
#[derive(Debug, Default)]
struct Known {
    names: HashSet<Name>,
    /// Number of items without an id and an index.
    unnamed: usize,
}

impl<'a> TextParser<'a> for ResponseParser<'a> {
    /// The first and the last event repeat the request's instructions and tools, and the last
    /// contains the whole answer.
    const EVENT_CAP: usize = TEXT_BODY_CAP;

    fn new(mut answer: AnswerBuilder<'a>) -> Self {
        answer.stop_at(answer.call.sampling.stop.iter());
        Self {
            answer,
            sequence: Sequence::new(ITEMS),
            stop: None,
            usage: TokenCounts::default(),
            open: None,
            known: Known::default(),
            phase: None,
        }
    }

    fn whole(&mut self, root: &Value) -> Result<(), ProviderError> {
        self.last(root)
    }

    fn event(&mut self, event: &Event) -> Result<bool, ProviderError> {
        if event.data.trim() == "[DONE]" {
            return Ok(true);
        }
        let root = self.answer.typed_json(event)?;
        let head = &self.answer.head;
        let ready = self.sequence.push(event, root);
        for root in ready.map_err(|error| head.with_context(error))? {
            if self.read(&root)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn end(mut self, _streamed: bool) -> Result<TextAnswer, ProviderError> {
        let Some(stop) = self.stop.take() else {
            return Err(self.answer.head.failed("stream was cut"));
        };
        self.answer.finish(self.usage, stop)
    }
}

impl OpenItem {
    fn named(index: Option<u64>, item: &Value) -> Self {
        let text = |name: &str| item[name].as_str();
        let ids = [text("id"), text("call_id")].into_iter().flatten();
        let ids = ids.filter(|id| !id.is_empty());
        let ids = ids.map(|id| Name::Id(id.to_owned()));
        let kind = text("type").unwrap_or_default();
        let place = index.map(|index| Name::Place(index, kind.to_owned()));
        Self {
            has_pieces: false,
            names: ids.chain(place).collect(),
        }
    }

    fn is(&self, other: &Self) -> bool {
        self.names.iter().any(|name| other.names.contains(name))
    }
}

impl Known {
    fn add(&mut self, item: OpenItem) -> OpenItem {
        if item.names.is_empty() {
            self.unnamed += 1;
        }
        self.names.extend(item.names.iter().cloned());
        item
    }

    fn is_empty(&self) -> bool {
        self.names.is_empty() && self.unnamed == 0
    }

    /// Whether an item was streamed. Each streamed item without a name accounts for one unknown
    /// item.
    fn take(&mut self, item: &OpenItem) -> bool {
        let is_named = item.names.iter().any(|name| self.names.contains(name));
        if !is_named && self.unnamed > 0 {
            self.unnamed -= 1;
            return true;
        }
        is_named
    }
}

impl ResponseParser<'_> {
    /// Parses an event. Returns whether it was the last.
    fn read(&mut self, root: &Value) -> Result<bool, ProviderError> {
        let text = |name: &str| root[name].as_str().unwrap_or_default();
        match root["type"].as_str() {
            Some("response.created" | "response.in_progress" | "response.queued") => {
                self.identify(&root["response"]);
            }
            Some("response.output_item.added") => self.begin(root)?,
            Some("response.output_item.done") => {
                let item = &root["item"];
                if self.open.is_none() {
                    let index = root["output_index"].as_u64();
                    self.known.add(OpenItem::named(index, item));
                }
                self.done(item)?;
            }
            Some("response.output_text.delta") => {
                self.piece(root);
                self.text(text("delta"))?;
            }
            Some("response.refusal.delta") => {
                self.piece(root);
                self.refused(None)?;
            }
            Some("response.function_call_arguments.delta") => {
                self.piece(root);
                self.answer
                    .push(Delta::Arguments(text("delta").to_owned()))?;
            }
            Some("response.reasoning_summary_text.delta" | "response.reasoning_text.delta") => {
                self.think(root, text("delta"))?;
            }
            Some("response.reasoning_summary_part.added") => {
                if root["summary_index"].as_u64() > Some(0) {
                    self.think(root, "\n\n")?;
                }
            }
            Some("response.completed" | "response.incomplete" | "response.failed") => {
                self.last(&root["response"])?;
                return Ok(true);
            }
            Some("error") => return Err(self.answer.error(root)),
            Some(_) => {}
            None if errors::is_error(root) => {
                return Err(self.answer.error(root));
            }
            None => return Err(self.answer.head.failed("event without a type")),
        }
        Ok(false)
    }

    fn identify(&mut self, response: &Value) {
        self.answer
            .identify(response.get("id"), response.get("model"));
    }

    /// Reads the final response, with the items that no event had.
    fn last(&mut self, response: &Value) -> Result<(), ProviderError> {
        if errors::is_error(response) {
            return Err(self.answer.error(response));
        }
        let output = match response["output"].as_array() {
            Some(output) => output.as_slice(),
            // Some servers omit items that the events had.
            None if !self.known.is_empty() => &[],
            None => return Err(self.answer.head.failed("response without an output")),
        };
        self.identify(response);
        for (at, item) in (0..).zip(output) {
            let named = OpenItem::named(Some(at), item);
            if self.open.as_ref().is_some_and(|open| open.is(&named)) {
                self.done(item)?;
            } else if !self.known.take(&named) {
                // Thinking cannot be inserted before delivered parts.
                let is_late = !self.known.is_empty() && item["type"] == "reasoning";
                if !is_late {
                    self.content(item)?;
                }
            }
        }
        self.stop = Some(self.stop_of(response)?);
        self.usage = TokenCounts {
            searches: count(response.pointer("/tool_usage/web_search/num_requests")),
            ..usage::find(response).map(usage::counts).unwrap_or_default()
        };
        self.answer.note(Some(self.usage));
        Ok(())
    }

    /// Reads the end of the response. Unlisted ends are failures.
    fn stop_of(&mut self, response: &Value) -> Result<Stop, ProviderError> {
        let text = |path: &str| response.pointer(path).and_then(Value::as_str);
        match (text("/status"), text("/incomplete_details/reason")) {
            (Some("completed"), _) => Ok(Stop::Done),
            (Some("incomplete"), Some("max_output_tokens")) => Ok(Stop::Limit),
            (Some("incomplete"), reason @ Some("content_filter")) => {
                self.refused(reason)?;
                Ok(Stop::ContentFilter)
            }
            _ => Err(self.answer.head.failed("generation ended in an error")),
        }
    }

    fn refused(&mut self, reason: Option<&str>) -> Result<(), ProviderError> {
        let refused = self.answer.head.refused(reason);
        self.answer.end_early(Stop::ContentFilter, refused)
    }

    fn begin(&mut self, root: &Value) -> Result<(), ProviderError> {
        let item = &root["item"];
        let index = root["output_index"].as_u64();
        let item = self.known.add(OpenItem::named(index, item));
        // Some servers omit the end of an item that was sent in pieces.
        if (self.open.replace(item)).is_some_and(|open| !open.has_pieces) {
            return Err(self.answer.head.failed("item without an end"));
        }
        match root.get("item") {
            Some(item) if is_call(item) => self.call(item),
            item => {
                self.enter_phase(item);
                Ok(())
            }
        }
    }

    fn enter_phase(&mut self, item: Option<&Value>) {
        let phase = item.and_then(|item| item.get("phase")?.as_str());
        let phase = phase.filter(|_| self.answer.is_passed());
        self.phase = phase.map(Delta::from_phase);
    }

    /// Reads a piece of the open item, whose first event may be missing. Returns whether it is the
    /// first.
    fn piece(&mut self, root: &Value) -> bool {
        let open = self.open.get_or_insert_with(|| {
            let item = json!({"id": root.get("item_id")});
            self.known.add(OpenItem::named(None, &item))
        });
        !std::mem::replace(&mut open.has_pieces, true)
    }

    /// Ends an item. Content that was sent in pieces is not read again.
    fn done(&mut self, item: &Value) -> Result<(), ProviderError> {
        let Some(open) = self.open.take() else {
            return self.content(item);
        };
        match item["type"].as_str() {
            Some("message") if open.has_pieces => Ok(()),
            Some("reasoning") if open.has_pieces => self.sign(item),
            Some("function_call") if open.has_pieces && is_call(item) => Ok(()),
            Some("function_call") if is_call(item) => self.arguments(item),
            _ => self.content(item),
        }
    }

    /// Reads an item that was not sent in pieces.
    fn content(&mut self, item: &Value) -> Result<(), ProviderError> {
        match item["type"].as_str() {
            Some("message") => {
                self.enter_phase(Some(item));
                for part in item["content"].as_array().into_iter().flatten() {
                    match part["type"].as_str() {
                        Some("output_text" | "text") => {
                            self.text(part["text"].as_str().unwrap_or_default())?;
                        }
                        Some("refusal") => self.refused(None)?,
                        _ => self.answer.note_unread(),
                    }
                }
                Ok(())
            }
            Some("reasoning") if !self.answer.is_passed() => {
                let text = |list: &str| {
                    let parts = item[list].as_array().into_iter().flatten();
                    let texts = parts.filter_map(|part| part["text"].as_str());
                    let text = texts.collect::<Vec<_>>().join("\n\n");
                    Some(text).filter(|text| !text.is_empty())
                };
                // vLLM has the reasoning itself instead of a summary.
                let text = text("summary").or_else(|| text("content"));
                // Begins another part where the one before is signed.
                self.answer.push(Delta::Thinking(String::new()))?;
                self.answer
                    .push(Delta::Thinking(text.unwrap_or_default()))?;
                self.sign(item)
            }
            Some("function_call") if is_call(item) => {
                self.call(item)?;
                self.arguments(item)
            }
            Some(_) => self.answer.opaque(item),
            None => Err(self.answer.head.failed("item without a type")),
        }
    }

    fn text(&mut self, piece: &str) -> Result<(), ProviderError> {
        if !piece.is_empty()
            && let Some(phase) = self.phase.take()
        {
            self.answer.push(phase)?;
        }
        self.answer.text(piece)
    }

    fn think(&mut self, root: &Value, text: &str) -> Result<(), ProviderError> {
        // A caller of the same dialect gets the whole item, to send it back unchanged.
        if self.answer.is_passed() {
            return Ok(());
        }
        if self.piece(root) {
            self.answer.push(Delta::Thinking(String::new()))?;
        }
        self.answer.push(Delta::Thinking(text.to_owned()))
    }

    /// Signs the preceding thinking with the item that the caller must send back.
    fn sign(&mut self, item: &Value) -> Result<(), ProviderError> {
        let text = |name: &str| item[name].as_str().unwrap_or_default();
        let content = text("encrypted_content");
        if content.is_empty() {
            return Ok(());
        }
        let id = text("id");
        self.answer.push(Delta::Signature(
            EncryptedReasoning { id, content }.signature(),
        ))
    }

    fn call(&mut self, item: &Value) -> Result<(), ProviderError> {
        let text = |name: &str| item[name].as_str().unwrap_or_default();
        if text("name").is_empty() {
            return Err(self.answer.head.failed("tool call without a name"));
        }
        self.answer.begin_call(ToolCall {
            id: text("call_id").to_owned(),
            name: text("name").to_owned(),
            arguments: String::new(),
            thought_signature: None,
        })
    }

    fn arguments(&mut self, item: &Value) -> Result<(), ProviderError> {
        match arguments(item.get("arguments")) {
            Some(arguments) => self.answer.push(Delta::Arguments(arguments)),
            None => Err(self.answer.head.failed("arguments are no text")),
        }
    }
}

/// Whether an item calls a function by a name in the request. Only the caller's dialect knows
/// functions of a namespace.
fn is_call(item: &Value) -> bool {
    let is = |name: &str, value: &str| item[name].as_str() == Some(value);
    let namespace = item["namespace"].as_str();
    is("type", "function_call") && namespace.is_none_or(str::is_empty)
}
