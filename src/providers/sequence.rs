//! Orders the events of a stream whose blocks alternate.
//!
//! A block is one part of an answer, such as a text or a tool call. Vendors send blocks one after
//! the other, but servers that imitate them may interleave the events of several blocks, each with
//! its block's index. The caller gets one part after the other.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use serde_json::Value;

use super::{ProviderError, answer::TEXT_CAP, sse::Event};
use crate::memory::{self, Reservation};

/// Maximum blocks of an answer.
const MAX_BLOCKS: usize = 10_000;
/// Size of a waiting event in addition to its text, in bytes.
const EVENT_BYTES: usize = 64;
/// Memory of an event for each byte of its size.
const MEMORY_PER_BYTE: usize = 8;

/// How a vendor's events name a block and its end.
#[derive(Debug)]
pub struct Blocks {
    /// The member with the block's index.
    pub index: &'static str,
    /// Pointers to the block's id, for events without an index.
    pub ids: &'static [&'static str],
    /// The type of the first event of a block.
    pub begin: &'static str,
    /// The suffix of the types of a block's pieces.
    pub piece: &'static str,
    /// The type of the last event of a block.
    pub end: &'static str,
    /// The member of the last event with the whole block, so that it may be the only event.
    pub whole: Option<&'static str>,
    /// The types of the events after the last block.
    pub after: &'static [&'static str],
    /// Whether a block with this first event is a text, whose first event may be missing.
    pub is_text: fn(&Value) -> bool,
}

#[derive(Debug)]
pub struct Sequence {
    blocks: Blocks,
    /// The last block of each index and each id.
    indexes: HashMap<u64, usize>,
    ids: HashMap<String, usize>,
    /// Blocks in the order in which they began.
    begun: Vec<Block>,
    /// How many blocks have ended and were passed on. Events of the next block are passed on as
    /// they arrive.
    passed: usize,
    /// Total size of waiting events.
    bytes: usize,
    reserved: Option<Reservation>,
}

#[derive(Debug, Default)]
struct Block {
    /// Whether it is a text, which may continue after other blocks and may have no end.
    is_text: bool,
    has_ended: bool,
    /// Hash of the whole block in its last event.
    whole: Option<u64>,
    waiting: Vec<Value>,
    /// Size of its waiting events.
    bytes: usize,
}

struct Names<'a> {
    index: Option<u64>,
    id: Option<&'a str>,
}

impl Sequence {
    pub fn new(blocks: Blocks) -> Self {
        Self {
            blocks,
            indexes: HashMap::new(),
            ids: HashMap::new(),
            begun: Vec::new(),
            passed: 0,
            bytes: 0,
            reserved: memory::reservation(),
        }
    }

    /// Adds an event, whose parsed data is `root`, and returns the events to pass on. Fails if a
    /// piece may belong to several blocks.
    pub fn push(&mut self, event: &Event, root: Value) -> Result<Vec<Value>, ProviderError> {
        let kind = root["type"].as_str().unwrap_or_default();
        if self.blocks.after.contains(&kind) {
            let mut ready = self.pass_on(self.begun.len());
            ready.push(root);
            return Ok(ready);
        }
        let names = self.names_of(&root);
        let at = if kind == self.blocks.begin {
            Some(self.begin(&names, (self.blocks.is_text)(&root))?)
        } else if kind == self.blocks.end {
            self.end(&names, &root)?
        } else if kind.ends_with(self.blocks.piece) {
            Some(self.piece(&names)?)
        } else {
            match self.find(&names) {
                None => return Ok(vec![root]),
                known => known.filter(|&at| self.is_open(at)),
            }
        };
        let mut ready = Vec::new();
        match at {
            Some(at) if at > self.passed => self.wait(at, event, root)?,
            Some(_) => ready.push(root),
            None => {}
        }
        ready.extend(self.pass_on(self.passed));
        Ok(ready)
    }

