//! Commands that read generations and the account.

use reqwest::StatusCode;
use serde_json::Value;

use super::{
    Env,
    args::{History, Shown},
    connection::{Connection, Refused},
};
use crate::cli::{
    Failure, Outcome,
    args::Usage,
    output::{Columns, Output, credits, record, table},
};

fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns the beginning of a text, in one line.
fn short(value: &Value) -> String {
    const CHARS: usize = 50;
    let whole = text(value).split_whitespace().collect::<Vec<_>>().join(" ");
    let cut: String = whole.chars().take(CHARS).collect();
    if cut.len() < whole.len() {
        format!("{cut}…")
    } else {
        cut
    }
}

pub(super) async fn history(asked: &History, env: &Env, output: Output) -> Outcome {
    let limit = asked.limit.to_string();
    let mut query = vec![("per_page", limit.as_str())];
    for (name, value) in [
        ("type", &asked.kind),
        ("status", &asked.status),
        ("provider", &asked.provider),
        ("model", &asked.model),
        ("prompt", &asked.prompt),
    ] {
        query.extend(value.as_deref().map(|value| (name, value)));
    }
    let found = Connection::open(env)?
        .get("/v1/generate/history", &query)
        .await?;
    let rows = found["data"].as_array().map_or(&[][..], Vec::as_slice);
    let columns: &Columns<Value> = &[
        ("UUID", |row| text(&row["uuid"])),
        ("TYPE", |row| text(&row["type"])),
        ("STATUS", |row| text(&row["status"])),
        ("MODEL", |row| text(&row["model"])),
        ("CREDITS", |row| text(&row["credits"]["charged"])),
        ("CREATED", |row| text(&row["created_at"])),
        ("PROMPT", |row| short(&row["prompt"])),
    ];
    let people = if rows.is_empty() {
        "No generation matches.".to_owned()
    } else {
        table(columns, rows)
    };
    output.result(&people, &found)
}

/// Adds the id of an unknown generation to the error.
pub(super) fn named<T>(shown: Shown, answer: Result<T, Failure>) -> Result<T, Failure> {
    answer.map_err(|error| match error.downcast::<Refused>() {
        Ok(mut refused) if refused.status == StatusCode::NOT_FOUND => {
            let message = format!("this account has no generation {}", shown.id);
            refused.body["error"]["message"] = Value::from(message);
            refused
        }
        Ok(refused) => refused,
        Err(error) => error,
    })
}

pub(super) async fn show(shown: Shown, env: &Env, output: Output) -> Outcome {
    let path = format!("/v1/generate/{}", shown.id);
    let found = named(shown, Connection::open(env)?.get(&path, &[]).await)?;
    let (credits, metadata) = (&found["credits"], &found["metadata"]);
    let rows = [
        ("uuid", &found["uuid"]),
        ("type", &found["type"]),
        ("status", &found["status"]),
        ("provider", &found["provider"]),
        ("model", &found["model"]),
        ("parameters", &found["parameters"]),
        ("usage", &found["usage"]),
        ("prices", &metadata["pricing"]),
        ("estimated", &credits["estimated"]),
        ("held", &credits["held"]),
        ("charged", &credits["charged"]),
        ("attempts", &metadata["attempts"]),
        ("created", &found["created_at"]),
        ("completed", &found["completed_at"]),
        ("error", &found["error"]["message"]),
    ];
    let rows = rows.map(|(name, value)| (name, text(value)));
    let people = format!(
        "{}\n\n{}\n\n{}",
        record("GENERATION", &rows),
        text(&found["prompt"]),
        text(&found["result"])
    );
    output.result(people.trim_end(), &found)
}

pub(super) async fn balance(env: &Env, output: Output) -> Outcome {
    let found = Connection::open(env)?
        .get("/v1/credits/balance", &[])
        .await?;
    let people = format!(
        "{} available ({} owned, {} on hold)",
        credits(&text(&found["available"])),
        text(&found["balance"]),
        text(&found["held"])
    );
    output.result(&people, &found)
}

pub(super) async fn usage(asked: &Usage, env: &Env, output: Output) -> Outcome {
    let time = |at: Option<chrono::DateTime<chrono::Utc>>| {
        at.map(|at| at.to_rfc3339()).unwrap_or_default()
    };
    let groups: Vec<&str> = asked
        .group_by
        .iter()
        .flatten()
        .map(|group| group.as_str())
        .collect();
    let (from, to, groups) = (time(asked.from), time(asked.to), groups.join(","));
    let query = [
        ("from", from.as_str()),
        ("to", to.as_str()),
        ("group_by", groups.as_str()),
    ];
    let query: Vec<_> = query
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .collect();
    let found = Connection::open(env)?
        .get("/v1/credits/usage", &query)
        .await?;
    let rows = found["data"].as_array().map_or(&[][..], Vec::as_slice);
    let name = |row: &Value| {
        let names = groups.split(',').filter(|name| !name.is_empty());
        names
            .map(|name| text(&row[name]))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let mut rows: Vec<_> = rows.iter().map(|row| (name(row), row)).collect();
    // Without groups, the only row is the total.
    rows.retain(|(name, _)| !name.is_empty());
    rows.push(("total".to_owned(), &found["total"]));
    let columns: &Columns<(String, &Value)> = &[
        ("OF", |(name, _)| name.clone()),
        ("MADE", |(_, row)| text(&row["generations"])),
        ("COMPLETED", |(_, row)| text(&row["completed"])),
        ("FAILED", |(_, row)| text(&row["failed"])),
        ("CHARGED", |(_, row)| text(&row["charged"])),
    ];
    output.result(&table(columns, &rows), &found)
}
