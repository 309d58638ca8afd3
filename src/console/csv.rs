//! A table as a file of comma-separated values (RFC 4180), however long: page after page of the API,
//! as fast as the browser takes them.

use std::{future::ready, io};

use axum::{
    body::Body,
    response::{IntoResponse as _, Response},
};
use futures_util::{StreamExt as _, stream};
use http::header;
use serde_json::Value;

use super::{
    client::Problem,
    operations::Operation,
    parts::{list, text},
    session::Session,
};

/// A column: its heading, and the pointer to its value in a row; an empty one: by its heading.
pub type Column = (&'static str, &'static str);

/// Columns that are called as the members of the rows.
pub fn members(names: &[&'static str]) -> Vec<Column> {
    names.iter().map(|name| (*name, "")).collect()
}

/// A list of the API that is downloaded.
pub struct Download {
    name: &'static str,
    operation: Operation,
    columns: Vec<Column>,
    /// What stands in the path.
    id: Option<String>,
    query: Vec<(&'static str, String)>,
}

impl Download {
    pub fn new(name: &'static str, operation: Operation, columns: Vec<Column>) -> Self {
        Self {
            name,
            operation,
            columns,
            id: None,
            query: Vec::new(),
        }
    }

    pub fn of(mut self, id: &str) -> Self {
        self.id = Some(id.to_owned());
        self
    }

    pub fn query(mut self, name: &'static str, value: &str) -> Self {
        self.query.push((name, value.to_owned()));
        self
    }

    /// Of a list that comes in pages.
    pub fn paged(self) -> Self {
        self.query("per_page", "100")
    }

    /// The file. What the API refuses is refused; once it has begun, the file breaks off, which
    /// browsers tell.
    pub async fn answer(self, session: Session) -> Result<Response, Problem> {
        let permit = session.download()?;
        let headings: Vec<&str> = self.columns.iter().map(|(name, _)| *name).collect();
        let (rows, next) = self.rows(&session, "").await?;
        let first = format!("{}\r\n{rows}", headings.join(","));
        let file = file_headers(self.name);
        let state = (self, session, permit, next);
        let rest = stream::try_unfold(state, |(this, session, permit, next)| async move {
            let Some(cursor) = next else { return Ok(None) };
            let (rows, next) = this.rows(&session, &cursor).await.map_err(|problem| {
                let name = this.name;
                tracing::warn!(name, code = problem.code(), "a download broke off");
                io::Error::other("the list cannot be read to its end")
            })?;
            Ok(Some((rows, (this, session, permit, next))))
        });
        let body = Body::from_stream(stream::once(ready(Ok::<_, io::Error>(first))).chain(rest));
        Ok((file, body).into_response())
    }

    /// The rows behind a cursor, and the next one.
    async fn rows(
        &self,
        session: &Session,
        cursor: &str,
    ) -> Result<(String, Option<String>), Problem> {
        let ids: Vec<&str> = self.id.iter().map(String::as_str).collect();
        let call = session.call(self.operation, &ids);
        let call = self.query.iter().fold(call, |c, (n, v)| c.query(n, v));
        let page = call.query("cursor", cursor).json().await?;
        let mut rows = String::new();
        for row in list(&page["data"]) {
            let cells = self.columns.iter().map(|column| cell(value(row, *column)));
            push_row(&mut rows, &cells.collect::<Vec<_>>());
        }
        Ok((rows, page["next_cursor"].as_str().map(str::to_owned)))
    }
}

fn value(row: &Value, (name, pointer): Column) -> &Value {
    match pointer {
        "" => &row[name],
        pointer => row.pointer(pointer).unwrap_or(&Value::Null),
    }
}

/// A small table that is made as a whole.
pub fn file(name: &str, headings: &[&str], rows: &[Vec<&Value>]) -> Response {
    let mut out = format!("{}\r\n", headings.join(","));
    for row in rows {
        push_row(&mut out, &row.iter().map(|v| cell(v)).collect::<Vec<_>>());
    }
    (file_headers(name), out).into_response()
}

fn push_row(out: &mut String, cells: &[String]) {
    out.push_str(&cells.join(","));
    out.push_str("\r\n");
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

fn cell(value: &Value) -> String {
    let (text, is_number) = match value {
        Value::Null => (String::new(), false),
        Value::String(words) => (words.clone(), words.parse::<f64>().is_ok()),
        Value::Array(words) => (words.iter().map(text).collect::<Vec<_>>().join(" "), false),
        other => (other.to_string(), true),
    };
    // A spreadsheet would run it.
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
