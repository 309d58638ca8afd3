//! Receipts: a vendor's token counts of a dialogue. They bound the tokens of its later turns much
//! more closely than bytes do.

use std::fmt::Display;

use serde_json::{Map, Value};
use uuid::Uuid;

use super::{generation::Surface, usage::TokenCounts};

/// Version of the rules by which bytes bound tokens. Increase it with each release that changes
/// what is counted, here or in `conversation` and `catalogue`: an older bound says nothing about
/// content that is counted now.
pub(crate) const RULES: u32 = 3;
/// Minimum bound of a dialogue for which a receipt is stored; shorter dialogues gain too little.
const WORTH: u64 = 4_096;
/// Maximum prefixes of a dialogue to look up.
const LOOKED_FOR: usize = 128;
/// Tokens that a vendor's template may render differently in the next turn: an absolute number, and
/// a fraction of all.
const MARGIN: u64 = 256;
const MARGIN_PART: u64 = 64;
/// Maximum average bytes per token: most texts have 3 to 5, and scripts with three bytes a letter
/// up to 12. A vendor that counts fewer tokens omits something, and may count it the next time.
const MOST_BYTES: u64 = 16;

/// Members of a body that do not change the model's input. They are neither counted nor digested.
/// Both must agree; otherwise new text could be treated as counted.
const UNREAD: &[&str] = &[
    "client_metadata",
    "diagnostics",
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
/// Marks a position for a vendor's cache. No model reads it, and agents move it from turn to turn.
pub const MARKER: &str = "cache_control";
const MARKER_BYTES: usize = 16;
/// Prefix of a line of `name=value;` in Claude Code's instructions. It changes with each request
/// and is only for Anthropic (anthropics/claude-code#68900).
pub const BILLING_HEADER: &str = "x-anthropic-billing-header";

/// Whether no model reads a member. `prefix`: the path of the containing object in the body.
pub fn is_unread(prefix: &str, name: &str, value: &Value) -> bool {
    let end = prefix.find(['.', '[']).unwrap_or(prefix.len());
    let of_body = prefix.get(..end).filter(|first| !first.is_empty());
    UNREAD.contains(&of_body.unwrap_or(name)) || is_marker(name, value)
}

/// Whether a member is a cache marker, and has nothing that a model could be given to read.
fn is_marker(name: &str, value: &Value) -> bool {
    let is_short = |value: &Value| {
        value
            .as_str()
            .is_some_and(|text| text.len() <= MARKER_BYTES)
    };
    let known = |(name, value): (&String, &Value)| {
        ["scope", "ttl", "type"].contains(&name.as_str()) && is_short(value)
    };
    name == MARKER
        && match value {
            Value::Null => true,
            Value::Object(members) => members.iter().all(known),
            _ => false,
        }
}

/// Digests of a dialogue and of its prefixes that another turn can have sent: those before an
/// answer. The whole dialogue is first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefixes {
    digests: Vec<[u8; 32]>,
    /// Bytes of Anthropic's billing lines, which are not digested because they change with each
    /// request. A dialogue's count does not bound the next one's billing lines.
    pub undigested: usize,
}

