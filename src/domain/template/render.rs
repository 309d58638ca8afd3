//! Rendering with bounds on time and memory.
//!
//! MiniJinja's fuel limits the number of steps, not the cost of a step. An expensive step either
//! iterates over a given list or object, or applies a filter (both are charged to one [`Budget`]),
//! or scans one string (the longer the longest string, the less fuel).

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
    io,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use minijinja::{
    Environment, Error, ErrorKind, UndefinedBehavior, Value,
    value::{DynObject, Enumerator, Object, ObjectRepr, Rest, Serde, ValueOrKwargs},
};
use serde_json::{Map, Value as Json};

/// Maximum steps of a rendering.
const FUEL: usize = 50_000;
/// Maximum bytes that all steps together scan, if each scans the longest string.
const STRING_WORK: usize = 200_000_000;
/// Maximum bytes that filters read and produce and that iterations cover, in total.
const WORK: usize = 16 << 20;
/// Maximum bytes of the output, and of any value that a filter produces.
const OUTPUT: usize = 1 << 20;
/// Size of a value in addition to its text.
const NODE: usize = 16;

/// Filters allowed in templates.
pub(super) const FILTERS: &str = "capitalize, default, first, float, int, join, last, length, \
    lower, replace, reverse, round, sort, title, tojson, trim, unique, upper";
/// Tests allowed in templates.
pub(super) const TESTS: &str = "boolean, defined, endingwith, even, false, float, integer, \
    iterable, mapping, none, number, odd, sequence, startingwith, string, true, undefined";

/// MiniJinja's own filters and tests; ours replace those whose results could exhaust memory.
static BUILTINS: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut builtins = Environment::new();
    builtins.set_undefined_behavior(UndefinedBehavior::Strict);
    builtins.add_filter("join", join);
    builtins.add_filter("replace", replace);
    builtins.add_filter("tojson", tojson);
    builtins
});

/// The remaining budget of a rendering.
#[derive(Debug, Clone)]
struct Budget(Arc<AtomicUsize>);

impl Budget {
    fn spend(&self, amount: usize) -> Result<(), Error> {
        let left = self.0.load(Ordering::Relaxed).saturating_sub(amount);
        self.0.store(left, Ordering::Relaxed);
        if left == 0 {
            return Err(ErrorKind::OutOfFuel.into());
        }
        Ok(())
    }

