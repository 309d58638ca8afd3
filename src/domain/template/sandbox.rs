//! The engine of a rendering, and the bounds that it keeps.

use std::{
    fmt::{self, Write as _},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value, filters,
    machinery::{self, CodeGenerator, ast},
    tests,
    value::ValueKind,
};
use serde_json::Map;

use super::filters as own;

/// Steps of the engine.
const FUEL: u64 = 50_000;
/// Bytes of text that a rendering writes, captured or not: 1 MiB.
const WRITTEN: usize = 1 << 20;
/// Size of a value that an operation takes or leaves: 256 KiB, so that what it makes while at
/// it (threefold at most, by `upper`) stays within 1 MiB.
pub(super) const VALUE: usize = 1 << 18;
/// Size of all values that operations take and leave: 4 MiB.
const WORK: usize = 1 << 22;
/// Size of a value beside its text.
pub(super) const NODE: usize = 32;
/// How deep lists and maps may nest; a body nests 64 levels.
const DEPTH: usize = 80;

/// Passes a value on that is about to be used, and pays for it.
pub(super) const USE: &str = "__use";
/// As [`USE`], for operations that look at a value many times.
pub(super) const SORT: &str = "__sort";
/// Passes a value on that was made, if it is not too large; makes it a plain one.
pub(super) const KEEP: &str = "__keep";
/// Multiplies.
pub(super) const TIMES: &str = "__times";
/// Passes a value on that an item is taken of.
pub(super) const ITEM: &str = "__item";

/// Filters that templates may use.
pub(super) const FILTERS: [&str; 31] = [
    "abs",
    "bool",
    "capitalize",
    "count",
    "d",
    "default",
    "dictsort",
    "first",
    "float",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "lines",
    "list",
    "lower",
    "max",
    "min",
    "replace",
    "reverse",
    "round",
    "sort",
    "split",
    "string",
    "title",
    "tojson",
    "trim",
    "unique",
    "upper",
];
/// Those that compare items with each other.
pub(super) const SORTING: [&str; 5] = ["dictsort", "max", "min", "sort", "unique"];
/// Tests that templates may use.
pub(super) const TESTS: [&str; 19] = [
    "boolean",
    "defined",
    "divisibleby",
    "endingwith",
    "even",
    "false",
    "float",
    "integer",
    "iterable",
    "lower",
    "mapping",
    "none",
    "number",
    "odd",
    "sequence",
    "startingwith",
    "string",
    "true",
    "undefined",
];

/// Why a rendering failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Missing,
    TooMuch,
    Unfit,
}

/// What is left of the bounds.
#[derive(Debug, Clone)]
struct Left {
    work: Arc<AtomicUsize>,
    written: Arc<AtomicUsize>,
}

fn take(from: &AtomicUsize, amount: usize) -> Option<()> {
    let left = from.load(Ordering::Relaxed).checked_sub(amount);
    from.store(left.unwrap_or(0), Ordering::Relaxed);
    left.map(|_| ())
}

pub(super) fn too_much() -> Error {
    Error::new(
        ErrorKind::OutOfFuel,
        "a value is too large, or all of them together",
    )
}

pub(super) fn unfit(message: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

/// The size of a value as a tree; `None` when it is larger or deeper than allowed. It stops
/// there, so that a small graph of an enormous tree costs no more.
fn size(value: &Value) -> Option<usize> {
    let mut left = VALUE;
    measure(value, &mut left, 0)?;
    Some(VALUE - left)
}

fn measure(value: &Value, left: &mut usize, depth: usize) -> Option<()> {
    *left = left.checked_sub(NODE + value.as_str().map_or(0, str::len))?;
    if depth > DEPTH {
        return None;
    }
    let map = value.kind() == ValueKind::Map;
    if map || matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable) {
        for item in value.try_iter().ok()? {
            measure(&item, left, depth + 1)?;
            if map {
                measure(&value.get_item(&item).ok()?, left, depth + 1)?;
            }
        }
    }
    Some(())
}

impl Left {
    /// Pays for a value that is about to be used; an undefined one cannot be.
    fn used(&self, value: &Value, times: usize) -> Result<Value, Error> {
        if value.is_undefined() {
            return Err(Error::new(ErrorKind::UndefinedError, "a value is missing"));
        }
        self.pay(value, times).map(|()| value.clone())
    }

    fn pay(&self, value: &Value, times: usize) -> Result<(), Error> {
        let size = size(value).ok_or_else(too_much)?;
        take(&self.work, size * times).ok_or_else(too_much)
    }

    fn keep(&self, value: &Value) -> Result<Value, Error> {
        self.pay(value, 1)?;
        // What is computed when it is looked at would be computed again and again.
        if matches!(value.kind(), ValueKind::Iterable) {
            return Ok(Value::from(value.try_iter()?.collect::<Vec<_>>()));
        }
        Ok(value.clone())
    }
}