    fn names_of<'a>(&self, root: &'a Value) -> Names<'a> {
        let ids = self.blocks.ids.iter();
        let mut ids = ids.filter_map(|path| root.pointer(path)?.as_str());
        Names {
            index: root.get(self.blocks.index).and_then(Value::as_u64),
            id: ids.find(|id| !id.is_empty()),
        }
    }

    fn is_open(&self, at: usize) -> bool {
        self.begun.get(at).is_some_and(|block| !block.has_ended)
    }

    fn is_text(&self, at: usize) -> bool {
        self.begun.get(at).is_some_and(|block| block.is_text)
    }

    /// Finds a block by its id or its index. Some servers have another id in each event of a block;
    /// others reuse an index for a block with another id after the first has ended.
    fn find(&self, names: &Names<'_>) -> Option<usize> {
        let by_id = names.id.and_then(|id| self.ids.get(id));
        let by_index = names.index.and_then(|index| self.indexes.get(&index));
        let by_index = by_index.filter(|at| names.id.is_none() || self.is_open(**at));
        by_id.or(by_index).copied()
    }

    /// As [`Self::find`]. Events without a name belong to the last block; fails if others are open.
    fn find_or_last(&self, names: &Names<'_>) -> Result<Option<usize>, ProviderError> {
        if names.is_some() {
            return Ok(self.find(names));
        }
        if self.begun.len() > self.passed + 1 {
            return Err(mixed());
        }
        Ok(self.begun.len().checked_sub(1))
    }

    /// Begins a block with its first event. Some servers omit the end of the previous block.
    fn begin(&mut self, names: &Names<'_>, is_text: bool) -> Result<usize, ProviderError> {
        let open = self.find_or_last(names)?.filter(|&at| self.is_open(at));
        if open.is_some_and(|at| self.blocks.whole.is_some() && !self.is_text(at)) {
            return Err(mixed());
        }
        if let Some(block) = open.and_then(|at| self.begun.get_mut(at)) {
            block.has_ended = true;
        }
        if let Some(block) = self.begun.last_mut() {
            block.has_ended |= block.is_text;
        }
        self.add(names, is_text)
    }

    fn piece(&mut self, names: &Names<'_>) -> Result<usize, ProviderError> {
        match self.find_or_last(names)? {
            Some(at) if self.is_open(at) => Ok(at),
            Some(at) if self.is_text(at) => self.add(names, true),
            // Some servers omit the first event of a text.
            None if self.passed == self.begun.len() => self.add(names, true),
            _ => Err(mixed()),
        }
    }

    /// Ends a block. Returns `None` if the event is a duplicate.
    fn end(&mut self, names: &Names<'_>, root: &Value) -> Result<Option<usize>, ProviderError> {
        let whole = self.blocks.whole.map(|name| hash_of(&root[name]));
        let known = self.find_or_last(names)?;
        let at = match known {
            Some(at) if self.is_open(at) => at,
            Some(at) if self.begun.get(at).is_some_and(|block| block.whole == whole) => {
                return Ok(None);
            }
            _ if whole.is_none() => return Ok(None),
            None => self.add(names, false)?,
            Some(_) if self.passed == self.begun.len() => self.add(names, false)?,
            Some(_) => return Err(mixed()),
        };
        if let Some(block) = self.begun.get_mut(at) {
            block.has_ended = true;
            block.whole = whole;
        }
        Ok(Some(at))
    }

    fn add(&mut self, names: &Names<'_>, is_text: bool) -> Result<usize, ProviderError> {
        let at = self.begun.len();
        if at == MAX_BLOCKS {
            return Err(ProviderError::failed("too many blocks"));
        }
        if let Some(index) = names.index {
            self.indexes.insert(index, at);
        }
        if let Some(id) = names.id {
            self.ids.insert(id.to_owned(), at);
        }
        self.begun.push(Block {
            is_text,
            ..Block::default()
        });
        Ok(at)
    }

    fn wait(&mut self, at: usize, event: &Event, root: Value) -> Result<(), ProviderError> {
        let bytes = EVENT_BYTES + event.data.len();
        if self.bytes + bytes > TEXT_CAP {
            return Err(ProviderError::over_limit("text over the cap"));
        }
        self.bytes += bytes;
        if let Some(reserved) = &self.reserved {
            reserved.add(MEMORY_PER_BYTE * bytes);
        }
        if let Some(block) = self.begun.get_mut(at) {
            block.bytes += bytes;
            block.waiting.push(root);
        }
        Ok(())
    }

    /// Ends the first `count` blocks and returns the events that no longer have to wait.
    fn pass_on(&mut self, count: usize) -> Vec<Value> {
        let mut ready = Vec::new();
        while let Some(block) = self.begun.get_mut(self.passed) {
            ready.append(&mut block.waiting);
            self.bytes -= std::mem::take(&mut block.bytes);
            block.has_ended |= self.passed < count;
            if !block.has_ended {
                break;
            }
            self.passed += 1;
        }
        if let Some(reserved) = self.reserved.as_ref().filter(|_| !ready.is_empty()) {
            reserved.shrink_to(MEMORY_PER_BYTE * self.bytes);
        }
        ready
    }
}

impl Names<'_> {
    const fn is_some(&self) -> bool {
        self.index.is_some() || self.id.is_some()
    }
}

fn mixed() -> ProviderError {
    ProviderError::failed("blocks are mixed")
}

