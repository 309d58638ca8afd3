//! Removal of rows that are no longer needed.

use chrono::{DateTime, TimeDelta, Utc};

use super::{Result, Store, is_full, sessions::THROTTLE_WINDOW};
use crate::domain::rate::nanos;

/// Maximum pause between two turns of a dialogue, after which its receipts are removed.
const RECEIPTS_KEPT: TimeDelta = TimeDelta::days(2);
/// Pending deliveries are given up this long after they were due: their receiver was overloaded for
/// longer than the whole backoff.
const OVERDUE: TimeDelta = TimeDelta::days(7);
/// As [`OVERDUE`], for deliveries that were never attempted: this service may have been down.
const NEVER_TRIED: TimeDelta = TimeDelta::days(30);
/// How long a deleted webhook's row is kept: longer than any running settlement.
const SETTLEMENT_AT_MOST: TimeDelta = TimeDelta::hours(1);

impl Store {
    /// Removes up to `batch` rows of each kind: expired ones, finished webhook deliveries of events
    /// before `log_before`, and those of deleted webhooks. Gives up overdue deliveries. Returns
    /// `true` if there may be more.
    #[expect(clippy::too_many_lines, reason = "a list of statements")]
    pub async fn purge(
        &self,
        log_before: DateTime<Utc>,
        now: DateTime<Utc>,
        batch: i64,
    ) -> Result<bool> {
        let mut is_any_full = false;
        for statement in [
            sqlx::query!(
                "delete from sessions where id in
                    (select id from sessions where expires_at <= $1 order by expires_at limit $2)",
                now,
                batch
            ),
            sqlx::query!(
                "delete from login_attempts where (email, address) in
                    (select email, address from login_attempts
                     where not exists (select from unnest(failed_at || pending) t where t > $1) limit $2)
                   and not exists (select from unnest(failed_at || pending) t where t > $1)",
                now - THROTTLE_WINDOW,
                batch
            ),
            sqlx::query!(
                "delete from idempotency_keys where (account_id, key) in
                    (select account_id, key from idempotency_keys i
                     where expires_at <= $1
                       -- A retry can still join a running generation.
                       and not exists (select from running_generations g
                                       where g.account_id = i.account_id and g.id = i.generation_id)
                     order by expires_at limit $2)
                   and expires_at <= $1",
                now,
                batch
            ),
            sqlx::query!(
                "delete from rate_limits where tat <= $1 and (kind, id) in
                    (select kind, id from rate_limits where tat <= $1 limit $2
                     for update skip locked)",
                nanos(now),
                batch
            ),
            // Of dialogues that did not continue.
            sqlx::query!(
                "delete from prefix_receipts where (account_id, key) in
                    (select account_id, key from prefix_receipts
                     where counted_at <= $1 order by counted_at limit $2)
                   and counted_at <= $1",
                now - RECEIPTS_KEPT,
                batch,
            ),
            // Another purge removes the files of `media_trash` later.
            sqlx::query!(
                "with gone as (
                     delete from uploads where (account_id, id) in (
                         select account_id, id from uploads
                         where greatest(expires_at, kept_until) <= $1
                         order by greatest(expires_at, kept_until) limit $2
                         for update skip locked
                     ) returning file_id
                 )
                 insert into media_trash (generation_id, created_at) select file_id, $1 from gone",
                now,
                batch
            ),
            sqlx::query!(
                "delete from webhook_deliveries where id in (
                     select id from webhook_deliveries
                     where status <> 'pending' and created_at < $1
                     order by created_at limit $2)
                   and status <> 'pending'",
                log_before,
                batch
            ),
            sqlx::query!(
                "delete from webhook_deliveries where id in (
                     select d.id from webhooks w join webhook_deliveries d on d.webhook_id = w.id
                     where w.deleted_at is not null limit $1)",
                batch
            ),
            sqlx::query!(
                "update webhook_deliveries
                 set status = 'failed', next_attempt_at = null,
                     error = 'the receiver was too slow for all of its events'
                 where id in (
                     select id from webhook_deliveries
                     where status = 'pending' and next_attempt_at < $1
                       and (attempts > 0 or next_attempt_at < $3)
                     order by next_attempt_at limit $2
                     for update skip locked)",
                now - OVERDUE,
                batch,
                now - NEVER_TRIED,
            ),
            // Those that were deleted long enough ago and have no deliveries left.
            sqlx::query!(
                "delete from webhooks where id in (
                     select id from webhooks w
                     where deleted_at < $1
                       and not exists (select from webhook_deliveries d where d.webhook_id = w.id)
                     limit $2)",
                now - SETTLEMENT_AT_MOST,
                batch
            ),
        ] {
            let done = statement.execute(self.requests.named("purge rows").long());
            is_any_full |= is_full(done.await?.rows_affected(), batch);
        }
        Ok(is_any_full)
    }
}
