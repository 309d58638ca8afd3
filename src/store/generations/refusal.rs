//! Why a hold was refused.

use sqlx::PgExecutor;

use super::{
    Balance, HoldOutcome, SpendLimit, StoreError,
    hold::{Hold, Terms},
    writer::Grouped as _,
};
use crate::{domain::credits::Credits, store::pool::Transaction};

/// Decides about holds of one account, whose lock the transaction has: all of them together, or where
/// they do not fit, as many as do, in their order.
pub(super) async fn decide(
    tx: &mut Transaction,
    holds: &[&Hold],
) -> Result<Vec<HoldOutcome>, StoreError> {
    if holds.is_empty() {
        return Ok(Vec::new());
    }
    // A transaction of several statements counts nothing: who presents the key anew would wait for
    // its commit.
    let open: Vec<bool> = holds.iter().map(|hold| hold.is_open()).collect();
    let settled = holds.iter().zip(&open).filter(|(_, open)| !**open);
    let settled: Vec<&Hold> = settled.map(|(&hold, _)| hold).collect();
    let mut verdicts = Hold::write(&settled, &mut *tx).await?.into_iter();
    let mut outcomes = Vec::with_capacity(holds.len());
    for (hold, open) in holds.iter().zip(open) {
        if open {
            outcomes.push(HoldOutcome::NotAsPresumed);
            continue;
        }
        let mut held = verdicts.next().flatten();
        if held.is_none() && settled.len() > 1 {
            let alone = Hold::write(&[hold], &mut *tx).await?;
            held = alone.into_iter().flatten().next();
        }
        outcomes.push(match held {
            Some(()) => HoldOutcome::Held,
            None => explain_refusal(&mut *tx, &hold.terms)
                .await?
                .ok_or(StoreError::RowCount {
                    statement: "placing a hold",
                    rows: 0,
                })?,
        });
    }
    Ok(outcomes)
}

/// Why a hold was refused, in the documented order; `None` when it would fit now.
pub(super) async fn explain_refusal(
    executor: impl PgExecutor<'_>,
    terms: &Terms,
) -> Result<Option<HoldOutcome>, StoreError> {
    let (key, session) = terms.credential.ids();
    let reading = sqlx::query!(
        r#"
        select balance, held, jobs, suspended_at is not null as "suspended!",
               exists (select from api_keys
                       where id = $2 and revoked_at is null
                         and (expires_at is null or expires_at > $4))
            or exists (select from sessions
                       where id = $3 and revoked_at is null and expires_at > $4)
               as "live!",
               exists (select from idempotency_keys i where i.account_id = $1 and i.key = $5)
               as "bound!",
               (select k.spend_limit from api_keys k where k.id = $2) as spend_limit,
               coalesce((select s.spent from api_keys k join key_spend s
                   on s.api_key_id = k.id and s.period = spend_period_start(k.spend_period, $4)
                   where k.id = $2), 0) as "spent!",
               (select coalesce(sum(g.estimated), 0)::bigint
                from api_keys k join running_generations g
                    on g.account_id = $1 and g.api_key_id = k.id
                       and g.spend_period = spend_period_start(k.spend_period, $4)
                where k.id = $2) as "on_hold!"
        from accounts where id = $1
        "#,
        terms.account.0,
        key,
        session,
        terms.now,
        terms.bind_key,
    )
    .fetch_one(executor);
    let row = reading.await?;
    let balance = Balance {
        balance: Credits::from_micros(row.balance),
        held: Credits::from_micros(row.held),
    };
    let cap = row.spend_limit.map(|limit| SpendLimit {
        limit: Credits::from_micros(limit),
        spent: Credits::from_micros(row.spent),
        held: Credits::from_micros(row.on_hold),
    });
    Ok(if !row.live {
        Some(HoldOutcome::CredentialEnded)
    } else if row.suspended {
        Some(HoldOutcome::Suspended)
    } else if row.bound {
        // A concurrent request with the same key came first and took what was available.
        Some(HoldOutcome::KeyBound)
    } else if terms.job && row.jobs >= terms.max_jobs {
        Some(HoldOutcome::TooManyJobs)
    } else if let Some(limit) = cap.filter(|cap| cap.is_exceeded_by(terms.hold)) {
        Some(HoldOutcome::SpendLimit(limit, balance))
    } else if balance.available() < terms.hold {
        Some(HoldOutcome::Short(balance))
    } else {
        None
    })
}
