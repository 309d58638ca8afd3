//! Components of pages.

use chrono::{DateTime, Days, NaiveDate, Utc};
use maud::{Markup, PreEscaped, html};
use serde_json::Value;

use super::problem::Problem;
use crate::domain::validate::group;

/// Returns a value's text; empty if it is null.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Converts a value to the text of a form's field.
pub fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

pub fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns the models of GET /v1/models that are not retired.
pub fn served(models: &Value) -> Vec<&Value> {
    let models = list(&models["data"]).iter();
    models.filter(|model| model["retired"] != true).collect()
}

/// Converts an API message to a sentence.
pub fn sentence(message: &str) -> String {
    let mut chars = message.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string());
    let end = if message.ends_with(['.', '?', '!']) {
        ""
    } else {
        "."
    };
    format!("{}{}{end}", first.unwrap_or_default(), chars.as_str())
}

/// Formats a decimal number with thousands separators. JavaScript localizes it.
pub fn grouped(number: &str) -> String {
    let (sign, digits) = number
        .strip_prefix('-')
        .map_or(("", number), |rest| ("−", rest));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut out = format!("{sign}{}", group(whole));
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// Renders a number, or a decimal string such as credits.
pub fn amount(value: &Value) -> Markup {
    match value {
        Value::Null => html! { span.muted { "–" } },
        Value::String(number) => decimal(number),
        other => decimal(&other.to_string()),
    }
}

/// Renders a number with two decimals in full size and the rest small.
pub fn decimal(number: &str) -> Markup {
    let shown = grouped(number);
    let end = shown.find('.').map_or(shown.len(), |point| point + 3);
    let (large, rest) = shown.split_at(end.min(shown.len()));
    html! { data.num value=(number) { (large) @if !rest.is_empty() { small { (rest) } } } }
}

pub fn seconds(value: &Value) -> Markup {
    match value.as_f64() {
        Some(seconds) => html! { (decimal(&format!("{seconds:.2}"))) " s" },
        None => amount(&Value::Null),
    }
}

/// Renders an amount with its unit.
pub fn credits(value: &Value) -> Markup {
    html! { (amount(value)) @if value == "1" { " credit" } @else { " credits" } }
}

/// Renders a time, which JavaScript converts to the reader's time zone.
pub fn time(value: &Value) -> Markup {
    let at = value.as_str();
    let at = at.and_then(|at| DateTime::parse_from_rfc3339(at).ok());
    match at {
        Some(at) => {
            let at: DateTime<Utc> = at.into();
            html! {
                time datetime=(at.format("%Y-%m-%dT%H:%M:%SZ")) {
                    (at.format("%-d %b %Y, %H:%M:%S")) " UTC"
                }
            }
        }
        None => html! { span.muted { "–" } },
    }
}

/// Renders a day in UTC.
pub fn day(day: &str) -> Markup {
    let shown = day
        .parse()
        .map(|day: NaiveDate| day.format("%-d %b %Y").to_string());
    html! { time datetime=(day) { (shown.as_deref().unwrap_or(day)) } }
}

pub fn badge(status: &str) -> Markup {
    let (class, word) = match status {
        "completed" => ("good", "Completed"),
        "failed" => ("bad", "Failed"),
        "refused" => ("bad", "Refused"),
        "processing" => ("busy", "Processing"),
        "pending" => ("busy", "Waiting"),
        "delivered" => ("good", "Delivered"),
        "active" => ("good", "Active"),
        "revoked" => ("bad", "Revoked"),
        "expired" => ("idle", "Expired"),
        "suspended" => ("bad", "Suspended"),
        "deleted" => ("idle", "Deleted"),
        "ok" => ("good", "OK"),
        "idle" => ("idle", "No traffic"),
        "failing" => ("bad", "Failing"),
        "account_refused" => ("bad", "Refuses our account"),
        other => ("idle", other),
    };
    html! { span class={ "badge " (class) } { (word) } }
}

/// The types of generations and their names.
pub const TYPES: [(&str, &str); 4] = [
    ("text", "Text"),
    ("image", "Image"),
    ("video", "Video"),
    ("audio", "Speech"),
];

pub fn type_name(name: &str) -> &str {
    let found = TYPES.iter().find(|(n, _)| *n == name);
    found.map_or(name, |(_, word)| word)
}

pub fn kind(name: &str) -> Markup {
    html! { span.kind { (icon(name)) (type_name(name)) } }
}

/// Renders the placeholder of an empty list.
pub fn empty(title: &str, about: &str, action: &Markup) -> Markup {
    html! {
        div.empty {
            p.empty-title { (title) }
            p.muted { (about) }
            (action)
        }
    }
}

/// Renders a form field: label, input, and its error or a hint. `param`: its name in the API.
pub fn field(
    problem: Option<&Problem>,
    label: &str,
    param: &str,
    hint: &str,
    input: &Markup,
) -> Markup {
    let wrong = problem.and_then(|problem| problem.field(param));
    html! {
        label class={ "field" @if wrong.is_some() { " wrong" } } {
            span.label { (label) }
            (input)
            @if let Some(wrong) = wrong { span.error { (sentence(wrong)) } }
            @else if !hint.is_empty() { span.hint { (hint) } }
        }
    }
}

/// Renders the errors that no field of the form shows.
pub fn refusal(problem: Option<&Problem>, shown: &[&str]) -> Markup {
    let Some(problem) = problem else {
        return html! {};
    };
    let others: Vec<String> = problem.others(shown).collect();
    let is_of_fields = problem.code() == "validation_failed";
    html! {
        @if !is_of_fields {
            p.notice.bad role="alert" { (sentence(problem.message())) }
        } @else if !others.is_empty() {
            div.notice.bad role="alert" { @for other in &others { p { (sentence(other)) } } }
        } @else {
            p.notice.bad role="alert" { "Some fields are not right yet; nothing was done." }
        }
    }
}

pub fn option(value: &str, chosen: &str, name: &str) -> Markup {
    html! { option value=(value) selected[value == chosen] { (name) } }
}

/// Renders a filter of a list: one of the options, or all.
pub fn select(label: &str, name: &str, chosen: &str, options: &[(&str, &str)]) -> Markup {
    html! {
        label.field {
            span.label { (label) }
            select name=(name) {
                (option("", chosen, "All"))
                @for (value, word) in options { (option(value, chosen, word)) }
            }
        }
    }
}

/// Renders a text with a button that copies it, if there is JavaScript.
pub fn copyable(text: &str) -> Markup {
    html! {
        span.copyable {
            code { (text) }
            button.copy.needs-script type="button" data-copy=(text) { "Copy" }
        }
    }
}

/// Renders a block of code with a button that copies it.
pub fn code_block(language: &str, text: &str) -> Markup {
    html! {
        div.code {
            div.code-head {
                span.muted { (language) }
                button.copy.needs-script type="button" data-copy=(text) { "Copy" }
            }
            pre tabindex="0" aria-label=(language) { code { (text) } }
        }
    }
}

/// Renders a button that asks for confirmation, even without JavaScript.
pub fn confirmed(label: &str, question: &str, action: &str) -> Markup {
    html! {
        details.confirm {
            summary.button.danger { (label) }
            form.confirm-panel method="post" action=(action) {
                p { (question) }
                button.danger.solid type="submit" { (label) }
            }
        }
    }
}

pub fn fact(name: &str, value: &Markup) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

/// Renders the link to a table's file, if it has rows.
pub fn download(path: &str, rows: &[Value]) -> Markup {
    html! { @if !rows.is_empty() { a.button href=(path) { "Download CSV" } } }
}

/// Renders links to the next page of the list at a URL, and back to the first.
pub fn pager(address: &str, next: &Value) -> Markup {
    let (path, query) = address.split_once('?').unwrap_or((address, ""));
    let pairs = url::form_urlencoded::parse(query.as_bytes());
    let others: Vec<_> = pairs.filter(|(name, _)| name != "cursor").collect();
    let is_first = !query.contains("cursor=");
    let link = |cursor: Option<&str>| {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(&others);
        if let Some(cursor) = cursor {
            query.append_pair("cursor", cursor);
        }
        format!("{path}?{}", query.finish())
    };
    html! {
        @if !is_first || next.is_string() {
            nav.pager aria-label="Pages" {
                @if !is_first { a.button href=(link(None)) { "Newest" } }
                @if let Some(cursor) = next.as_str() {
                    a.button href=(link(Some(cursor))) rel="next" { "Older" }
                }
            }
        }
    }
}

/// Returns the start of a day in UTC, moved by `later` days, in RFC 3339.
pub fn start_of(day: &str, later: u64) -> Option<String> {
    let day: NaiveDate = day.parse().ok()?;
    let day = day.checked_add_days(Days::new(later))?;
    Some(format!("{day}T00:00:00Z"))
}

/// Returns a path with the query parameters that are not empty.
pub fn link(path: &str, pairs: &[(&str, &str)]) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(pairs.iter().filter(|(_, value)| !value.is_empty()));
    match query.finish() {
        query if query.is_empty() => path.to_owned(),
        query => format!("{path}?{query}"),
    }
}

