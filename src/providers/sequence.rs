//! The order of the events of a stream whose blocks alternate.
//!
//! A block is one part of an answer, such as a text or a tool call. Vendors send one after the other,
//! but servers that imitate them may interleave the events of several blocks, each with the index of
//! its block. The caller gets one part after the other.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use serde_json::Value;

use super::{ProviderError, answer::TEXT_CAP, sse::Event};
use crate::memory::{self, Reservation};

/// The most blocks of an answer.
const MAX_BLOCKS: usize = 10_000;
/// Memory of an event that waits: a part for each event, and a part for each byte of its text.
const EVENT_MEMORY: (usize, usize) = (512, 8);

/// How a vendor's events name a block and its end.
#[derive(Debug)]
pub struct Blocks {
    /// The member with the index of the block.
    pub index: &'static str,
    /// Where the id of the block is, for events without an index.
    pub ids: &'static [&'static str],
    /// The type of the first event of a block.
    pub begin: &'static str,
    /// How the types of the pieces of a block end.
    pub piece: &'static str,
    /// The type of the last event of a block.
    pub end: &'static str,
    /// The member of the last event that has the whole block, so that it may be the only event.
    pub whole: Option<&'static str>,
    /// The types of the events after the last block.
    pub after: &'static [&'static str],
    /// Whether a block with this first event is a text, whose pieces need no beginning.
    pub is_text: fn(&Value) -> bool,
}

#[derive(Debug)]
pub struct Sequence {
    blocks: Blocks,
    /// The last block of each name.
    names: HashMap<Name, usize>,
    /// In the order in which they began.
    begun: Vec<Block>,
    /// How many of them were passed on as a whole: the next one is passed on as it comes.
    passed: usize,
    /// The size of the events that wait.
    bytes: usize,
    reserved: Option<Reservation>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum Name {
    Index(u64),
    Id(String),
}

#[derive(Debug, Default)]
struct Block {
    is_text: bool,
    has_ended: bool,
    /// The hash of the whole block in its last event.
    whole: Option<u64>,
    waiting: Vec<Value>,
}

impl Sequence {
    pub fn new(blocks: Blocks) -> Self {
        Self {
            blocks,
            names: HashMap::new(),
            begun: Vec::new(),
            passed: 0,
            bytes: 0,
            reserved: memory::reservation(),
        }
    }

    /// Adds an event, whose parsed data is `root`, and returns those that come next. Fails if the
    /// block of a piece cannot be told.
    pub fn push(&mut self, event: &Event, root: Value) -> Result<Vec<Value>, ProviderError> {
        let kind = root.get("type").and_then(Value::as_str).unwrap_or_default();
        let (begins, ends) = (kind == self.blocks.begin, kind == self.blocks.end);
        if self.blocks.after.contains(&kind) {
            let mut ready = self.pass_on(self.begun.len());
            ready.push(root);
            return Ok(ready);
        }
        let is_piece = kind.ends_with(self.blocks.piece);
        let names = self.names_of(&root);
        let known = if !names.is_empty() {
            names.iter().find_map(|name| self.names.get(name)).copied()
        } else if begins || ends || is_piece {
            self.last()?
        } else {
            None
        };
        let known = known.and_then(|at| Some((at, self.begun.get(at)?)));
        let is_idle = self.passed == self.begun.len();
        let is_whole = ends && self.blocks.whole.is_some();
        let at = match known {
            Some((_, block)) if begins => {
                if !block.has_ended && self.blocks.whole.is_some() {
                    return Err(mixed());
                }
                self.begin(names, (self.blocks.is_text)(&root))?
            }
            Some((at, block)) if !block.has_ended => at,
            Some((_, block)) if is_piece && block.is_text => self.begin(names, true)?,
            None if begins => self.begin(names, (self.blocks.is_text)(&root))?,
            Some((_, block)) if ends && self.is_repeated(block, &root) => return Ok(Vec::new()),
            None if is_whole => self.begin(names, false)?,
            _ if is_whole && is_idle => self.begin(names, false)?,
            None if is_piece && is_idle => self.begin(names, false)?,
            _ if is_piece || is_whole => return Err(mixed()),
            _ => return Ok(vec![root]),
        };
        if ends && let Some(block) = self.begun.get_mut(at) {
            block.has_ended = true;
            block.whole = self.blocks.whole.map(|name| hash_of(&root[name]));
        }
        if at > self.passed {
            self.wait(at, event, root)?;
            return Ok(self.pass_on(self.passed));
        }
        let mut ready = vec![root];
        ready.extend(self.pass_on(self.passed));
        Ok(ready)
    }

