//! Models of images.
//!
//! Here: that every size which a model can serve has a price, and that style and negative
//! prompt get there. Not here: making a size from a larger one (`domain::catalogue`).

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Value;

use super::{
    super::{ConfigError, values::Price},
    inputs::{self, RawInputs},
    rules::{check_list, table, unpriced},
};
use crate::domain::{
    catalogue::{ImageLimits, ImageModel, Support},
    pricing::{ImagePrices, QualityPrices},
    request::{IMAGE_PROMPT_CHARS, InputRole, Quality},
    settings::{quoted, range::Bounded},
};

/// Images of one request that the API takes at most.
const MAX_N: u32 = 4;
const ROLES: [InputRole; 3] = [InputRole::Source, InputRole::Mask, InputRole::Reference];
/// The longest side of an image, in pixels.
const MAX_SIDE: u32 = 8_192;

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct RawPrices {
    per_image: BTreeMap<String, RawTiers>,
    per_input_image: Option<Price>,
    input_image_per_million: Option<Price>,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(default, deny_unknown_fields)]
struct RawTiers {
    standard: Option<Price>,
    hd: Option<Price>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct RawLimits {
    max_prompt_chars: Option<Bounded<usize, 1, IMAGE_PROMPT_CHARS>>,
    native_sizes: Option<Vec<String>>,
    max_n: Option<Bounded<u32, 1, { MAX_N as usize }>>,
    style: Option<Support>,
    negative_prompt: Option<Support>,
    inputs: Option<RawInputs>,
}

pub(super) fn read(
    prices: Option<Value>,
    limits: Option<Value>,
) -> Result<ImageModel, ConfigError> {
    let limits: RawLimits = table("limits", limits)?;
    let native_sizes = native_sizes(limits.native_sizes)?;
    let sizes = ImageModel::servable(&native_sizes);
    let mut model = ImageModel {
        prices: ImagePrices {
            per_image: BTreeMap::new(),
            per_input_image: None,
            input_image_per_million: None,
        },
        limits: ImageLimits {
            max_prompt_chars: limits.max_prompt_chars.map_or(IMAGE_PROMPT_CHARS, |n| *n),
            sizes: sizes.iter().copied().map(name).collect(),
            qualities: vec![Quality::Standard],
            max_n: limits.max_n.map_or(MAX_N, |n| *n),
            style: limits.style.unwrap_or(Support::Guided),
            negative_prompt: limits.negative_prompt.unwrap_or(Support::Guided),
            inputs: inputs::read(limits.inputs, &ROLES).map_err(|error| error.under("limits"))?,
        },
        native_sizes,
    };
    model.prices = complete(&model, &sizes, &table("prices", prices)?)?;
    if model
        .prices
        .per_image
        .values()
        .any(|tiers| tiers.hd.is_some())
    {
        model.limits.qualities.push(Quality::Hd);
    }
    Ok(model)
}

fn name((width, height): (u32, u32)) -> String {
    format!("{width}x{height}")
}

fn native_sizes(raw: Option<Vec<String>>) -> Result<Vec<(u32, u32)>, ConfigError> {
    let key = "limits.native_sizes";
    let Some(names) = raw else {
        let problem = "is missing: list the sizes that the model makes itself, \
                       such as [\"1024x1024\"]";
        return Err(ConfigError::new(key, problem));
    };
    check_list(key, &names)?;
    let pixels = |text: &str| {
        let number: u32 = text.parse().ok()?;
        (1..=MAX_SIDE).contains(&number).then_some(number)
    };
    names
        .iter()
        .map(|text| {
            let size = text
                .split_once('x')
                .and_then(|(w, h)| Some((pixels(w)?, pixels(h)?)))
                // One way to write it: neither +1 nor 01.
                .filter(|&size| name(size) == *text);
            let Some(size) = size else {
                return Err(format!(
                    "holds {}: must be sizes in pixels, such as \"1024x1024\"",
                    quoted(text)
                ));
            };
            if ImageModel::servable(&[size]).is_empty() {
                return Err(format!(
                    "holds \"{text}\", from which no size of the API can be made: remove it"
                ));
            }
            Ok(size)
        })
        .collect::<Result<_, _>>()
        .map_err(|problem| ConfigError::new(key, problem))
}

/// The price of every size that is served: its own, or that of the size it is made from.
fn complete(
    model: &ImageModel,
    sizes: &[(u32, u32)],
    raw: &RawPrices,
) -> Result<ImagePrices, ConfigError> {
    let mut known = model.limits.sizes.clone();
    known.extend(model.native_sizes.iter().copied().map(name));
    if let Some(unknown) = raw.per_image.keys().find(|key| !known.contains(key)) {
        known.sort();
        known.dedup();
        let problem = format!(
            "is for a size that the model does not make: use {}",
            known.join(", ")
        );
        return Err(ConfigError::new(
            format!("prices.per_image.{unknown}"),
            problem,
        ));
    }
    if raw.per_image.is_empty() {
        return Err(unpriced("prices", "add per_image"));
    }
    let two_tiers = raw.per_image.values().any(|tiers| tiers.hd.is_some());
    let mut per_image = BTreeMap::new();
    for &size in sizes {
        let native = name(model.native(size).unwrap_or(size));
        let own = name(size);
        let source = if raw.per_image.contains_key(&own) {
            &own
        } else {
            &native
        };
        let key = format!("prices.per_image.{source}");
        let Some(tiers) = raw.per_image.get(source) else {
            return Err(unpriced(&key, "add it"));
        };
        let Some(Price(standard)) = tiers.standard else {
            return Err(unpriced(&format!("{key}.standard"), "add it"));
        };
        if two_tiers && tiers.hd.is_none() {
            let mend = "add it, as other sizes have it,";
            return Err(unpriced(&format!("{key}.hd"), mend));
        }
        let hd = tiers.hd.map(|price| price.0);
        per_image.insert(own, QualityPrices { standard, hd });
    }
    Ok(ImagePrices {
        per_image,
        per_input_image: inputs::price(model.limits.inputs.as_ref(), raw.per_input_image)?,
        input_image_per_million: raw.input_image_per_million.map(|price| price.0),
    })
}
