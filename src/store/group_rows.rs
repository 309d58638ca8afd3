//! What statements for many rows are given: the rows as an array of a composite type, which costs
//! Postgres less than JSON to read, and ids.

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use sqlx::types::Json;

/// Sends a struct as the composite type of that name, whose columns are its fields in their order.
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

/// A column of JSON.
pub fn json(value: &(impl Serialize + ?Sized)) -> Json<Box<RawValue>> {
    match to_raw_value(value) {
        Ok(value) => Json(value),
        Err(error) => unreachable!("what is stored becomes JSON: {error}"),
    }
}

/// Distinct ids in their order. Beside a join they let the plan go by an index, whatever it
/// expects of the join.
pub fn ids<T: Ord>(ids: impl Iterator<Item = Option<T>>) -> Vec<T> {
    let mut ids: Vec<T> = ids.flatten().collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}
