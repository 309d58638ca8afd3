//! SVG charts. A table next to each chart shows the same figures.

use chrono::NaiveDate;
use maud::{Markup, html};

use super::parts::grouped;
use crate::domain::credits::Credits;

/// A bar: its name, its credits, and the URL of its generations.
pub struct Bar {
    name: String,
    credits: Credits,
    link: String,
}

impl Bar {
    pub fn new(name: String, credits: &str, link: String) -> Self {
        let credits = credits.parse().unwrap_or(Credits::ZERO);
        Self {
            name,
            credits,
            link,
        }
    }

    fn title(&self) -> String {
        format!(
            "{}: {} credits",
            self.name,
            grouped(&self.credits.to_string())
        )
    }
}

/// Scales `part` of `whole` to `length`. A value above zero gets at least 1, to be visible.
fn scaled(part: Credits, whole: Credits, length: u16) -> u16 {
    let (part, whole) = (part.micros().unsigned_abs(), whole.micros().unsigned_abs());
    if part == 0 || whole == 0 {
        return 0;
    }
    let share = u128::from(part) * u128::from(length) / u128::from(whole);
    u16::try_from(share).unwrap_or(length).clamp(1, length)
}

fn most(bars: &[Bar]) -> Credits {
    bars.iter()
        .map(|bar| bar.credits)
        .max()
        .unwrap_or(Credits::ZERO)
}

/// Returns the end of the axis: the next 1, 2 or 5 followed by zeros.
fn round_up(most: Credits) -> Credits {
    let most = most.micros().max(1);
    let mut step = 1_i64;
    loop {
        for factor in [1, 2, 5] {
            match step.checked_mul(factor) {
                Some(end) if end >= most => return Credits::from_micros(end),
                Some(_) => {}
                None => return Credits::from_micros(i64::MAX),
            }
        }
        step = step.saturating_mul(10);
    }
}

/// Each chart is drawn for wide and for narrow screens; the stylesheet shows one.
const SIZES: [(&str, u16); 2] = [("chart wide", 900), ("chart narrow", 330)];
const HEIGHT: u16 = 180;
const LEFT: u16 = 62;
const BELOW: u16 = 22;
/// Width of a column's name.
const NAME: u16 = 70;

/// Renders a chart of columns, such as days.
pub fn columns(bars: &[Bar]) -> Markup {
    html! { @for size in SIZES { (columns_of(bars, size)) } }
}

fn columns_of(bars: &[Bar], (class, width): (&str, u16)) -> Markup {
    let end = round_up(most(bars));
    let half = Credits::from_micros(end.micros() / 2);
    let count = u16::try_from(bars.len().max(1)).unwrap_or(u16::MAX);
    let slot = f64::from(width - LEFT) / f64::from(count);
    let thick = (slot * 0.72).clamp(0.5, 48.0);
    let x = |at: usize| {
        let at = u16::try_from(at).unwrap_or(u16::MAX);
        f64::from(LEFT) + slot * f64::from(at)
    };
    // As many names as fit, including the last.
    let every = (bars.len() * usize::from(NAME)).div_ceil(usize::from(width - LEFT));
    let every = every.max(1);
    // The last name of narrow columns would overflow the right edge.
    let (shift, anchor) = if slot < f64::from(NAME) / 2.0 {
        (slot, "end")
    } else {
        (slot / 2.0, "middle")
    };
    let is_named = |at: usize| (bars.len() - 1 - at).is_multiple_of(every);
    html! {
        svg class=(class) viewBox={ "0 0 " (width) " " (HEIGHT + BELOW + 8) } role="group" aria-label="Credits, as columns" {
            @for (value, y) in [(end, 8), (half, 8 + HEIGHT / 2), (Credits::ZERO, 8 + HEIGHT)] {
                line.grid x1=(LEFT) x2=(width) y1=(y) y2=(y) {}
                text x=(LEFT - 8) y=(y + 4) text-anchor="end" { (grouped(&value.to_string())) }
            }
            @for (at, bar) in bars.iter().enumerate() {
                @let tall = scaled(bar.credits, end, HEIGHT);
                a href=(bar.link) aria-label=(bar.title()) {
                    title { (bar.title()) }
                    rect.hit x=(format!("{:.1}", x(at))) y="8" width=(format!("{slot:.1}")) height=(HEIGHT) {}
                    rect.bar x=(format!("{:.1}", x(at) + (slot - thick) / 2.0)) y=(8 + HEIGHT - tall)
                        width=(format!("{thick:.1}")) height=(tall) rx="2" {}
                }
                @if is_named(at) {
                    text x=(format!("{:.1}", x(at) + shift)) y=(8 + HEIGHT + BELOW - 4) text-anchor=(anchor) {
                        (short(&bar.name))
                    }
                }
            }
        }
    }
}

/// Formats a day without the year.
fn short(day: &str) -> String {
    let parsed = day.parse::<NaiveDate>();
    parsed.map_or(day.to_owned(), |day| day.format("%-d %b").to_string())
}

/// Maximum rows of a chart; the table has all rows.
const ROWS: usize = 12;

/// Renders a chart of horizontal bars, the longest first.
pub fn rows(bars: &[Bar]) -> Markup {
    let mut sorted: Vec<&Bar> = bars.iter().collect();
    sorted.sort_by_key(|bar| std::cmp::Reverse(bar.credits));
    sorted.truncate(ROWS);
    html! { @for size in SIZES { (rows_of(&sorted, most(bars), size)) } }
}

fn rows_of(bars: &[&Bar], end: Credits, (class, width): (&str, u16)) -> Markup {
    let height = 34 * bars.len();
    html! {
        svg class=(class) viewBox={ "0 0 " (width) " " (height) } role="group" aria-label="Credits, as bars" {
            @for (at, bar) in bars.iter().enumerate() {
                @let y = at * 34;
                a href=(bar.link) {
                    title { (bar.title()) }
                    rect.hit x="0" y=(y) width=(width) height="34" {}
                    text x="0" y=(y + 12) { (bar.name) }
                    rect.bar x="0" y=(y + 17) width=(scaled(bar.credits, end, width)) height="10" rx="2" {}
                    text x=(width) y=(y + 12) text-anchor="end" { (grouped(&bar.credits.to_string())) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_ends_at_a_round_number() {
        for (most, end) in [
            ("0", "0.000001"),
            ("0.3", "0.5"),
            ("5", "5"),
            ("5.000001", "10"),
            ("1234", "2000"),
        ] {
            assert_eq!(
                round_up(most.parse().unwrap()),
                end.parse().unwrap(),
                "{most}"
            );
        }
    }

    #[test]
    fn what_is_there_is_seen() {
        let credits = |text: &str| text.parse().unwrap();
        assert_eq!(scaled(credits("0"), credits("10"), 100), 0);
        assert_eq!(scaled(credits("0.000001"), credits("10"), 100), 1);
        assert_eq!(scaled(credits("10"), credits("10"), 100), 100);
    }
}
