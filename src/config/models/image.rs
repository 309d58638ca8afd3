//! Models of images.
//!
//! Every size that a model can serve needs a price. `catalogue` chooses the larger size
//! from which a size is scaled down.

use serde::Deserialize;
use toml::{Table, Value};

use super::{
    super::ConfigError,
    rules::{check_input_prices, check_inputs, check_list, hinted, limits, priced, prices},
};
use crate::{
    catalogue::{ImageLimits, ImageModel, InputLimits, Support, vendor::ModelSettings},
    domain::{
        inputs::InputRole,
        pricing::{ANY_SIZE, ImagePrices, Quality},
        settings::{MISSING, quoted, range::Bounded},
    },
    request::{IMAGE_PROMPT_CHARS, SDK_SIZES, SIZES},
};

/// Maximum images of a request.
const MAX_N: u32 = 4;
const ROLES: [InputRole; 3] = [InputRole::Source, InputRole::Mask, InputRole::Reference];
/// Maximum side of an image, in pixels.
const MAX_SIDE: u32 = 8_192;

#[derive(Deserialize)]
struct Limits {
    max_prompt_chars: Option<Bounded<usize, 1, IMAGE_PROMPT_CHARS>>,
    max_prompt_utf16: Option<Bounded<usize, 1, 10_000>>,
    native_sizes: Option<Vec<String>>,
    max_n: Option<Bounded<u32, 1, { MAX_N as usize }>>,
    style: Option<Support>,
    negative_prompt: Option<Support>,
    inputs: Option<InputLimits>,
}

pub(super) fn read(
    given_prices: Option<Value>,
    given_limits: Option<Value>,
    settings: &dyn ModelSettings,
) -> Result<ImageModel, ConfigError> {
    let limits: Limits = limits(given_limits, Table::new())?;
    let outpaints = limits
        .inputs
        .as_ref()
        .is_some_and(|inputs| inputs.outpaints);
    let native_sizes = match &limits.native_sizes {
        None if outpaints => Vec::new(),
        None => return Err(hinted(ConfigError::new("native_sizes", MISSING)).under("limits")),
        Some(_) if outpaints => {
            let problem = "is not used with limits.inputs.outpaints: remove it";
            return Err(ConfigError::new("limits.native_sizes", problem));
        }
        Some(names) => native_sizes(names)?,
    };
    let sizes = ImageModel::servable(&SIZES, &native_sizes);
    let sdk_sizes = ImageModel::servable(&SDK_SIZES, &native_sizes);
    let prices: ImagePrices = prices(given_prices)?;
    let mut model = ImageModel {
        prices,
        limits: ImageLimits {
            max_prompt_chars: limits.max_prompt_chars.map_or(IMAGE_PROMPT_CHARS, |n| *n),
            max_prompt_utf16: limits.max_prompt_utf16.map(|n| *n),
            sizes: sizes.iter().copied().map(name).collect(),
            qualities: vec![Quality::Standard],
            max_n: limits.max_n.map_or(MAX_N, |n| *n),
            style: limits.style.unwrap_or(Support::Guided),
            negative_prompt: limits.negative_prompt.unwrap_or(Support::Guided),
            inputs: limits.inputs,
        },
        native_sizes,
        takes_background: settings.takes_background(),
    };
    if model
        .prices
        .per_image
        .values()
        .any(|prices| prices.hd.is_some())
    {
        model.limits.qualities.push(Quality::Hd);
    }
    if outpaints {
        check_outpaint(&model)?;
    } else {
        complete(&mut model, &sdk_sizes).map_err(priced)?;
    }
    let (inputs, prices) = (model.limits.inputs.as_ref(), &model.prices);
    check_inputs(inputs, &ROLES)?;
    check_input_prices(
        inputs,
        prices.per_input_image,
        prices.input_image_per_million,
    )?;
    Ok(model)
}

fn name((width, height): (u32, u32)) -> String {
    format!("{width}x{height}")
}

