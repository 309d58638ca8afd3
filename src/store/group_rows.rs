//! Arguments of statements for many rows: arrays of a composite type, which Postgres reads faster
//! than JSON, and of ids.

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use sqlx::types::Json;

/// Encodes a struct as the composite type of that name. Fields become columns in the same order.
macro_rules! composite {
    ($row:ty, $name:literal) => {
        impl sqlx::Type<sqlx::Postgres> for $row {
            fn type_info() -> sqlx::postgres::PgTypeInfo {
                sqlx::postgres::PgTypeInfo::with_name($name)
            }
        }

        impl sqlx::postgres::PgHasArrayType for $row {
            fn array_type_info() -> sqlx::postgres::PgTypeInfo {
                sqlx::postgres::PgTypeInfo::array_of($name)
            }
        }
    };
}
pub(super) use composite;

pub fn json(value: &(impl Serialize + ?Sized)) -> Json<Box<RawValue>> {
    match to_raw_value(value) {
        Ok(value) => Json(value),
        Err(error) => unreachable!("what is stored becomes JSON: {error}"),
    }
}

/// Distinct ids in ascending order. In addition to a join they make the plan use an index, whatever
/// its estimate of the join.
pub fn ids<T: Ord>(ids: impl Iterator<Item = Option<T>>) -> Vec<T> {
    let mut ids: Vec<T> = ids.flatten().collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}
