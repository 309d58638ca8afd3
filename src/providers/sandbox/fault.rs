//! Markers in a prompt that request faults, like test card numbers: `[[fail]]`, `[[reject]]`,
//! `[[timeout]]`, `[[rate_limit]]`, `[[slow:SECONDS]]`, and for text `[[cached:TOKENS]]`,
//! `[[tool]]` and `[[tool:NAME]]`.

use std::time::Duration;

use super::super::{ProviderError, ProviderErrorKind};
use crate::domain::named::named_enum;

/// Maximum of `[[slow:SECONDS]]`.
const SLOWEST_SECONDS: f64 = 600.0;
/// The duration of a simulated timeout, short enough for tests.
const TIMEOUT_WAIT: Duration = Duration::from_millis(200);
/// The retry delay of `[[rate_limit]]`.
const RATE_LIMIT_WAIT: Duration = Duration::from_secs(1);

named_enum!(
    Fault {
        /// An upstream that fails during the work.
        Fail = "fail",
        /// An upstream that refuses the request.
        Reject = "reject",
        /// An upstream that does not answer.
        Timeout = "timeout",
        /// An upstream that is too busy.
        RateLimit = "rate_limit",
    }
);

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Faults {
    pub fault: Option<Fault>,
    /// Delay before anything else, 0 to 600 s.
    pub slow: Duration,
    /// Input tokens reported as cached.
    pub cached: Option<u64>,
    /// Names of functions to call; an empty name means any function.
    pub tools: Vec<String>,
    /// The prompt without its markers.
    pub rest: String,
}

impl Faults {
    /// Parses the markers of `prompt`. Unknown or invalid markers are ordinary text. Of several
    /// markers of a kind, the first fault, the longest delay and the highest number of cached
    /// tokens apply.
    pub fn of(prompt: &str) -> Self {
        let mut found = Self::default();
        let mut tail = prompt;
        while let Some((before, inside)) = tail.split_once("[[") {
            found.rest.push_str(before);
            // The innermost opening counts: in "[[[[fail]]" two brackets precede a marker.
            match inside.split_once("]]").filter(|(word, _)| found.take(word)) {
                Some((_, after)) => tail = after,
                None => {
                    found.rest.push('[');
                    tail = tail.get(before.len() + 1..).unwrap_or_default();
                }
            }
        }
        found.rest.push_str(tail);
        found
    }

    /// Waits, then fails if the prompt requests it.
    pub async fn happen(&self) -> Result<(), ProviderError> {
        if !self.slow.is_zero() {
            tokio::time::sleep(self.slow).await;
        }
        match self.fault {
            Some(fault) => Err(fault.happen().await),
            None => Ok(()),
        }
    }

    fn take(&mut self, word: &str) -> bool {
        if let Some(fault) = Fault::parse(word) {
            self.fault = self.fault.or(Some(fault));
            return true;
        }
        if let Some(name) = word.strip_prefix("tool")
            && let Some(name) = name.strip_prefix(':').or(name.is_empty().then_some(name))
        {
            self.tools.push(name.to_owned());
            return true;
        }
        let wait = word.strip_prefix("slow:").and_then(wait);
        let cached = word.strip_prefix("cached:").and_then(|n| n.parse().ok());
        self.slow = self.slow.max(wait.unwrap_or_default());
        self.cached = self.cached.max(cached);
        wait.is_some() || cached.is_some()
    }
}

fn wait(text: &str) -> Option<Duration> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let seconds: f64 = text.parse().ok().filter(|_| plain)?;
    Duration::try_from_secs_f64(seconds.min(SLOWEST_SECONDS)).ok()
}

impl Fault {
    /// Whether part of the answer precedes the fault.
    pub fn is_late(self) -> bool {
        matches!(self, Self::Fail | Self::Timeout)
    }

    /// Waits as long as the fault takes, and returns its error.
    pub async fn happen(self) -> ProviderError {
        let kind = match self {
            Self::Fail => ProviderErrorKind::Failed,
            Self::Reject => ProviderErrorKind::Rejected,
            Self::Timeout => ProviderErrorKind::Timeout,
            // Not `not_started`: every retry would fail the same way, and a client's test should
            // get the error at once.
            Self::RateLimit => ProviderErrorKind::Overloaded,
        };
        if self == Self::Timeout {
            tokio::time::sleep(TIMEOUT_WAIT).await;
        }
        let mut error = ProviderError::new(kind, format!("sandbox fault: {self}"));
        error.retry_after = (self == Self::RateLimit).then_some(RATE_LIMIT_WAIT);
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_anywhere() {
        for (prompt, fault, slow_ms, rest) in [
            ("plain", None, 0, "plain"),
            ("[[fail]]", Some(Fault::Fail), 0, ""),
            ("a [[reject]] b", Some(Fault::Reject), 0, "a  b"),
            ("x[[timeout]]", Some(Fault::Timeout), 0, "x"),
            ("é[[rate_limit]]é", Some(Fault::RateLimit), 0, "éé"),
            ("[[slow:1.5]]hi", None, 1_500, "hi"),
            (
                "[[slow:2]][[slow:1]][[fail]][[reject]]",
                Some(Fault::Fail),
                2_000,
                "",
            ),
            ("[[slow:99999999999999999999]]", None, 600_000, ""),
            (
                "[[slow:-1]] [[slow:inf]] [[slow:]] [[slow:.]]",
                None,
                0,
                "[[slow:-1]] [[slow:inf]] [[slow:]] [[slow:.]]",
            ),
            ("[[FAIL]] [[other]] [[", None, 0, "[[FAIL]] [[other]] [["),
            ("[[é [[fail]]", Some(Fault::Fail), 0, "[[é "),
            ("[[[[fail]]]]", Some(Fault::Fail), 0, "[[]]"),
        ] {
            let want = Faults {
                fault,
                slow: Duration::from_millis(slow_ms),
                cached: None,
                tools: Vec::new(),
                rest: rest.to_owned(),
            };
            assert_eq!(Faults::of(prompt), want, "{prompt}");
        }
    }

    #[test]
    fn functions_to_call() {
        let found = Faults::of("a [[tool]][[tool:f]] [[tool:]] [[tools]] [[toolx]]");
        assert_eq!(found.tools, ["", "f", ""]);
        assert_eq!(found.rest, "a   [[tools]] [[toolx]]");
    }

    #[test]
    fn cached_tokens() {
        for (prompt, cached, rest) in [
            ("a[[cached:7]]b", Some(7), "ab"),
            ("[[cached:7]][[cached:70]][[cached:0]]", Some(70), ""),
            (
                "[[cached:]][[cached:-1]][[cached:1.5]]",
                None,
                "[[cached:]][[cached:-1]][[cached:1.5]]",
            ),
        ] {
            let found = Faults::of(prompt);
            assert_eq!((found.cached, found.rest.as_str()), (cached, rest));
        }
    }

    #[tokio::test]
    async fn kinds_of_faults() {
        for (fault, kind, wait) in [
            (Fault::Fail, ProviderErrorKind::Failed, None),
            (Fault::Reject, ProviderErrorKind::Rejected, None),
            (Fault::Timeout, ProviderErrorKind::Timeout, None),
            (
                Fault::RateLimit,
                ProviderErrorKind::Overloaded,
                Some(Duration::from_secs(1)),
            ),
        ] {
            let error = fault.happen().await;
            assert_eq!(
                (error.kind, error.retry_after, error.not_started),
                (kind, wait, false)
            );
        }
    }
}
