//! Counts and costs of generations by day, type, provider, model or key. Each figure links to its
//! generations.

use axum::response::Response;
use chrono::{Days, NaiveDate};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::{
    chart::{self, Bar},
    client::Call,
    form::Form,
    operations as op,
    parts::{self, amount, list, option, text},
    problem::Problem,
    session::Session,
    shell,
    table::{self, Column, file},
};

const GROUPS: [(&str, &str); 5] = [
    ("day", "Day"),
    ("type", "Type"),
    ("provider", "Provider"),
    ("model", "Model"),
    ("api_key", "API key"),
];

/// The counts of a row, each with its type of generations.
const COUNTS: [(&str, &str, &str); 5] = [
    ("input_tokens", "Tokens in", "text"),
    ("output_tokens", "Tokens out", "text"),
    ("images", "Images", "image"),
    ("seconds", "Seconds of video", "video"),
    ("characters", "Characters", "audio"),
];

/// Default number of days, up to today in UTC.
const DAYS: u64 = 30;

/// Returns the first and the last of [`DAYS`] days up to `last`.
pub fn last_days(last: NaiveDate) -> (String, String) {
    let first = last.checked_sub_days(Days::new(DAYS - 1)).unwrap_or(last);
    (first.to_string(), last.to_string())
}

/// Returns the days of a form, as entered.
pub fn chosen(form: &Form, today: NaiveDate) -> (String, String) {
    let (from, to) = (form.word("from"), form.word("to"));
    let last = to.parse().unwrap_or(today);
    let (first, last) = last_days(last);
    let typed = |text: &str, default| match text {
        "" => default,
        typed => typed.to_owned(),
    };
    (typed(from, first), typed(to, last))
}

/// Begins the call of the API's report of whole days. The API refuses texts that are not days.
pub fn asked<'a>(session: &'a Session, by: &str, days: &(String, String)) -> Call<'a> {
    let time = |day: &str, later| parts::start_of(day, later).unwrap_or_else(|| day.to_owned());
    let call = session.call(op::USAGE, &[]).query("group_by", by);
    call.query("from", &time(&days.0, 0))
        .query("to", &time(&days.1, 1))
}

/// Maximum days of a range that are drawn separately.
const MAX_DRAWN_DAYS: usize = 400;

/// Returns a row for each day of a range, including days without any use. Returns `None` if the
/// range is invalid or too long.
pub fn daily(rows: &[Value], (first, last): &(String, String)) -> Option<Vec<Value>> {
    let (first, last): (NaiveDate, NaiveDate) = (first.parse().ok()?, last.parse().ok()?);
    let days = first.iter_days().take_while(|day| *day <= last);
    let days: Vec<String> = days
        .take(MAX_DRAWN_DAYS + 1)
        .map(|day| day.to_string())
        .collect();
    let row = |day: &String| {
        let found = rows.iter().find(|row| row["day"] == day.as_str());
        let empty = || json!({"day": day, "charged": "0"});
        found.cloned().unwrap_or_else(empty)
    };
    (days.len() <= MAX_DRAWN_DAYS).then(|| days.iter().map(row).collect())
}

struct Report {
    by: &'static str,
    /// The name of its groups.
    title: &'static str,
    /// The first and the last day, as entered, or [`last_days`].
    days: (String, String),
    /// Null if the days were refused.
    found: Value,
    problem: Option<Problem>,
    /// The account's keys, if the report is by key.
    keys: Value,
}

impl Report {
    async fn read(session: &Session) -> Result<Self, Problem> {
        let form = &session.query;
        let group = GROUPS.iter().find(|(name, _)| *name == form.word("by"));
        let (by, title) = *group.unwrap_or(&GROUPS[0]);
        let days = chosen(form, session.now.date_naive());
        let call = asked(session, by, &days);
        let keys = async {
            match by {
                "api_key" => session.long_pages(op::KEYS).json().await,
                _ => Ok(Value::Null),
            }
        };
        let (found, keys) = tokio::join!(call.json(), keys);
        let (found, problem) = match found {
            Ok(found) => (found, None),
            Err(problem) if problem.code() == "validation_failed" => (Value::Null, Some(problem)),
            Err(problem) => return Err(problem),
        };
        Ok(Self {
            by,
            title,
            days,
            found,
            problem,
            keys: keys?,
        })
    }

    fn name(&self, row: &Value) -> String {
        match (self.by, &row[self.by]) {
            ("type", kind) => parts::type_name(text(kind)).to_owned(),
            ("api_key", Value::Null) => "Logged-in people".to_owned(),
            ("api_key", id) => {
                let known = list(&self.keys["data"]).iter().find(|key| key["id"] == *id);
                known.map_or(format!("Key {id}"), |key| text(&key["name"]).to_owned())
            }
            (_, other) => text(other).to_owned(),
        }
    }

