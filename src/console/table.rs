//! Tables: one list of columns for the page and for the download as CSV (RFC 4180).

use std::{future::ready, io};

use axum::{
    body::Body,
    response::{IntoResponse as _, Response},
};
use futures_util::{StreamExt as _, stream};
use http::header;
use maud::{Markup, html};
use serde_json::Value;

use super::{
    client::Call,
    parts::{self, list, text},
    problem::Problem,
    session::Session,
};

type Cell<'a> = Box<dyn Fn(&Value, &Value) -> Markup + Send + Sync + 'a>;

pub struct Column<'a> {
    /// Heading in the file; empty if only the page has the column.
    name: &'static str,
    /// JSON pointer to the value; empty for the member called `name`.
    pointer: &'static str,
    /// Heading on the page; empty if only the file has the column.
    heading: &'static str,
    class: &'static str,
    /// Shown after the value on narrow screens, which have no headings.
    unit: Option<&'static str>,
    /// Renders the column's value, or the row.
    cell: Cell<'a>,
}

/// Creates a column for the file only.
pub fn file(name: &'static str) -> Column<'static> {
    value(name, "", |_| html! {})
}

pub fn amount(name: &'static str, heading: &'static str) -> Column<'static> {
    value(name, heading, parts::amount).class("right")
}

pub fn time(name: &'static str, heading: &'static str) -> Column<'static> {
    value(name, heading, parts::time)
}

pub fn kind(name: &'static str, heading: &'static str) -> Column<'static> {
    value(name, heading, |kind| parts::kind(text(kind)))
}

/// Creates a column of texts, or of lists of texts.
pub fn words(name: &'static str, heading: &'static str) -> Column<'static> {
    value(name, heading, |value| html! { (joined(value, ", ")) })
}

/// Creates a column of names that are shown as code.
pub fn code(name: &'static str, heading: &'static str) -> Column<'static> {
    value(name, heading, |value| html! { code { (text(value)) } })
}

pub fn seconds(name: &'static str, heading: &'static str) -> Column<'static> {
    value(name, heading, parts::seconds).class("right")
}

/// Creates a column of states.
pub fn badge(name: &'static str, heading: &'static str) -> Column<'static> {
    value(name, heading, |state| parts::badge(text(state)))
}

fn value(name: &'static str, heading: &'static str, cell: fn(&Value) -> Markup) -> Column<'static> {
    Column {
        name,
        pointer: "",
        heading,
        class: "",
        unit: None,
        cell: Box::new(move |value: &Value, _: &Value| cell(value)),
    }
}

/// Creates a column whose cells are rendered from the whole row.
pub fn row<'a>(
    name: &'static str,
    heading: &'static str,
    cell: impl Fn(&Value) -> Markup + Send + Sync + 'a,
) -> Column<'a> {
    Column {
        cell: Box::new(move |_: &Value, row: &Value| cell(row)),
        ..value(name, heading, |_| html! {})
    }
}

impl Column<'_> {
    pub fn at(self, pointer: &'static str) -> Self {
        Self { pointer, ..self }
    }

    pub fn class(self, class: &'static str) -> Self {
        Self { class, ..self }
    }

    pub fn unit(self, unit: &'static str) -> Self {
        Self {
            unit: Some(unit),
            ..self
        }
    }

    fn value<'v>(&self, row: &'v Value) -> &'v Value {
        match self.pointer {
            "" => &row[self.name],
            pointer => row.pointer(pointer).unwrap_or(&Value::Null),
        }
    }

    fn unit_of(&self, row: &Value) -> Option<&'static str> {
        match self.unit {
            Some("credits") if self.value(row) == "1" => Some("credit"),
            unit => unit,
        }
    }

    fn render(&self, row: &Value) -> Markup {
        (self.cell)(self.value(row), row)
    }
}

