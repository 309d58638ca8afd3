//! Settings of the models of Runway.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de::Error as _};

use crate::domain::{
    catalogue::ModelKind,
    request::Ratio,
    settings::{ConfigError, blank_is_none, quoted},
    vendor::ModelSettings,
};

/// Settings of one model. The default suits `gen4.5`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunwayModel {
    /// From our ratio to the model's value, mostly pixels: `"16:9" = "1280:720"`. Other ratios are
    /// rejected.
    #[serde(deserialize_with = "ratios")]
    pub ratios: BTreeMap<String, String>,
    /// `resolution` of models that take a named one (`768p`). `None` sends nothing.
    #[serde(deserialize_with = "blank_is_none")]
    pub resolution: Option<String>,
    /// `audio` of models where it is optional; changes the price. `None` sends nothing.
    pub audio: Option<bool>,
}

impl Default for RunwayModel {
    fn default() -> Self {
        let ratio = |ours: &str, theirs: &str| (ours.to_owned(), theirs.to_owned());
        Self {
            ratios: BTreeMap::from([ratio("16:9", "1280:720"), ratio("9:16", "720:1280")]),
            resolution: None,
            audio: None,
        }
    }
}

/// Keys in lowest terms, like the ratios of calls.
fn ratios<'de, D: Deserializer<'de>>(source: D) -> Result<BTreeMap<String, String>, D::Error> {
    let mut reduced = BTreeMap::new();
    for (ours, theirs) in BTreeMap::<String, String>::deserialize(source)? {
        let Some(ratio) = Ratio::parse(&ours) else {
            let bad = quoted(&ours);
            let problem = format!("holds {bad}: must be ratios, such as \"16:9\"");
            return Err(D::Error::custom(problem));
        };
        if theirs.is_empty() {
            let problem = format!("has nothing for \"{ours}\": name the model's word");
            return Err(D::Error::custom(problem));
        }
        let ratio = ratio.reduced().to_string();
        if reduced.insert(ratio, theirs).is_some() {
            let problem = format!("has the ratio of \"{ours}\" twice: keep one");
            return Err(D::Error::custom(problem));
        }
    }
    Ok(reduced)
}

impl ModelSettings for RunwayModel {
    fn check(&self, model: &ModelKind) -> Result<(), ConfigError> {
        let ModelKind::Video(video) = model else {
            return Ok(());
        };
        let has = |text: &str| {
            let ratio = Ratio::parse(text).map(|ratio| ratio.reduced().to_string());
            ratio.is_some_and(|ratio| self.ratios.contains_key(&ratio))
        };
        let mut ratios = video.limits.ratios.iter().flatten();
        match ratios.find(|text| !has(text)) {
            None => Ok(()),
            Some(other) => Err(ConfigError::new(
                "limits.ratios",
                format!("holds \"{other}\", which wire.ratios does not have: add it there"),
            )),
        }
    }
}
