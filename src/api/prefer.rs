//! `Prefer` (RFC 7240): respond at once, or wait.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};

/// Maximum wait, in seconds.
const MAX_WAIT: u64 = 60;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prefer {
    pub respond_async: bool,
    /// Wait for the end, 1 to 60 s.
    pub wait: Option<Duration>,
}

impl Prefer {
    /// Reads the header. Malformed preferences are ignored, as RFC 7240 requires.
    pub fn read(headers: &HeaderMap) -> Self {
        let mut prefer = Self::default();
        let values = headers
            .get_all("prefer")
            .iter()
            .filter_map(|v| v.to_str().ok());
        for preference in values.flat_map(|v| v.split(',')) {
            let token = preference.split(';').next().unwrap_or_default();
            let (name, value) = token.split_once('=').unwrap_or((token, ""));
            let value = value.trim().trim_matches('"');
            match name.trim().to_ascii_lowercase().as_str() {
                "respond-async" if value.is_empty() => prefer.respond_async = true,
                "wait" if prefer.wait.is_none() => prefer.wait = seconds(value),
                _ => {}
            }
        }
        prefer
    }

    /// `Preference-Applied` for a wait.
    pub fn applied_wait(wait: Duration) -> Option<HeaderValue> {
        HeaderValue::from_str(&format!("wait={}", wait.as_secs())).ok()
    }
}

fn seconds(text: &str) -> Option<Duration> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    // Numbers with too many digits exceed the maximum too.
    let seconds = digits.then(|| text.parse::<u64>().unwrap_or(MAX_WAIT))?;
    (seconds >= 1).then(|| Duration::from_secs(seconds.min(MAX_WAIT)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn malformed_preferences_are_ignored() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("prefer", text.parse().unwrap());
            Prefer::read(&headers)
        };
        let wait = |s| Prefer {
            wait: Some(Duration::from_secs(s)),
            ..Prefer::default()
        };
        for (text, expected) in [
            ("wait=10", wait(10)),
            ("Wait = \"10\"; x=y", wait(10)),
            ("wait=99999999999999999999999", wait(60)),
            ("wait=0", Prefer::default()),
            ("wait=-1", Prefer::default()),
            ("wait=1.5", Prefer::default()),
            ("wait", Prefer::default()),
            (
                "foo, respond-async, wait=5",
                Prefer {
                    respond_async: true,
                    ..wait(5)
                },
            ),
            ("wait=5, wait=9", wait(5)),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_preferred_no_wait_is_longer_than_a_minute(
            text in "(respond-async|wait|[ -~]{0,5})([ =;,\"]{0,3}[0-9]{0,25}[ -~]{0,10}){0,3}",
        ) {
            let mut headers = HeaderMap::new();
            headers.insert("prefer", text.parse().unwrap());
            let wait = Prefer::read(&headers).wait;
            prop_assert!(wait.is_none_or(|wait| (1..=MAX_WAIT).contains(&wait.as_secs())));
        }
    }
}
