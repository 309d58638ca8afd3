//! Why there are not enough credits, in numbers that the caller can act on.

use super::{CreditsShort, ShortOf};
use crate::{
    domain::{credits::Credits, pricing::TextCeiling},
    store::credits::Balance,
};

/// A hold that does not fit below the request's own `max_cost`.
pub(super) fn above_max_cost(
    required: Credits,
    max_cost: Credits,
    balance: Balance,
    ceiling: &TextCeiling,
) -> CreditsShort {
    short(ShortOf::MaxCost, required, max_cost, balance, ceiling)
}

/// A hold that does not fit into what is available.
pub(super) fn above_available(
    required: Credits,
    balance: Balance,
    ceiling: &TextCeiling,
) -> CreditsShort {
    let of = if balance.balance < required {
        ShortOf::Balance
    } else {
        ShortOf::Holds
    };
    short(of, required, balance.available(), balance, ceiling)
}

fn short(
    of: ShortOf,
    required: Credits,
    limit: Credits,
    balance: Balance,
    ceiling: &TextCeiling,
) -> CreditsShort {
    CreditsShort {
        of,
        required,
        balance,
        shortfall: required.minus_or_zero(limit),
        affordable: ceiling
            .affordable(limit)
            .map(|tokens| ("max_tokens", u64::from(tokens))),
    }
}