impl Prefixes {
    /// Digests a body in a surface's dialect, and its headers. Returns `None` if it has no
    /// messages, or if the vendor may truncate them, so that its count does not bound the next
    /// turn.
    pub fn of(
        surface: Surface,
        members: &Map<String, Value>,
        headers: &[(&'static str, String)],
    ) -> Option<Self> {
        let list = match surface {
            Surface::OpenAiResponses => "input",
            _ => "messages",
        };
        if members
            .get("truncation")
            .is_some_and(|value| value == "auto")
        {
            return None;
        }
        let messages = members.get(list)?;
        let messages = messages.as_array().map_or_else(
            || std::slice::from_ref(messages),
            |messages| messages.as_slice(),
        );
        let mut encoding = Encoding::default();
        encoding.string(surface.as_str());
        for (name, value) in headers {
            encoding.string(name);
            encoding.string(value);
        }
        encoding.bytes.push(b'{');
        for (name, value) in by_name(members) {
            if name == "model" || name == list || is_unread("", name, value) {
                continue;
            }
            encoding.string(name);
            match (surface, name.as_str()) {
                (Surface::AnthropicMessages, "system") => encoding.instructions(value),
                (_, "tools") => encoding.blocks(value),
                _ => encoding.value(value),
            }
        }
        let undigested = encoding.left_out;
        let mut digests = Vec::new();
        let mut digest = encoding.finish();
        encoding.bytes.extend(digest);
        for (at, message) in messages.iter().enumerate() {
            encoding.unmarked(message, true);
            if messages.get(at + 1).is_none_or(is_answer) {
                digest = encoding.finish();
                encoding.bytes.extend(digest);
                digests.push(digest);
            }
        }
        digests.reverse();
        digests.truncate(LOOKED_FOR);
        Some(Self {
            digests,
            undigested,
        })
    }

    /// Whether the dialogue may continue another one.
    pub const fn may_follow(&self) -> bool {
        self.digests.len() > 1
    }

    /// Returns the receipt keys of the dialogue's prefixes, the whole dialogue first. `scope`: the
    /// account and everything that determines the count.
    pub fn keys(&self, scope: &impl Display) -> Vec<Uuid> {
        let scope = blake3::hash(format!("{RULES} {scope}").as_bytes());
        let keys = self.digests.iter().map(|digest| {
            let key = blake3::keyed_hash(scope.as_bytes(), digest);
            let (first, _) = key.as_bytes().split_at(16);
            Uuid::from_slice(first).unwrap_or_default()
        });
        keys.collect()
    }
}

/// Whether a message, or an item of the Responses API, is the model's.
fn is_answer(message: &Value) -> bool {
    match message["role"].as_str() {
        Some(role) => role == "assistant",
        None => message["type"]
            .as_str()
            .is_some_and(|kind| !kind.ends_with("_output")),
    }
}

/// Sorts the members of a body, a message or a block, which SDKs write in any order. Deeper
/// members, such as a schema's, keep their order, because the model sees them in it.
fn by_name(members: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut members: Vec<_> = members.iter().collect();
    members.sort_by_key(|(name, _)| *name);
    members
}

/// Returns instructions without Anthropic's billing line; `None` if they do not begin with one.
pub fn without_billing_header(text: &str) -> Option<&str> {
    let header = text.trim_start().strip_prefix(BILLING_HEADER)?;
    let pairs = header.strip_prefix(':')?;
    let (pairs, rest) = pairs.split_once('\n').unwrap_or((pairs, ""));
    let is_pair = |pair: &str| pair.is_empty() || pair.contains('=') && !pair.contains(' ');
    let only_pairs = pairs.split(';').map(str::trim).all(is_pair);
    only_pairs.then(|| rest.trim_start())
}

/// Whether a block is a text without anything else that a model could read.
fn is_plain_text(members: &Map<String, Value>) -> bool {
    let kind = members.get("type").and_then(Value::as_str);
    let mut others = members.iter();
    kind == Some("text")
        && members.get("text").is_some_and(Value::is_string)
        && others
            .all(|(name, value)| ["type", "text"].contains(&&name[..]) || is_marker(name, value))
}

/// Encodes JSON values as bytes to hash. Strings are prefixed by their lengths, which is
/// unambiguous without escapes.
#[derive(Default)]
struct Encoding {
    bytes: Vec<u8>,
    /// Bytes of omitted texts.
    left_out: usize,
}

impl Encoding {
    /// Returns the digest of everything added since the last digest.
    fn finish(&mut self) -> [u8; 32] {
        let digest = blake3::hash(&self.bytes);
        self.bytes.clear();
        digest.into()
    }

    fn string(&mut self, text: &str) {
        self.bytes.push(b'"');
        self.bytes.extend((text.len() as u64).to_le_bytes());
        self.bytes.extend(text.as_bytes());
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.bytes.push(b'n'),
            Value::Bool(true) => self.bytes.push(b't'),
            Value::Bool(false) => self.bytes.push(b'f'),
            Value::Number(number) => {
                self.bytes.push(b'#');
                self.string(&number.to_string());
            }
            Value::String(text) => self.string(text),
            Value::Array(items) => self.list(items, Self::value),
            Value::Object(members) => {
                self.bytes.push(b'{');
                for (name, value) in members {
                    self.string(name);
                    self.value(value);
                }
                self.bytes.push(b'}');
            }
        }
    }

    fn list(&mut self, items: &[Value], add: impl Fn(&mut Self, &Value)) {
        self.bytes.push(b'[');
        for item in items {
            add(self, item);
        }
        self.bytes.push(b']');
    }

    fn text_block(&mut self, text: &str) {
        self.bytes.push(b'{');
        for text in ["text", text, "type", "text"] {
            self.string(text);
        }
        self.bytes.push(b'}');
    }

    /// Adds instructions without their billing lines.
    fn instructions(&mut self, system: &Value) {
        let blocks = system
            .as_array()
            .map_or_else(|| std::slice::from_ref(system), |blocks| blocks.as_slice());
        self.bytes.push(b'[');
        for block in blocks {
            let text = match block {
                Value::Object(members) if is_plain_text(members) => members["text"].as_str(),
                other => other.as_str(),
            };
            let rest = text.map(|text| without_billing_header(text).unwrap_or(text));
            if let Some((text, rest)) = text.zip(rest) {
                self.left_out += text.len() - rest.len();
            }
            match rest {
                Some("") => {}
                Some(rest) => self.text_block(rest),
                None => self.unmarked(block, false),
            }
        }
        self.bytes.push(b']');
    }

    /// Adds blocks without their cache markers. A string equals a block of text: some agents switch
    /// to a block to mark it.
    fn blocks(&mut self, value: &Value) {
        match value {
            Value::String(text) => {
                self.bytes.push(b'[');
                self.text_block(text);
                self.bytes.push(b']');
            }
            Value::Array(blocks) => self.list(blocks, |encoding, block| {
                encoding.unmarked(block, false);
            }),
            other => self.value(other),
        }
    }

    /// Adds a message or a block without its cache markers.
    fn unmarked(&mut self, value: &Value, is_message: bool) {
        let Value::Object(members) = value else {
            return self.value(value);
        };
        let kind = members.get("type").and_then(Value::as_str);
        let has_blocks = is_message || kind == Some("tool_result");
        self.bytes.push(b'{');
        for (name, value) in by_name(members) {
            if is_marker(name, value) {
                continue;
            }
            self.string(name);
            if has_blocks && name == "content" {
                self.blocks(value);
            } else {
                self.value(value);
            }
        }
        self.bytes.push(b'}');
    }
}

/// A vendor's count of a dialogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Maximum input tokens by the bytes.
    pub bound: u64,
    /// Input tokens counted by the vendor.
    pub tokens: u64,
}