fn native_sizes(names: &[String]) -> Result<Vec<(u32, u32)>, ConfigError> {
    let key = "limits.native_sizes";
    check_list(key, names)?;
    let pixels = |text: &str| {
        let number: u32 = text.parse().ok()?;
        (1..=MAX_SIDE).contains(&number).then_some(number)
    };
    let invalid = |problem: String| ConfigError::new(key, problem);
    let sizes: Vec<_> = names
        .iter()
        .map(|text| {
            let size = text
                .split_once('x')
                .and_then(|(w, h)| Some((pixels(w)?, pixels(h)?)))
                // Excludes notations such as +1 and 01.
                .filter(|&size| name(size) == *text);
            let Some(size) = size else {
                return Err(format!(
                    "holds {}: must be sizes in pixels, such as \"1024x1024\"",
                    quoted(text)
                ));
            };
            if ImageModel::servable(&SDK_SIZES, &[size]).is_empty() {
                return Err(format!(
                    "holds \"{text}\", from which no size of the API can be made: remove it"
                ));
            }
            Ok(size)
        })
        .collect::<Result<_, _>>()
        .map_err(invalid)?;
    if ImageModel::servable(&SIZES, &sizes).is_empty() {
        let problem = "has only sizes for SDKs: add a size of POST /v1/generate/image";
        return Err(invalid(problem.to_owned()));
    }
    Ok(sizes)
}

/// Checks a model that extends its source: it requires a source and has one price.
fn check_outpaint(model: &ImageModel) -> Result<(), ConfigError> {
    let inputs = model.limits.inputs.as_ref();
    if inputs.and_then(|inputs| inputs.required) != Some(InputRole::Source) {
        let problem = "must be \"source\" with outpaints";
        return Err(ConfigError::new("limits.inputs.required", problem));
    }
    let mut roles = inputs.into_iter().flat_map(|inputs| inputs.roles.keys());
    if let Some(role) = roles.find(|role| **role != InputRole::Source) {
        let key = format!("limits.inputs.{}", role.as_str());
        let problem = "is not used with limits.inputs.outpaints: only source is";
        return Err(ConfigError::new(key, problem));
    }
    let prices = &model.prices.per_image;
    if let Some(size) = prices.keys().find(|size| *size != ANY_SIZE) {
        let problem = "is not used with limits.inputs.outpaints: write per_image.any";
        return Err(ConfigError::new(
            format!("prices.per_image.{size}"),
            problem,
        ));
    }
    if prices.is_empty() {
        return Err(priced(ConfigError::new("per_image.any", MISSING)));
    }
    Ok(())
}

/// Sets the price of each served size: its own, or that of the size from which it is scaled.
fn complete(model: &mut ImageModel, sizes: &[(u32, u32)]) -> Result<(), ConfigError> {
    let listed = std::mem::take(&mut model.prices.per_image);
    let mut known: Vec<_> = sizes.iter().copied().map(name).collect();
    known.extend(model.native_sizes.iter().copied().map(name));
    if let Some(unknown) = listed.keys().find(|key| !known.contains(key)) {
        known.sort();
        known.dedup();
        let problem = format!(
            "is for a size that the model does not make: use {}",
            known.join(", ")
        );
        return Err(ConfigError::new(format!("per_image.{unknown}"), problem));
    }
    for &size in sizes {
        let own = name(size);
        let native = name(model.native(size).unwrap_or(size));
        let source = if listed.contains_key(&own) {
            &own
        } else {
            &native
        };
        let missing = |tier: &str| ConfigError::new(format!("per_image.{source}{tier}"), MISSING);
        let prices = *listed.get(source).ok_or_else(|| missing(""))?;
        if prices.hd.is_none() && model.limits.qualities.contains(&Quality::Hd) {
            return Err(missing(".hd"));
        }
        model.prices.per_image.insert(own, prices);
    }
    Ok(())
}