    /// The index and the id of the block of an event.
    fn names_of(&self, root: &Value) -> Vec<Name> {
        let index = root.get(self.blocks.index).and_then(Value::as_u64);
        let ids = self.blocks.ids.iter();
        let id = ids.filter_map(|path| root.pointer(path)?.as_str());
        let id = id.filter(|id| !id.is_empty()).map(str::to_owned).next();
        let names = index.map(Name::Index).into_iter();
        names.chain(id.map(Name::Id)).collect()
    }

    /// The block of an event without a name: the last one. Fails where it may be of another.
    fn last(&self) -> Result<Option<usize>, ProviderError> {
        if self.begun.len() > self.passed + 1 {
            return Err(mixed());
        }
        Ok(self.begun.len().checked_sub(1))
    }

    /// Whether a last event says nothing new.
    fn is_repeated(&self, block: &Block, root: &Value) -> bool {
        let whole = self.blocks.whole.map(|name| hash_of(&root[name]));
        block.whole == whole
    }

    /// Begins a block. Some servers leave out the end of the one before.
    fn begin(&mut self, names: Vec<Name>, is_text: bool) -> Result<usize, ProviderError> {
        let at = self.begun.len();
        if at == MAX_BLOCKS {
            return Err(ProviderError::failed("too many blocks"));
        }
        if let Some(block) = self.begun.last_mut() {
            block.has_ended |= block.is_text || names.is_empty();
        }
        for name in names {
            let before = self.names.insert(name, at);
            if let Some(block) = before.and_then(|at| self.begun.get_mut(at)) {
                block.has_ended = true;
            }
        }
        self.begun.push(Block {
            is_text,
            ..Block::default()
        });
        Ok(at)
    }

    fn wait(&mut self, at: usize, event: &Event, root: Value) -> Result<(), ProviderError> {
        self.bytes += event.data.len();
        if self.bytes > TEXT_CAP {
            return Err(ProviderError::over_limit("text over the cap"));
        }
        if let Some(reserved) = &self.reserved {
            let (each, byte) = EVENT_MEMORY;
            reserved.add(each + byte * event.data.len());
        }
        if let Some(block) = self.begun.get_mut(at) {
            block.waiting.push(root);
        }
        Ok(())
    }

    /// Returns what waits of the first `most` blocks, and of those after blocks that have ended.
    fn pass_on(&mut self, most: usize) -> Vec<Value> {
        let mut ready = Vec::new();
        while let Some(block) = self.begun.get_mut(self.passed) {
            ready.append(&mut block.waiting);
            block.has_ended |= self.passed < most;
            if !block.has_ended {
                break;
            }
            self.passed += 1;
        }
        if self.passed + 1 >= self.begun.len() {
            self.bytes = 0;
            if let Some(reserved) = &self.reserved {
                reserved.shrink_to(0);
            }
        }
        ready
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
            push(1, "a", TEXT_CAP).unwrap();
            assert!(memory.usage().0 >= TEXT_CAP);
            push(1, "b", 1).unwrap_err();
            push(0, ".", 1).unwrap();
            assert_eq!(memory.usage().0, 0);
        };
        memory.for_request(work).await;
    }
}
