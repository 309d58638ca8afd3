//! Receipts: what a vendor has counted of a dialogue. They bound the dialogues that go on from there
//! far closer than bytes do.

use std::fmt::Display;

use serde::{
    Serialize, Serializer,
    ser::{SerializeMap as _, SerializeSeq as _},
};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::{generation::Surface, json::digest, usage::TokenCounts};

/// The rules by which bytes bound tokens. To be raised with each released change of what is counted,
/// here or in `conversation` and `catalogue`: what was bounded otherwise says nothing of what is new.
const RULES: u32 = 1;
/// Dialogues that their bytes bound by less gain too little.
const WORTH: u64 = 4_096;
/// Beginnings of a dialogue that are looked for, from its end. A turn adds two messages and more
/// results of tools.
const LOOKED_FOR: usize = 128;
/// What a vendor's template may render otherwise in the next turn: tokens, and a part of all.
const MARGIN: u64 = 256;
const MARGIN_PART: u64 = 64;
/// Bytes that no token stands for on average: in most texts they are 3 to 5, up to 12 in scripts of
/// three bytes a letter. Who counts less leaves something out, and may count it the next time.
const MOST_BYTES: u64 = 16;

/// Members of a body that change nothing of what the model is given to read. They are neither
/// counted nor digested: what is one must be the other, or text could be counted as known that is
/// new.
const UNREAD: &[&str] = &[
    "client_metadata",
    "frequency_penalty",
    "logit_bias",
    "max_completion_tokens",
    "max_output_tokens",
    "max_tokens",
    "metadata",
    "presence_penalty",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "stop_sequences",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "top_k",
    "top_p",
    "user",
];
/// What marks a place for a vendor's cache. No model reads it, and agents move it from turn to turn.
pub const MARKER: &str = "cache_control";
const MARKER_BYTES: usize = 16;

/// Whether no model reads a member. `prefix`: the path in the body of what it is in.
pub fn is_unread(prefix: &str, name: &str, value: &Value) -> bool {
    let end = prefix.find(['.', '[']).unwrap_or(prefix.len());
    let of_body = prefix.get(..end).filter(|first| !first.is_empty());
    UNREAD.contains(&of_body.unwrap_or(name)) || is_marker(name, value)
}

/// Whether a member is a cache marker, and has nothing that a model could be given to read.
pub fn is_marker(name: &str, value: &Value) -> bool {
    let is_short = |value: &Value| {
        value
            .as_str()
            .is_some_and(|text| text.len() <= MARKER_BYTES)
    };
    let known = |(name, value): (&String, &Value)| {
        ["type", "ttl"].contains(&name.as_str()) && is_short(value)
    };
    name == MARKER
        && match value {
            Value::Null => true,
            Value::Object(members) => members.iter().all(known),
            _ => false,
        }
}

/// Digests of a dialogue up to each of its last messages, beginning with the whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefixes(Vec<[u8; 32]>);

