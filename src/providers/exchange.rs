//! Makes one call of a text adapter: sends JSON, and reads one JSON body or an event stream.
//!
//! A vendor's wire format is in its request and its [`TextParser`].

use std::collections::HashSet;

use serde_json::{Map, Value};
use tokio::time::timeout;
use url::Url;

use super::{
    DeltaSink, ProviderError, ProviderErrorKind, TextAnswer, TextCall,
    answer::{self, PartBuffer, note_model},
    http::{
        RequestJson, TEXT_BODY_CAP, VendorClient,
        classify::{Head, clean_id},
    },
    sse::{self, Event, Events},
    stops::StopFilter,
    surrogates,
};
use crate::{
    domain::{
        conversation::{Delta, Part, Stop, ToolCall},
        usage::TokenCounts,
    },
    memory,
};

/// Maximum bytes of the response of a count, which has only a few numbers.
const COUNT_BODY_CAP: usize = 64 << 10;

/// Parses one response of a vendor.
pub trait TextParser<'a>: Sized {
    /// Maximum bytes of one event.
    const EVENT_CAP: usize = sse::EVENT_CAP;

    fn new(answer: AnswerBuilder<'a>) -> Self;

    /// Parses a body that was not streamed.
    fn whole(&mut self, root: &Value) -> Result<(), ProviderError>;

    /// Parses one event of a stream. Returns whether it was the last.
    fn event(&mut self, event: &Event) -> Result<bool, ProviderError>;

    /// Returns the answer, after the body or the last event. Fails if a stream was cut.
    fn end(self, streamed: bool) -> Result<TextAnswer, ProviderError>;
}

/// Sends once and parses the response. Requests a stream if there are `deltas`. The content type
/// decides how the response is read, since some servers do not send what was requested.
pub async fn exchange<'a, P: TextParser<'a>>(
    client: &'a VendorClient,
    (url, body): (Url, RequestJson),
    call: &'a TextCall,
    deltas: Option<&'a DeltaSink>,
) -> Result<TextAnswer, ProviderError> {
    // Computed before the call releases the conversation.
    let estimate = (call.conversation.get().bytes() / 4 + call.media_tokens) as u64;
    let answer = send::<P>(client, (url, body), call, deltas).await;
    answer.map_err(|mut error| {
        let maximum = call.max_input_tokens.map(u64::from);
        error.overflow = error
            .overflow
            .map(|found| Box::new(found.or(maximum, estimate)));
        error
    })
}

/// Asks a vendor for the token count of an input. `member`: the count's name in the response.
pub async fn count(
    client: &VendorClient,
    (url, body): (Url, RequestJson),
    member: &str,
) -> Result<u64, ProviderError> {
    let answer = client.post(url, body).await?;
    let (head, body) = answer.json(COUNT_BODY_CAP).await?;
    let counted = answer::count(body.get(member)).filter(|&count| count > 0);
    counted.ok_or_else(|| head.failed("answer without a count"))
}

async fn send<'a, P: TextParser<'a>>(
    client: &'a VendorClient,
    (url, body): (Url, RequestJson),
    call: &'a TextCall,
    deltas: Option<&'a DeltaSink>,
) -> Result<TextAnswer, ProviderError> {
    let bound = client.timeout;
    let mut answer = match deltas {
        None => client.post(url, body).await?,
        Some(_) => client.open_stream(url, body).await?,
    };
    let has_one_call = call.conversation.get().tools.one_at_a_time;
    // There is no retry.
    call.release();
    memory::release();
    let head = answer.head().clone();
    let mut parser = P::new(AnswerBuilder {
        client,
        call,
        head: head.clone(),
        parts: PartBuffer::new(deltas),
        stops: StopFilter::default(),
        id: None,
        model_noted: false,
        early: None,
        has_unread: false,
        has_one_call,
        call_ids: HashSet::new(),
    });
    let late = |_| ProviderError::new(ProviderErrorKind::Timeout, "no answer in time");
    if !timeout(bound, answer.is_stream(deltas.is_some()))
        .await
        .map_err(late)??
    {
        let body = timeout(bound, answer.json(TEXT_BODY_CAP)).await;
        let (_, root) = body.map_err(late)??;
        parser.whole(&root)?;
        return parser.end(false);
    }
    match read_events(parser, answer.events(P::EVENT_CAP), &head).await {
        // The call ends with this function, so no further counts follow.
        Err(error) if error.is_over_limit => match deltas.and_then(DeltaSink::delivered) {
            Some(delivered) => Ok(TextAnswer {
                stop: Stop::Limit,
                ..delivered
            }),
            None => Err(error),
        },
        ended => ended,
    }
}

