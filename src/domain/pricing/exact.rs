//! Images, video and speech, whose price is known before the work starts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{largest, text::PER_MILLION};
use crate::domain::{credits::Credits, named::named_enum};

/// Speech prices are per this many characters.
pub const PER_THOUSAND: u64 = 1_000;

named_enum!(
    /// The quality tier of an image.
    Quality {
        Standard = "standard",
        Hd = "hd",
    }
);

/// Prices of the quality tiers of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QualityPrices {
    /// Quality `standard`.
    pub standard: Credits,
    /// Quality `hd`; absent if the model has only one tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hd: Option<Credits>,
}

/// Prices of an image model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImagePrices {
    /// Credits per image, by size; `any` if the model extends its source.
    pub per_image: BTreeMap<String, QualityPrices>,
    /// Maximum credits per input; absent if the model accepts none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_input_image: Option<Credits>,
    /// Credits per 1,000,000 tokens of the inputs, by the provider's count; absent if the inputs
    /// are charged by number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_image_per_million: Option<Credits>,
}

/// Prices of a video model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VideoPrices {
    /// Credits per second.
    pub per_second: Credits,
    /// Credits per input; absent if the model accepts none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_input_image: Option<Credits>,
}

/// Prices of a speech model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SpeechPrices {
    /// Credits per 1,000 characters of input; pro rata, rounded up to a micro-credit.
    pub per_1000_characters: Credits,
}

/// The key of a price for results of any size.
pub const ANY_SIZE: &str = "any";

impl ImagePrices {
    /// Returns the price of an image.
    pub fn of_image(&self, size: &str, quality: Quality) -> Option<Credits> {
        let sizes = &self.per_image;
        let tiers = sizes.get(size).or_else(|| sizes.get(ANY_SIZE))?;
        match quality {
            Quality::Standard => Some(tiers.standard),
            Quality::Hd => tiers.hd,
        }
    }

    pub fn amounts(&mut self) -> impl Iterator<Item = &mut Credits> {
        let tiers = self.per_image.values_mut();
        tiers
            .flat_map(|tiers| [&mut tiers.standard].into_iter().chain(&mut tiers.hd))
            .chain(&mut self.per_input_image)
            .chain(&mut self.input_image_per_million)
    }
}

impl VideoPrices {
    pub fn amounts(&mut self) -> impl Iterator<Item = &mut Credits> {
        let per_second = [&mut self.per_second].into_iter();
        per_second.chain(&mut self.per_input_image)
    }
}

/// The inputs of a request, and their prices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InputCeiling {
    pub images: u32,
    /// Credits per input.
    pub per_image: Credits,
    /// Credits per 1,000,000 tokens.
    pub per_million: Option<Credits>,
}

impl InputCeiling {
    /// Returns `None` on overflow.
    pub fn price(&self) -> Option<Credits> {
        Credits::pro_rata(&[(self.per_image, self.images.into())], 1)
    }

    /// Returns the price of `tokens`. Returns `None` if [`Self::price`] applies, because inputs are
    /// charged by number, the provider did not count them, or their tokens would cost more.
    pub fn price_by_tokens(&self, tokens: Option<u64>) -> Option<Credits> {
        let by_tokens = Credits::pro_rata(&[(self.per_million?, tokens?)], PER_MILLION)?;
        Some(by_tokens).filter(|price| self.price().is_some_and(|ceiling| *price <= ceiling))
    }
}

/// The maximum cost of images, a video or speech, and the values that determine it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitCeiling {
    /// The parameter with the number of units.
    pub parameter: &'static str,
    /// The requested images, seconds, or characters (Unicode scalar values).
    pub units: u64,
    /// Those of `units` that the parameter does not determine, such as the characters of
    /// instructions.
    pub other_units: u64,
    /// The numbers of units that the model supports, ascending; `None`: any.
    pub supported: Option<Vec<u64>>,
    /// Credits of `per` units.
    pub unit_price: Credits,
    pub per: u64,
    pub inputs: InputCeiling,
}

