//! When a submission may be repeated: only when the provider is known not to have started.

use std::time::Duration;

use tokio::time::Instant;

use crate::providers::ProviderError;

/// How submissions are repeated.
#[derive(Debug, Clone, Copy)]
pub struct SubmitSettings {
    /// Submissions at most, the first included.
    pub attempts: u32,
    /// Within this time from the first.
    pub window: Duration,
    /// The wait before the second; doubles from there, unless the provider names one.
    pub retry_base: Duration,
}

/// Counts the submissions of one generation.
#[derive(Debug)]
pub(super) struct Submissions {
    settings: SubmitSettings,
    since: Instant,
    pub(super) made: u32,
}

impl Submissions {
    pub(super) fn begin(settings: SubmitSettings) -> Self {
        Self {
            settings,
            since: Instant::now(),
            made: 0,
        }
    }

    /// How long to wait before the next submission; `None` when there must not be one.
    pub(super) fn wait_after(&self, error: &ProviderError) -> Option<Duration> {
        if !error.not_started || self.made >= self.settings.attempts {
            return None;
        }
        let doubled = self.settings.retry_base * 2_u32.saturating_pow(self.made.saturating_sub(1));
        // Half of it at random, so that many callers do not come back together.
        let jitter: [u8; 1] = crate::domain::token::random().unwrap_or([128]);
        let backoff = doubled.mul_f64(0.5 + f64::from(jitter[0]) / 512.0);
        let wait = error
            .retry_after
            .map_or(backoff, |asked| asked.max(backoff));
        (self.since.elapsed() + wait < self.settings.window).then_some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::ProviderErrorKind;

    #[test]
    fn only_what_was_not_started_is_repeated_and_not_for_long() {
        let settings = SubmitSettings {
            attempts: 3,
            window: Duration::from_secs(20),
            retry_base: Duration::from_millis(500),
        };
        let overloaded = || ProviderError::new(ProviderErrorKind::Overloaded, "").not_started();
        let mut submissions = Submissions::begin(settings);
        submissions.made = 1;
        assert!(submissions.wait_after(&overloaded()).unwrap() <= Duration::from_millis(500));
        let unknown = ProviderError::new(ProviderErrorKind::Timeout, "");
        assert_eq!(submissions.wait_after(&unknown), None);
        let mut patient = overloaded();
        patient.retry_after = Some(Duration::from_secs(7));
        assert_eq!(
            submissions.wait_after(&patient),
            Some(Duration::from_secs(7))
        );
        patient.retry_after = Some(Duration::from_mins(1));
        assert_eq!(submissions.wait_after(&patient), None);
        submissions.made = 3;
        assert_eq!(submissions.wait_after(&overloaded()), None);
    }
}
