//! Tool calls of a Chat Completions stream.
//!
//! A call comes in pieces, with an index, an id and a name that servers use in different ways. This
//! module finds the call of a piece, and the order of delivery: a caller gets one call after the
//! other, so pieces of other calls, and text between them, wait until the arguments of the first
//! call are complete.

use std::{collections::VecDeque, mem::take};

use serde_json::Value;

use super::super::{
    ProviderError,
    answer::{TEXT_CAP, arguments},
    exchange::AnswerBuilder,
};
use crate::{
    dialect::custom_arguments,
    domain::conversation::{Delta, ToolCall},
};

/// Maximum number of calls in one answer.
const MAX_CALLS: usize = 1_000;

#[derive(Debug, Default)]
pub struct Calls {
    known: Vec<Call>,
    /// Items that are not completely delivered, in order of arrival.
    queue: VecDeque<Item>,
    /// Bytes that wait for delivery.
    waiting: usize,
}

#[derive(Debug)]
enum Item {
    Call(usize),
    Piece(Delta),
}

#[derive(Debug, Default)]
struct Call {
    index: Option<u64>,
    /// The first id that the server sent.
    id: String,
    name: String,
    signature: Option<String>,
    /// Whether it calls a custom tool. Such a call is delivered when its input is complete.
    is_custom: bool,
    /// Arguments, or the input of a custom tool, that wait for delivery.
    pending: String,
    value: JsonValue,
    /// Whether its name was repeated after its arguments: the next value then belongs to another
    /// call.
    is_repeated: bool,
    /// Bytes of delivered arguments; `None` before the call itself was delivered.
    delivered: Option<usize>,
    is_closed: bool,
}

/// A piece of a call, or a whole call.
struct Piece<'a> {
    index: Option<u64>,
    id: &'a str,
    name: &'a str,
    /// Arguments, or the input of a custom tool.
    arguments: String,
    is_custom: bool,
    is_object: bool,
    signature: Option<&'a str>,
}

impl<'a> Piece<'a> {
    fn read(call: &'a Value) -> Result<Self, &'static str> {
        let text = |value: Option<&'a Value>| value.and_then(Value::as_str).unwrap_or_default();
        let custom = call.get("custom").filter(|custom| custom.is_object());
        let (function, member) = match custom {
            Some(custom) => (Some(custom), "input"),
            None => (call.get("function"), "arguments"),
        };
        let value = function.and_then(|function| function.get(member));
        let signature = call.pointer("/extra_content/google/thought_signature");
        Ok(Self {
            index: call["index"].as_u64(),
            id: text(call.get("id")),
            name: text(function.and_then(|function| function.get("name"))),
            arguments: arguments(value).ok_or("arguments are neither text nor an object")?,
            is_custom: custom.is_some(),
            is_object: value.is_some_and(Value::is_object),
            signature: signature.and_then(Value::as_str),
        })
    }

    /// Whether it has neither an id nor a name nor arguments. Some servers end a stream with one.
    fn is_blank(&self) -> bool {
        self.id.is_empty() && self.name.is_empty() && self.arguments.trim().is_empty()
    }
}

/// The call of a message that was not streamed; `None` if nothing is said of one.
pub fn whole(call: &Value) -> Result<Option<ToolCall>, &'static str> {
    let piece = Piece::read(call)?;
    if piece.is_blank() {
        return Ok(None);
    }
    if piece.name.is_empty() {
        return Err("tool call without a name");
    }
    Ok(Some(ToolCall {
        id: piece.id.to_owned(),
        name: piece.name.to_owned(),
        arguments: if piece.is_custom {
            custom_arguments(&piece.arguments)
        } else {
            piece.arguments
        },
        thought_signature: piece.signature.map(str::to_owned),
    }))
}

impl Calls {
    /// Delivers text or thinking in order with the calls.
    pub fn push(
        &mut self,
        piece: Delta,
        answer: &mut AnswerBuilder<'_>,
    ) -> Result<(), ProviderError> {
        if self.queue.is_empty() {
            return answer.push(piece);
        }
        if piece.bytes() == 0 {
            return Ok(());
        }
        self.wait(piece.bytes(), answer)?;
        self.queue.push_back(Item::Piece(piece));
        self.deliver(answer)
    }

