//! The API after all work has ended: every paid result can be fetched from either server, and
//! equals what clients saw before.

use std::time::Instant;

use futures_util::{StreamExt as _, stream};
use gensvc::domain::credits::Credits;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::ledger::Row;
use crate::{http::Http, stage::Stage};

/// Concurrent lookups.
const AT_ONCE: usize = 8;
/// Attempts of one: a connection may still be closing.
const TRIES: usize = 3;

/// Fetches what the round has created, and compares.
pub async fn check(stage: &Stage, http: &Http, rows: &[Row]) {
    let living: Vec<&Row> = rows.iter().filter(|row| !row.deleted).collect();
    stream::iter(living.iter().enumerate())
        .for_each_concurrent(AT_ONCE, |(n, row)| fetch(stage, http, n % 2, row))
        .await;
    // Including what was deleted since.
    let charged = |row: &Row| Credits::from_micros(row.charged.unwrap_or(-1)).to_string();
    let seen = stage.seen.state();
    for row in rows {
        let Some(outcome) = seen
            .known
            .get(&row.uuid)
            .and_then(|known| known.outcome.as_ref())
        else {
            continue;
        };
        if outcome.status != row.status || outcome.charged != charged(row) {
            let detail = format!(
                "{}: {outcome:?}, but {} {}",
                row.uuid,
                row.status,
                charged(row)
            );
            stage
                .tally
                .violation("the ledger differs from what a client saw", detail);
        }
    }
}

async fn fetch(stage: &Stage, http: &Http, server: usize, row: &Row) {
    let account = stage
        .accounts
        .iter()
        .position(|a| a.id == row.account_id)
        .unwrap();
    let key = &stage.accounts[account].key;
    let path = format!("/v1/generate/{}", row.uuid);
    let (mut record, mut asked) = (Value::Null, Instant::now());
    for attempt in 0..TRIES {
        match http.get((server + attempt) % 2, &path, key).await {
            Some(answer) if answer.status == 200 => {
                (record, asked) = (answer.body, answer.asked);
                break;
            }
            Some(answer) => record = answer.body,
            None => {}
        }
    }
    if record["uuid"] != *row.uuid || record["status"] != *row.status {
        let detail = format!("{} ({}): {record}", row.uuid, row.status);
        stage
            .tally
            .violation("a generation cannot be fetched", detail);
        return;
    }
    stage.seen.record(account, None, &record, asked);
    if row.status != "completed" {
        return;
    }
    if record["result"].is_null() {
        stage
            .tally
            .violation("a paid answer cannot be fetched", record.to_string());
    }
    let none = Vec::new();
    let outputs = record["outputs"].as_array().unwrap_or(&none);
    if outputs.len() != row.outputs.as_array().map_or(0, Vec::len) {
        stage
            .tally
            .violation("a paid answer cannot be fetched", record.to_string());
    }
    for output in outputs {
        let link = output["url"].as_str().unwrap_or_default();
        let mut found = None;
        for attempt in 0..TRIES {
            found = http.file((server + attempt) % 2, link).await;
            if found.is_some() {
                break;
            }
        }
        let (status, bytes) = found.unwrap_or_default();
        let digest = Sha256::digest(&bytes);
        let digest: Vec<String> = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        if status != 200 || output["bytes"] != bytes.len() || output["sha256"] != digest.concat() {
            let detail = format!("{}: {status}, {} bytes of {output}", row.uuid, bytes.len());
            stage
                .tally
                .violation("a paid file cannot be fetched", detail);
        }
    }
}