/// The engine for one rendering.
fn environment<'a>(left: &Left) -> Environment<'a> {
    let mut env = Environment::empty();
    env.set_undefined_behavior(UndefinedBehavior::Strict);
    env.set_fuel(Some(FUEL));
    let bounds = left.clone();
    env.set_formatter(move |out, _, value| {
        struct Counted<'a, 'o, 'w>(&'a mut minijinja::Output<'w>, &'o AtomicUsize);
        impl fmt::Write for Counted<'_, '_, '_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                take(self.1, text.len()).ok_or(fmt::Error)?;
                self.0.write_str(text)
            }
        }
        write!(Counted(out, &bounds.written), "{value}").map_err(|_| too_much())
    });
    let bounds = left.clone();
    env.add_filter(USE, move |value: &Value| bounds.used(value, 1));
    let bounds = left.clone();
    env.add_filter(SORT, move |value: &Value| bounds.used(value, 8));
    let bounds = left.clone();
    env.add_filter(KEEP, move |value: &Value| bounds.keep(value));
    env.add_filter(ITEM, |value: &Value| {
        if value.as_str().is_some() {
            return Err(unfit("an item cannot be taken of a string; use a slice"));
        }
        Ok(value.clone())
    });
    env.add_filter(TIMES, own::times);
    env.add_filter("abs", filters::abs);
    env.add_filter("bool", filters::bool);
    env.add_filter("capitalize", filters::capitalize);
    env.add_filter("count", filters::length);
    env.add_filter("d", filters::default);
    env.add_filter("default", filters::default);
    env.add_filter("dictsort", filters::dictsort);
    env.add_filter("first", filters::first);
    env.add_filter("float", own::float);
    env.add_filter("indent", own::indent);
    env.add_filter("int", own::int);
    env.add_filter("items", filters::items);
    env.add_filter("join", own::join);
    env.add_filter("last", filters::last);
    env.add_filter("length", filters::length);
    env.add_filter("lines", own::lines);
    env.add_filter("list", own::list);
    env.add_filter("lower", filters::lower);
    env.add_filter("max", filters::max);
    env.add_filter("min", filters::min);
    env.add_filter("replace", own::replace);
    env.add_filter("reverse", filters::reverse);
    env.add_filter("round", filters::round);
    env.add_filter("sort", filters::sort);
    env.add_filter("split", own::split);
    env.add_filter("string", filters::string);
    env.add_filter("title", filters::title);
    env.add_filter("tojson", own::tojson);
    env.add_filter("trim", own::trim);
    env.add_filter("unique", filters::unique);
    env.add_filter("upper", filters::upper);
    env.add_test("boolean", tests::is_boolean);
    env.add_test("defined", tests::is_defined);
    env.add_test("divisibleby", own::divisible);
    env.add_test("endingwith", tests::is_endingwith);
    env.add_test("even", tests::is_even);
    env.add_test("false", tests::is_false);
    env.add_test("float", tests::is_float);
    env.add_test("integer", tests::is_integer);
    env.add_test("iterable", tests::is_iterable);
    env.add_test("lower", tests::is_lower);
    env.add_test("mapping", tests::is_mapping);
    env.add_test("none", tests::is_none);
    env.add_test("number", tests::is_number);
    env.add_test("odd", tests::is_odd);
    env.add_test("sequence", tests::is_sequence);
    env.add_test("startingwith", tests::is_startingwith);
    env.add_test("string", tests::is_string);
    env.add_test("true", tests::is_true);
    env.add_test("undefined", tests::is_undefined);
    env.add_function("range", own::range);
    env
}

/// Renders a vetted tree.
pub(super) fn render(
    tree: &ast::Stmt<'_>,
    source: &str,
    values: &Map<String, serde_json::Value>,
) -> Result<String, (Error, Kind)> {
    let left = Left {
        work: Arc::new(AtomicUsize::new(WORK)),
        written: Arc::new(AtomicUsize::new(WRITTEN)),
    };
    let env = environment(&left);
    let mut generator = CodeGenerator::new("template", source);
    generator.compile_stmt(tree);
    let (instructions, blocks) = generator.finish();
    let mut out = String::new();
    let mut output = machinery::make_string_output(&mut out);
    let root = Value::from(minijinja::value::Serde(values));
    let done = machinery::eval(
        &env,
        &instructions,
        root,
        &blocks,
        &mut output,
        AutoEscape::None,
    );
    if let Err(error) = done.map(|_| ()) {
        let kind = match error.kind() {
            ErrorKind::UndefinedError => Kind::Missing,
            ErrorKind::OutOfFuel | ErrorKind::WriteFailure => Kind::TooMuch,
            _ => Kind::Unfit,
        };
        return Err((error, kind));
    }
    Ok(out)
}
