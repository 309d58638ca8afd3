//! The order of the events of a stream whose blocks alternate.
//!
//! A block is one part of an answer, such as a text or a tool call. Vendors send one after the other,
//! but servers that imitate them may interleave the events of several blocks, each with the index of
//! its block. The caller gets one part after the other.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use serde_json::Value;

use super::{ProviderError, answer::TEXT_CAP, sse::Event};
use crate::memory::{self, Reservation};

/// Memory of an event that waits, for each byte of its text.
const EVENT_MEMORY: usize = 8;

/// How a vendor's events name a block and its end.
#[derive(Debug)]
pub struct Blocks {
    /// The member with the index of the block.
    pub index: &'static str,
    /// Where the id of the block is, for events without an index.
    pub ids: &'static [&'static str],
    /// The type of the first event of a block.
    pub begin: &'static str,
    /// The type of the last event of a block.
    pub end: &'static str,
    /// The types of the events after the last block.
    pub after: &'static [&'static str],
    /// Whether the last event has the whole block, so that it may be the only one.
    pub ends_are_whole: bool,
    /// Whether a block with this first event ends where the next one begins, for servers that leave
    /// out its end.
    pub is_ended_by_next: fn(&Value) -> bool,
}

#[derive(Debug)]
pub struct Sequence {
    blocks: Blocks,
    /// Blocks by the hashes of their ids.
    ids: BTreeMap<u64, u64>,
    /// The block that has begun and not ended.
    open: Option<u64>,
    /// Whether the next block ends the open one.
    is_ended_by_next: bool,
    ended: BTreeSet<u64>,
    /// Events of other blocks.
    waiting: Vec<(u64, Value)>,
    /// Their size.
    bytes: usize,
    reserved: Option<Reservation>,
}

impl Sequence {
    pub fn new(blocks: Blocks) -> Self {
        Self {
            blocks,
            ids: BTreeMap::new(),
            open: None,
            is_ended_by_next: false,
            ended: BTreeSet::new(),
            waiting: Vec::new(),
            bytes: 0,
            reserved: memory::reservation(),
        }
    }

    /// Adds an event, whose parsed data is `root`, and returns those that come next. Fails on a piece
    /// of a block that has ended, and on one of an unknown block while others wait.
    pub fn push(&mut self, event: &Event, root: Value) -> Result<Vec<Value>, ProviderError> {
        let (begins, ends) = (self.begins(&root), Self::is(&root, self.blocks.end));
        let Some(block) = self.block_of(&root) else {
            let kind = root.get("type").and_then(Value::as_str);
            let mut ready = Vec::new();
            if kind.is_some_and(|kind| self.blocks.after.contains(&kind)) {
                self.open = None;
                self.release(true, &mut ready);
            } else if begins || ends || root.get("delta").is_some() {
                if !self.waiting.is_empty() {
                    return Err(ProviderError::failed("blocks are mixed"));
                }
                if let Some(block) = self.open.take_if(|_| ends) {
                    self.ended.insert(block);
                }
            }
            ready.push(root);
            return Ok(ready);
        };
        if self.ended.contains(&block) && !begins {
            if ends && !self.blocks.ends_are_whole {
                return Ok(Vec::new());
            }
            let is_whole = self.open.is_none() && ends;
            if !is_whole {
                return Err(ProviderError::failed("blocks are mixed"));
            }
        }
        if begins && self.blocks.ends_are_whole && self.is_open(block) {
            return Err(ProviderError::failed("blocks are mixed"));
        }
        if begins && self.is_ended_by_next {
            self.open = None;
        }
        if *self.open.get_or_insert(block) != block {
            self.wait(block, event, root)?;
            return Ok(Vec::new());
        }
        let mut ready = vec![root];
        self.note(block, &ready);
        self.release(false, &mut ready);
        Ok(ready)
    }

    fn is(root: &Value, kind: &str) -> bool {
        root.get("type").and_then(Value::as_str) == Some(kind)
    }

    fn begins(&self, root: &Value) -> bool {
        Self::is(root, self.blocks.begin)
    }

