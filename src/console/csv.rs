//! A table as a file of comma-separated values (RFC 4180).

use axum::response::{IntoResponse as _, Response};
use http::header;
use serde_json::Value;

use super::client::{Call, Problem};

/// Pages of 100 rows; a longer export is a client's.
const MAX_PAGES: usize = 100;

pub struct Csv(String);

impl Csv {
    pub fn new(headings: &[&str]) -> Self {
        Self(format!("{}\r\n", headings.join(",")))
    }

    pub fn row(&mut self, cells: &[&Value]) {
        let cells: Vec<String> = cells.iter().map(|value| cell(value)).collect();
        self.0.push_str(&cells.join(","));
        self.0.push_str("\r\n");
    }

    /// The file, under its name.
    pub fn answer(self, name: &str) -> Response {
        let disposition = format!("attachment; filename=\"{name}.csv\"");
        let headers = [
            (header::CONTENT_TYPE, "text/csv; charset=utf-8"),
            (header::CONTENT_DISPOSITION, disposition.as_str()),
            (header::CACHE_CONTROL, "no-store"),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        ];
        (headers, self.0).into_response()
    }
}

fn cell(value: &Value) -> String {
    let (text, is_number) = match value {
        Value::Null => (String::new(), false),
        Value::String(text) => (text.clone(), text.parse::<f64>().is_ok()),
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

/// All pages of a list, one after the other.
#[derive(Default)]
pub struct Rows {
    pages: usize,
    cursor: Option<String>,
    ended: bool,
}

impl Rows {
    pub async fn next<'a>(
        &mut self,
        call: impl Fn() -> Call<'a>,
    ) -> Result<Option<Value>, Problem> {
        if self.ended {
            return Ok(None);
        }
        if self.pages == MAX_PAGES {
            let message = "this is more than 10,000 rows: narrow it down, or use the API";
            return Err(Problem::bad_form(message));
        }
        let cursor = self.cursor.take().unwrap_or_default();
        let call = call().query("per_page", "100").query("cursor", &cursor);
        let page = call.json().await?;
        self.pages += 1;
        self.cursor = page["next_cursor"].as_str().map(str::to_owned);
        self.ended = self.cursor.is_none();
        Ok(Some(page))
    }
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
        ] {
            assert_eq!(cell(&value), expected);
        }
    }
}