fn hash_of(whole: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    whole.to_string().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const BLOCKS: Blocks = Blocks {
        index: "at",
        ids: &["/id"],
        begin: "a",
        piece: "b",
        end: ".",
        whole: Some("whole"),
        after: &[],
        is_text: |begin| begin["text"] == true,
    };

    #[test]
    fn blocks_come_one_after_the_other() {
        for (given, expected) in [
            // In order, and without an end.
            ("0a 0. 1a 1. end", "0a 0. 1a 1. end"),
            ("0a 1a end", "0a 1a end"),
            ("ping 0a ping 0. end", "ping 0a ping 0. end"),
            // Interleaved.
            ("0a 1a 0b 1b 0. 1. end", "0a 0b 0. 1a 1b 1. end"),
            ("0a 1a 1. 0b 0. 2a 2. end", "0a 0b 0. 1a 1. 2a 2. end"),
            ("0a 1a 2a 0. 2b 1. 2. end", "0a 0. 1a 1. 2a 2b 2. end"),
            ("1a 0a 1b ping 0b end", "1a 1b ping 0a 0b end"),
            // One index for two blocks.
            ("0a 0. 0a 0. 0. end", "0a 0. 0a 0. end"),
            ("0a 1a 0. 0a 1. 0. end", "0a 0. 1a 1. 0a 0. end"),
            // By ids.
            ("xa ya xb yb x. y. end", "xa xb x. ya yb y. end"),
            ("xa xb x. zb ya end", "xa xb x. zb ya end"),
            // Texts that alternate, of which the first seems to have ended.
            ("0t 1t 0b 1b 0b 1b 0. 1. end", "0t 1t 1b 1b 1. 0b 0b 0. end"),
            ("xa ya zb end", "xa"),
            // A text, `t`, without an end.
            ("0t 0b 1a 1b end", "0t 0b 1a 1b end"),
            ("0a 1t 2a 0. 2b end", "0a 0. 1t 2a 2b end"),
            ("0t 1a 0b 1b 1. 0. end", "0t 1a 1b 1. 0b 0. end"),
            // One name for two blocks that are open.
            ("0a 0b 0a end", "0a 0b"),
            ("0a xa xb xa end", "0a"),
            // A piece of a block that has ended.
            ("0a 0. 1a 0b end", "0a 0. 1a"),
            // An end that is repeated.
            ("0a 0. 1a 0. end", "0a 0. 1a end"),
        ] {
            let mut sequence = Sequence::new(Blocks {
                after: &["end"],
                ..BLOCKS
            });
            let mut found = Vec::new();
            for word in given.split(' ') {
                let root = match word.split_at(1) {
                    (at, kind) if at < "9" => {
                        let begin = kind.replace('t', "a");
                        json!({"at": at.parse::<u64>().unwrap(), "type": begin, "text": kind == "t"})
                    }
                    (id, kind) if kind.len() == 1 => json!({"id": id, "type": kind}),
                    _ => json!({ "type": word }),
                };
                let event = Event {
                    name: None,
                    data: root.to_string(),
                };
                let Ok(ready) = sequence.push(&event, root) else {
                    break;
                };
                found.extend(ready);
            }
            let words: Vec<String> = (found.iter())
                .map(|root| {
                    let at = root["at"].as_u64().map(|at| at.to_string());
                    let at = at.or_else(|| root["id"].as_str().map(str::to_owned));
                    let kind = root["type"].as_str().unwrap();
                    at.unwrap_or_default() + if root["text"] == true { "t" } else { kind }
                })
                .collect();
            assert_eq!(words.join(" "), expected, "{given}");
        }
    }

    #[test]
    fn whole_blocks_need_no_beginning() {
        let event = Event {
            name: None,
            data: String::new(),
        };
        let mut sequence = Sequence::new(BLOCKS);
        for (whole, count) in [("x", 1), ("x", 0), ("y", 1)] {
            let ready = sequence.push(&event, json!({"at": 0, "type": ".", "whole": whole}));
            assert_eq!(ready.unwrap().len(), count, "{whole}");
        }
    }

    #[test]
    fn ends_without_content_may_be_repeated() {
        let mut sequence = Sequence::new(Blocks {
            whole: None,
            ..BLOCKS
        });
        let event = Event {
            name: None,
            data: String::new(),
        };
        let mut push = |at: u64, kind: &str| {
            let ready = sequence.push(&event, json!({"at": at, "type": kind}));
            ready.map(|ready| ready.len())
        };
        for (at, kind, count) in [
            (0, "a", 1),
            (0, ".", 1),
            (1, "a", 1),
            (0, ".", 0),
            (1, "b", 1),
        ] {
            assert_eq!(push(at, kind).unwrap(), count, "{at}{kind}");
        }
        push(0, "b").unwrap_err();
    }

    #[tokio::test]
    async fn what_waits_is_bounded_and_reserved() {
        let memory = memory::Memory::new(1_000);
        let work = async {
            let mut sequence = Sequence::new(BLOCKS);
            let mut push = |at: u64, kind: &str, bytes: usize| {
                let event = Event {
                    name: None,
                    data: "x".repeat(bytes),
                };
                sequence.push(&event, json!({"at": at, "type": kind}))
            };
            push(0, "a", TEXT_CAP).unwrap();
            assert_eq!(memory.usage().0, 0);
            push(1, "a", TEXT_CAP - EVENT_BYTES).unwrap();
            assert!(memory.usage().0 >= TEXT_CAP);
            push(1, "b", 1).unwrap_err();
            push(0, ".", 1).unwrap();
            assert_eq!(memory.usage().0, 0);
        };
        memory.for_request(work).await;
    }
}
