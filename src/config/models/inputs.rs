//! The pictures that a model takes: `limits.inputs`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{
    super::{ConfigError, values::Price},
    rules::unpriced,
};
use crate::domain::{
    catalogue::InputLimits,
    credits::Credits,
    request::{InputRole, MAX_INPUT_BYTES, MAX_INPUTS},
    settings::range::Bounded,
};

type Count = Bounded<u32, 1, MAX_INPUTS>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawInputs {
    source: Option<Count>,
    mask: Option<Count>,
    reference: Option<Count>,
    first_frame: Option<Count>,
    last_frame: Option<Count>,
    required: Option<InputRole>,
    max_bytes: Option<Bounded<usize, 1, MAX_INPUT_BYTES>>,
    #[serde(default)]
    keeps_shape: bool,
}

/// `allowed`: the roles that any model of the type can take.
pub(super) fn read(
    raw: Option<RawInputs>,
    allowed: &[InputRole],
) -> Result<Option<InputLimits>, ConfigError> {
    let Some(raw) = raw else { return Ok(None) };
    let counts = [
        (InputRole::Source, raw.source),
        (InputRole::Mask, raw.mask),
        (InputRole::Reference, raw.reference),
        (InputRole::FirstFrame, raw.first_frame),
        (InputRole::LastFrame, raw.last_frame),
    ];
    let counts = counts.into_iter().filter_map(|(role, n)| Some((role, *n?)));
    let roles: BTreeMap<InputRole, u32> = counts.collect();
    if roles.is_empty() {
        let problem = "names no role: write one, such as { source = 1 }, or remove it";
        return Err(ConfigError::new("inputs", problem));
    }
    if let Some(role) = roles.keys().find(|role| !allowed.contains(role)) {
        let names: Vec<&str> = allowed.iter().map(|role| role.as_str()).collect();
        let problem = format!("is not a role of this type: use {}", names.join(", "));
        return Err(ConfigError::new(
            format!("inputs.{}", role.as_str()),
            problem,
        ));
    }
    if let Some(role) = raw.required.filter(|role| !roles.contains_key(role)) {
        let problem = format!(
            "is \"{}\", which is none of the roles: add it",
            role.as_str()
        );
        return Err(ConfigError::new("inputs.required", problem));
    }
    Ok(Some(InputLimits {
        roles,
        required: raw.required,
        max_bytes: raw.max_bytes.map_or(MAX_INPUT_BYTES, |n| *n),
        keeps_shape: raw.keeps_shape,
    }))
}

/// The price of an input, which models that take some must have.
pub(super) fn price(
    inputs: Option<&InputLimits>,
    raw: Option<Price>,
) -> Result<Option<Credits>, ConfigError> {
    match (inputs, raw) {
        (Some(_), None) => Err(unpriced("prices.per_input_image", "add it (\"0\": free)")),
        (None, Some(_)) => {
            let problem = "is not used: the model takes no inputs; add limits.inputs or remove it";
            Err(ConfigError::new("prices.per_input_image", problem))
        }
        (_, raw) => Ok(raw.map(|price| price.0)),
    }
}
