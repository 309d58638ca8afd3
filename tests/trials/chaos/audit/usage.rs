//! The usage report against the records and the ledger.

use gensvc::domain::credits::Credits;
use serde_json::{Map, Value, json};

use super::super::scene::Scene;
use crate::http::Http;

/// An account's sums, named as in the report, and how much the ledger has charged.
const SUMS: &str = "
    select json_build_object(
        'generations', count(*),
        'completed', count(*) filter (where status = 'completed'),
        'failed', count(*) filter (where status = 'failed'),
        'charged', coalesce(sum(charged), 0),
        -- As reports bound them: providers may say anything.
        'input_tokens', least(coalesce(sum((usage ->> 'input_tokens')::numeric), 0), 9007199254740991),
        'output_tokens', least(coalesce(sum((usage ->> 'output_tokens')::numeric), 0), 9007199254740991),
        'images', coalesce(sum((usage ->> 'images')::bigint), 0),
        'seconds', coalesce(sum((usage ->> 'seconds')::bigint), 0),
        'characters', coalesce(sum((usage ->> 'characters')::bigint), 0),
        'ledger', (select coalesce(sum(amount), 0) from ledger_entries
                   where account_id = $1 and kind = 'charge'))
    from generations where account_id = $1";

/// The moment in the middle of what an account created.
const MIDDLE: &str = "
    select to_char(percentile_disc(0.5) within group (order by created_at) at time zone 'UTC',
                   'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')
    from generations where account_id = $1";

/// Checks the reports of all accounts.
pub async fn check(scene: &Scene, http: &Http) {
    let mut database = scene.postgres.connect().await;
    for (n, account) in scene.accounts.iter().enumerate() {
        let mut sums: Map<String, Value> = sqlx::query_scalar(SUMS)
            .bind(account.id)
            .fetch_one(&mut database)
            .await
            .map(|sqlx::types::Json(sums)| sums)
            .unwrap();
        let middle: Option<String> = sqlx::query_scalar(MIDDLE)
            .bind(account.id)
            .fetch_one(&mut database)
            .await
            .unwrap();
        let micros = sums["charged"].as_i64().unwrap();
        if sums.remove("ledger") != Some(json!(micros)) {
            let detail = format!("account {}: {sums:?}", account.id);
            scene
                .tally
                .violation("the ledger's charges are not the records'", detail);
        }
        sums["charged"] = json!(Credits::from_micros(micros).to_string());
        let report = |what: &str, usage: &Value| {
            let detail = format!(
                "account {}, {what}: {usage}; the records say {sums:?}",
                account.id
            );
            scene.tally.violation("a usage report is wrong", detail);
        };
        let ask = async |query: &str| {
            let path = format!("/v1/credits/usage{query}");
            let answer = http.get(n % 2, &path, &account.key).await;
            answer.map(|answer| answer.body).unwrap_or_default()
        };
        for query in ["", "?group_by=api_key,type", "?group_by=day,provider,model"] {
            let usage = ask(query).await;
            if usage["total"] != json!(sums)
                || added([&usage["data"]]) != Some((rows(&sums), micros))
            {
                report(query, &usage);
            }
        }
        // Two halves, cut in the middle of an hour, are the whole.
        if let Some(middle) = middle {
            let before = ask(&format!("?to={middle}")).await;
            let after = ask(&format!("?from={middle}")).await;
            if added([&before["data"], &after["data"]]) != Some((rows(&sums), micros)) {
                report("in two halves", &json!([before, after]));
            }
        }
    }
}

fn rows(sums: &Map<String, Value>) -> i64 {
    sums["generations"].as_i64().unwrap_or(-1)
}

/// The total generations and micro-credits of the groups of reports.
fn added<const N: usize>(reports: [&Value; N]) -> Option<(i64, i64)> {
    let mut sum = (0, 0);
    for row in reports
        .into_iter()
        .filter_map(|report| report.as_array())
        .flatten()
    {
        let charged: Credits = row["charged"].as_str()?.parse().ok()?;
        sum.0 += row["generations"].as_i64()?;
        sum.1 += charged.micros();
    }
    Some(sum)
}
