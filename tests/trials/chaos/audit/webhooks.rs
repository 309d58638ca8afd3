//! Events: each delivered message compared with the ledger, and in the end whether all were
//! delivered.

use std::{
    collections::{HashMap, HashSet},
    sync::Mutex,
    time::{Duration, Instant},
};

use gensvc::domain::credits::Credits;
use reqwest::Method;
use serde_json::Value;
use sqlx::{
    PgConnection,
    types::chrono::{DateTime, Utc},
};
use standardwebhooks::Webhook;

use super::super::{
    receiver::Arrival,
    scene::{Hook, Scene},
};
use crate::http::Http;

/// How long the last events may take after the last fault. The longest that one may wait on its own
/// is a dead server's lease of 41 s.
const PATIENCE: Duration = Duration::from_secs(90);
/// Seconds until the next attempt above which the owner requests a redelivery.
const ASK_BEYOND: f64 = 45.0;
/// Between two polls of the outbox.
const TICK: Duration = Duration::from_millis(200);

/// What has arrived so far: for which webhook and generation, and how often.
#[derive(Default)]
pub struct Events(Mutex<State>);

#[derive(Default)]
struct State {
    taken: HashSet<(i64, String)>,
    counts: HashMap<(i64, String), i32>,
}

#[derive(sqlx::FromRow)]
struct Row {
    uuid: String,
    account_id: i64,
    status: String,
    /// Micro-credits.
    charged: Option<i64>,
    completed_at: Option<DateTime<Utc>>,
    deleted: bool,
}

#[derive(sqlx::FromRow)]
struct Delivery {
    id: i64,
    webhook_id: i64,
    uuid: String,
    attempts: i32,
}

impl Events {
    /// Checks what has arrived since the last call.
    pub async fn check(&self, scene: &Scene) {
        let arrivals = scene.receiver.drain();
        let bodies: Vec<Value> = arrivals
            .iter()
            .map(|arrival| serde_json::from_slice(&arrival.body).unwrap_or_default())
            .collect();
        let uuid = |body: &Value| body["data"]["uuid"].as_str().unwrap_or_default().to_owned();
        let uuids: Vec<String> = bodies.iter().map(uuid).collect();
        let rows: Vec<Row> = sqlx::query_as(
            "select id::text as uuid, account_id, status, charged, completed_at,
                    deleted_at is not null as deleted
             from generations where id::text = any ($1)",
        )
        .bind(&uuids)
        .fetch_all(&mut scene.postgres.connect().await)
        .await
        .unwrap();
        let rows: HashMap<&str, &Row> = rows.iter().map(|row| (&*row.uuid, row)).collect();
        for ((arrival, body), uuid) in arrivals.iter().zip(&bodies).zip(uuids) {
            let tell = |name| {
                let detail = format!("{} {:?}: {body}", arrival.path, arrival.headers);
                scene.tally.violation(name, detail);
            };
            let Some(hook) = scene.hooks.iter().find(|hook| hook.path == arrival.path) else {
                tell("a redirect was followed");
                continue;
            };
            if let Some(name) = fault(hook, arrival, body, rows.get(&*uuid).copied()) {
                tell(name);
            }
            let known = &mut *self.0.lock().unwrap();
            let key = (hook.id, uuid);
            *known.counts.entry(key.clone()).or_default() += 1;
            // What clients saw must equal the event, unless it has been deleted by now.
            let there = rows.get(&*key.1).is_some_and(|row| !row.deleted);
            let record = &body["data"];
            if there && record["prompt"] != "" {
                scene
                    .seen
                    .record(hook.account, None, record, Instant::now());
            }
            if arrival.taken {
                known.taken.insert(key);
            }
        }
    }

    /// Waits until every event is delivered; returns how long that took.
    pub async fn finish(&self, scene: &Scene, http: &Http) -> Duration {
        let mut database = scene.postgres.connect().await;
        let (begun, mut waited) = (Instant::now(), Duration::ZERO);
        let mut asked = HashSet::new();
        while begun.elapsed() < PATIENCE {
            let pending: i64 = sqlx::query_scalar(
                "select count(*) from webhook_deliveries where status = 'pending'",
            )
            .fetch_one(&mut database)
            .await
            .unwrap();
            if pending == 0 {
                break;
            }
            waited = begun.elapsed();
            ask(scene, http, &mut database, &mut asked).await;
            tokio::time::sleep(TICK).await;
        }
        self.check(scene).await;
        self.complete(scene, &mut database).await;
        waited
    }

