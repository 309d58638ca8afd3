//! Reasons why a request is refused, in the documented order, with numbers that the caller can act
//! on.

use super::{Prepared, Submitted};
use crate::{
    domain::{credits::Credits, generation::Surface, pricing::Ceiling},
    service::{CreditsShort, Result, Service, ServiceError, ShortOf, TokenRefusal},
    store::{
        credits::{Balance, SpendLimit},
        generations::HoldOutcome,
    },
};

impl Service {
    /// Refuses a request that cannot be called now with `error`. If its provider is at fault and
    /// the caller could not pay, the error says that instead, since waiting would not help.
    pub(super) async fn not_now(
        &self,
        plan: &Prepared<'_>,
        error: ServiceError,
    ) -> Result<Submitted> {
        // A concurrent request with the same key may have been first.
        if let Some(before) = self.submitted_before(plan.caller, plan.idempotent).await? {
            return Ok(before);
        }
        if !matches!(error, ServiceError::TooManyRequests(_)) {
            self.check_spendable(plan).await?;
        }
        self.0.refusals.log(plan.caller.account_id.into());
        Err(error)
    }

    /// Refuses a request whose hold or job exceeds the account's limits now.
    pub(super) async fn check_spendable(&self, plan: &Prepared<'_>) -> Result<()> {
        let account = plan.caller.account_id;
        let (_, jobs) = self.0.store.balance_and_jobs(account).await?;
        self.check_jobs(plan, jobs)?;
        let (balance, cap) = self.spendable_balance(plan.caller).await?;
        let (hold, surface) = (plan.hold(), plan.work.new.surface);
        let ceiling = plan.dearest();
        match cap {
            Some(cap) if cap.left() < hold => {
                Err(above_spend_limit(hold, cap, balance, ceiling, surface))
            }
            _ if balance.available() < hold => Err(above_available(hold, balance, ceiling)),
            _ => Ok(()),
        }
    }

    pub(super) fn check_jobs(&self, plan: &Prepared<'_>, jobs: i32) -> Result<()> {
        let most = self.0.settings.max_jobs_per_account;
        if plan.work.new.job && jobs >= most {
            return Err(ServiceError::TooManyJobs(most));
        }
        Ok(())
    }

    pub(super) async fn refused(&self, plan: &Prepared<'_>, why: HoldOutcome) -> Result<Submitted> {
        let (caller, idempotent) = (plan.caller, plan.idempotent);
        let (ceiling, surface) = (plan.dearest(), plan.work.new.surface);
        let hold = plan.hold();
        Err(match why {
            HoldOutcome::SpendLimit(cap, balance) => {
                above_spend_limit(hold, cap, balance, ceiling, surface)
            }
            HoldOutcome::Short(balance) => above_available(hold, balance, ceiling),
            HoldOutcome::KeyBound => {
                // A concurrent request with the same key, or another attempt, was first.
                let mut before = self.submitted_before(caller, idempotent).await?;
                if let (None, Some(request)) = (&before, idempotent) {
                    before = self.replaced_by(caller, request).await?;
                }
                return before.ok_or(ServiceError::IdempotencyInProgress);
            }
            HoldOutcome::NotAsPresumed => ServiceError::NotAsPresumed,
            HoldOutcome::RateLimited(rate) => {
                caller.forget_key();
                ServiceError::RateLimited(rate)
            }
            HoldOutcome::CredentialEnded => {
                let is_past = caller.expires_at.is_some_and(|at| at <= self.0.clock.now());
                match caller.user_id {
                    None if is_past => ServiceError::Token(TokenRefusal::Expired),
                    _ => caller.ended(),
                }
            }
            HoldOutcome::Suspended => ServiceError::Suspended,
            HoldOutcome::TooManyJobs => {
                ServiceError::TooManyJobs(self.0.settings.max_jobs_per_account)
            }
            HoldOutcome::Held | HoldOutcome::Abandoned => {
                ServiceError::Internal("a hold was both placed and refused".to_owned())
            }
        })
    }
}

/// Returns the refusal of a hold above the request's own `max_cost`.
pub(super) fn above_max_cost(
    required: Credits,
    max_cost: Credits,
    balance: Balance,
    ceiling: &Ceiling,
) -> ServiceError {
    let affordable = ceiling.affordable(max_cost);
    short(ShortOf::MaxCost, required, max_cost, balance, affordable)
}

/// Returns the refusal of a hold above the available balance.
pub(super) fn above_available(
    required: Credits,
    balance: Balance,
    ceiling: &Ceiling,
) -> ServiceError {
    let of = if balance.balance < required {
        ShortOf::Balance
    } else {
        ShortOf::Holds
    };
    let available = balance.available();
    let affordable = ceiling.affordable(available);
    short(of, required, available, balance, affordable)
}

/// Returns the refusal of a hold above the key's spend limit. Only SDKs, which retry by themselves,
/// get the case that it would fit without other holds.
pub(super) fn above_spend_limit(
    required: Credits,
    cap: SpendLimit,
    balance: Balance,
    ceiling: &Ceiling,
    surface: Surface,
) -> ServiceError {
    let of = if surface != Surface::Generate && cap.has_room_for(required) {
        ShortOf::HoldsOfKey(cap)
    } else {
        ShortOf::SpendLimit(cap)
    };
    // The affordable value must fit the balance too.
    let affordable = ceiling.affordable(cap.left().min(balance.available()));
    short(of, required, cap.left(), balance, affordable)
}

fn short(
    of: ShortOf,
    required: Credits,
    limit: Credits,
    balance: Balance,
    affordable: Option<(&'static str, u64)>,
) -> ServiceError {
    ServiceError::CreditsShort(Box::new(CreditsShort {
        of,
        required,
        balance,
        shortfall: required.minus_or_zero(limit),
        affordable,
    }))
}
