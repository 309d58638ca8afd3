//! The bill of a completed generation: each quantity, its price and their product.
//!
//! It is computed from the stored prices and usage with the same functions as the charge.

use serde::{Deserialize as _, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    ImagePrices, Quality, SpeechPrices, TextPrices, VideoPrices, exact::PER_THOUSAND,
    text::PER_MILLION,
};
use crate::domain::{
    credits::{Credits, decimal},
    generation::Modality,
    usage::TextUsage,
    validate::group,
};

/// How the price of a completed generation was computed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Bill {
    /// The line items of the price. For text, cached input and cache writes of zero are left out.
    pub lines: Vec<BillLine>,
    /// Which of the model's prices apply; null if it has only one set.
    #[schema(
        required,
        nullable,
        example = "prices of requests above 200,000 input tokens"
    )]
    pub note: Option<String>,
    /// The exact sum of all amounts.
    #[schema(example = "0.005325000007")]
    pub sum: String,
    /// The sum, rounded up once to a millionth of a credit. `credits.charged` is less only if the
    /// sum exceeds the hold.
    pub total: Credits,
}

/// One line of a bill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct BillLine {
    /// The kind of unit that was counted.
    #[schema(example = "Input tokens")]
    pub label: &'static str,
    /// The number of units.
    pub quantity: u64,
    /// Price in credits of the units in `per`.
    pub unit_price: Credits,
    /// The number of units that `unit_price` is for.
    #[schema(example = "1,000,000 tokens")]
    pub per: &'static str,
    /// The exact product of quantity and price.
    #[schema(example = "0.00175")]
    pub amount: String,
}

impl Bill {
    /// Returns `None` if the generation has no usage or its price row has no price for it.
    pub fn new(
        modality: Modality,
        pricing: &Value,
        parameters: &Value,
        usage: &Value,
    ) -> Option<Self> {
        let quantity = |name: &str| usage[name].as_u64();
        let (parts, note): (Vec<Part>, _) = match modality {
            Modality::Text => {
                let prices = TextPrices::deserialize(pricing).ok()?;
                let usage = TextUsage::deserialize(usage).ok()?;
                let parts = prices.parts(&usage).into_iter();
                // Zero lines are left out, because most requests do not use a prompt cache.
                let always = ["Input tokens", "Output tokens"];
                let parts = parts.filter(|(label, _, count)| *count > 0 || always.contains(label));
                let parts = parts.map(|(label, price, count)| Part(label, price, count, TOKENS));
                let (price, count) = prices.searches(&usage);
                let searches = Part("Web searches", price, count, (1, "search"));
                let parts = parts.chain((count > 0).then_some(searches));
                let tier = prices.tier(usage.input_tokens);
                let note = tier.map(|tier| {
                    let above = group(&tier.above_input_tokens.to_string());
                    format!("prices of requests above {above} input tokens")
                });
                (parts.collect(), note)
            }
            Modality::Image => {
                let (size, quality) = (&parameters["size"], &parameters["quality"]);
                let (size, quality) = (size.as_str()?, Quality::deserialize(quality).ok()?);
                let prices = ImagePrices::deserialize(pricing).ok()?;
                let price = prices.of_image(size, quality)?;
                let mut parts = vec![Part("Images", price, quantity("images")?, (1, "image"))];
                if let Some(tokens) = quantity("input_image_tokens") {
                    let price = prices.input_image_per_million?;
                    parts.push(Part("Tokens of input images", price, tokens, TOKENS));
                } else if let Some(count) = quantity("input_images") {
                    parts.push(pictures(prices.per_input_image?, count));
                }
                (
                    parts,
                    Some(format!("{size} at quality {}", quality.as_str())),
                )
            }
            Modality::Video => {
                let prices = VideoPrices::deserialize(pricing).ok()?;
                let (price, seconds) = (prices.per_second, quantity("seconds")?);
                let mut parts = vec![Part("Seconds", price, seconds, (1, "second"))];
                if let Some(count) = quantity("input_images") {
                    parts.push(pictures(prices.per_input_image?, count));
                }
                (parts, None)
            }
            Modality::Audio => {
                let price = SpeechPrices::deserialize(pricing).ok()?.per_1000_characters;
                let per = (PER_THOUSAND, "1,000 characters");
                let part = Part("Characters", price, quantity("characters")?, per);
                (vec![part], None)
            }
        };
        // All are powers of ten; prices for fewer units are scaled up.
        let units = parts.iter().map(|Part(.., (units, _))| *units).max()?;
        let (mut lines, mut priced, mut sum) = (Vec::new(), Vec::new(), 0_u128);
        for Part(label, unit_price, quantity, (per_units, per)) in parts {
            let count = quantity.checked_mul(units / per_units)?;
            let micros = u128::try_from(unit_price.micros()).ok()?;
            let amount = micros.checked_mul(count.into())?;
            sum = sum.checked_add(amount)?;
            priced.push((unit_price, count));
            lines.push(BillLine {
                label,
                quantity,
                unit_price,
                per,
                amount: decimal(amount, units),
            });
        }
        Some(Self {
            lines,
            note,
            sum: decimal(sum, units),
            total: Credits::pro_rata(&priced, units)?,
        })
    }
}

