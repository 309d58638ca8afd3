//! Models of video.

use toml::{Value, toml};

use super::{
    super::ConfigError,
    rules::{check_input_prices, check_inputs, check_list, limits, prices},
};
use crate::{
    catalogue::{
        VideoLimits, VideoModel,
        vendor::{Access, Vendor},
    },
    domain::{inputs::InputRole, pricing::VideoPrices, settings::quoted},
    request::{Ratio, VIDEO_PROMPT_CHARS},
};

/// Supported roles of inputs. Only the sandbox supports the first one, a source to extend.
const ROLES: [InputRole; 4] = [
    InputRole::Source,
    InputRole::FirstFrame,
    InputRole::LastFrame,
    InputRole::Reference,
];

pub(super) fn read(
    vendor: &Vendor,
    given_prices: Option<Value>,
    given_limits: Option<Value>,
) -> Result<VideoModel, ConfigError> {
    let prices: VideoPrices = prices(given_prices)?;
    let defaults = toml! { max_prompt_chars = VIDEO_PROMPT_CHARS };
    let limits: VideoLimits = limits(given_limits, defaults)?;
    let default = limits.default_duration;
    if !limits.durations.contains(&default) {
        let problem = format!("is {default}: must be one of limits.durations");
        return Err(ConfigError::new("limits.default_duration", problem));
    }
    let is_sandbox = vendor.access == Access::BuiltIn;
    match &limits.ratios {
        Some(ratios) => check_ratios(ratios).map_err(|error| error.under("limits"))?,
        None if is_sandbox => {}
        None => {
            let problem = "is missing: list those that the model takes, \
                           such as [\"16:9\", \"9:16\"]";
            return Err(ConfigError::new("limits.ratios", problem));
        }
    }
    let roles = if is_sandbox { &ROLES[..] } else { &ROLES[1..] };
    check_inputs(limits.inputs.as_ref(), roles)?;
    check_input_prices(limits.inputs.as_ref(), prices.per_input_image, None)?;
    Ok(VideoModel { prices, limits })
}

/// Checks that each text is a ratio, and that no two are equal in lowest terms.
fn check_ratios(ratios: &[String]) -> Result<(), ConfigError> {
    let reduced: Vec<String> = ratios
        .iter()
        .map(|text| {
            let ratio = Ratio::parse(text).map(|ratio| ratio.reduced().to_string());
            ratio.ok_or_else(|| {
                let problem = format!("holds {}: must be ratios, such as \"16:9\"", quoted(text));
                ConfigError::new("ratios", problem)
            })
        })
        .collect::<Result<_, _>>()?;
    check_list("ratios", &reduced)
}