    /// Returns the URL of a figure's generations. `row`: `None` for the totals.
    fn link(&self, row: Option<&Value>, status: &str, kind: &str) -> String {
        let group = match row.map(|row| &row[self.by]) {
            None => String::new(),
            Some(Value::Null) => "none".to_owned(),
            Some(group) => parts::plain(group),
        };
        let (group, first, last) = (group.as_str(), self.days.0.as_str(), self.days.1.as_str());
        let (by, kind, from, to) = match (self.by, row) {
            ("day", Some(_)) => ("", kind, group, group),
            ("type", Some(_)) => (group, "", first, last),
            _ => (group, kind, first, last),
        };
        parts::link(
            "/generations",
            &[
                (self.by, by),
                ("type", kind),
                ("status", status),
                ("from", from),
                ("to", to),
            ],
        )
    }
}

pub async fn page(session: Session) -> Result<Markup, Problem> {
    let report = Report::read(&session).await?;
    let form = &session.query;
    let is_chosen = !(form.word("from").is_empty() && form.word("to").is_empty());
    let rows = list(&report.found["data"]);
    let total = &report.found["total"];
    let export = format!("/usage.csv?{}", session.query_text());
    let actions = parts::download(&export, rows);
    let bars: Vec<Bar> = match daily(rows, &report.days) {
        Some(days) if report.by == "day" => days.iter().map(|row| bar(&report, row)).collect(),
        _ => rows.iter().map(|row| bar(&report, row)).collect(),
    };
    let content = html! {
        (shell::head("Usage", "Generations and their cost. Select a figure to see what it sums.", &actions))
        dl.figures {
            div { dt { "Charged" } dd { a href=(report.link(None, "completed", "")) { (amount(&total["charged"])) } " " span.unit { "credits" } } }
            div { dt { "Generations" } dd { a href=(report.link(None, "", "")) { (amount(&total["generations"])) } } }
            div { dt { "Failed, free" } dd { a href=(report.link(None, "failed", "")) { (amount(&total["failed"])) } } }
        }
        section.card {
            form.filters method="get" action="/usage" {
                label.field {
                    span.label { "By" }
                    select name="by" { @for (name, word) in GROUPS { (option(name, report.by, word)) } }
                }
                label.field { span.label { "From (UTC)" } input type="date" name="from" value=(report.days.0); }
                label.field { span.label { "To (UTC)" } input type="date" name="to" value=(report.days.1); }
                div.actions { button.primary type="submit" { "Show" } }
            }
            @if let Some(problem) = &report.problem { p.notice.bad role="alert" { (parts::sentence(problem.message())) } }
            @if !is_chosen { p.muted.small { "The last " (DAYS) " days." } }
        }
        section.card {
            h2 { "Credits" }
            @if report.problem.is_some() { p.muted { "Nothing was counted." } } @else if rows.is_empty() {
                (parts::empty("Nothing was made in this time", "Choose another time, or make something.",
                    &html! { a.button href="/playground" { "Open the playground" } }))
            } @else {
                @if report.by == "day" { (chart::columns(&bars)) } @else { (chart::rows(&bars)) }
                (figures(&report))
            }
        }
    };
    Ok(shell::page(&session, "Usage", &content))
}

fn bar(report: &Report, row: &Value) -> Bar {
    Bar::new(
        report.name(row),
        text(&row["charged"]),
        report.link(Some(row), "completed", ""),
    )
}

fn figures(report: &Report) -> Markup {
    let total = &report.found["total"];
    let counts: Vec<_> = COUNTS
        .iter()
        .filter(|(name, _, _)| total[name] != 0)
        .collect();
    let cells = |row: Option<&Value>| {
        let values = row.unwrap_or(total);
        html! {
            td.right { a href=(report.link(row, "completed", "")) { (amount(&values["charged"])) } }
            td.right { a href=(report.link(row, "", "")) { (amount(&values["generations"])) } }
            td.right { a href=(report.link(row, "failed", "")) { (amount(&values["failed"])) } }
            @for (name, _, kind) in &counts {
                td.right { a href=(report.link(row, "completed", kind)) { (amount(&values[name])) } }
            }
        }
    };
    html! {
        div.table tabindex="0" {
            table {
                thead { tr {
                    th { (report.title) } th.right { "Credits" } th.right { "Generations" } th.right { "Failed" }
                    @for (_, name, _) in &counts { th.right { (name) } }
                } }
                tbody { @for row in list(&report.found["data"]) {
                    tr {
                        th scope="row" {
                            @if report.by == "day" { (parts::day(text(&row["day"]))) } @else { (report.name(row)) }
                        }
                        (cells(Some(row)))
                    }
                } }
                tfoot { tr { th scope="row" { "Sum" } (cells(None)) } }
            }
        }
    }
}

pub async fn csv(session: Session) -> Result<Response, Problem> {
    let report = Report::read(&session).await?;
    if let Some(problem) = report.problem {
        return Err(problem);
    }
    let counts = COUNTS.map(|(name, _, _)| name);
    let names = [report.by, "charged", "generations", "completed", "failed"];
    let columns: Vec<Column<'_>> = names.into_iter().chain(counts).map(file).collect();
    Ok(table::download(
        "usage",
        &columns,
        list(&report.found["data"]),
    ))
}
