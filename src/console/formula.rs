//! A bill written out: each quantity, its price, their products, and the sum that was charged.
//!
//! It is worked out anew, from the price row and the usage of the record alone, so that it says
//! whether the charge is right and does not merely repeat it.

use maud::{Markup, html};
use serde_json::Value;

use super::parts::{self, decimal, grouped, list, text};
use crate::domain::credits::Credits;

/// Digits after the point of a micro-credit.
const MICRO: usize = 6;

/// One line: so many units at a price for so many of them.
struct Line {
    what: &'static str,
    quantity: u64,
    price: Credits,
    /// How many units the price is for; divides that of the bill.
    per: u64,
}

/// A bill: its lines, and for how many units the prices are.
pub struct Bill {
    unit: &'static str,
    lines: Vec<Line>,
    per: u64,
    /// Which prices apply, where there are several.
    note: Option<String>,
}

fn price(value: &Value) -> Option<Credits> {
    value.as_str()?.parse().ok()
}

impl Bill {
    /// Of a completed record; `None` where it has no usage or no prices.
    pub fn of(record: &Value) -> Option<Self> {
        let (usage, pricing) = (&record["usage"], &record["metadata"]["pricing"]);
        let single = |what, unit, quantity: &str, price: Option<Credits>, per| {
            let quantity = usage[quantity].as_u64()?;
            let price = price?;
            Some(Self {
                unit,
                lines: vec![Line {
                    what,
                    quantity,
                    price,
                    per,
                }],
                per,
                note: None,
            })
        };
        let with_inputs = |bill: Self| bill.with_inputs(usage, pricing);
        match text(&record["type"]) {
            "text" => Self::of_text(usage, pricing),
            "image" => {
                let parameters = &record["parameters"];
                let size = &pricing["per_image"][text(&parameters["size"])];
                let price = price(&size[text(&parameters["quality"])]);
                let mut bill = single("Images", "image", "images", price, 1)?;
                bill.note = Some(format!(
                    "{} at quality {}",
                    text(&parameters["size"]),
                    text(&parameters["quality"])
                ));
                with_inputs(bill)
            }
            "video" => {
                let price = price(&pricing["per_second"]);
                with_inputs(single("Seconds", "second", "seconds", price, 1)?)
            }
            _ => {
                let price = price(&pricing["per_1000_characters"]);
                single("Characters", "1,000 characters", "characters", price, 1_000)
            }
        }
    }

    /// Adds the inputs, by their number or by their tokens.
    fn with_inputs(mut self, usage: &Value, pricing: &Value) -> Option<Self> {
        let line = |what, quantity, name: &str, per| {
            Some(Line {
                what,
                quantity,
                price: price(&pricing[name])?,
                per,
            })
        };
        if let Some(tokens) = usage["input_image_tokens"].as_u64() {
            self.per = 1_000_000;
            let what = "Tokens of inputs, per 1,000,000";
            self.lines
                .push(line(what, tokens, "input_image_per_million", self.per)?);
        } else if let Some(inputs) = usage["input_images"].as_u64() {
            self.lines
                .push(line("Inputs, per picture", inputs, "per_input_image", 1)?);
        }
        Some(self)
    }