impl UnitCeiling {
    /// Returns the price of `units` and all inputs; `None` on overflow.
    pub fn price(&self, units: u64) -> Option<Credits> {
        self.without_inputs(units)?
            .checked_add(self.inputs.price()?)
    }

    /// Returns the price of `units` without inputs; `None` on overflow.
    pub fn without_inputs(&self, units: u64) -> Option<Credits> {
        Credits::pro_rata(&[(self.unit_price, units)], self.per)
    }

    /// The largest value of the parameter that fits, at most the requested one.
    pub fn affordable(&self, available: Credits) -> Option<u64> {
        let requested = self.units.saturating_sub(self.other_units);
        let fits = |value: u64| {
            let price = self.price(value.saturating_add(self.other_units));
            price.is_some_and(|price| price <= available)
        };
        let Some(supported) = &self.supported else {
            return largest(requested, fits);
        };
        let mut supported = supported.iter().rev().copied();
        supported.find(|&value| value <= requested && fits(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credits(text: &str) -> Credits {
        text.parse().unwrap()
    }

    fn ceiling(unit_price: &str, units: u64) -> UnitCeiling {
        UnitCeiling {
            parameter: "n",
            units,
            other_units: 0,
            supported: None,
            unit_price: credits(unit_price),
            per: 1,
            inputs: InputCeiling::default(),
        }
    }

    #[test]
    fn speech_is_pro_rata_and_rounded_up_once() {
        let speech = |characters| UnitCeiling {
            per: PER_THOUSAND,
            ..ceiling("4", characters)
        };
        assert_eq!(speech(950).price(950), Some(credits("3.8")));
        let odd = UnitCeiling {
            per: PER_THOUSAND,
            ..ceiling("0.0015", 1)
        };
        assert_eq!(odd.price(1), Some(credits("0.000002")));
        assert_eq!(speech(2000).affordable(credits("3.8")), Some(950));
        assert_eq!(speech(2000).affordable(credits("0.003999")), None);
        let instructed = UnitCeiling {
            other_units: 900,
            ..speech(2000)
        };
        assert_eq!(instructed.affordable(credits("3.8")), Some(50));
        assert_eq!(instructed.affordable(credits("3.603999")), None);
        assert_eq!(instructed.affordable(credits("3.604")), Some(1));
        assert_eq!(instructed.affordable(credits("100")), Some(1100));
    }

    #[test]
    fn what_would_fit_is_something_that_the_model_makes() {
        let video = UnitCeiling {
            supported: Some(vec![4, 6, 8]),
            ..ceiling("10", 8)
        };
        assert_eq!(video.affordable(credits("79")), Some(6));
        assert_eq!(video.affordable(credits("39.999999")), None);
        let image = ceiling("1.32", 4);
        assert_eq!(image.affordable(credits("4")), Some(3));
        assert_eq!(image.affordable(credits("1")), None);
    }

    #[test]
    fn inputs_are_added_and_bounded_by_their_ceiling() {
        let inputs = InputCeiling {
            images: 2,
            per_image: credits("6"),
            per_million: Some(credits("800")),
        };
        let image = UnitCeiling {
            inputs,
            ..ceiling("1.5", 2)
        };
        assert_eq!(image.price(2), Some(credits("15")));
        assert_eq!(image.affordable(credits("14")), Some(1));
        assert_eq!(inputs.price_by_tokens(Some(1_001)), Some(credits("0.8008")));
        assert_eq!(inputs.price_by_tokens(Some(15_001)), None);
        assert_eq!(inputs.price_by_tokens(None), None);
        let flat = InputCeiling {
            per_million: None,
            ..inputs
        };
        assert_eq!(flat.price_by_tokens(Some(1)), None);
        let video = UnitCeiling {
            supported: Some(vec![4, 6]),
            inputs,
            ..ceiling("10", 6)
        };
        assert_eq!(video.price(6), Some(credits("72")));
        assert_eq!(video.affordable(credits("71")), Some(4));
    }
}