async fn read_events<'a, P: TextParser<'a>>(
    mut parser: P,
    mut events: Events,
    head: &Head,
) -> Result<TextAnswer, ProviderError> {
    let with_context = |error| head.with_context(error);
    while let Some(event) = events.next().await.map_err(with_context)? {
        if parser.event(&event)? {
            break;
        }
    }
    parser.end(true)
}

/// The answer so far, and the context for its errors.
#[derive(Debug)]
pub struct AnswerBuilder<'a> {
    client: &'a VendorClient,
    pub call: &'a TextCall,
    pub head: Head,
    pub parts: PartBuffer<'a>,
    stops: StopFilter<'a>,
    id: Option<String>,
    model_noted: bool,
    /// Why the provider ended the answer early, if it did.
    early: Option<Stop>,
    /// Whether the provider sent content that no caller gets, such as an image.
    has_unread: bool,
    /// Whether the caller takes at most one tool call.
    has_one_call: bool,
    /// Ids of the calls so far.
    call_ids: HashSet<String>,
}

impl<'a> AnswerBuilder<'a> {
    /// Sets the stop sequences at which this server ends the answer; the vendor does not get them.
    pub fn stop_at(&mut self, sequences: impl Iterator<Item = &'a String>) {
        self.stops = StopFilter::new(sequences);
    }

    pub fn json(&self, event: &Event) -> Result<Value, ProviderError> {
        surrogates::parse(&event.data).map_err(|_| self.head.failed("event is not JSON"))
    }

    /// As [`Self::json`], with the event's name as its `type` if that is missing.
    pub fn typed_json(&self, event: &Event) -> Result<Value, ProviderError> {
        let mut root = self.json(event)?;
        if let (Some(name), Value::Object(members)) = (&event.name, &mut root)
            && members.get("type").is_none_or(Value::is_null)
        {
            members.insert("type".to_owned(), name.as_str().into());
        }
        Ok(root)
    }

    /// Returns the error inside a 200.
    pub fn error(&self, root: &Value) -> ProviderError {
        self.client.error(&self.head, Some(root))
    }

    /// As [`VendorClient::error_of_code`].
    pub fn error_of_code(&self, code: &str, kind: ProviderErrorKind) -> ProviderError {
        self.client.error_of_code(&self.head, code, Some(kind))
    }

    /// Stores the first usable id, and compares the first model with the requested one.
    pub fn identify(&mut self, id: Option<&Value>, model: Option<&Value>) {
        if self.id.is_none() {
            self.id = id.and_then(Value::as_str).and_then(clean_id);
        }
        if !self.model_noted && model.is_some_and(Value::is_string) {
            self.model_noted = true;
            let asked = &self.call.model;
            let asked = asked.strip_prefix("models/").unwrap_or(asked);
            note_model(&self.client.name, asked, model);
        }
    }

    /// Adds a piece, unless a stop sequence was found. Fails above 4 MiB in total.
    pub fn push(&mut self, piece: Delta) -> Result<(), ProviderError> {
        if let Delta::Text(text) = &piece {
            return self.text(text);
        }
        self.release_text()?;
        match self.stops.found() {
            None => self.add(piece),
            Some(_) => Ok(()),
        }
    }

    /// Like [`Self::push`], for visible text.
    pub fn text(&mut self, text: &str) -> Result<(), ProviderError> {
        let text = self.stops.push(text);
        self.add(Delta::Text(text))
    }

    /// Adds the text that was held back as the possible start of a stop sequence.
    fn release_text(&mut self) -> Result<(), ProviderError> {
        let text = self.stops.flush();
        self.add(Delta::Text(text))
    }

    fn add(&mut self, piece: Delta) -> Result<(), ProviderError> {
        let added = self.parts.push(piece);
        added.map_err(|error| self.head.with_context(error))
    }

    /// Begins a call, with the caller's name of the function. A call with a missing or repeated id
    /// gets a new id.
    pub fn begin_call(&mut self, mut call: ToolCall) -> Result<(), ProviderError> {
        call.name = self.call.replaced_names.original(call.name);
        if call.id.is_empty() || !self.call_ids.insert(call.id.clone()) {
            let random = crate::domain::token::random::<12>().unwrap_or_default();
            let hex = random.map(|byte| format!("{byte:02x}"));
            call.id = format!("call_{}", hex.concat());
        }
        self.push(Delta::ToolCall(call))
    }

