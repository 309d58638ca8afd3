//! Parses an Anthropic message, whole or event by event.
//!
//! Blocks other than text, thinking and tools are passed to callers of the same dialect. Unknown
//! events are skipped. Source: anthropic 2.10.0 (`PyPI`) `anthropic/types/message.py`,
//! `raw_message_stream_event.py`, `usage.py`, `message_delta_usage.py`.

use serde_json::{Map, Value};

use super::super::{
    ProviderError, TextAnswer,
    answer::{count, count_or_zero, merge_usage, object_arguments},
    exchange::{AnswerBuilder, TextParser},
    sequence::{Blocks, Sequence},
    sse::Event,
};
use super::request::is_taken_stop;
use crate::domain::{
    conversation::{Delta, Stop, ToolCall},
    usage::TokenCounts,
};

const BLOCKS: Blocks = Blocks {
    index: "index",
    ids: &[],
    begin: "content_block_start",
    piece: "content_block_delta",
    end: "content_block_stop",
    whole: None,
    after: &["message_stop"],
    is_text: |begin| {
        let kind = begin.pointer("/content_block/type");
        kind.is_some_and(|kind| kind == "text" || kind == "thinking")
    },
};

/// The stop reason of an answer that fills the model's context. Agents compact the dialogue then.
const CONTEXT_EXCEEDED: &str = "model_context_window_exceeded";

#[derive(Debug)]
pub struct ResponseParser<'a> {
    answer: AnswerBuilder<'a>,
    sequence: Sequence,
    stop: Option<Stop>,
    usage: Map<String, Value>,
    /// Members that only this dialect has, and the stop reason if other dialects lack it.
    own: Map<String, Value>,
    /// Whether the stream sent `message_stop`.
    stopped: bool,
    /// Whether the open block is passed on unparsed.
    is_opaque: bool,
    /// The open call of a tool that the vendor runs, and its arguments so far.
    server_call: Option<(Value, String)>,
    /// The initial arguments of a call, which later pieces replace.
    input: Option<String>,
}

impl<'a> TextParser<'a> for ResponseParser<'a> {
    fn new(mut answer: AnswerBuilder<'a>) -> Self {
        if !answer.is_passed() {
            let stops = answer.call.sampling.stop.iter();
            answer.stop_at(stops.filter(|stop| !is_taken_stop(stop)));
        }
        Self {
            answer,
            sequence: Sequence::new(BLOCKS),
            stop: None,
            usage: Map::new(),
            own: Map::new(),
            stopped: false,
            is_opaque: false,
            server_call: None,
            input: None,
        }
    }

    fn whole(&mut self, root: &Value) -> Result<(), ProviderError> {
        self.check_error(root)?;
        self.start(root);
        self.note_own(root);
        self.stop(root)?;
        let Some(blocks) = root["content"].as_array() else {
            return Err(self.answer.head.failed("content is no array"));
        };
        blocks.iter().try_for_each(|block| self.block(block))?;
        self.close()
    }

    fn event(&mut self, event: &Event) -> Result<bool, ProviderError> {
        let root = self.answer.typed_json(event)?;
        self.check_error(&root)?;
        let head = &self.answer.head;
        let ready = self.sequence.push(event, root);
        for root in ready.map_err(|error| head.with_context(error))? {
            self.read(&root)?;
        }
        Ok(self.stopped)
    }

    fn end(mut self, streamed: bool) -> Result<TextAnswer, ProviderError> {
        if streamed && !self.stopped {
            return Err(self.answer.head.failed("stream was cut"));
        }
        let Some(stop) = self.stop.take() else {
            return Err(self.answer.head.failed("answer without a stop reason"));
        };
        let answer = self.answer.finish(reported(&self.usage), stop)?;
        Ok(TextAnswer {
            own: self.own,
            ..answer
        })
    }
}