impl Receipt {
    /// Returns the maximum input tokens of a dialogue that begins with the counted one. `bound`:
    /// its maximum by its bytes.
    pub fn most(self, bound: u64) -> u64 {
        self.most_after(bound).map_or(bound, |most| most.min(bound))
    }

    /// As [`Self::most`], if `bound` excludes parts of the counted dialogue, such as PDFs, whose
    /// bytes do not bound their tokens.
    pub fn most_after(self, bound: u64) -> Option<u64> {
        // If `bound` is smaller, it is another dialogue.
        let new = bound.checked_sub(self.bound)?;
        let margin = MARGIN + self.tokens / MARGIN_PART;
        self.tokens.checked_add(new)?.checked_add(margin)
    }
}

/// A receipt that has no counts yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blank {
    pub key: Uuid,
    /// See [`Receipt::bound`].
    pub bound: u64,
    /// The vendor's count of its prefix.
    pub begun: u64,
}

impl Blank {
    /// Whether a receipt is worth storing and looking up.
    pub const fn is_worth(bound: u64) -> bool {
        bound >= WORTH
    }

    /// Returns the receipt for a vendor's counts; `None` without a plausible count, or if the
    /// cached tokens exceed it. The tokens are raised to a plausible minimum and to those of the
    /// dialogue's prefix, because a vendor may later count tokens that it omitted now.
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