    /// The items of an array, which may be absent. Some servers write an empty one as `{}`.
    /// `problem`: says that it is something else.
    pub fn items<'v>(
        &self,
        value: Option<&'v Value>,
        problem: &str,
    ) -> Result<&'v [Value], ProviderError> {
        match value {
            None | Some(Value::Null) => Ok(&[]),
            Some(Value::Array(items)) => Ok(items),
            Some(Value::Object(members)) if members.is_empty() => Ok(&[]),
            Some(_) => Err(self.head.failed(problem)),
        }
    }

    /// Adds a block that only the vendor's dialect can represent. In other dialects a dialogue
    /// fails, because it would be incomplete; a plain text ignores the block.
    pub fn opaque(&mut self, block: &Value) -> Result<(), ProviderError> {
        if self.call.original.is_some() {
            self.push(Delta::Opaque(block.clone()))
        } else if self.call.is_dialogue && self.stops.found().is_none() {
            Err(self.head.failed("answer has a part of an unknown kind"))
        } else {
            self.note_unread();
            Ok(())
        }
    }

    /// Notes content that no caller gets, unless a stop sequence came before it. Without a text or a
    /// call the answer then fails.
    pub fn note_unread(&mut self) {
        self.has_unread |= self.stops.found().is_none();
    }

    /// Whether the answer already has its only call, if the vendor cannot limit the number of calls.
    pub fn has_only_call(&self) -> bool {
        self.has_one_call && self.calls().next().is_some()
    }

    /// Whether the vendor got the caller's body, so that the caller speaks its dialect.
    pub fn is_passed(&self) -> bool {
        self.call.original.is_some()
    }

    /// Whether the answer has nothing but thinking.
    pub fn is_empty(&self) -> bool {
        let thought = |part: &Part| match part {
            Part::Thinking { .. } | Part::Redacted { .. } => true,
            Part::Opaque { block } => block["type"] == "reasoning" || part.is_marker(),
            _ => false,
        };
        self.parts.parts().iter().all(thought)
    }

    /// Returns the calls so far.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.parts().iter().filter_map(Part::call)
    }

    /// Forwards the counts and the id so far (see [`DeltaSink::note`]).
    pub fn note(&self, usage: Option<TokenCounts>) {
        let id = self.head.request_id.as_ref().or(self.id.as_ref());
        self.parts.note(usage, id);
    }

    /// Records that the provider ended the answer early. It succeeds if part of it was delivered,
    /// and otherwise fails with `error`.
    pub fn end_early(&mut self, stop: Stop, error: ProviderError) -> Result<(), ProviderError> {
        if !self.parts.has_delivered() {
            return Err(error);
        }
        self.early.get_or_insert(stop);
        Ok(())
    }

    /// The whole answer. An answer with calls ends for tools, whatever the vendor says. One without
    /// a text or a call is a failure, unless thinking was delivered, or the provider counted output
    /// and sent no content that the caller does not get.
    pub fn finish(mut self, usage: TokenCounts, stop: Stop) -> Result<TextAnswer, ProviderError> {
        self.release_text()?;
        let found = self.stops.found().map(str::to_owned);
        let stop = found.map_or(stop, Stop::Sequence);
        let stop = self.early.clone().unwrap_or(stop);
        let stop = stop.corrected(self.calls().next().is_some());
        if self.is_empty() && !self.parts.has_delivered() {
            if self.has_unread {
                let detail = "answer has only content that cannot be returned";
                return Err(self.head.failed(detail));
            }
            if !self.was_billed(&usage, &stop) {
                return Err(self.head.failed("empty answer"));
            }
        }
        Ok(TextAnswer {
            parts: self.parts.end(),
            stop,
            usage,
            own: Map::new(),
            request_id: self.head.request_id.or(self.id),
        })
    }

    /// Whether the provider counted output. A count of 0 is enough at the token limit, or if a stop
    /// sequence may have ended the answer, which not every vendor reports.
    fn was_billed(&self, usage: &TokenCounts, stop: &Stop) -> bool {
        let may_be_empty = *stop == Stop::Limit || !self.call.sampling.stop.is_empty();
        usage
            .output
            .is_some_and(|output| output > 0 || may_be_empty)
    }
}