    fn of_text(usage: &Value, pricing: &Value) -> Option<Self> {
        let count = |name: &str| usage[name].as_u64().unwrap_or(0);
        let input = usage["input_tokens"].as_u64()?;
        let applies = |tier: &&Value| {
            tier["above_input_tokens"]
                .as_u64()
                .is_some_and(|n| input > n)
        };
        let tier = list(&pricing["tiers"]).iter().rev().find(applies);
        let row = tier.unwrap_or(pricing);
        let plain = price(&row["input_per_million"])?;
        let or_plain = |name: &str| price(&row[name]).unwrap_or(plain);
        let cached = count("cached_input_tokens");
        let (written, long) = (
            count("cache_write_tokens"),
            count("cache_write_long_tokens"),
        );
        let line = |what, quantity, price| Line {
            what,
            quantity,
            price,
            per: 1_000_000,
        };
        let lines = vec![
            line(
                "Input tokens",
                input.saturating_sub(cached + written),
                plain,
            ),
            line(
                "Cached input tokens",
                cached,
                or_plain("cached_input_per_million"),
            ),
            line(
                "Tokens written to the cache",
                written.saturating_sub(long),
                or_plain("cache_write_per_million"),
            ),
            line(
                "Tokens written to the cache for long",
                long,
                or_plain("cache_write_long_per_million"),
            ),
            line(
                "Output tokens",
                count("output_tokens"),
                price(&row["output_per_million"])?,
            ),
        ];
        let note = tier.map(|tier| {
            let above = grouped(&tier["above_input_tokens"].to_string());
            format!("prices of requests above {above} input tokens")
        });
        let is_told = |line: &Line| line.quantity > 0 || !line.what.contains("ache");
        Some(Self {
            unit: "1,000,000 tokens",
            lines: lines.into_iter().filter(is_told).collect(),
            per: 1_000_000,
            note,
        })
    }

    /// Rounded up once, to a micro-credit. `None` on overflow.
    pub fn total(&self) -> Option<Credits> {
        let count =
            |line: &Line| Some((line.price, line.quantity.checked_mul(self.per / line.per)?));
        let parts: Option<Vec<(Credits, u64)>> = self.lines.iter().map(count).collect();
        let parts = parts?;
        Credits::pro_rata(&parts, self.per)
    }

    /// An exact product or sum, in micro-credits times `per`.
    fn exact(&self, value: u128) -> String {
        let digits = MICRO + usize::try_from(self.per.ilog10()).unwrap_or(0);
        let text = format!("{value:0>width$}", width = digits + 1);
        let (whole, fraction) = text.split_at(text.len() - digits);
        match fraction.trim_end_matches('0') {
            "" => whole.to_owned(),
            fraction => format!("{whole}.{fraction}"),
        }
    }