    /// Reads a piece of a call and delivers complete items.
    pub fn read(
        &mut self,
        call: &Value,
        answer: &mut AnswerBuilder<'_>,
    ) -> Result<(), ProviderError> {
        let failed = |detail| answer.head.failed(detail);
        let piece = Piece::read(call).map_err(failed)?;
        if self.repeats(&piece, answer) {
            return Ok(());
        }
        let at = match self.find(&piece).map_err(failed)? {
            Some(at) => at,
            None if piece.is_blank() => return Ok(()),
            None if self.known.len() == MAX_CALLS => return Err(failed("too many tool calls")),
            None => {
                self.queue.push_back(Item::Call(self.known.len()));
                let repeated = self.known.iter().rfind(|call| call.is_repeated);
                let name = repeated.filter(|_| piece.name.is_empty());
                self.known.push(Call {
                    index: piece.index,
                    id: piece.id.to_owned(),
                    name: name.map(|call| call.name.clone()).unwrap_or_default(),
                    ..Call::default()
                });
                self.known.len() - 1
            }
        };
        let bytes = piece.arguments.len() + piece.name.len() + piece.id.len();
        self.wait(bytes, answer)?;
        let result = self.known.get_mut(at).map(|call| call.add(&piece));
        result.transpose().map_err(failed)?;
        self.deliver(answer)
    }

    /// Whether a server repeats a whole call after its pieces.
    fn repeats(&self, piece: &Piece<'_>, answer: &AnswerBuilder<'_>) -> bool {
        let is_named = !piece.id.is_empty() && !piece.name.is_empty();
        let is_known = |call: &Call| {
            let is_complete = call.value.state == State::Complete;
            let is_same = call.index == piece.index && call.id == piece.id;
            is_complete && is_same && call.name == piece.name
        };
        let is_equal = |call: &ToolCall| call.id == piece.id && call.arguments == piece.arguments;
        is_named && self.known.iter().any(is_known) && answer.calls().any(is_equal)
    }

    /// Delivers the remaining items. Fails if a call has no name.
    pub fn end(&mut self, answer: &mut AnswerBuilder<'_>) -> Result<(), ProviderError> {
        while let Some(item) = self.queue.pop_front() {
            self.deliver_item(item, answer)?;
        }
        Ok(())
    }

