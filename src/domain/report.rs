//! The usage report: what was made in a span of time, in groups.

use std::ops::AddAssign;

use chrono::{DateTime, DurationRound as _, NaiveDate, TimeDelta, Utc};

use super::{credits::Credits, ids::ApiKeyId, named::named_enum};

named_enum!(
    /// What the report is grouped by.
    UsageGroup {
        /// The day, in UTC.
        Day = "day",
        /// Modality.
        Type = "type",
        /// Provider.
        Provider = "provider",
        /// Model.
        Model = "model",
        /// The key that made it.
        ApiKey = "api_key",
    }
);

/// A span of creation times: from inclusive, to exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Inclusive.
    pub from: DateTime<Utc>,
    /// Exclusive.
    pub to: DateTime<Utc>,
}

impl Span {
    /// The whole hours within, and what is left before and after them. Together they are the
    /// span, without gap or overlap; any of them may be empty.
    pub fn whole_hours(self) -> (Self, [Self; 2]) {
        let hour = TimeDelta::hours(1);
        let floor = |time: DateTime<Utc>| time.duration_trunc(hour).unwrap_or(time);
        let first = floor(self.from);
        let first = if first < self.from {
            first + hour
        } else {
            first
        };
        let last = floor(self.to);
        if first > last {
            let empty = Self {
                from: self.to,
                to: self.to,
            };
            return (empty, [self, empty]);
        }
        let span = |from, to| Self { from, to };
        (
            span(first, last),
            [span(self.from, first), span(last, self.to)],
        )
    }
}

/// What was made and used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageTotals {
    /// All that were made, running ones included.
    pub generations: i64,
    /// Those that completed.
    pub completed: i64,
    /// Those that failed.
    pub failed: i64,
    /// What they cost.
    pub charged: Credits,
    /// Of text.
    pub input_tokens: i64,
    /// Of text.
    pub output_tokens: i64,
    /// Images.
    pub images: i64,
    /// Seconds of video.
    pub seconds: i64,
    /// Characters of speech.
    pub characters: i64,
}

impl AddAssign for UsageTotals {
    fn add_assign(&mut self, more: Self) {
        let add = |sum: &mut i64, more: i64| *sum = sum.saturating_add(more);
        add(&mut self.generations, more.generations);
        add(&mut self.completed, more.completed);
        add(&mut self.failed, more.failed);
        self.charged =
            Credits::from_micros(self.charged.micros().saturating_add(more.charged.micros()));
        add(&mut self.input_tokens, more.input_tokens);
        add(&mut self.output_tokens, more.output_tokens);
        add(&mut self.images, more.images);
        add(&mut self.seconds, more.seconds);
        add(&mut self.characters, more.characters);
    }
}

/// One group of the report. A field is `None` where the report is not grouped by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageRow {
    /// In UTC.
    pub day: Option<NaiveDate>,
    /// Modality.
    pub r#type: Option<String>,
    /// Provider.
    pub provider: Option<String>,
    /// Model.
    pub model: Option<String>,
    /// The key; the inner `None`: sessions.
    pub api_key: Option<Option<ApiKeyId>>,
    /// Its sums.
    pub totals: UsageTotals,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whole_hours_and_edges_are_the_span(from in 0_i64..30_000_000, length in 1_i64..20_000_000) {
            let at = |ms: i64| DateTime::from_timestamp_millis(1_790_000_000_000 + ms).unwrap();
            let span = Span { from: at(from), to: at(from + length) };
            let (hours, edges) = span.whole_hours();
            let parts = [edges[0], hours, edges[1]];
            let lengths: TimeDelta = parts.iter().map(|p| p.to - p.from).sum();
            prop_assert_eq!(lengths, span.to - span.from);
            for part in parts.into_iter().filter(|p| p.from < p.to) {
                prop_assert!(span.from <= part.from && part.to <= span.to);
            }
            prop_assert_eq!(hours.from.timestamp() % 3600 * i64::from(hours.from < hours.to), 0);
            prop_assert_eq!(hours.to.timestamp() % 3600 * i64::from(hours.from < hours.to), 0);
            for edge in edges {
                prop_assert!(edge.to - edge.from < TimeDelta::hours(2));
            }
        }
    }
}