    /// The table: lines, their sum, its rounding, and the charge beside it.
    pub fn render(&self, credits: &Value) -> Markup {
        let product = |line: &Line| {
            let micros = u128::from(line.price.micros().unsigned_abs());
            micros * u128::from(line.quantity) * u128::from(self.per / line.per)
        };
        let sum: u128 = self.lines.iter().map(product).sum();
        let exact = self.exact(sum);
        let total = self
            .total()
            .map(|total| total.to_string())
            .unwrap_or_default();
        let (charged, held) = (&credits["charged"], &credits["estimated"]);
        let is_above = self
            .total()
            .is_none_or(|total| Some(total) > price(charged));
        html! {
            @if let Some(note) = &self.note { p.muted.small { (parts::sentence(note)) } }
            div.table tabindex="0" {
                table.sum {
                    thead { tr {
                        th { "Counted" }
                        th.right { "Quantity" }
                        th.right { "Credits per " (self.unit) }
                        th.right { "Credits" }
                    } }
                    tbody {
                        @for line in &self.lines {
                            tr {
                                th scope="row" { (line.what) }
                                td.right { (decimal(&line.quantity.to_string())) }
                                td.right { (decimal(&line.price.to_string())) }
                                td.right { (decimal(&self.exact(product(line)))) }
                            }
                        }
                        @if exact != total {
                            tr {
                                th scope="row" colspan="3" { "Sum, before it is rounded" }
                                td.right { (decimal(&exact)) }
                            }
                        }
                        tr.total {
                            th scope="row" colspan="3" {
                                @if exact == total { "Sum" }
                                @else { "Rounded up to a millionth of a credit" }
                            }
                            td.right { (decimal(&total)) }
                        }
                    }
                }
            }
            @if *charged == total {
                p.notice.good { "This is what was charged: " (parts::credits(charged)) "." }
            } @else if charged == held && is_above {
                p.notice {
                    "Charged: " (parts::credits(charged)) ". More was counted than the hold "
                    "allowed; what is above it is not yours to pay."
                }
            } @else {
                p.notice.bad {
                    "Charged: " (parts::credits(charged)) ", which is not this sum. Ask the "
                    "operator of this server."
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_is_the_sum_of_its_tokens_in_the_tier_that_applies() {
        let mut record = json!({
            "type": "text",
            "usage": {"input_tokens": 1000, "cached_input_tokens": 600, "cache_write_tokens": 200,
                      "cache_write_long_tokens": 50, "output_tokens": 7},
            "metadata": {"pricing": {
                "input_per_million": "10", "cached_input_per_million": "1",
                "cache_write_per_million": "12.5", "output_per_million": "50.000001",
                "tiers": [{"above_input_tokens": 999, "input_per_million": "20",
                           "output_per_million": "100"}],
            }},
        });
        let bill = Bill::of(&record).unwrap();
        // All 1,000 of the input at 20, since this tier has no prices of its own for the others.
        assert_eq!(bill.total(), Some("0.0207".parse().unwrap()));
        record["metadata"]["pricing"]["tiers"] = json!([]);
        let bill = Bill::of(&record).unwrap();
        // 200 × 10 + 600 × 1 + 150 × 12.5 + 50 × 10 + 7 × 50.000001 = 5325.000007 millionths.
        assert_eq!(bill.total(), Some("0.005326".parse().unwrap()));
        let html = bill.render(&json!({"charged": "0.005326"})).into_string();
        assert!(html.contains("value=\"0.005325000007\""), "{html}");
        assert!(html.contains("This is what was charged"), "{html}");
        let wrong = bill
            .render(&json!({"charged": "0.1", "estimated": "1"}))
            .into_string();
        assert!(wrong.contains("not this sum"), "{wrong}");
        for (charged, told) in [("0.001", "More was counted"), ("0.1", "not this sum")] {
            let held = json!({"charged": charged, "estimated": charged});
            let html = bill.render(&held).into_string();
            assert!(html.contains(told), "{told}: {html}");
        }
    }

    #[test]
    fn what_is_priced_by_one_unit_is_one_line() {
        for (kind, usage, pricing, total) in [
            (
                "video",
                json!({"seconds": 4}),
                json!({"per_second": "5"}),
                "20",
            ),
            (
                "audio",
                json!({"characters": 13}),
                json!({"per_1000_characters": "1"}),
                "0.013",
            ),
            (
                "image",
                json!({"images": 2}),
                json!({"per_image": {"512x512": {"standard": "1", "hd": "2.5"}}}),
                "5",
            ),
        ] {
            let record = json!({"type": kind, "usage": usage, "metadata": {"pricing": pricing},
                "parameters": {"size": "512x512", "quality": "hd"}});
            let bill = Bill::of(&record).unwrap();
            assert_eq!(bill.total(), Some(total.parse().unwrap()), "{kind}");
        }
    }

    #[test]
    fn inputs_are_a_line_by_number_or_by_tokens() {
        let mut record = json!({
            "type": "image",
            "usage": {"images": 2, "input_images": 3},
            "parameters": {"size": "512x512", "quality": "standard"},
            "metadata": {"pricing": {"per_image": {"512x512": {"standard": "1.5"}},
                "per_input_image": "6", "input_image_per_million": "800"}},
        });
        assert_eq!(
            Bill::of(&record).unwrap().total(),
            Some("21".parse().unwrap())
        );
        record["usage"]["input_image_tokens"] = json!(1_001);
        let bill = Bill::of(&record).unwrap();
        assert_eq!(bill.total(), Some("3.8008".parse().unwrap()));
        let html = bill.render(&json!({"charged": "3.8008"})).into_string();
        assert!(html.contains("This is what was charged"), "{html}");
    }
}