/// Renders a list as [`cards`], or `without` if it has no rows.
pub fn list_or(without: &Markup, columns: &[Column<'_>], rows: &[Value]) -> Markup {
    html! { @if rows.is_empty() { (without) } @else { (cards(columns, rows)) } }
}

/// Renders a table whose rows become cards on narrow screens.
pub fn cards(columns: &[Column<'_>], rows: &[Value]) -> Markup {
    html! { div.table tabindex="0" { table.cards { (contents(columns, rows)) } } }
}

/// Renders a table that scrolls sideways on narrow screens.
pub fn plain(columns: &[Column<'_>], rows: &[Value]) -> Markup {
    html! { div.table tabindex="0" { table { (contents(columns, rows)) } } }
}

fn contents(columns: &[Column<'_>], rows: &[Value]) -> Markup {
    let shown = columns.iter().filter(|column| !column.heading.is_empty());
    let shown: Vec<_> = shown
        .map(|column| (column, (!column.class.is_empty()).then_some(column.class)))
        .collect();
    html! {
        thead { tr { @for (column, class) in &shown { th class=[class] { (column.heading) } } } }
        tbody { @for row in rows { tr {
            @for (column, class) in &shown {
                td class=[class] data-unit=[column.unit_of(row)] { (column.render(row)) }
            }
        } } }
    }
}

/// Downloads a list of the API, page by page, as fast as the browser reads. `call`: begins the call
/// of a page. If the API refuses a later page, the transfer is aborted, so that the browser reports
/// a failed download.
pub async fn download_list(
    name: &'static str,
    columns: Vec<Column<'static>>,
    session: Session,
    call: impl Fn(&Session) -> Call<'_> + Send + Sync + 'static,
) -> Result<Response, Problem> {
    let permit = session.permit(&session.console.0.downloads, "downloads")?;
    let (rows, next) = read_page(&columns, call(&session)).await?;
    let first = format!("{}{rows}", headings(&columns));
    let state = (columns, call, session, permit, next);
    let rest = stream::try_unfold(
        state,
        move |(columns, call, session, permit, next)| async move {
            let Some(cursor) = next else { return Ok(None) };
            let page = read_page(&columns, call(&session).query("cursor", &cursor));
            let (rows, next) = page.await.map_err(|problem| {
                tracing::warn!(name, code = problem.code(), "download aborted");
                io::Error::other("the list cannot be read to its end")
            })?;
            Ok(Some((rows, (columns, call, session, permit, next))))
        },
    );
    let body = Body::from_stream(stream::once(ready(Ok::<_, io::Error>(first))).chain(rest));
    Ok((file_headers(name), body).into_response())
}

/// Reads the rows of a page, and the cursor of the next one.
async fn read_page(
    columns: &[Column<'_>],
    call: Call<'_>,
) -> Result<(String, Option<String>), Problem> {
    let page = call.json().await?;
    let rows = lines(columns, list(&page["data"]));
    Ok((rows, page["next_cursor"].as_str().map(str::to_owned)))
}

/// Responds with a file of rows that are already in memory.
pub fn download(name: &str, columns: &[Column<'_>], rows: &[Value]) -> Response {
    let text = format!("{}{}", headings(columns), lines(columns, rows));
    (file_headers(name), text).into_response()
}

/// Returns the columns of the file.
fn named<'a>(columns: &'a [Column<'a>]) -> impl Iterator<Item = &'a Column<'a>> {
    columns.iter().filter(|column| !column.name.is_empty())
}

fn headings(columns: &[Column<'_>]) -> String {
    let names: Vec<&str> = named(columns).map(|column| column.name).collect();
    format!("{}\r\n", names.join(","))
}

fn lines(columns: &[Column<'_>], rows: &[Value]) -> String {
    let line = |row| {
        let cells: Vec<String> = named(columns)
            .map(|column| cell(column.value(row)))
            .collect();
        format!("{}\r\n", cells.join(","))
    };
    rows.iter().map(line).collect()
}

fn file_headers(name: &str) -> [(header::HeaderName, String); 4] {
    let disposition = format!("attachment; filename=\"{name}.csv\"");
    [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8".to_owned()),
        (header::CONTENT_DISPOSITION, disposition),
        (header::CACHE_CONTROL, "no-store".to_owned()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ]
}

/// Joins a list of texts.
pub fn joined(value: &Value, separator: &str) -> String {
    match value {
        Value::Array(words) => words.iter().map(text).collect::<Vec<_>>().join(separator),
        other => text(other).to_owned(),
    }
}

fn cell(value: &Value) -> String {
    let (text, is_number) = match value {
        Value::Null => (String::new(), false),
        Value::String(words) => (words.clone(), words.parse::<f64>().is_ok()),
        Value::Array(_) => (joined(value, " "), false),
        other => (other.to_string(), true),
    };
    // A spreadsheet would evaluate it as a formula.
    let text = match text.chars().next() {
        Some('=' | '+' | '-' | '@' | '\t' | '\r') if !is_number => format!("'{text}"),
        _ => text,
    };
    if text.contains(['"', ',', '\n', '\r']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cells_are_quoted_and_run_nothing() {
        for (value, expected) in [
            (json!(null), ""),
            (json!(12), "12"),
            (json!("-0.5"), "-0.5"),
            (json!("a,b"), "\"a,b\""),
            (json!("say \"x\"\nnow"), "\"say \"\"x\"\"\nnow\""),
            (json!("=HYPERLINK(1)"), "'=HYPERLINK(1)"),
            (json!("-1+cmd"), "'-1+cmd"),
            (
                json!(["read:history", "read:credits"]),
                "read:history read:credits",
            ),
        ] {
            assert_eq!(cell(&value), expected);
        }
    }
}
