//! Settings of the models of Stability.

use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use toml::Value;

use crate::domain::{
    catalogue::{ImageModel, ModelKind, Support},
    request::Quality,
    settings::{ConfigError, blank_is_none, read_table, word_or_blank},
    vendor::{ModelSettings, SharedSettings},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StabilityEndpoint {
    Core,
    Ultra,
    /// Stable Diffusion 3.5, one of several models.
    Sd3,
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
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
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
}

fn preset<'de, D: Deserializer<'de>>(source: D) -> Result<Option<String>, D::Error> {
    word_or_blank(
        source,
        &[
            "3d-model",
            "analog-film",
            "anime",
            "cinematic",
            "comic-book",
            "digital-art",
            "enhance",
            "fantasy-art",
            "isometric",
            "line-art",
            "low-poly",
            "modeling-compound",
            "neon-punk",
            "origami",
            "photographic",
            "pixel-art",
            "tile-texture",
        ],
    )
}

pub(super) fn read(wire: Option<Value>) -> Result<SharedSettings, ConfigError> {
    let endpoint = |tier: &str| wire.as_ref()?.get(tier)?.get("endpoint");
    let has_hd = wire.as_ref().is_some_and(|wire| wire.get("hd").is_some());
    for tier in ["standard", "hd"] {
        if endpoint(tier).is_none() && (tier == "standard" || has_hd) {
            let problem = "is missing: write one of core, ultra, sd3";
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
    fn check_image(&self, image: &ImageModel) -> Result<(), ConfigError> {
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
