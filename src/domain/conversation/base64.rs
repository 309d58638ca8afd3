//! Base64 data, which may be a slice of a larger buffer.

use bytes::Bytes;
use memchr::memmem;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::domain::validate::{FieldCode, Refusal};

/// Shorter data keeps its own buffer, instead of keeping a large one in memory.
const MIN_SHARED: usize = 16 << 10;
/// Bytes of the data to search for: the header of an image and more.
const NEEDLE: usize = 64;

/// Base64 as ASCII text. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base64Text(Bytes);

impl Base64Text {
    pub fn as_str(&self) -> &str {
        // It was created from a string.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    pub const fn len(&self) -> usize {
        self.0.len()
    }

    pub const fn buffer(&self) -> &Bytes {
        &self.0
    }

    /// Replaces the buffer by the first slice of `body` with the same text, from `start` on.
    /// Returns the end of the slice, or `None` if there is none.
    pub fn share(&mut self, body: &Bytes, start: usize) -> Option<usize> {
        if self.len() < MIN_SHARED {
            return Some(start);
        }
        let (rest, needle) = (body.get(start..)?, self.0.get(..NEEDLE)?);
        let mut places = memmem::find_iter(rest, needle).map(|at| start + at);
        let at = places.find(|&at| body[at..].starts_with(&self.0))?;
        let end = at + self.len();
        self.0 = body.slice(at..end);
        Some(end)
    }
}

/// Refuses data that is not padded base64 without line breaks.
pub(super) fn check_base64(data: &str) -> Result<(), Refusal> {
    let text = data.trim_end_matches('=');
    let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    let is_padded = data.len().is_multiple_of(4) && data.len() - text.len() <= 2;
    if is_padded && text.bytes().all(known) {
        return Ok(());
    }
    let message = "is not base64 with padding and without line breaks";
    Err((FieldCode::InvalidFormat, message.into()))
}

impl From<String> for Base64Text {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl Serialize for Base64Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_str().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Base64Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_text_of_the_body_is_shared() {
        let first = "A".repeat(MIN_SHARED);
        let second = format!("{first}B");
        let body = Bytes::from(format!("[\"é{first}\",\"{second}\"]"));
        let mut data = [first, second].map(Base64Text::from);
        let mut start = 0;
        for (data, at) in data.iter_mut().zip([4, 4 + MIN_SHARED + 3]) {
            let text = data.as_str().to_owned();
            start = data.share(&body, start).unwrap();
            assert_eq!(data.as_str(), text);
            assert_eq!(data.buffer().as_ptr(), body[at..].as_ptr());
        }
        assert_eq!(data[0].clone().share(&body, start), None);
        let mut short = Base64Text::from("AAAA".to_owned());
        assert_eq!(short.share(&body, 7), Some(7));
    }
}
