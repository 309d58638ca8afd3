//! Credits: decimal amounts with at most six fractional digits, stored as micro-credits.
//!
//! Arithmetic is checked and never uses floats. [`Credits::pro_rata`] is the only division, and
//! rounds up.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use toml::Value;

use super::settings::{quoted, shown};

/// An amount in micro-credits. May be negative (an adjustment); the range of prices and balances is
/// checked where they are created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Credits(i64);

/// Why a text is not an amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CreditsError {
    /// Not of the form `-?digits[.digits]`.
    #[error("must be a decimal number such as \"12.5\"")]
    Malformed,
    /// More than six digits after the point.
    #[error("must have at most six digits after the point")]
    TooPrecise,
    /// Beyond the range of 64-bit micro-credits.
    #[error("is too large")]
    TooLarge,
}

impl Credits {
    pub const ZERO: Self = Self(0);

    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    pub const fn micros(self) -> i64 {
        self.0
    }

    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).map(Self)
    }

    /// Returns the difference, or zero if it would be negative.
    #[must_use]
    pub fn minus_or_zero(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0).max(0))
    }

    /// Returns the sum of `price × quantity`, divided by `per` and rounded **up** to a
    /// micro-credit. This is the only division in the codebase. Returns `None` on overflow, a
    /// negative price or `per` = 0.
    pub fn pro_rata(parts: &[(Self, u64)], per: u64) -> Option<Self> {
        if per == 0 {
            return None;
        }
        let sum = parts.iter().try_fold(0_u128, |sum, (price, quantity)| {
            let price = u128::try_from(price.0).ok()?;
            sum.checked_add(price.checked_mul(u128::from(*quantity))?)
        })?;
        i64::try_from(sum.div_ceil(u128::from(per))).ok().map(Self)
    }
}

impl fmt::Display for Credits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let amount = decimal(self.0.unsigned_abs().into(), 1);
        write!(f, "{sign}{amount}")
    }
}

/// Formats micro-credits divided by `units`, a power of ten.
pub(super) fn decimal(micros: u128, units: u64) -> String {
    let digits = 6 + units.ilog10() as usize;
    let text = format!("{micros:0>width$}", width = digits + 1);
    let (whole, fraction) = text.split_at(text.len() - digits);
    match fraction.trim_end_matches('0') {
        "" => whole.to_owned(),
        fraction => format!("{whole}.{fraction}"),
    }
}

impl FromStr for Credits {
    type Err = CreditsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let negative = text.starts_with('-');
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
        let all_digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        if !all_digits(whole) || !all_digits(fraction) {
            return Err(CreditsError::Malformed);
        }
        let fraction = fraction.trim_end_matches('0');
        if fraction.len() > 6 {
            return Err(CreditsError::TooPrecise);
        }
        let micros = format!("{whole}{fraction:0<6}").parse::<i64>();
        let micros = micros.map_err(|_| CreditsError::TooLarge)?;
        Ok(Self(if negative { -micros } else { micros }))
    }
}

impl Serialize for Credits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Reads an amount from the configuration. It must not be negative. A float may have lost digits.
impl<'de> Deserialize<'de> for Credits {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = match Value::deserialize(source)? {
            Value::String(text) => text.trim().to_owned(),
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => {
                return Err(D::Error::custom(format_args!(
                    "is {number}: write credits in quotes, such as \"10.5\", \
                     so that no digit is lost"
                )));
            }
            other => {
                let bad = shown(&other);
                return Err(D::Error::custom(format_args!(
                    "is {bad}: must be credits in quotes"
                )));
            }
        };
        let problem = match text.parse() {
            Ok(credits) if credits >= Self::ZERO => return Ok(credits),
            Ok(_) => "must not be negative".to_owned(),
            Err(error) => error.to_string(),
        };
        let bad = quoted(&text);
        Err(D::Error::custom(format_args!("is {bad}: {problem}")))
    }
}

impl utoipa::PartialSchema for Credits {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::String)
            .pattern(Some(r"^-?[0-9]+(\.[0-9]{1,6})?$"))
            .description(Some(
                "Credits: a decimal string with at most six fractional digits.",
            ))
            .examples([serde_json::json!("12.5")])
            .into()
    }
}

impl utoipa::ToSchema for Credits {
    fn name() -> std::borrow::Cow<'static, str> {
        "Credits".into()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn prints_without_exponent_or_trailing_zeros() {
        for (micros, text) in [
            (0, "0"),
            (12_500_000, "12.5"),
            (375, "0.000375"),
            (-1, "-0.000001"),
            (1_000_000, "1"),
            (i64::MIN, "-9223372036854.775808"),
        ] {
            assert_eq!(Credits(micros).to_string(), text);
        }
    }

    #[test]
    fn refuses_what_is_no_amount() {
        for text in [
            "", ".", "1.", ".5", "1e3", "0x1", " 1", "1 ", "--1", "1,5", "NaN", "١",
        ] {
            assert_eq!(
                text.parse::<Credits>(),
                Err(CreditsError::Malformed),
                "{text:?}"
            );
        }
        assert_eq!(
            "0.0000001".parse::<Credits>(),
            Err(CreditsError::TooPrecise)
        );
        assert_eq!(
            "9223372036855".parse::<Credits>(),
            Err(CreditsError::TooLarge)
        );
        assert_eq!("1.50000000".parse::<Credits>(), Ok(Credits(1_500_000)));
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_as_the_same(text in "-?[0-9]{0,22}[.]?[0-9]{0,9}|.{0,20}") {
            if let Ok(amount) = text.parse::<Credits>() {
                prop_assert_eq!(amount.to_string().parse::<Credits>(), Ok(amount));
                let exact = |text: &str| text.trim_start_matches(['-', '0']).replace('.', "");
                let (ours, theirs) = (exact(&amount.to_string()), exact(&text));
                prop_assert!(theirs.starts_with(ours.trim_end_matches('0')), "{text} {amount}");
            }
        }

        #[test]
        fn text_round_trips(micros in (i64::MIN + 1)..=i64::MAX) {
            prop_assert_eq!(Credits(micros).to_string().parse::<Credits>(), Ok(Credits(micros)));
        }

        #[test]
        fn pro_rata_rounds_up_by_less_than_one_micro(
            price in 0..10_000_000_000_i64, quantity in 0..1_000_000_u64, per in 1..2_000_000_u64
        ) {
            let exact = i128::from(price) * i128::from(quantity);
            let got = i128::from(Credits::pro_rata(&[(Credits(price), quantity)], per).unwrap().micros());
            let per = i128::from(per);
            prop_assert!(got * per >= exact && (got - 1) * per < exact);
        }
    }
}
