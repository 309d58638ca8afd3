//! Settings of Stability's models.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, de::Error as _};
use toml::Value;

use crate::{
    catalogue::{
        ImageModel, ModelKind, Support,
        vendor::{ModelSettings, SharedSettings},
    },
    domain::{
        inputs::InputRole,
        named::named_enum,
        pricing::Quality,
        settings::{ConfigError, blank_is_none, read_table, words},
    },
};

named_enum!(
    StabilityEndpoint {
        Core = "core",
        Ultra = "ultra",
        /// Stable Diffusion 3.5, one of several models.
        Sd3 = "sd3",
        /// Changes a part of a source.
        Inpaint = "inpaint",
        /// Extends a source.
        Outpaint = "outpaint",
    }
);

impl StabilityEndpoint {
    pub(super) const fn has_strength(self) -> bool {
        matches!(self, Self::Ultra | Self::Sd3)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StabilityTarget {
    pub endpoint: StabilityEndpoint,
    /// `model`, for sd3 only (`sd3.5-large`). `None` sends nothing.
    #[serde(default, deserialize_with = "blank_is_none")]
    pub model: Option<String>,
}

/// Settings of one model. There is no default: a model without settings cannot be called.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StabilityModel {
    pub standard: StabilityTarget,
    /// Present exactly when the model has a price for the hd tier.
    #[serde(default)]
    pub hd: Option<StabilityTarget>,
    /// `style_preset` of the style vivid. `None` sends nothing.
    #[serde(default, deserialize_with = "preset")]
    pub vivid: Option<String>,
    /// `style_preset` of the style natural. `None` sends nothing.
    #[serde(default, deserialize_with = "preset")]
    pub natural: Option<String>,
    /// `strength` of a request with a source: 0 returns it, 1 ignores it.
    #[serde(default = "strength", deserialize_with = "read_strength")]
    pub strength: f64,
}

/// The value of the vendor's own nodes for `ComfyUI`.
const fn strength() -> f64 {
    0.7
}

fn read_strength<'de, D: Deserializer<'de>>(source: D) -> Result<f64, D::Error> {
    let strength = f64::deserialize(source)?;
    if (0.0..=1.0).contains(&strength) {
        return Ok(strength);
    }
    let problem = format!("is {strength}: must be from 0.0 to 1.0");
    Err(D::Error::custom(problem))
}

words! {
    preset -> Option<String> = word_or_blank(
        "3d-model", "analog-film", "anime", "cinematic", "comic-book", "digital-art", "enhance",
        "fantasy-art", "isometric", "line-art", "low-poly", "modeling-compound", "neon-punk",
        "origami", "photographic", "pixel-art", "tile-texture"
    );
}

pub(super) fn read(wire: Option<Value>) -> Result<SharedSettings, ConfigError> {
    let endpoint = |tier: &str| wire.as_ref()?.get(tier)?.get("endpoint");
    let has_hd = wire.as_ref().is_some_and(|wire| wire.get("hd").is_some());
    for tier in ["standard", "hd"] {
        if endpoint(tier).is_none() && (tier == "standard" || has_hd) {
            let problem = "is missing: write one of core, ultra, sd3, inpaint, outpaint";
            return Err(ConfigError::new(format!("{tier}.endpoint"), problem));
        }
    }
    let model: StabilityModel = read_table(wire)?;
    for (tier, target) in [
        ("standard", Some(&model.standard)),
        ("hd", model.hd.as_ref()),
    ] {
        let Some(target) = target else { continue };
        if target.model.is_some() && target.endpoint != StabilityEndpoint::Sd3 {
            let problem = "is used by the endpoint sd3 only: remove it";
            return Err(ConfigError::new(format!("{tier}.model"), problem));
        }
    }
    Ok(Arc::new(model))
}

impl ModelSettings for StabilityModel {
    fn check(&self, model: &ModelKind) -> Result<(), ConfigError> {
        match model {
            ModelKind::Image(image) => self.check_image(image),
            _ => Ok(()),
        }
    }
}

impl StabilityModel {
    fn check_inputs(&self, image: &ImageModel) -> Result<(), ConfigError> {
        let targets = [Some(&self.standard), self.hd.as_ref()];
        let endpoints = || targets.iter().flatten().map(|target| target.endpoint);
        let has = |wanted| endpoints().any(|endpoint| endpoint == wanted);
        let inpaints = has(StabilityEndpoint::Inpaint);
        let outpaints = has(StabilityEndpoint::Outpaint);
        let Some(inputs) = &image.limits.inputs else {
            if inpaints || outpaints {
                let problem = "is missing: the endpoints inpaint and outpaint need a source";
                return Err(ConfigError::new("limits.inputs", problem));
            }
            return Ok(());
        };
        let problem = if has(StabilityEndpoint::Core) {
            "is not used by the endpoint core: remove it"
        } else if outpaints != inputs.outpaints {
            "must have outpaints = true exactly for the endpoint outpaint"
        } else if outpaints {
            let one = inputs.roles.iter().eq([(&InputRole::Source, &1)]);
            if one && endpoints().all(|endpoint| endpoint == StabilityEndpoint::Outpaint) {
                return Ok(());
            }
            "must have source = 1 alone, and no other endpoint, for the endpoint outpaint"
        } else if inputs.roles.get(&InputRole::Source) != Some(&1) || !inputs.keeps_shape {
            "must have source = 1 and keeps_shape = true: results have the source's shape"
        } else if inputs.roles.contains_key(&InputRole::Reference) {
            "has reference, which Stability does not support: remove it"
        } else if inputs.roles.contains_key(&InputRole::Mask) && !inpaints {
            "has mask, which only the endpoint inpaint supports: remove it"
        } else if inpaints && inputs.required != Some(InputRole::Source) {
            "must have required = \"source\" for the endpoint inpaint"
        } else {
            return Ok(());
        };
        Err(ConfigError::new("limits.inputs", problem))
    }

    fn check_image(&self, image: &ImageModel) -> Result<(), ConfigError> {
        self.check_inputs(image)?;
        let has_hd = image.limits.qualities.contains(&Quality::Hd);
        if has_hd && self.hd.is_none() {
            let problem = "is missing: prices have a tier hd; say what makes it";
            return Err(ConfigError::new("wire.hd", problem));
        }
        if !has_hd && self.hd.is_some() {
            let problem = "is not used: prices have no tier hd; add it or remove this";
            return Err(ConfigError::new("wire.hd", problem));
        }
        let presets = [("wire.vivid", &self.vivid), ("wire.natural", &self.natural)];
        match presets.iter().find(|(_, preset)| preset.is_none()) {
            Some((key, _)) if image.limits.style == Support::Native => Err(ConfigError::new(
                *key,
                "is missing: limits.style is \"native\"; name the preset",
            )),
            _ => Ok(()),
        }
    }
}
