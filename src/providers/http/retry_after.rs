//! Reads the retry delay that a provider requests, in all vendors' formats.
//!
//! Lenient: an unreadable value is ignored. Source: RFC 9110 section 10.2.3, the SDKs'
//! `retry-after-ms`, and `google.rpc.RetryInfo`.

use std::time::Duration;

use chrono::{DateTime, Utc};
use reqwest::header::HeaderMap;

/// Longer delays are ignored, which keeps later arithmetic on instants safe.
const LONGEST: Duration = Duration::from_hours(7 * 24);

/// Reads `retry-after-ms`, else `retry-after` as seconds (also fractional) or as an HTTP date. A
/// date is relative to the response's own `Date`, so that clock differences do not matter; it is
/// ignored if there is no `Date`.
pub fn from_headers(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    if let Some(wait) = text("retry-after-ms").and_then(number) {
        return duration(wait / 1000.0);
    }
    let wish = text("retry-after")?;
    if let Some(seconds) = number(wish) {
        return duration(seconds);
    }
    let then = DateTime::parse_from_rfc2822(wish).ok()?;
    let now = DateTime::parse_from_rfc2822(text("date")?).ok()?;
    // A date in the past means no delay.
    Some((then - now).to_std().unwrap_or_default().min(LONGEST))
}

/// Returns the longest time until a used-up rate limit is reset, from `x-ratelimit-reset-KIND` of
/// OpenAI and others or `anthropic-ratelimit-KIND-reset`. For a 429 without another delay.
pub fn from_limits(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let resets = headers.keys().filter_map(|name| {
        let name = name.as_str();
        let is_used_up = name.contains("ratelimit") && text(name) == Some("0");
        let reset = is_used_up.then(|| name.replace("remaining", "reset"))?;
        let reset = text(&reset).filter(|_| reset != name)?;
        until(reset, text("date"))
    });
    resets.max()
}

/// Parses a duration (`1m12s`, seconds), or a time as a date or in Unix seconds or milliseconds,
/// relative to the response's `Date`.
fn until(reset: &str, date: Option<&str>) -> Option<Duration> {
    /// Larger numbers are Unix times, of 2001 or later.
    const TIMES: f64 = 1e9;
    let now = || DateTime::parse_from_rfc2822(date?).ok();
    let after = |time: DateTime<Utc>| {
        let wait = time.signed_duration_since(now()?).to_std();
        Some(wait.unwrap_or_default().min(LONGEST))
    };
    if let Ok(time) = DateTime::parse_from_rfc3339(reset) {
        return after(time.to_utc());
    }
    match number(reset) {
        Some(seconds) if seconds < TIMES => duration(seconds),
        Some(_) => {
            let time: i64 = reset.parse().ok()?;
            let seconds = if reset.len() > 12 { time / 1_000 } else { time };
            after(DateTime::from_timestamp(seconds, 0)?)
        }
        None => duration(units(reset)?),
    }
}

/// Parses a protobuf duration in JSON, `"34.4s"`.
pub fn from_proto(text: &str) -> Option<Duration> {
    duration(number(text.strip_suffix('s')?)?)
}

/// Words before the delay in a sentence, in lower case.
const BEFORE: [&str; 4] = [
    "try again in ",
    "try again after ",
    "retry in ",
    "retry after ",
];

/// Returns the delay in a sentence such as "Please try again in 1m30.5s", "in 450ms" or "in 20
/// seconds".
pub fn from_sentence(text: &str) -> Option<Duration> {
    let text = text.to_lowercase();
    let mut after = BEFORE.iter().filter_map(|before| text.split_once(before));
    duration(units(after.next()?.1)?)
}