impl ResponseParser<'_> {
    fn read(&mut self, root: &Value) -> Result<(), ProviderError> {
        match root["type"].as_str() {
            Some("message_start") => {
                self.start(&root["message"]);
                // About 1 at the start; only the last delta has the real count.
                self.usage.remove("output_tokens");
                self.answer.note(Some(reported(&self.usage)));
            }
            Some("content_block_start") => {
                self.block(&root["content_block"])?;
            }
            Some("content_block_delta") => {
                let delta = &root["delta"];
                if let Some((_, input)) = &mut self.server_call
                    && let Some(piece) = delta["partial_json"].as_str()
                {
                    *input += piece;
                } else if !self.is_opaque {
                    self.delta(delta)?;
                } else if self.answer.call.is_dialogue {
                    return Err(self.answer.head.failed("pieces of an unknown kind"));
                }
            }
            Some("message_delta") => {
                let usage = root["usage"].as_object();
                self.merge_usage(usage);
                self.note_own(root);
                self.note_own(&root["delta"]);
                self.stop(&root["delta"])?;
                let all = reported(&self.usage);
                let own = usage.and_then(|usage| reported(usage).output);
                self.answer.note(Some(TokenCounts {
                    output: own.and(all.output),
                    ..all
                }));
            }
            Some("content_block_stop") => {
                self.is_opaque = false;
                self.close()?;
            }
            Some("message_stop") => {
                self.close()?;
                self.stopped = true;
            }
            Some(_) => {}
            None => return Err(self.answer.head.failed("event without a type")),
        }
        Ok(())
    }

    fn check_error(&self, root: &Value) -> Result<(), ProviderError> {
        let typed = root["type"].as_str() == Some("error");
        if typed || root.get("error").is_some_and(Value::is_object) {
            return Err(self.answer.error(root));
        }
        Ok(())
    }

    fn start(&mut self, message: &Value) {
        self.answer
            .identify(message.get("id"), message.get("model"));
        self.merge_usage(message["usage"].as_object());
    }

    fn note_own(&mut self, holder: &Value) {
        for name in ["stop_details", "context_management"] {
            if let Some(value) = holder.get(name).filter(|value| !value.is_null()) {
                self.own.insert(name.to_owned(), value.clone());
            }
        }
    }

    /// Reads the stop reason. A refusal may follow text. Unlisted reasons are failures.
    fn stop(&mut self, holder: &Value) -> Result<(), ProviderError> {
        let text = |path: &str| holder.pointer(path).and_then(Value::as_str);
        let reason = match holder.get("stop_reason") {
            None | Some(Value::Null) => return Ok(()),
            reason => reason.and_then(Value::as_str).unwrap_or_default(),
        };
        let stop = match &*reason.to_ascii_lowercase() {
            "end_turn" => Stop::Done,
            "pause_turn" => Stop::Paused,
            "max_tokens" => Stop::Limit,
            CONTEXT_EXCEEDED => {
                self.own
                    .insert("stop_reason".to_owned(), CONTEXT_EXCEEDED.into());
                Stop::Limit
            }
            "stop_sequence" => {
                Stop::Sequence(text("/stop_sequence").unwrap_or_default().to_owned())
            }
            "tool_use" => Stop::Tools,
            "refusal" => {
                let refused = self.answer.head.refused(text("/stop_details/category"));
                self.answer.end_early(Stop::ContentFilter, refused)?;
                Stop::ContentFilter
            }
            _ => return Err(self.answer.head.failed("generation ended in an error")),
        };
        self.stop = Some(stop);
        Ok(())
    }

    /// Reads a whole block, or the beginning of one.
    fn block(&mut self, block: &Value) -> Result<(), ProviderError> {
        self.close()?;
        self.is_opaque = false;
        match block["type"].as_str() {
            Some("text") => {
                let text = self.string(block, "text")?;
                self.answer.push(Delta::Text(text))
            }
            Some("thinking") => {
                let thinking = self.string(block, "thinking")?;
                self.answer.push(Delta::Thinking(thinking))?;
                // In a stream the signature comes later.
                let signature = block["signature"].as_str();
                let signature = signature.unwrap_or_default().to_owned();
                self.answer.push(Delta::Signature(signature))
            }
            Some("redacted_thinking") => {
                let data = self.string(block, "data")?;
                self.answer.push(Delta::Redacted(data))
            }
            Some("tool_use") => {
                let Some(input) = object_arguments(block.get("input")) else {
                    return Err(self.answer.head.failed("input is no object"));
                };
                let id = block["id"].as_str();
                let call = ToolCall {
                    id: id.unwrap_or_default().to_owned(),
                    name: self.string(block, "name")?,
                    arguments: String::new(),
                    thought_signature: None,
                };
                // In a stream the block begins with `{}`, and its JSON follows in pieces.
                self.input = Some(input).filter(|input| input != "{}");
                self.answer.begin_call(call)
            }
            Some("server_tool_use") => {
                self.server_call = Some((block.clone(), String::new()));
                Ok(())
            }
            _ => {
                self.is_opaque = true;
                self.answer.opaque(block)
            }
        }
    }

    fn delta(&mut self, delta: &Value) -> Result<(), ProviderError> {
        let piece = match delta["type"].as_str() {
            Some("text_delta") => Delta::Text(self.string(delta, "text")?),
            Some("thinking_delta") => Delta::Thinking(self.string(delta, "thinking")?),
            Some("signature_delta") => Delta::Signature(self.string(delta, "signature")?),
            Some("input_json_delta") => {
                let json = self.string(delta, "partial_json")?;
                if !json.is_empty() {
                    self.input = None;
                }
                Delta::Arguments(json)
            }
            _ => return Ok(()),
        };
        self.answer.push(piece)
    }

    fn string(&self, holder: &Value, name: &str) -> Result<String, ProviderError> {
        let text = holder[name].as_str();
        let missing = || self.answer.head.failed("block without its content");
        text.map(str::to_owned).ok_or_else(missing)
    }

    /// Ends a block. A call without pieces keeps its initial arguments.
    fn close(&mut self) -> Result<(), ProviderError> {
        if let Some((mut block, input)) = self.server_call.take() {
            if let Ok(input) = serde_json::from_str::<Value>(&input) {
                block["input"] = input;
            }
            self.answer.opaque(&block)?;
        }
        match self.input.take() {
            Some(input) => self.answer.push(Delta::Arguments(input)),
            None => Ok(()),
        }
    }

    fn merge_usage(&mut self, usage: Option<&Map<String, Value>>) {
        if let Some(usage) = usage {
            merge_usage(&mut self.usage, usage);
        }
    }
}

