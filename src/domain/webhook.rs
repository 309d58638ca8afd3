//! Webhooks: which events there are, and when a delivery is tried again.

use chrono::TimeDelta;

use super::named::named_enum;

/// Live webhooks that an account may have.
pub const MAX_PER_ACCOUNT: i64 = 20;

named_enum!(
    /// What a webhook can be told.
    WebhookEvent {
        /// A generation ended with a result.
        Completed = "generation.completed",
        /// A generation ended without one; a cancelled one too.
        Failed = "generation.failed",
    }
);

named_enum!(
    /// Where a delivery stands.
    DeliveryStatus {
        /// It will be tried, or tried again.
        Pending = "pending",
        /// The receiver has taken it.
        Delivered = "delivered",
        /// It was tried for a day, and is given up.
        Failed = "failed",
    }
);

/// Minutes-to-hours between one failed attempt and the next, in seconds: about a day in all.
const DELAYS: [i64; 9] = [10, 60, 300, 1_800, 3_600, 7_200, 14_400, 28_800, 28_800];

/// How long after the `attempt`th failed one (from 1) the next is due; `None`: it was the last.
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
