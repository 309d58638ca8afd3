//! Merges a file into the built-in settings: tables by key, models by id; other values are replaced
//! as a whole.

use toml::{Table, Value};

/// Merges a file into the built-in settings. If a provider has another kind or `replace = true`,
/// only the models of the file remain.
pub(super) fn file(built_in: &mut Table, mut file: Table) {
    if let Some(Value::Table(providers)) = file.get_mut("providers") {
        for (name, provider) in providers {
            let known = built_in.get("providers").and_then(|all| all.get(name));
            let (Some(Value::Table(known)), Value::Table(provider)) = (known, provider) else {
                continue;
            };
            let is_other = |kind: &Value| Some(kind) != known.get("kind");
            let is_replaced = provider.get("replace") == Some(&Value::Boolean(true))
                || provider.get("kind").is_some_and(is_other);
            if let (false, Some(Value::Array(models)), Some(Value::Array(known))) =
                (is_replaced, provider.get_mut("models"), known.get("models"))
            {
                extend(models, known);
            }
        }
    }
    tables(built_in, file);
}

/// Puts the built-in prices before a list that begins on a day: they apply until then. The list stays
/// nested, so that errors use the indexes of the file.
fn keep_present_prices(built_in: &Table, changes: &mut Table) {
    if let (Some(prices @ Value::Array(_)), Some(present @ Value::Table(_))) =
        (changes.get_mut("prices"), built_in.get("prices"))
        && prices
            .get(0)
            .is_some_and(|first| first.get("valid_from").is_some())
    {
        *prices = Value::Array(vec![present.clone(), prices.clone()]);
    }
}

fn tables(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(base)), Value::Table(over)) => tables(base, over),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

/// Completes the models of a file from the built-in models with the same id, and appends the other
/// built-in models. Models of the file keep their indexes, which errors name.
fn extend(models: &mut Vec<Value>, built_in: &[Value]) {
    let mut rest = built_in.to_vec();
    let is_default = |model: &Table| model.get("default") == Some(&Value::Boolean(true));
    let mut defaults = Vec::new();
    for (place, model) in models.iter_mut().enumerate() {
        let Value::Table(model) = model else { continue };
        let is_new_default = is_default(model);
        let is_it = |known: &Value| known.get("id").is_some() && known.get("id") == model.get("id");
        if let Some(known) = rest.iter().position(is_it)
            && let Value::Table(known) = rest.remove(known)
        {
            let mut changes = std::mem::replace(model, known);
            keep_present_prices(model, &mut changes);
            tables(model, changes);
        }
        if is_new_default {
            defaults.push((model.get("type").cloned(), place));
        }
    }
    models.append(&mut rest);
    // A default in the file replaces the built-in default of the same type.
    for (place, model) in models.iter_mut().enumerate() {
        let Value::Table(model) = model else { continue };
        let of_type = || {
            defaults
                .iter()
                .filter(|(of, _)| of.as_ref() == model.get("type"))
        };
        if of_type().count() > 0 && of_type().all(|(_, default)| *default != place) {
            model.remove("default");
        }
    }
}
