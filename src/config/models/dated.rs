//! Prices that begin on a day: `prices = [{ ... }, { valid_from = 2026-12-01, ... }]`.

use chrono::NaiveDate;
use toml::{Table, Value};

use super::{super::ConfigError, read_day};
use crate::{catalogue::Terms, domain::settings};

const VALID_FROM: &str = "valid_from";

/// The day of the first prices, their terms, and later terms by day.
type Dated = (Option<NaiveDate>, Terms, Vec<(NaiveDate, Terms)>);

/// Reads `[entry, ...]`, or `[built-in prices, [entry, ...]]` as made by `merge`. `read` builds the
/// terms from one entry.
pub(super) fn read(
    list: Vec<Value>,
    read: impl Fn(Option<Value>) -> Result<Terms, ConfigError>,
) -> Result<Dated, ConfigError> {
    let mut first: Option<(Option<NaiveDate>, Terms)> = None;
    let mut later: Vec<(NaiveDate, Terms)> = Vec::new();
    let mut before = Table::new();
    let (present, list) = match <[Value; 2]>::try_from(list) {
        Ok([present, Value::Array(file)]) => (Some((0, present)), file),
        Ok(list) => (None, list.into()),
        Err(list) => (None, list),
    };
    for (index, given) in present.into_iter().chain(list.into_iter().enumerate()) {
        let path = format!("prices[{index}]");
        let mut table: Table =
            settings::read(given).map_err(|error: ConfigError| error.under(&path))?;
        let key = format!("{path}.{VALID_FROM}");
        let from = table.remove(VALID_FROM);
        let from = from.as_ref().map_or(Ok(None), read_day);
        let from = from.map_err(|problem| ConfigError::new(key.clone(), problem))?;
        let terms = read(Some(Value::Table(table.clone()))).map_err(|mut error| {
            // `read` names keys as if `prices` were one table.
            if let Some(rest) = error.key.strip_prefix("prices") {
                error.key = format!("{path}{rest}");
            }
            error
        })?;
        if let Some(key) = missing(&before, &table) {
            let problem = "is missing: add it, as the prices before have it";
            return Err(ConfigError::new(format!("{path}.{key}"), problem));
        }
        before = table;
        let Some((first_day, _)) = &first else {
            first = Some((from, terms));
            continue;
        };
        let Some(from) = from else {
            let problem = "is missing: name the day from which these prices apply";
            return Err(ConfigError::new(key, problem));
        };
        let before = later.last().map(|(day, _)| *day).or(*first_day);
        if before.is_some_and(|before| before >= from) {
            let problem = format!("is {from}: must be later than that of the prices before it");
            return Err(ConfigError::new(key, problem));
        }
        later.push((from, terms));
    }
    let Some((valid_from, terms)) = first else {
        return Err(ConfigError::new("prices", "is empty: list at least one"));
    };
    Ok((valid_from, terms, later))
}

/// Returns the first price in `before` that `after` lacks.
fn missing(before: &Table, after: &Table) -> Option<String> {
    before
        .iter()
        .find_map(|(key, value)| match (value, after.get(key)) {
            (_, None) => Some(key.clone()),
            (Value::Table(before), Some(Value::Table(after))) => {
                Some(format!("{key}.{}", missing(before, after)?))
            }
            _ => None,
        })
}