/// Returns the counts, or the larger sums of `iterations`: the main counts exclude compactions.
fn reported(usage: &Map<String, Value>) -> TokenCounts {
    let main = counts(usage);
    let iterations = usage.get("iterations").and_then(Value::as_array);
    let iterations = iterations
        .into_iter()
        .flatten()
        .filter_map(Value::as_object);
    let Some(sum) = iterations.map(counts).reduce(sum) else {
        return main;
    };
    let (input, output) = (sum.input > main.input, sum.output.max(main.output));
    TokenCounts {
        output,
        reasoning: main.reasoning,
        searches: main.searches,
        ..if input { sum } else { main }
    }
}

fn sum(a: TokenCounts, b: TokenCounts) -> TokenCounts {
    let both = |a: Option<u64>, b: Option<u64>| a?.checked_add(b?);
    let some = |a: Option<u64>, b: Option<u64>| both(a.or(Some(0)), b.or(Some(0)));
    TokenCounts {
        input: both(a.input, b.input),
        output: both(a.output, b.output),
        cached_input: some(a.cached_input, b.cached_input),
        cache_write: some(a.cache_write, b.cache_write),
        cache_write_long: some(a.cache_write_long, b.cache_write_long),
        ..TokenCounts::default()
    }
}

/// Reads the counts. Input excludes cache writes and reads; output includes thinking.
fn counts(usage: &Map<String, Value>) -> TokenCounts {
    let field = |name: &str| usage.get(name);
    let read = field("cache_read_input_tokens");
    let kept = |name: &str| field("cache_creation").and_then(|by_time| by_time.get(name));
    let (short, long) = (
        kept("ephemeral_5m_input_tokens"),
        kept("ephemeral_1h_input_tokens"),
    );
    let sum = field("cache_creation_input_tokens").filter(|sum| !sum.is_null());
    // If the sum is missing, add its parts.
    let written = match sum {
        None => count_or_zero(short)
            .zip(count_or_zero(long))
            .and_then(|(short, long)| short.checked_add(long)),
        stated => count(stated),
    };
    let parts = [count(field("input_tokens")), written, count_or_zero(read)];
    let input = parts
        .into_iter()
        .try_fold(0_u64, |sum, part| sum.checked_add(part?));
    let output = count(field("output_tokens"));
    let searches = field("server_tool_use").and_then(|used| used.get("web_search_requests"));
    let thinking = field("output_tokens_details").and_then(|d| d.get("thinking_tokens"));
    TokenCounts {
        input,
        output,
        cached_input: count(read),
        cache_write: sum.or(short).or(long).and(written),
        cache_write_long: count(long),
        reasoning: count(thinking),
        searches: count(searches),
        ..TokenCounts::default()
    }
}