pub fn logo() -> Markup {
    PreEscaped(
        r#"<svg class="logo" viewBox="0 0 24 24" aria-hidden="true"><rect x="1" y="1" width="22" height="22" rx="6"/><path d="M16.5 9.2A5.2 5.2 0 1 0 17.2 13H12.5"/></svg>"#
            .to_owned(),
    )
}

/// Icons, one per line: the name, and its SVG path.
const ICONS: &str = include_str!("icons.txt");

/// Renders an icon, which is shown next to its label.
pub fn icon(name: &str) -> Markup {
    let mut icons = ICONS.lines().filter_map(|line| line.split_once(' '));
    let path = icons.find(|(known, _)| *known == name);
    html! {
        svg.icon viewBox="0 0 24 24" aria-hidden="true" { path d=(path.map_or("", |(_, path)| path)) {} }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_decimals_are_large() {
        for (number, expected) in [
            ("12", "12"),
            ("1.5", "1.5"),
            ("1.25", "1.25"),
            ("0.00041", "0.00<small>041</small>"),
            ("-1234.567", "−1,234.56<small>7</small>"),
        ] {
            let markup = decimal(number).into_string();
            let expected = format!("<data class=\"num\" value=\"{number}\">{expected}</data>");
            assert_eq!(markup, expected);
        }
    }

    #[test]
    fn thousands_stand_apart_and_fractions_stay() {
        for (number, expected) in [
            ("0", "0"),
            ("999", "999"),
            ("1000", "1,000"),
            ("1234567.000375", "1,234,567.000375"),
            ("-12500", "−12,500"),
        ] {
            assert_eq!(grouped(number), expected);
        }
    }
}
