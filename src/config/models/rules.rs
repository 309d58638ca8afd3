//! Checks for all model types.

use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::super::ConfigError;
use crate::{
    catalogue::InputLimits,
    domain::{
        credits::Credits,
        inputs::InputRole,
        settings::{MISSING, quoted, read, read_table},
    },
};

/// Reads the table `limits` of a model, with defaults.
pub(super) fn limits<T: DeserializeOwned>(
    given: Option<Value>,
    mut defaults: Table,
) -> Result<T, ConfigError> {
    let given: Result<Table, ConfigError> = read_table(given);
    let limits = given.and_then(|given| {
        defaults.extend(given);
        read(Value::Table(defaults))
    });
    limits.map_err(|error| hinted(error).under("limits"))
}

/// Adds how to write a missing limit.
pub(super) fn hinted(error: ConfigError) -> ConfigError {
    if error.problem != MISSING {
        return error;
    }
    let hint = match error.key.as_str() {
        "native_sizes" => "list the sizes that the model makes itself, such as [\"1024x1024\"]",
        "durations" => "list the seconds that the model takes, such as [4, 6, 8]",
        "default_duration" => "name the seconds of a request that names none",
        "default_voice" => "name the voice of a request that names none",
        _ => return error,
    };
    ConfigError::new(error.key, format!("is missing: {hint}"))
}

/// Reads the table `prices` of a model.
pub(super) fn prices<T: DeserializeOwned>(given: Option<Value>) -> Result<T, ConfigError> {
    read_table(given).map_err(priced)
}

/// Adds to an error in `prices` that a model without a complete price is not offered.
pub(super) fn priced(mut error: ConfigError) -> ConfigError {
    if error.problem == MISSING {
        "is missing: a model without a complete price is not served; add it or set enabled = false"
            .clone_into(&mut error.problem);
    }
    error.under("prices")
}

/// Checks that a list is not empty and has no duplicates.
pub(super) fn check_list<T: PartialEq + ToString>(
    key: &str,
    items: &[T],
) -> Result<(), ConfigError> {
    if items.is_empty() {
        return Err(ConfigError::new(key, "is empty: name at least one"));
    }
    let twice = (1..items.len()).find(|&n| items[..n].contains(&items[n]));
    match twice {
        None => Ok(()),
        Some(n) => {
            let problem = format!("holds {} twice: keep one", quoted(&items[n].to_string()));
            Err(ConfigError::new(key, problem))
        }
    }
}

/// Checks the roles of `limits.inputs`. `allowed`: the roles that the model type supports.
pub(super) fn check_inputs(
    inputs: Option<&InputLimits>,
    allowed: &[InputRole],
) -> Result<(), ConfigError> {
    let Some(InputLimits {
        roles, required, ..
    }) = inputs
    else {
        return Ok(());
    };
    if roles.is_empty() {
        let problem = "has no role: add one, such as { source = 1 }, or remove limits.inputs";
        return Err(ConfigError::new("limits.inputs", problem));
    }
    if let Some(role) = roles.keys().find(|role| !allowed.contains(role)) {
        let names: Vec<&str> = allowed.iter().map(|role| role.as_str()).collect();
        let problem = format!("is not a role of this type: use {}", names.join(", "));
        let key = format!("limits.inputs.{}", role.as_str());
        return Err(ConfigError::new(key, problem));
    }
    if let Some(role) = required.filter(|role| !roles.contains_key(role)) {
        let name = role.as_str();
        let problem = format!("is \"{name}\", which has no maximum here: add {name} = 1");
        return Err(ConfigError::new("limits.inputs.required", problem));
    }
    Ok(())
}

/// Checks that a model that accepts inputs has their price, and that other models have no input
/// prices.
pub(super) fn check_input_prices(
    inputs: Option<&InputLimits>,
    per_image: Option<Credits>,
    per_million: Option<Credits>,
) -> Result<(), ConfigError> {
    if inputs.is_some() {
        let missing = || priced(ConfigError::new("per_input_image", MISSING));
        return per_image.map(|_| ()).ok_or_else(missing);
    }
    for (key, price) in [
        ("prices.per_input_image", per_image),
        ("prices.input_image_per_million", per_million),
    ] {
        if price.is_some() {
            let problem = "is not used: the model takes no inputs; add limits.inputs or remove it";
            return Err(ConfigError::new(key, problem));
        }
    }
    Ok(())
}