/// Returns the seconds at the beginning of a lower-case text such as "1m30.5s" or "20 seconds.".
fn units(text: &str) -> Option<f64> {
    let mut rest = text;
    let mut seconds = None;
    loop {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (digits, after) = rest.split_at(end.unwrap_or(rest.len()));
        let Some(count) = number(digits) else { break };
        let after = after.trim_start();
        let end = after.find(|c: char| !c.is_ascii_alphabetic());
        let (unit, after) = after.split_at(end.unwrap_or(after.len()));
        let unit = match unit {
            "ms" | "milliseconds" => 0.001,
            "s" | "sec" | "second" | "seconds" => 1.0,
            "m" | "min" | "minute" | "minutes" => 60.0,
            "h" | "hour" | "hours" => 3_600.0,
            _ => break,
        };
        seconds = Some(seconds.unwrap_or(0.0) + count * unit);
        rest = after.trim_start();
    }
    seconds
}

fn number(text: &str) -> Option<f64> {
    // `parse` would also accept "inf", "nan" and "1e9".
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if plain { text.parse().ok() } else { None }
}

fn duration(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds.min(LONGEST.as_secs_f64())).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DATE: (&str, &str) = ("date", "Fri, 20 Nov 2026 12:00:20 GMT");

    #[test]
    fn every_form() {
        for (pairs, want) in [
            (&[("retry-after", "2")][..], Some(2_000)),
            (&[("retry-after", " 0.25 ")], Some(250)),
            (&[("retry-after", "0")], Some(0)),
            (
                &[("retry-after-ms", "1500"), ("retry-after", "9")],
                Some(1_500),
            ),
            (
                &[("retry-after-ms", "x"), ("retry-after", "9")],
                Some(9_000),
            ),
            (
                &[("retry-after", "Fri, 20 Nov 2026 12:00:30 GMT"), DATE],
                Some(10_000),
            ),
            (
                &[("retry-after", "Fri, 20 Nov 2026 11:00:00 GMT"), DATE],
                Some(0),
            ),
            (&[("retry-after", "Fri, 20 Nov 2026 12:00:30 GMT")], None),
            (
                &[("retry-after", "99999999999999999999")],
                Some(604_800_000),
            ),
            (&[("retry-after", "-1")], None),
            (&[("retry-after", "inf")], None),
            (&[("retry-after", "soon")], None),
            (&[("retry-after", "")], None),
            (&[], None),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(*name, value.parse().unwrap());
            }
            assert_eq!(
                from_headers(&headers),
                want.map(Duration::from_millis),
                "{pairs:?}"
            );
        }
        assert_eq!(from_proto("34.4s"), Some(Duration::from_millis(34_400)));
        assert_eq!(from_proto("34"), None);
        assert_eq!(from_proto("-3s"), None);
        for (text, millis) in [
            (
                "Limit 3, Used 3. Please try again in 20s. Visit us",
                Some(20_000),
            ),
            ("Please try again in 1m30.5s.", Some(90_500)),
            ("please try again in 450ms.", Some(450)),
            ("Please retry in 34.07s.", Some(34_070)),
            ("Try again after 2 minutes", Some(120_000)),
            ("retry after 1 hour 5 minutes", Some(3_900_000)),
            ("try again in a while", None),
            ("try again in 5 tries", None),
            ("20s", None),
        ] {
            assert_eq!(
                from_sentence(text),
                millis.map(Duration::from_millis),
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_wish_is_bounded(
            text in "[0-9.]{0,40}|[ -~]{0,40}|(Mon|Fri), [0-9]{1,2} (Jan|Nov) [0-9]{1,6} [0-9]{2}:[0-9]{2}:[0-9]{2} (GMT|[+-][0-9]{4})",
            millis in any::<bool>(),
        ) {
            let mut headers = HeaderMap::new();
            headers.insert("date", DATE.1.parse().unwrap());
            let name = if millis { "retry-after-ms" } else { "retry-after" };
            if let Ok(value) = text.parse() {
                headers.insert(name, value);
            }
            let sentence = from_sentence(&format!("try again in {text}s"));
            for wait in [from_headers(&headers), from_proto(&text), from_proto(&format!("{text}s")), sentence] {
                prop_assert!(wait.is_none_or(|wait| wait <= LONGEST));
            }
        }
    }
}