/// Label, unit price, quantity, and the units of the price as a number and as text.
struct Part(&'static str, Credits, u64, (u64, &'static str));

const TOKENS: (u64, &str) = (PER_MILLION, "1,000,000 tokens");

fn pictures(price: Credits, count: u64) -> Part {
    Part("Input images", price, count, (1, "image"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_is_billed_by_the_tier_that_applies() {
        let mut usage = json!({"input_tokens": 1000, "cached_input_tokens": 600,
            "cache_write_tokens": 200, "cache_write_long_tokens": 50, "output_tokens": 7,
            "total_tokens": 1007});
        let mut pricing = json!({
            "input_per_million": "10", "cached_input_per_million": "1",
            "cache_write_per_million": "12.5", "output_per_million": "50.000001",
            "tiers": [{"above_input_tokens": 999, "input_per_million": "20",
                       "output_per_million": "100"}],
        });
        let none = json!({});
        let bill = Bill::new(Modality::Text, &pricing, &none, &usage).unwrap();
        // The tier has no separate prices of input: all 1,000 tokens cost 20 per million.
        assert_eq!(bill.total, "0.0207".parse().unwrap());
        assert_eq!(
            bill.note.unwrap(),
            "prices of requests above 999 input tokens"
        );
        pricing["tiers"] = json!([]);
        let bill = Bill::new(Modality::Text, &pricing, &none, &usage).unwrap();
        // 200 × 10 + 600 × 1 + 150 × 12.5 + 50 × 10 + 7 × 50.000001 = 5325.000007 millionths.
        assert_eq!(bill.sum, "0.005325000007");
        assert_eq!(bill.total, "0.005326".parse().unwrap());
        let amounts: Vec<_> = bill.lines.iter().map(|line| line.amount.as_str()).collect();
        assert_eq!(
            amounts,
            ["0.002", "0.0006", "0.001875", "0.0005", "0.000350000007"]
        );
        usage["searches"] = json!(2);
        pricing["per_search"] = json!("1.5");
        let bill = Bill::new(Modality::Text, &pricing, &none, &usage).unwrap();
        assert_eq!(bill.sum, "3.005325000007");
        assert_eq!(bill.total, "3.005326".parse().unwrap());
        let searches = bill.lines.last().unwrap();
        let shown = (
            searches.label,
            searches.quantity,
            searches.per,
            searches.amount.as_str(),
        );
        assert_eq!(shown, ("Web searches", 2, "search", "3"));
    }

    #[test]
    fn media_are_billed_in_one_line() {
        for (modality, usage, pricing, total) in [
            (
                Modality::Video,
                json!({"seconds": 4}),
                json!({"per_second": "5"}),
                "20",
            ),
            (
                Modality::Audio,
                json!({"characters": 13}),
                json!({"per_1000_characters": "1"}),
                "0.013",
            ),
            (
                Modality::Image,
                json!({"images": 2}),
                json!({"per_image": {"512x512": {"standard": "1", "hd": "2.5"}}}),
                "5",
            ),
        ] {
            let parameters = json!({"size": "512x512", "quality": "hd"});
            let bill = Bill::new(modality, &pricing, &parameters, &usage).unwrap();
            assert_eq!(
                (bill.lines.len(), bill.sum.as_str()),
                (1, total),
                "{modality:?}"
            );
        }
    }
    #[test]
    fn inputs_are_a_line_by_number_or_by_tokens() {
        let pricing = json!({"per_image": {"512x512": {"standard": "1.5"}},
            "per_input_image": "6", "input_image_per_million": "800"});
        let parameters = json!({"size": "512x512", "quality": "standard"});
        let bill = |usage| Bill::new(Modality::Image, &pricing, &parameters, &usage).unwrap();
        let by_number = bill(json!({"images": 2, "input_images": 3}));
        assert_eq!(
            (by_number.lines.len(), &*by_number.sum),
            (2, "21"),
            "{by_number:?}"
        );
        let tokens = json!({"images": 2, "input_images": 3, "input_image_tokens": 1_001});
        let by_tokens = bill(tokens);
        let amounts: Vec<_> = by_tokens.lines.iter().map(|line| &*line.amount).collect();
        assert_eq!(amounts, ["3", "0.8008"]);
        assert_eq!(by_tokens.total, "3.8008".parse().unwrap());
        let pricing = json!({"per_second": "5", "per_input_image": "0.5"});
        let usage = json!({"seconds": 4, "input_images": 1});
        let film = Bill::new(Modality::Video, &pricing, &parameters, &usage).unwrap();
        assert_eq!((film.lines.len(), &*film.sum), (2, "20.5"));
    }
}