    /// Whether every event was delivered to every webhook, with no more messages than in the log.
    async fn complete(&self, scene: &Scene, database: &mut PgConnection) {
        let pending: Vec<String> = sqlx::query_scalar(
            "select format('%s of webhook %s: %s after %s attempts (%s)', generation_id,
                           webhook_id, status, attempts, error)
             from webhook_deliveries where status <> 'delivered'",
        )
        .fetch_all(&mut *database)
        .await
        .unwrap();
        for line in pending {
            scene.tally.violation("an event stays undelivered", line);
        }
        let log: Vec<Delivery> = sqlx::query_as(
            "select id, webhook_id, generation_id::text as uuid, attempts from webhook_deliveries",
        )
        .fetch_all(&mut *database)
        .await
        .unwrap();
        let ended: Vec<(String, i64, String)> = sqlx::query_as(
            "select id::text, account_id, status from generations
             where status in ('completed', 'failed')",
        )
        .fetch_all(&mut *database)
        .await
        .unwrap();
        let known = self.0.lock().unwrap();
        let mut attempts: HashMap<(i64, &str), i32> = HashMap::new();
        for delivery in &log {
            let key = (delivery.webhook_id, &*delivery.uuid);
            if attempts.insert(key, delivery.attempts).is_some() {
                let detail = format!("{} of webhook {}", delivery.uuid, delivery.webhook_id);
                scene.tally.violation("an event was written twice", detail);
            }
        }
        for ((hook, uuid), count) in &known.counts {
            let written = attempts.get(&(*hook, uuid)).copied().unwrap_or(0);
            if *count > written {
                let detail = format!("{uuid} of webhook {hook}: {count} times, {written} known");
                scene
                    .tally
                    .violation("sent more often than is known", detail);
            }
        }
        for (uuid, account, status) in &ended {
            let event = format!("generation.{status}");
            for hook in scene.hooks_of(*account).filter(|hook| hook.wants(&event)) {
                if !known.taken.contains(&(hook.id, uuid.clone())) {
                    let times = known.counts.get(&(hook.id, uuid.clone())).unwrap_or(&0);
                    let detail = format!("{uuid} ({status}) of webhook {}: {times} tries", hook.id);
                    scene
                        .tally
                        .violation("an event was never delivered", detail);
                }
            }
        }
    }
}

/// The error in a message.
fn fault(hook: &Hook, arrival: &Arrival, body: &Value, row: Option<&Row>) -> Option<&'static str> {
    let webhook = Webhook::new(&hook.secret).unwrap();
    if webhook.verify(&arrival.body, &arrival.headers).is_err() {
        return Some("an event with a bad signature");
    }
    let Some(row) = row else {
        return Some("an event of nothing");
    };
    let (data, event) = (&body["data"], format!("generation.{}", row.status));
    if row.account_id != hook.account_id {
        return Some("another account's event");
    }
    let before_its_end = row.completed_at.is_none_or(|end| end > arrival.at);
    if !matches!(&*row.status, "completed" | "failed") || before_its_end {
        return Some("an event before the end");
    }
    let charged = row
        .charged
        .map(|micros| Credits::from_micros(micros).to_string());
    if body["type"] != *event
        || !hook.wants(&event)
        || data["status"] != *row.status
        || data["credits"]["charged"].as_str() != charged.as_deref()
    {
        return Some("an event that contradicts the ledger");
    }
    let id = arrival.headers.get("webhook-id");
    if id.is_none_or(|id| id.as_bytes() != format!("msg_{}", row.uuid).as_bytes()) {
        return Some("an event under another id");
    }
    None
}

/// Requests, once, the redelivery of what would be retried only after minutes.
async fn ask(scene: &Scene, http: &Http, database: &mut PgConnection, asked: &mut HashSet<i64>) {
    let late: Vec<Delivery> = sqlx::query_as(
        "select id, webhook_id, generation_id::text as uuid, attempts from webhook_deliveries
         where status = 'pending' and next_attempt_at > now() + make_interval(secs => $1)",
    )
    .bind(ASK_BEYOND)
    .fetch_all(database)
    .await
    .unwrap();
    for delivery in late {
        let Some(hook) = scene
            .hooks
            .iter()
            .find(|hook| hook.id == delivery.webhook_id)
        else {
            continue;
        };
        let path = format!(
            "/v1/webhooks/{}/deliveries/{}/redeliver",
            hook.id, delivery.id
        );
        let key = &scene.accounts[hook.account].key;
        let server = usize::from(delivery.id % 2 == 0);
        let answer = http
            .send(http.build(server, Method::POST, &path, key))
            .await;
        if answer.is_some_and(|answer| answer.status == 202) && asked.insert(delivery.id) {
            scene.tally.deed("requested a redelivery");
        }
    }
}
