//! The order of the events of a stream whose blocks alternate.
//!
//! A block is one part of an answer, such as a text or a tool call. Vendors send one after the other,
//! but servers that imitate them may interleave the events of several blocks, each with the index of
//! its block. The caller gets one part after the other.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{ProviderError, answer::TEXT_CAP, sse::Event};

/// How a vendor's events name a block and its end.
#[derive(Debug)]
pub struct Blocks {
    /// The member with the index of the block.
    pub index: &'static str,
    /// The type of the first event of a block.
    pub begin: &'static str,
    /// The type of the last event of a block.
    pub end: &'static str,
    /// The types of the events after the last block.
    pub after: &'static [&'static str],
}

#[derive(Debug)]
pub struct Sequence {
    blocks: Blocks,
    /// The block that has begun and not ended.
    open: Option<u64>,
    ended: BTreeSet<u64>,
    /// Events of other blocks.
    waiting: Vec<(u64, Value)>,
    /// Their size.
    bytes: usize,
}

impl Sequence {
    pub const fn new(blocks: Blocks) -> Self {
        Self {
            blocks,
            open: None,
            ended: BTreeSet::new(),
            waiting: Vec::new(),
            bytes: 0,
        }
    }

    /// Adds an event, whose parsed data is `root`, and returns those that come next. Fails on a piece
    /// of a block that has ended.
    pub fn push(&mut self, event: &Event, root: Value) -> Result<Vec<Value>, ProviderError> {
        let Some(block) = root.get(self.blocks.index).and_then(Value::as_u64) else {
            let mut ready = Vec::new();
            let kind = root.get("type").and_then(Value::as_str);
            if kind.is_some_and(|kind| self.blocks.after.contains(&kind)) {
                self.open = None;
                self.release(true, &mut ready);
            }
            ready.push(root);
            return Ok(ready);
        };
        let begins = Self::is(&root, self.blocks.begin);
        let is_whole = self.open.is_none() && Self::is(&root, self.blocks.end);
        if self.ended.contains(&block) && !begins && !is_whole {
            return Err(ProviderError::failed("blocks are mixed"));
        }
        if *self.open.get_or_insert(block) != block {
            self.bytes += event.data.len();
            self.waiting.push((block, root));
            return if self.bytes > TEXT_CAP {
                Err(ProviderError::failed("text over the cap"))
            } else {
                Ok(Vec::new())
            };
        }
        let mut ready = vec![root];
        self.note(block, &ready);
        self.release(false, &mut ready);
        Ok(ready)
    }

    fn is(root: &Value, kind: &str) -> bool {
        root.get("type").and_then(Value::as_str) == Some(kind)
    }

    /// Notes whether a block has ended with the last event.
    fn note(&mut self, block: u64, ready: &[Value]) {
        let has_ended = ready
            .last()
            .is_some_and(|root| Self::is(root, self.blocks.end));
        self.open = (!has_ended).then_some(block);
        if has_ended {
            self.ended.insert(block);
        } else {
            self.ended.remove(&block);
        }
    }

    /// Moves what waits to `ready`, up to a block that has not ended unless it is `all`.
    fn release(&mut self, all: bool, ready: &mut Vec<Value>) {
        while (all || self.open.is_none())
            && let Some((block, _)) = self.waiting.first()
        {
            let block = *block;
            let of_block = self.waiting.extract_if(.., |(other, _)| *other == block);
            ready.extend(of_block.map(|(_, root)| root));
            self.note(block, ready);
        }
        if self.waiting.is_empty() {
            self.bytes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
            // A piece of a block that has ended.
            ("0a 0. 1a 0b end", "0a 0. 1a"),
            ("0a 0. 1a 0. end", "0a 0. 1a"),
        ] {
            let mut sequence = Sequence::new(Blocks {
                index: "at",
                begin: "a",
                end: ".",
                after: &["end"],
            });
            let mut found = Vec::new();
            for word in given.split(' ') {
                let root = match word.split_at(1) {
                    (at, kind) if at < "9" => {
                        json!({"at": at.parse::<u64>().unwrap(), "type": kind})
                    }
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
                    at.unwrap_or_default() + root["type"].as_str().unwrap()
                })
                .collect();
            assert_eq!(words.join(" "), expected, "{given}");
        }
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut sequence = Sequence::new(Blocks {
            index: "at",
            begin: "a",
            end: ".",
            after: &[],
        });
        let mut push = |at: u64, bytes: usize| {
            let event = Event {
                name: None,
                data: "x".repeat(bytes),
            };
            sequence.push(&event, json!({ "at": at }))
        };
        push(0, TEXT_CAP).unwrap();
        push(1, TEXT_CAP).unwrap();
        push(1, 1).unwrap_err();
    }
}