impl Prefixes {
    /// Of a body in a surface's dialect, with the headers that belong to it. `None`: it has no
    /// messages.
    pub fn of(
        surface: Surface,
        members: &Map<String, Value>,
        headers: &[(&'static str, String)],
    ) -> Option<Self> {
        let list = match surface {
            Surface::OpenAiResponses => "input",
            _ => "messages",
        };
        let mut hash = Rolling::default();
        hash.add(&(surface.as_str(), headers));
        for (name, value) in by_name(members) {
            if name == "model" || name == list || is_unread("", name, value) {
                continue;
            }
            match (surface, name.as_str()) {
                (Surface::AnthropicMessages, "system") | (_, "tools") => {
                    hash.add(&(name, Blocks(value)));
                }
                _ => hash.add(&(name, value)),
            }
        }
        let messages = members.get(list)?;
        let messages = messages.as_array().map_or_else(
            || std::slice::from_ref(messages),
            |messages| messages.as_slice(),
        );
        let short = messages.len().saturating_sub(LOOKED_FOR);
        let mut digests = Vec::new();
        for (at, message) in messages.iter().enumerate() {
            hash.add(&Unmarked(message, true));
            if at >= short {
                digests.push(hash.0.clone().finalize().into());
            }
        }
        digests.reverse();
        Some(Self(digests))
    }

    /// Whether the dialogue may go on from another one.
    pub const fn may_follow(&self) -> bool {
        self.0.len() > 1
    }

    /// The names of the receipts of the dialogue's beginnings, beginning with the whole. `scope`:
    /// whose they are, and for what their tokens were counted.
    pub fn keys(&self, scope: &impl Display) -> Vec<Uuid> {
        let scope = Sha256::digest(format!("{RULES} {scope}"));
        let keys = self.0.iter().map(|digest| {
            let key = Sha256::new().chain_update(scope).chain_update(digest);
            let key = key.finalize();
            let (first, _) = key.split_at(16);
            Uuid::from_slice(first).unwrap_or_default()
        });
        keys.collect()
    }
}

/// Sorted: SDKs write the members of a body, a message and a block in any order. Those further in,
/// such as a schema's, keep theirs, in which the model is given them.
fn by_name(members: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut members: Vec<_> = members.iter().collect();
    members.sort_by_key(|(name, _)| *name);
    members
}

/// A digest of JSON texts, one after the other.
#[derive(Default)]
struct Rolling(Sha256);

impl Rolling {
    fn add(&mut self, value: &impl Serialize) {
        digest(&mut self.0, value);
        self.0.update(b"\n");
    }
}

/// Blocks without their cache markers. A text stands for a block of text: some agents write one as
/// the other where they mark it.
struct Blocks<'a>(&'a Value);

impl Serialize for Blocks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::String(text) => [json!({"text": text, "type": "text"})].serialize(serializer),
            Value::Array(blocks) => {
                let mut list = serializer.serialize_seq(Some(blocks.len()))?;
                for block in blocks {
                    list.serialize_element(&Unmarked(block, false))?;
                }
                list.end()
            }
            other => other.serialize(serializer),
        }
    }
}

/// A message, if the second is true, or a block, without its cache markers.
struct Unmarked<'a>(&'a Value, bool);

impl Serialize for Unmarked<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(Value::Object(members), is_message) = self else {
            return self.0.serialize(serializer);
        };
        let has_blocks = *is_message || members.get("type") == Some(&json!("tool_result"));
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in by_name(members) {
            match name.as_str() {
                _ if is_marker(name, value) => {}
                "content" if has_blocks => map.serialize_entry(name, &Blocks(value))?,
                _ => map.serialize_entry(name, value)?,
            }
        }
        map.end()
    }
}

/// What a vendor has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// The input tokens by the bytes, which are an upper bound.
    pub bound: u64,
    /// The input tokens by the vendor.
    pub tokens: u64,
}

impl Receipt {
    /// The most input tokens of a dialogue that begins with the counted one. `bound`: what its bytes
    /// bound it by.
    pub fn most(self, bound: u64) -> u64 {
        // What is new cannot be less than nothing: then it is another dialogue.
        let new = bound.checked_sub(self.bound);
        let most = new.and_then(|new| {
            let margin = MARGIN + self.tokens / MARGIN_PART;
            self.tokens.checked_add(new)?.checked_add(margin)
        });
        most.map_or(bound, |most| most.min(bound))
    }
}

/// A receipt that is not written yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blank {
    pub key: Uuid,
    /// As of [`Receipt`].
    pub bound: u64,
    /// What was counted of its beginning.
    pub begun: u64,
}

impl Blank {
    /// Whether it is worth writing, and looking for.
    pub const fn is_worth(bound: u64) -> bool {
        bound >= WORTH
    }

    /// With a vendor's counts, unless it has a cache beside the input. Never less than is plausible,
    /// nor than what its beginning had: what a vendor drops, it may not drop again.
    pub fn counted(self, counts: &TokenCounts) -> Option<Receipt> {
        let tokens = counts.believed_input().filter(|&tokens| tokens > 0)?;
        let parts = [counts.cached_input, counts.cache_write];
        let cached = parts.into_iter().flatten().fold(0, u64::saturating_add);
        (cached <= tokens).then(|| Receipt {
            bound: self.bound,
            tokens: tokens.max(self.bound / MOST_BYTES).max(self.begun),
        })
    }
}

#[cfg(test)]
mod tests;
