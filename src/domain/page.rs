//! Keyset pagination.
//!
//! A cursor is the key of the last row of a page, so that a page costs the same at any depth and
//! new rows do not shift pages.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::json;
use uuid::Uuid;

use super::validate::{FieldCode, Fields, Input, Parsed, integer, parsed};

/// Default page size.
pub const DEFAULT_PER_PAGE: i64 = 20;
pub const MAX_PER_PAGE: i64 = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cursor {
    /// The cursor of a list of generations.
    Generation(Uuid),
    /// The cursor of a list with numeric ids; the letter identifies the list.
    Number(u8, i64),
}

impl Cursor {
    pub fn encode(self) -> String {
        let mut bytes = Vec::with_capacity(17);
        match self {
            Self::Generation(id) => {
                bytes.push(b'g');
                bytes.extend(id.as_bytes());
            }
            Self::Number(kind, id) => {
                bytes.push(kind);
                bytes.extend(id.to_be_bytes());
            }
        }
        URL_SAFE_NO_PAD.encode(bytes)
    }

    fn decode(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (&kind, key) = bytes.split_first()?;
        if kind == b'g' {
            return Uuid::from_slice(key).ok().map(Self::Generation);
        }
        key.try_into()
            .ok()
            .map(|key| Self::Number(kind, i64::from_be_bytes(key)))
    }
}

const NO_CURSOR: &str = "must be the next_cursor of an earlier page of this list";
const CURSOR: Parsed<Cursor> = parsed(
    || json!({"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}),
    |text| Cursor::decode(text).ok_or((FieldCode::InvalidFormat, NO_CURSOR.into())),
);

/// A requested page of the list with this letter.
#[derive(Debug, Clone, Copy)]
pub struct PageOf<const LIST: u8>(pub PageRequest);

impl<const LIST: u8> Input for PageOf<LIST> {
    fn read(fields: &Fields<'_>) -> Option<Self> {
        Some(Self(PageRequest::read(fields, LIST)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRequest {
    pub per_page: i64,
    /// Only rows after this key.
    pub after: Option<Cursor>,
}

impl PageRequest {
    /// Reads a page of the list with this letter; refuses cursors of other lists.
    pub fn read(fields: &Fields<'_>, list: u8) -> Self {
        let per_page = integer::<u32>(1..=MAX_PER_PAGE);
        let per_page = fields.optional("per_page", "Default 20", per_page);
        let after = fields.optional("cursor", "`next_cursor` of the page before", CURSOR);
        let of_list = |cursor: &Cursor| match *cursor {
            Cursor::Generation(_) => list == b'g',
            Cursor::Number(of, _) => list == of,
        };
        if after.as_ref().is_some_and(|cursor| !of_list(cursor)) {
            fields.error("cursor", FieldCode::InvalidFormat, NO_CURSOR);
        }
        Self {
            per_page: per_page.map_or(DEFAULT_PER_PAGE, i64::from),
            after,
        }
    }

    pub fn after_number(&self) -> Option<i64> {
        match self.after {
            Some(Cursor::Number(_, id)) => Some(id),
            _ => None,
        }
    }

    pub fn after_generation(&self) -> Option<Uuid> {
        match self.after {
            Some(Cursor::Generation(id)) => Some(id),
            _ => None,
        }
    }

    /// Builds the page of a list with numeric ids; the letter identifies the list.
    pub fn numbered<T>(&self, list: u8, rows: Vec<T>, id: impl Fn(&T) -> i64) -> Page<T> {
        Page::from_surplus(rows, self.per_page, |row| Cursor::Number(list, id(row)))
    }
}

/// One page of rows, newest first.
#[derive(Debug, Clone)]
pub struct Page<T> {
    pub rows: Vec<T>,
    pub per_page: i64,
    /// Cursor of the next page; `None` on the last page.
    pub next: Option<Cursor>,
}

impl<T> Page<T> {
    /// Builds a page from up to `per_page + 1` rows: the extra row shows that there is a next page.
    pub fn from_surplus(mut rows: Vec<T>, per_page: i64, key: impl Fn(&T) -> Cursor) -> Self {
        let size = usize::try_from(per_page).unwrap_or(1);
        let more = rows.len() > size;
        rows.truncate(size);
        let next = rows.last().filter(|_| more).map(key);
        Self {
            rows,
            per_page,
            next,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cursors_round_trip_and_garbage_is_refused() {
        for cursor in [
            Cursor::Generation(Uuid::from_u128(7)),
            Cursor::Number(b'l', -3),
        ] {
            assert_eq!(Cursor::decode(&cursor.encode()), Some(cursor));
        }
        for text in ["", "x", "====", "Z2c", "bA"] {
            assert_eq!(Cursor::decode(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_cursor_has_one_spelling(text in "[A-Za-z0-9_-]{0,30}|[ -~]{0,30}|.{0,10}") {
            if let Some(cursor) = Cursor::decode(&text) {
                prop_assert_eq!(cursor.encode(), text);
            }
        }

        #[test]
        fn what_is_encoded_is_decoded(kind in any::<u8>().prop_filter("of generations", |k| *k != b'g'), id in any::<i64>(), uuid in any::<u128>()) {
            for cursor in [Cursor::Number(kind, id), Cursor::Generation(Uuid::from_u128(uuid))] {
                prop_assert_eq!(Cursor::decode(&cursor.encode()), Some(cursor));
            }
        }
    }
}
