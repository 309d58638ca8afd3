//! Why there are not enough credits, in numbers that the caller can act on.

use super::{CreditsShort, ShortOf};
use crate::{
    domain::{credits::Credits, generation::Surface, pricing::Ceiling},
    store::{credits::Balance, generations::SpendLimit},
};

/// Explains a hold above the request's own `max_cost`.
pub(super) fn above_max_cost(
    required: Credits,
    max_cost: Credits,
    balance: Balance,
    ceiling: &Ceiling,
) -> CreditsShort {
    short(ShortOf::MaxCost, required, max_cost, balance, ceiling)
}

/// Explains a hold above the available balance.
pub(super) fn above_available(
    required: Credits,
    balance: Balance,
    ceiling: &Ceiling,
) -> CreditsShort {
    let of = if balance.balance < required {
        ShortOf::Balance
    } else {
        ShortOf::Holds
    };
    short(of, required, balance.available(), balance, ceiling)
}

/// Explains a hold above the key's spend limit. Only SDKs, which retry by themselves, get the case
/// that it would fit without other holds.
pub(super) fn above_spend_limit(
    required: Credits,
    cap: SpendLimit,
    balance: Balance,
    ceiling: &Ceiling,
    surface: Surface,
) -> CreditsShort {
    let of = if surface != Surface::Generate && cap.has_room_for(required) {
        ShortOf::HoldsOfKey(cap)
    } else {
        ShortOf::SpendLimit(cap)
    };
    let short = short(of, required, cap.left(), balance, ceiling);
    CreditsShort {
        // The affordable value must fit the balance too.
        affordable: ceiling.affordable(cap.left().min(balance.available())),
        ..short
    }
}

fn short(
    of: ShortOf,
    required: Credits,
    limit: Credits,
    balance: Balance,
    ceiling: &Ceiling,
) -> CreditsShort {
    CreditsShort {
        of,
        required,
        balance,
        shortfall: required.minus_or_zero(limit),
        affordable: ceiling.affordable(limit),
    }
}