    fn is_spent(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

fn too_large() -> Error {
    ErrorKind::WriteFailure.into()
}

/// A given list or object. Every iteration is charged to the budget, since a single step (`x in
/// xs`, `xs == ys`) may iterate over all of it.
#[derive(Debug)]
struct Given {
    inner: Value,
    size: usize,
    budget: Budget,
}

impl Object for Given {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        let inner = self.inner.as_object();
        inner.map_or(ObjectRepr::Plain, DynObject::repr)
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let value = self.inner.get_item(key).ok();
        value.filter(|value| !value.is_undefined())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let items = self.budget.spend(self.size);
        match items.and_then(|()| self.inner.try_iter()) {
            Ok(items) => Enumerator::Values(items.collect()),
            // A comparison ignores the error, but the rendering fails at its end.
            Err(error) => Enumerator::Values(vec![error.into()]),
        }
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        self.inner.len()
    }
}

impl Given {
    fn value(inner: Value, budget: &Budget) -> Value {
        Value::from_object(Self {
            size: size(&inner),
            inner,
            budget: budget.clone(),
        })
    }
}

/// Converts a value. `longest` becomes the length of the longest string.
fn given(json: &Json, budget: &Budget, longest: &mut usize) -> Value {
    match json {
        Json::String(text) => {
            *longest = text.len().max(*longest);
            text.as_str().into()
        }
        Json::Array(items) => {
            let items = items.iter().map(|item| given(item, budget, longest));
            Given::value(items.collect(), budget)
        }
        Json::Object(members) => given_object(members, budget, longest),
        scalar => Serde(scalar).into(),
    }
}

fn given_object(members: &Map<String, Json>, budget: &Budget, longest: &mut usize) -> Value {
    let members = members.iter().map(|(name, member)| {
        *longest = name.len().max(*longest);
        (name.as_str(), given(member, budget, longest))
    });
    Given::value(Value::from_pairs(members), budget)
}

/// Returns the bytes of a value, including nested values.
fn size(value: &Value) -> usize {
    if let Some(given) = value.downcast_object_ref::<Given>() {
        return given.size;
    }
    let pairs = value.as_object().and_then(DynObject::try_iter_pairs);
    let pairs = pairs.map_or(0, |pairs| pairs.map(|(k, v)| size(&k) + size(&v)).sum());
    let text = match value.as_str() {
        Some(text) => text.len(),
        // `1e300` has 301 digits.
        None if value.is_number() && !value.is_integer() => value.to_string().len(),
        None => 0,
    };
    NODE + text + pairs
}

/// Text that may grow to [`OUTPUT`] bytes.
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > OUTPUT {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = std::str::from_utf8(bytes).map_err(io::Error::other)?;
        self.write_str(text).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn join(value: &Value, separator: Option<Cow<'_, str>>) -> Result<String, Error> {
    let mut out = Bounded(String::new());
    let separator = separator.unwrap_or_default();
    for (at, item) in value.try_iter()?.enumerate() {
        let separator = if at == 0 { "" } else { &*separator };
        write!(out, "{separator}{item}")?;
    }
    Ok(out.0)
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the signature of MiniJinja's filters"
)]
fn replace(text: Cow<'_, str>, from: Cow<'_, str>, to: Cow<'_, str>) -> Result<String, Error> {
    let grown = text.matches(&*from).count().saturating_mul(to.len());
    if grown.saturating_add(text.len()) > OUTPUT {
        return Err(too_large());
    }
    Ok(text.replace(&*from, &to))
}

fn tojson(value: &Value) -> Result<String, Error> {
    let mut out = Bounded(String::new());
    serde_json::to_writer(&mut out, value).map_err(|_| too_large())?;
    Ok(out.0)
}

/// Applies a filter and charges it to the budget.
fn filter(name: &str, args: &[Value], budget: &Budget) -> Result<Value, Error> {
    let [value, others @ ..] = args else {
        return Err(ErrorKind::MissingArgument.into());
    };
    if value.is_undefined() && name != "default" {
        return Err(ErrorKind::UndefinedError.into());
    }
    let per_byte = match name {
        "default" | "first" | "last" | "length" => 0,
        // These examine each item, digit or character many times.
        "round" => 64,
        "sort" | "unique" => 16,
        "title" | "trim" => 4,
        _ => 1,
    };
    // Some scan their arguments for each item or character.
    let arguments = 1 + others.iter().map(size).sum::<usize>() / 64;
    budget.spend(size(value).saturating_mul(per_byte * arguments))?;
    let made = BUILTINS.empty_state().apply_filter(name, args)?;
    let length = made.as_str().map_or(0, str::len);
    if length > OUTPUT {
        return Err(too_large());
    }
    budget.spend(length)?;
    Ok(made)
}

fn environment<'a>(budget: &Budget, fuel: usize) -> Environment<'a> {
    let mut env = Environment::empty();
    env.set_undefined_behavior(UndefinedBehavior::Strict);
    env.set_fuel(Some(fuel as u64));
    for name in FILTERS.split(", ") {
        let budget = budget.clone();
        env.add_filter(name, move |args: Rest<ValueOrKwargs>| {
            filter(name, &args.into_values(), &budget)
        });
    }
    for name in TESTS.split(", ") {
        env.add_test(name, move |args: Rest<ValueOrKwargs>| {
            let mut state = BUILTINS.empty_state();
            state.perform_test(name, &args.into_values())
        });
    }
    env
}

pub(super) fn render(source: &str, values: &Map<String, Json>) -> Result<String, Error> {
    let budget = Budget(Arc::new(AtomicUsize::new(WORK)));
    let mut longest = source.len().max(1);
    let values = given_object(values, &budget, &mut longest);
    let env = environment(&budget, FUEL.min(STRING_WORK / longest));
    let mut out = Bounded(String::new());
    env.template_from_str(source)?
        .render_captured_to(values, &mut out)?;
    if budget.is_spent() {
        return Err(ErrorKind::OutOfFuel.into());
    }
    Ok(out.0)
}
