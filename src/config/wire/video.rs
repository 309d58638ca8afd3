//! How to ask a model of video: the settings of the adapters, with their defaults.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{
    super::ConfigError,
    Wire,
    words::{blank_is_none, word},
};
use crate::domain::{request::Ratio, settings::quoted};

/// How to ask a model of Runway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunwayWire {
    /// From a ratio in lowest terms to the model's word for it; default `16:9` and `9:16` of
    /// 1280 by 720 pixels.
    pub ratios: BTreeMap<String, String>,
    /// `resolution`; `None` sends nothing.
    pub resolution: Option<String>,
    /// `audio`; `None` sends nothing.
    pub audio: Option<bool>,
}

/// How to ask a video model of Gemini.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OmniWire {
    /// `resolution`; default `720p`.
    pub resolution: String,
}

const OMNI_RESOLUTIONS: &[&str] = &["360p", "720p", "1080p", "4k"];

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawRunway {
    ratios: Option<BTreeMap<String, String>>,
    resolution: Option<String>,
    audio: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawOmni {
    resolution: Option<String>,
}

pub(super) fn runway(raw: RawRunway) -> Result<Wire, ConfigError> {
    let ratios = raw.ratios.unwrap_or_else(|| {
        let ratio = |ours: &str, theirs: &str| (ours.to_owned(), theirs.to_owned());
        BTreeMap::from([ratio("16:9", "1280:720"), ratio("9:16", "720:1280")])
    });
    let refuse = |problem| Err(ConfigError::new("ratios", problem));
    let mut reduced = BTreeMap::new();
    for (ours, theirs) in ratios {
        let Some(ratio) = Ratio::parse(&ours) else {
            let bad = quoted(&ours);
            return refuse(format!("holds {bad}: must be ratios, such as \"16:9\""));
        };
        if theirs.trim().is_empty() {
            return refuse(format!("has nothing for \"{ours}\": name the model's word"));
        }
        let theirs = theirs.trim().to_owned();
        let ratio = ratio.reduced().to_string();
        if reduced.insert(ratio, theirs).is_some() {
            return refuse(format!("has the ratio of \"{ours}\" twice: keep one"));
        }
    }
    Ok(Wire::Runway(RunwayWire {
        ratios: reduced,
        resolution: blank_is_none(raw.resolution),
        audio: raw.audio,
    }))
}

pub(super) fn omni(raw: RawOmni) -> Result<Wire, ConfigError> {
    let resolution = word("resolution", raw.resolution, "720p", OMNI_RESOLUTIONS)?;
    Ok(Wire::Omni(OmniWire { resolution }))
}
