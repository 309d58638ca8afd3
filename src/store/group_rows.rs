//! How the rows of a group are sent: their short columns as one JSON array, which
//! `json_to_recordset` reads, and long texts beside it as arrays.

use serde::Serialize;

/// A row's part of the array.
pub fn row(row: &impl Serialize) -> String {
    match serde_json::to_string(row) {
        Ok(row) => row,
        Err(error) => unreachable!("structs of plain columns become JSON: {error}"),
    }
}

pub fn rows<'a>(rows: impl Iterator<Item = &'a str>) -> String {
    let mut array = String::from("[");
    for (n, row) in rows.enumerate() {
        if n > 0 {
            array.push(',');
        }
        array.push_str(row);
    }
    array.push(']');
    array
}

/// Distinct ids in their order. Beside a join they let the plan go by an index, whatever it
/// expects of the join.
pub fn ids<T: Ord>(ids: impl Iterator<Item = Option<T>>) -> Vec<T> {
    let mut ids: Vec<T> = ids.flatten().collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}