    /// Returns the call of a piece; `None` for a new call. Some servers give several calls the same
    /// index, omit the ids or the index, or send a new id with each piece.
    fn find(&self, piece: &Piece<'_>) -> Result<Option<usize>, &'static str> {
        let last = |is: &dyn Fn(&Call) -> bool| self.known.iter().rposition(is);
        let Piece {
            index, id, name, ..
        } = *piece;
        let has_index = |call: &Call| index.is_none() || call.index == index;
        let by_id = || last(&|call| call.id == id && (has_index(call) || name.is_empty()));
        let by_index = || last(&|call| index.is_some() && call.index == index);
        let found = (!id.is_empty()).then(by_id).flatten().or_else(by_index);
        // Without an index and an id, a piece continues the last call.
        let continues = index.is_none() && (id.is_empty() || name.is_empty());
        let found = found.or_else(|| continues.then(|| last(&|_| true)).flatten());
        let Some((at, call)) = found.and_then(|at| Some((at, self.known.get(at)?))) else {
            return Ok(None);
        };
        let is_value = piece.arguments.trim_start().starts_with('{');
        if name.is_empty() && call.is_repeated && is_value {
            return Ok(None);
        }
        if name.is_empty() || call.name.is_empty() {
            return Ok(Some(at));
        }
        let has_other_id = !id.is_empty() && !call.id.is_empty() && call.id != id;
        let is_repeated = call.name == name && !has_other_id;
        let is_begun_empty = call.may_be_replaced() && !id.is_empty();
        let is_same = match call.value.state {
            State::Complete if is_begun_empty => is_repeated,
            State::None => is_repeated,
            State::Complete => is_repeated && piece.arguments.trim().is_empty(),
            State::Open if is_repeated || has_other_id => is_repeated,
            State::Open => return Err("tool calls cannot be distinguished"),
        };
        Ok(is_same.then_some(at))
    }

    fn wait(&mut self, bytes: usize, answer: &AnswerBuilder<'_>) -> Result<(), ProviderError> {
        self.waiting += bytes;
        // The size limit of an answer applies to all choices in total.
        if self.waiting > TEXT_CAP / answer.call.choices() as usize {
            return Err(answer.head.failed("text over the cap"));
        }
        Ok(())
    }

    /// Delivers in order, up to the first incomplete call.
    fn deliver(&mut self, answer: &mut AnswerBuilder<'_>) -> Result<(), ProviderError> {
        while let Some(item) = self.queue.pop_front() {
            if let Item::Call(at) = item
                && let Some(call) = self.known.get_mut(at)
            {
                call.is_closed = call.value.state == State::Complete && !self.queue.is_empty();
                if !call.is_closed {
                    let is_ready =
                        !call.name.is_empty() && !call.is_custom && !call.may_be_replaced();
                    self.queue.push_front(Item::Call(at));
                    return if is_ready {
                        self.deliver_item(Item::Call(at), answer)
                    } else {
                        Ok(())
                    };
                }
            }
            self.deliver_item(item, answer)?;
        }
        Ok(())
    }

    fn deliver_item(
        &mut self,
        item: Item,
        answer: &mut AnswerBuilder<'_>,
    ) -> Result<(), ProviderError> {
        let at = match item {
            Item::Piece(piece) => {
                self.waiting = self.waiting.saturating_sub(piece.bytes());
                return answer.push(piece);
            }
            Item::Call(at) => at,
        };
        let Some(call) = self.known.get_mut(at) else {
            return Ok(());
        };
        if call.name.is_empty() {
            return Err(answer.head.failed("tool call without a name"));
        }
        let mut arguments = take(&mut call.pending);
        self.waiting = self.waiting.saturating_sub(arguments.len());
        if call.is_custom {
            arguments = custom_arguments(&arguments);
        }
        let before = call.delivered;
        call.delivered = Some(before.unwrap_or_default() + arguments.len());
        if before.is_some() {
            return answer.push(Delta::Arguments(arguments));
        }
        answer.begin_call(ToolCall {
            id: call.id.clone(),
            name: call.name.clone(),
            arguments,
            thought_signature: call.signature.take(),
        })
    }
}

impl Call {
    /// Whether its arguments are `{}` so far, with which some servers begin every call.
    fn may_be_replaced(&self) -> bool {
        !self.is_custom && self.delivered.unwrap_or_default() == 0 && self.pending == "{}"
    }

    fn add(&mut self, piece: &Piece<'_>) -> Result<(), &'static str> {
        self.is_custom |= piece.is_custom;
        if self.may_be_replaced() && !self.is_closed && !piece.arguments.trim().is_empty() {
            self.pending.clear();
            self.value = JsonValue::default();
            self.is_repeated = false;
        }
        if self.name.is_empty() {
            piece.name.clone_into(&mut self.name);
        } else {
            self.is_repeated |= self.value.state == State::Complete && !piece.name.is_empty();
        }
        if let Some(signature) = piece.signature {
            self.signature = Some(signature.to_owned());
        }
        let is_second = piece.is_object && self.value.state != State::None;
        if is_second || self.is_closed && !piece.arguments.trim().is_empty() {
            return Err("tool calls are mixed");
        }
        if !self.is_closed {
            if !self.is_custom {
                self.value.add(&piece.arguments)?;
            }
            self.pending += &piece.arguments;
        }
        Ok(())
    }
}

/// The state of the text of a JSON object or array.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    None,
    Open,
    Complete,
}

#[derive(Debug, Default)]
struct JsonValue {
    state: State,
    depth: usize,
    is_string: bool,
    is_escaped: bool,
}

impl JsonValue {
    /// Adds text. Fails at the beginning of a second value.
    fn add(&mut self, piece: &str) -> Result<(), &'static str> {
        for byte in piece.bytes() {
            if self.is_string {
                self.is_string = self.is_escaped || byte != b'"';
                self.is_escaped = !self.is_escaped && byte == b'\\';
                continue;
            }
            if self.state == State::None && !byte.is_ascii_whitespace() {
                self.state = State::Open;
            }
            match byte {
                b'{' | b'[' if self.state == State::Complete => {
                    return Err("tool calls cannot be distinguished");
                }
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        self.state = State::Complete;
                    }
                }
                b'"' => self.is_string = true,
                _ => {}
            }
        }
        Ok(())
    }
}
