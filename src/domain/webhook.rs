//! Webhooks: events and the retry schedule of deliveries.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chrono::TimeDelta;

use super::named::named_enum;

/// Maximum number of live webhooks per account.
pub const MAX_PER_ACCOUNT: i64 = 20;

named_enum!(
    WebhookEvent {
        /// A generation ended with a result.
        Completed = "generation.completed",
        /// A generation ended without one, including cancelled ones.
        Failed = "generation.failed",
    }
);

named_enum!(
    DeliveryStatus {
        /// To be attempted, or retried.
        Pending = "pending",
        /// The receiver accepted it.
        Delivered = "delivered",
        /// Given up after a day of retries.
        Failed = "failed",
    }
);

/// Formats a secret as Standard Webhooks specifies.
pub fn secret_text(secret: &[u8]) -> String {
    format!("whsec_{}", STANDARD.encode(secret))
}

/// Backoff after each failed attempt, in seconds; about a day in total.
const DELAYS: [i64; 9] = [10, 60, 300, 1_800, 3_600, 7_200, 14_400, 28_800, 28_800];

/// Returns the delay after failed attempt number `attempt` (from 1); `None` after the last one.
pub fn retry_delay(attempt: i32) -> Option<TimeDelta> {
    let at = usize::try_from(attempt).ok()?.checked_sub(1)?;
    DELAYS.get(at).copied().map(TimeDelta::seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soon_at_first_then_slower_for_about_a_day() {
        let delays: Vec<_> = (1..).map_while(retry_delay).collect();
        assert!(delays[0] < TimeDelta::seconds(60));
        assert!(delays.is_sorted());
        let all: TimeDelta = delays.iter().sum();
        assert!((TimeDelta::hours(20)..TimeDelta::hours(28)).contains(&all));
        assert_eq!(delays.len(), DELAYS.len());
        for never in [i32::MIN, -1, 0, 10, i32::MAX] {
            assert_eq!(retry_delay(never), None);
        }
    }
}
