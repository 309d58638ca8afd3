//! The usage report: generations in a time span, grouped.

use std::ops::AddAssign;

use chrono::{DateTime, DurationRound as _, NaiveDate, TimeDelta, Utc};

use serde::Serialize;
use utoipa::ToSchema;

use super::{credits::Credits, ids::ApiKeyId, named::named_enum};

named_enum!(
    /// The groups of a report.
    UsageGroup {
        /// The day, in UTC.
        Day = "day",
        Type = "type",
        Provider = "provider",
        Model = "model",
        /// The API key that created it.
        ApiKey = "api_key",
    }
);

/// A span of creation times: from inclusive, to exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub from: DateTime<Utc>,
    pub to: DateTime<Utc>,
}

impl Span {
    /// Splits the span into days, hours and edges, without gap or overlap; any part may be empty.
    pub fn parts(self) -> SpanParts {
        let nothing = Self {
            from: self.to,
            to: self.to,
        };
        let (days, [before, after]) = self.whole(TimeDelta::days(1));
        let (hours_before, edges_before) = before.whole(TimeDelta::hours(1));
        let (hours_after, edges_after) = after.whole(TimeDelta::hours(1));
        // At most two edges remain: a cut at midnight leaves nothing on either side of it.
        let mut edges = edges_before.into_iter().chain(edges_after);
        let mut edge = || edges.find(|edge| !edge.is_empty()).unwrap_or(nothing);
        SpanParts {
            days,
            hours: [hours_before, hours_after],
            edges: [edge(), edge()],
        }
    }

    fn is_empty(self) -> bool {
        self.from >= self.to
    }

    /// Returns the whole units within, and the remainders before and after them.
    fn whole(self, unit: TimeDelta) -> (Self, [Self; 2]) {
        let first = self.from.duration_round_up(unit).unwrap_or(self.from);
        let last = self.to.duration_trunc(unit).unwrap_or(self.to);
        let span = |from, to| Self { from, to };
        if first > last {
            let empty = span(self.to, self.to);
            return (empty, [self, empty]);
        }
        (
            span(first, last),
            [span(self.from, first), span(last, self.to)],
        )
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanParts {
    pub days: Span,
    /// Whole hours of partial days.
    pub hours: [Span; 2],
    /// Parts of partial hours.
    pub edges: [Span; 2],
}

/// Numbers of generations and their usage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = UsageTotalsBody)]
pub struct UsageTotals {
    /// Number of created generations, including running ones.
    pub generations: i64,
    /// Number of completed generations.
    pub completed: i64,
    /// Number of failed generations.
    pub failed: i64,
    /// Credits charged.
    pub charged: Credits,
    /// Input tokens of text.
    pub input_tokens: i64,
    /// Output tokens of text.
    pub output_tokens: i64,
    /// Number of images.
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

/// The key of a group; `None`: created by a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct UsageKey(pub Option<ApiKeyId>);

/// A group. It has only the fields that the report is grouped by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = UsageRowBody)]
pub struct UsageRow {
    /// The day, in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub day: Option<NaiveDate>,
    /// Modality.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// Provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The key's id; null for sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ApiKeyId>)]
    pub api_key: Option<UsageKey>,
    /// Its sums.
    #[serde(flatten)]
    pub totals: UsageTotals,
}

impl UsageRow {
    /// Returns the fields of its group, for sorting.
    pub fn group(&self) -> impl Ord {
        let (kind, provider, model) = (&self.r#type, &self.provider, &self.model);
        (self.day, kind, provider, model, self.api_key)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_parts_are_the_span(from in 0_i64..300_000_000, length in 1_i64..400_000_000) {
            let at = |ms: i64| DateTime::from_timestamp_millis(1_790_000_000_000 + ms).unwrap();
            let span = Span { from: at(from), to: at(from + length) };
            let parts = span.parts();
            let mut all = vec![parts.days, parts.hours[0], parts.hours[1], parts.edges[0], parts.edges[1]];
            all.retain(|part| !part.is_empty());
            all.sort_by_key(|part| part.from);
            prop_assert_eq!(all[0].from, span.from);
            prop_assert_eq!(all[all.len() - 1].to, span.to);
            for pair in all.windows(2) {
                prop_assert_eq!(pair[0].to, pair[1].from);
            }
            let aligned = |part: Span, seconds: i64| {
                part.is_empty() || [part.from, part.to].iter().all(|t| t.timestamp_millis() % (seconds * 1000) == 0)
            };
            prop_assert!(aligned(parts.days, 86_400));
            for part in parts.hours {
                prop_assert!(aligned(part, 3_600));
                prop_assert!(part.to - part.from < TimeDelta::hours(48));
            }
            for part in parts.edges {
                prop_assert!(part.to - part.from < TimeDelta::hours(2));
            }
        }
    }
}
