//! Validates `limits.inputs` and its prices, for image and video models.

use super::{super::ConfigError, rules::priced};
use crate::domain::{
    catalogue::InputLimits, credits::Credits, request::InputRole, settings::MISSING,
};

/// Checks the roles. `allowed`: the roles that the model type supports.
pub(super) fn check(
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
pub(super) fn check_prices(
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