    /// The block of an event: its index, or the one that began with its id.
    fn block_of(&mut self, root: &Value) -> Option<u64> {
        let index = root.get(self.blocks.index).and_then(Value::as_u64);
        let mut ids = self.blocks.ids.iter();
        let id = ids.find_map(|path| root.pointer(path)?.as_str());
        let Some(id) = id.filter(|id| !id.is_empty()) else {
            return index;
        };
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        let id = hasher.finish();
        if self.begins(root) {
            self.ids.insert(id, index.unwrap_or(id));
        }
        index.or_else(|| self.ids.get(&id).copied())
    }

    /// Whether a block has begun and not ended, with what waits.
    fn is_open(&self, block: u64) -> bool {
        let last = self.waiting.iter().rfind(|(other, _)| *other == block);
        last.map_or(self.open == Some(block), |(_, root)| {
            !Self::is(root, self.blocks.end)
        })
    }

    fn wait(&mut self, block: u64, event: &Event, root: Value) -> Result<(), ProviderError> {
        self.bytes += event.data.len();
        if self.bytes > TEXT_CAP {
            return Err(ProviderError::failed("text over the cap"));
        }
        if let Some(reserved) = &self.reserved {
            reserved.add(EVENT_MEMORY * event.data.len());
        }
        self.waiting.push((block, root));
        Ok(())
    }

    /// Notes which block is open after these events of a block, unless it has ended with the last.
    fn note(&mut self, block: u64, ready: &[Value]) {
        let has_ended = ready
            .last()
            .is_some_and(|root| Self::is(root, self.blocks.end));
        let begin = ready.iter().rfind(|root| self.begins(root));
        let is_same = self.open == Some(block);
        self.is_ended_by_next = match begin {
            Some(begin) => (self.blocks.is_ended_by_next)(begin),
            None => self.is_ended_by_next && is_same,
        };
        self.open = (!has_ended).then_some(block);
        if has_ended {
            self.is_ended_by_next = false;
            self.ended.insert(block);
        } else {
            self.ended.remove(&block);
        }
    }

    /// Moves what waits to `ready`, up to a block that has not ended unless it is `all`.
    fn release(&mut self, all: bool, ready: &mut Vec<Value>) {
        loop {
            let has_next = || self.waiting.iter().any(|(_, root)| self.begins(root));
            let is_closed = all || self.open.is_none() || self.is_ended_by_next && has_next();
            let Some(&(block, _)) = self.waiting.first().filter(|_| is_closed) else {
                break;
            };
            let of_block = self.waiting.extract_if(.., |(other, _)| *other == block);
            let events: Vec<Value> = of_block.map(|(_, root)| root).collect();
            self.open = None;
            self.note(block, &events);
            ready.extend(events);
        }
        if self.waiting.is_empty() {
            self.bytes = 0;
            if let Some(reserved) = &self.reserved {
                reserved.shrink_to(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const BLOCKS: Blocks = Blocks {
        index: "at",
        ids: &["/id"],
        begin: "a",
        end: ".",
        after: &[],
        ends_are_whole: true,
        is_ended_by_next: |begin| begin["text"] == true,
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
            ("0a 0. 0a 0. 0. end", "0a 0. 0a 0. 0. end"),
            ("0a 1a 0. 0a 1. 0. end", "0a 0. 1a 1. 0a 0. end"),
            // By ids.
            ("xa ya xb yb x. y. end", "xa xb x. ya yb y. end"),
            ("xa xb x. zb ya end", "xa xb x. zb ya end"),
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
            ("0a 0. 1a 0. end", "0a 0. 1a"),
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
                    (id, kind) if kind.len() == 1 => json!({"id": id, "type": kind, "delta": ""}),
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
    fn ends_without_content_may_be_repeated() {
        let mut sequence = Sequence::new(Blocks {
            ends_are_whole: false,
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
            push(1, "a", TEXT_CAP).unwrap();
            assert!(memory.usage().0 >= TEXT_CAP);
            push(1, "b", 1).unwrap_err();
            push(0, ".", 1).unwrap();
            assert_eq!(memory.usage().0, 0);
        };
        memory.for_request(work).await;
    }
}
