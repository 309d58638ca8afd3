//! The operator's margin.

use serde::Deserialize;

use crate::domain::pricing::Markup;

/// `[pricing]`.
#[derive(Debug, Clone, Deserialize)]
pub struct Pricing {
    /// The factor of models whose configuration and provider name none.
    pub markup: Markup,
}

/// Warns of a factor below 1, such as a margin written as 0.2 instead of 1.2.
pub(in crate::config) fn check_margin(
    key: impl FnOnce() -> String,
    markup: Option<Markup>,
    warnings: &mut Vec<String>,
) {
    if let Some(markup) = markup.filter(|markup| markup.is_below_cost()) {
        warnings.push(format!(
            "{} is {markup}: prices are below the provider's",
            key()
        ));
    }
}
