//! JSON request bodies whose long strings share memory with their source.

use std::{
    collections::VecDeque,
    convert::Infallible,
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use serde::Serialize;

use crate::{domain::json::Members, providers::ProviderError};

/// Shorter slices are copied. If no slice is longer, the body is sent as one buffer.
const MIN_SHARED: usize = 16 << 10;

/// A serialised JSON body in pieces. Each piece is freed once it was sent.
#[derive(Debug, Default)]
pub struct RequestJson {
    pieces: VecDeque<Bytes>,
    /// Bytes after the last piece.
    tail: Vec<u8>,
}

impl RequestJson {
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, ProviderError> {
        Self::sharing(value, &[])
    }

    /// Serialises `value`. Strings that are slices of one of the `sources` are not copied.
    pub fn sharing<T: Serialize + ?Sized>(
        value: &T,
        sources: &[&Bytes],
    ) -> Result<Self, ProviderError> {
        let mut writer = Writer {
            json: Self::default(),
            sources,
        };
        serde_json::to_writer(&mut writer, value)
            .map_err(|_| ProviderError::failed("the request cannot be serialised"))?;
        Ok(writer.json)
    }

    /// Serialises an object with these members, whose values are not copied.
    pub fn of_members(members: &Members) -> Result<Self, ProviderError> {
        let mut json = Self::default();
        json.tail.push(b'{');
        for (at, (name, value)) in members.iter().enumerate() {
            if at > 0 {
                json.tail.push(b',');
            }
            serde_json::to_writer(&mut json.tail, name)
                .map_err(|_| ProviderError::failed("the request cannot be serialised"))?;
            json.tail.push(b':');
            json.push(value);
        }
        json.tail.push(b'}');
        Ok(json)
    }

    fn push(&mut self, slice: &Bytes) {
        if slice.len() < MIN_SHARED {
            self.tail.extend_from_slice(slice);
            return;
        }
        self.flush();
        self.pieces.push_back(slice.clone());
    }

    fn flush(&mut self) {
        if !self.tail.is_empty() {
            self.pieces.push_back(std::mem::take(&mut self.tail).into());
        }
    }
}

impl From<RequestJson> for reqwest::Body {
    fn from(mut json: RequestJson) -> Self {
        if json.pieces.is_empty() {
            return json.tail.into();
        }
        json.flush();
        Self::wrap(Pieces(json.pieces))
    }
}

struct Writer<'a> {
    json: RequestJson,
    sources: &'a [&'a Bytes],
}

impl io::Write for Writer<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let lies_in = |source: &&&Bytes| {
            let (source, text) = (source.as_ptr_range(), text.as_ptr_range());
            source.start <= text.start && text.end <= source.end
        };
        let source = (text.len() >= MIN_SHARED)
            .then(|| self.sources.iter().find(lies_in))
            .flatten();
        match source {
            Some(source) => self.json.push(&source.slice_ref(text)),
            None => self.json.tail.extend_from_slice(text),
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A body of a known length.
struct Pieces(VecDeque<Bytes>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|piece| piece.len() as u64).sum())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn whole(mut json: RequestJson) -> Vec<u8> {
        json.flush();
        json.pieces
            .iter()
            .flat_map(|piece| piece.to_vec())
            .collect()
    }

    #[test]
    fn long_strings_of_a_source_are_shared() {
        let source = Bytes::from("A".repeat(3 * MIN_SHARED));
        let text = std::str::from_utf8(&source[..2 * MIN_SHARED]).unwrap();
        let value = (1, text, format_args!("data:{text}").to_string(), "\u{1}");
        let json = RequestJson::sharing(&value, &[&source]).unwrap();
        let shared = json
            .pieces
            .iter()
            .filter(|piece| piece.as_ptr() == source.as_ptr());
        assert_eq!(shared.count(), 1);
        assert_eq!(whole(json), serde_json::to_vec(&value).unwrap());
    }

    #[test]
    fn members_keep_their_bytes() {
        let long = json!("é\"".repeat(MIN_SHARED)).to_string();
        let body = Bytes::from(format!("{{\"a\\n\": [1.0 , {long}],\"b\":1e3}}"));
        let mut members = Members::parse(&body).unwrap();
        members.set("c", &"x");
        let json = RequestJson::of_members(&members).unwrap();
        let own = body.as_ptr_range();
        assert!(
            json.pieces
                .iter()
                .any(|piece| own.contains(&piece.as_ptr()))
        );
        let sent = String::from_utf8(whole(json)).unwrap();
        assert_eq!(
            sent,
            format!("{{\"a\\n\":[1.0 , {long}],\"b\":1e3,\"c\":\"x\"}}")
        );
        assert!(Members::parse(&Bytes::from_static(b"[]")).is_err());
    }
}
