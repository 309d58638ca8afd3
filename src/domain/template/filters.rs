//! Filters and functions of templates whose results could outgrow what they take, or that are
//! otherwise not the engine's own. Each looks before it makes anything.

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
    sync::Arc,
};

use minijinja::{Error, ErrorKind, State, Value, filters, value::Kwargs};

use super::sandbox::{NODE, VALUE, too_much, unfit};

/// Items of a range.
const RANGE: usize = 5_000;
/// Characters that `trim` may take off.
const TRIMMED: usize = 64;

/// Text that may grow to [`VALUE`] bytes.
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > VALUE {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let text = std::str::from_utf8(bytes).map_err(std::io::Error::other)?;
        self.write_str(text).map_err(std::io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the engine hands over arguments so"
)]
pub(super) fn indent(
    text: Cow<'_, str>,
    width: usize,
    first: Option<bool>,
    blank: Option<bool>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let first = first.or(kwargs.get("first")?);
    let blank = blank.or(kwargs.get("blank")?);
    kwargs.assert_all_used()?;
    let lines = text.lines().count() + 1;
    let grown = lines.checked_mul(width).map(|n| n + text.len());
    if grown.is_none_or(|n| n > VALUE) {
        return Err(too_much());
    }
    let pad = " ".repeat(width);
    let mut out = String::with_capacity(text.len());
    for (at, line) in text.split('\n').enumerate() {
        if at > 0 {
            out.push('\n');
        }
        let padded = (at > 0 || first == Some(true)) && (blank == Some(true) || !line.is_empty());
        if padded {
            out.push_str(&pad);
        }
        out.push_str(line);
    }
    Ok(out)
}

pub(super) fn join(value: &Value, joiner: Option<Cow<'_, str>>) -> Result<String, Error> {
    let mut out = Bounded(String::new());
    let joiner = joiner.unwrap_or_default();
    for (at, item) in value.try_iter()?.enumerate() {
        if item.is_undefined() {
            return Err(ErrorKind::UndefinedError.into());
        }
        let separator = if at == 0 { "" } else { &*joiner };
        write!(out, "{separator}{item}").map_err(|_| too_much())?;
    }
    Ok(out.0)
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the engine hands over arguments so"
)]
pub(super) fn replace(
    text: Cow<'_, str>,
    from: Cow<'_, str>,
    to: Cow<'_, str>,
) -> Result<String, Error> {
    let found = text.matches(&*from).count();
    let grown = found.checked_mul(to.len()).map(|n| n + text.len());
    if grown.is_none_or(|n| n > VALUE) {
        return Err(too_much());
    }
    Ok(text.replace(&*from, &to))
}

pub(super) fn split(text: &Value, by: Option<Arc<str>>, most: Option<i64>) -> Result<Value, Error> {
    let whole = text.as_str().ok_or_else(|| unfit("split takes a string"))?;
    let parts = match by.as_deref() {
        Some("") => return Err(unfit("split takes a separator that is not empty")),
        Some(by) => whole.matches(by).count() + 1,
        None => whole.split_whitespace().count(),
    };
    if whole.len() + parts * NODE > VALUE {
        return Err(too_much());
    }
    filters::split(text, by, most)
}

pub(super) fn lines(text: &Value) -> Result<Value, Error> {
    let whole = text.as_str().ok_or_else(|| unfit("lines takes a string"))?;
    if whole.len() + whole.lines().count() * NODE > VALUE {
        return Err(too_much());
    }
    filters::lines(text)
}

pub(super) fn list(state: &mut State<'_, '_>, value: Value) -> Result<Value, Error> {
    let characters = value.as_str().map_or(0, |text| text.chars().count());
    if characters * NODE > VALUE {
        return Err(too_much());
    }
    filters::list(state, value)
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the engine hands over arguments so"
)]
pub(super) fn trim(text: Cow<'_, str>, characters: Option<Cow<'_, str>>) -> Result<String, Error> {
    let Some(characters) = characters else {
        return Ok(text.trim().to_owned());
    };
    let set: Vec<char> = characters.chars().take(TRIMMED + 1).collect();
    if set.len() > TRIMMED {
        return Err(unfit("trim takes at most 64 characters"));
    }
    Ok(text.trim_matches(&set[..]).to_owned())
}

pub(super) fn tojson(value: &Value) -> Result<String, Error> {
    if value.is_undefined() {
        return Err(ErrorKind::UndefinedError.into());
    }
    let mut out = Bounded(String::new());
    serde_json::to_writer(&mut out, value).map_err(|_| too_much())?;
    Ok(out.0)
}

pub(super) fn int(
    state: &State<'_, '_>,
    value: &Value,
    default: Option<Value>,
) -> Result<Value, Error> {
    filters::int(
        state,
        value,
        default,
        None,
        Kwargs::from_iter::<[(&str, Value); 0]>([]),
    )
}

pub(super) fn float(
    state: &State<'_, '_>,
    value: &Value,
    default: Option<Value>,
) -> Result<Value, Error> {
    filters::float(
        state,
        value,
        default,
        Kwargs::from_iter::<[(&str, Value); 0]>([]),
    )
}

pub(super) fn times(a: Value, b: Value) -> Result<Value, Error> {
    if a.is_undefined() || b.is_undefined() {
        return Err(ErrorKind::UndefinedError.into());
    }
    let repeated = |text: &str, n: &Value| {
        let n = n
            .as_usize()
            .ok_or_else(|| unfit("a string can only be repeated a whole number of times"))?;
        match text.len().checked_mul(n) {
            Some(length) if length <= VALUE => Ok(Value::from(text.repeat(n))),
            _ => Err(too_much()),
        }
    };
    match (a.as_str(), b.as_str()) {
        (Some(text), None) => return repeated(text, &b),
        (None, Some(text)) => return repeated(text, &a),
        _ => {}
    }
    let numbers = a.is_number() && b.is_number();
    if numbers && a.is_integer() && b.is_integer() {
        let whole = i128::try_from(a).ok().zip(i128::try_from(b).ok());
        let product = whole.and_then(|(a, b)| a.checked_mul(b));
        let product = product.ok_or_else(|| unfit("a number is too large"))?;
        return Ok(i64::try_from(product).map_or_else(|_| Value::from(product), Value::from));
    }
    match (f64::try_from(a), f64::try_from(b)) {
        (Ok(a), Ok(b)) if numbers => Ok(Value::from(a * b)),
        _ => Err(unfit(
            "only numbers can be multiplied, or a string repeated",
        )),
    }
}

pub(super) fn range(first: i64, second: Option<i64>, step: Option<i64>) -> Result<Vec<i64>, Error> {
    let (start, end) = second.map_or((0, first), |end| (first, end));
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err(unfit("range takes a step that is not 0"));
    }
    let mut items = Vec::new();
    let mut at = Some(start);
    while let Some(item) = at.filter(|at| if step > 0 { *at < end } else { *at > end }) {
        if items.len() >= RANGE {
            return Err(too_much());
        }
        items.push(item);
        at = item.checked_add(step);
    }
    Ok(items)
}

/// As the engine's own, which panics at 0.
pub(super) fn divisible(value: i64, by: i64) -> bool {
    value.checked_rem(by) == Some(0)
}
