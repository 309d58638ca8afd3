//! Three vendors that fail in every way at every moment, and lie: one bill, of the one that served,
//! and no second call where one may have started.
//!
//! What each vendor does with a request stands in its prompt, so that requests may run together.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{failed, routed};
use crate::common::{Account, Answer, End, Recorded, Reply, TestApp, Upstream};

const MODELS: [(&str, &str); 3] = [
    ("openai", "gpt-4.1-mini"),
    ("anthropic", "claude-haiku-4-5"),
    ("gemini", "gemini-3.5-flash-lite"),
];
/// As in `route/fast`.
const GIVEN: [usize; 3] = [0, 1, 2];
const ORDERS: [[usize; 3]; 6] = [GIVEN, [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
/// Tokens that no request can have used.
const LIE: i64 = 1_000_000_000;

/// What the call of a vendor comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Serves,
    Lies,
    /// Before any work.
    NotStarted,
    /// It may have started.
    Unknown,
}

/// The replies, each with what it comes to.
fn replies() -> Vec<(Fate, Reply)> {
    let error = |code: &str| json!({"error": {"code": code, "message": "m", "type": code}});
    let no_repeat = vec![("x-should-retry", "false")];
    let begun = "data: {\"id\": \"c\", \"model\": \"m\", \"choices\": [{\"index\": 0, \"delta\": \
                 {\"role\": \"assistant\", \"content\": \"Hel\"}, \"finish_reason\": null}]}\n\n";
    let late = format!("{begun}data: {}\n\n", error("server_overloaded"));
    let ends = [
        (
            Fate::Serves,
            vec![Reply::Text("Hello there.".to_owned(), 10, 3)],
        ),
        (
            Fate::Lies,
            vec![Reply::Text("Hello there.".to_owned(), LIE, LIE)],
        ),
        (
            Fate::NotStarted,
            vec![
                failed(429),
                failed(503),
                failed(529),
                failed(401),
                failed(403),
                Reply::Status(404, error("model_not_found")),
                Reply::Status(429, error("insufficient_quota")),
                Reply::With(429, vec![("retry-after", "20")], error("slow_down")),
            ],
        ),
        (
            Fate::Unknown,
            vec![
                failed(500),
                failed(502),
                failed(504),
                failed(408),
                failed(400),
                failed(422),
                Reply::With(429, no_repeat, error("slow_down")),
                Reply::Status(200, error("server_overloaded")),
                Reply::Raw(200, "application/json", "{".to_owned()),
                Reply::Raw(200, "text/html", "<p>429 Too Many Requests</p>".to_owned()),
                Reply::Cut,
                Reply::Stream(": nothing yet\n\n".into(), End::Cut),
                Reply::Stream(begun.into(), End::Cut),
                Reply::Stream(late.into(), End::Clean),
            ],
        ),
    ];
    ends.into_iter()
        .flat_map(|(end, replies)| replies.into_iter().map(move |reply| (end, reply)))
        .collect()
}

/// A request, and the reply of each vendor by its place in [`replies`].
#[derive(Debug, Clone)]
struct Case {
    number: usize,
    order: [usize; 3],
    acts: [usize; 3],
    kind: usize,
}

/// Whether a case also moves on from a call that may have started.
const fn moves_on_unknown(number: usize) -> bool {
    number.is_multiple_of(4)
}

impl Case {
    fn new(number: usize) -> Self {
        let all = replies();
        // Each end as often as another.
        let act = || {
            let end = [
                Fate::Serves,
                Fate::Lies,
                Fate::NotStarted,
                Fate::NotStarted,
                Fate::Unknown,
            ];
            let end = end[fastrand::usize(..end.len())];
            loop {
                let at = fastrand::usize(..all.len());
                if all[at].0 == end {
                    return at;
                }
            }
        };
        if number == 0 {
            // The answer of the first one is lost.
            let first = |end| all.iter().position(|(other, _)| *other == end).unwrap();
            let acts = [Fate::Unknown, Fate::Serves, Fate::Serves].map(first);
            return Self {
                number,
                order: GIVEN,
                acts,
                kind: 0,
            };
        }
        // Only `/v1` has the field.
        let kind = fastrand::usize(..if moves_on_unknown(number) { 2 } else { 4 });
        Self {
            number,
            order: if kind < 2 {
                ORDERS[fastrand::usize(..ORDERS.len())]
            } else {
                GIVEN
            },
            acts: [act(), act(), act()],
            kind,
        }
    }

    fn prompt(&self) -> String {
        let [a, b, c] = self.acts;
        format!("case-{}: {a} {b} {c}.", self.number)
    }

    /// `/v1` with fallbacks or Chat Completions with a route, each plain and streamed.
    async fn send(&self, app: &TestApp, account: &Account) -> Answer {
        let stream = self.kind % 2 == 1;
        if self.kind < 2 {
            let [first, rest @ ..] = self.order.map(|at| MODELS[at]);
            let rest = rest.map(|(provider, model)| json!({"provider": provider, "model": model}));
            let mut body = json!({"prompt": self.prompt(), "provider": first.0, "model": first.1,
                "fallbacks": rest, "stream": stream, "parameters": {"max_tokens": 50}});
            if moves_on_unknown(self.number) {
                body["fallback_on"] = json!("unknown");
            }
            return app.text(&account.key, body).await;
        }
        let messages = json!([{"role": "user", "content": self.prompt()}]);
        let body = json!({"model": "route/fast", "messages": messages, "max_tokens": 50,
            "stream": stream});
        app.post(&account.key, "/openai/v1/chat/completions", &body)
            .await
    }

    /// The vendor that ends it, if no circuit is open, and how.
    fn last(&self) -> (&'static str, Fate) {
        let all = replies();
        let ends = self.order.map(|at| (MODELS[at].0, all[self.acts[at]].0));
        let started = ends.iter().find(|(_, end)| *end != Fate::NotStarted);
        *started.unwrap_or(&ends[2])
    }
}

/// Plays all cases.
fn play(upstream: &Upstream) {
    let all = replies();
    upstream.play(move |request: &Recorded| {
        let vendor = vendor(request);
        let (_, acts) = case_of(request);
        all[acts[vendor]].1.clone()
    });
}

fn vendor(request: &Recorded) -> usize {
    let at = MODELS
        .iter()
        .position(|(name, _)| request.path.contains(name));
    at.unwrap()
}

/// Number and acts of the case that a call belongs to.
fn case_of(request: &Recorded) -> (usize, [usize; 3]) {
    let (_, rest) = request.text.split_once("case-").unwrap();
    let (prompt, _) = rest.split_once('.').unwrap();
    let (number, acts) = prompt.split_once(": ").unwrap();
    let acts: Vec<usize> = acts.split(' ').map(|act| act.parse().unwrap()).collect();
    (number.parse().unwrap(), acts.try_into().unwrap())
}

fn cases(default: usize) -> usize {
    let given = std::env::var("PROPTEST_CASES").ok();
    given.and_then(|n| n.parse().ok()).unwrap_or(default)
}

/// A row that has ended: its prompt, provider, charge, ceiling, hold, and whether it failed.
type Ended = (String, String, i64, i64, i64, bool);

/// Checks every row against the calls, and the balance against the rows.
async fn audit(app: &TestApp, upstream: &Upstream, account: &Account, granted: i64) {
    let all = replies();
    let mut calls: BTreeMap<usize, Vec<(usize, Fate)>> = BTreeMap::new();
    for request in upstream.requests() {
        let (number, acts) = case_of(&request);
        let vendor = vendor(&request);
        let of = calls.entry(number).or_default();
        of.push((vendor, all[acts[vendor]].0));
    }
    for (number, calls) in &calls {
        // Nothing follows a call that may have started, unless it is lost and the case allows it.
        let before = &calls[..calls.len() - 1];
        let may_follow = |end: Fate| {
            end == Fate::NotStarted || end == Fate::Unknown && moves_on_unknown(*number)
        };
        let started = before.iter().find(|(_, end)| !may_follow(*end));
        assert_eq!(started, None, "case {number}: {calls:?}");
    }
    let rows: Vec<Ended> = sqlx::query_as(
        "select g.prompt, m.provider, g.charged, (g.route ->> 'ceiling')::bigint, g.estimated, g.failed
         from finished_generations g join models m on m.id = g.model_id",
    )
    .fetch_all(&app.pool)
    .await
    .unwrap();
    let mut charged = 0;
    for (prompt, provider, charge, ceiling, hold, has_failed) in &rows {
        charged += charge;
        let number = prompt["case-".len()..].split_once(':').unwrap().0;
        let (last, end) = *calls[&number.parse().unwrap()].last().unwrap();
        assert!(charge <= ceiling && ceiling <= hold, "{prompt}");
        if *has_failed {
            assert_eq!(*charge, 0, "{prompt}");
            continue;
        }
        assert_eq!(provider, MODELS[last].0, "{prompt}");
        let lies = end == Fate::Lies;
        assert!(lies || end == Fate::Serves, "{prompt}: {end:?}");
        assert_eq!(charge == ceiling, lies, "{prompt}: {charge} of {ceiling}");
    }
    let query = "select balance from accounts where id = $1";
    let balance: i64 = sqlx::query_scalar(query)
        .bind(account.id.0)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(balance, granted - charged);
    app.assert_settled().await;
}

/// One after the other, so that no circuit opens: who serves is known.
#[sqlx::test]
async fn a_fleet_that_fails_is_one_bill(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = routed(options, &upstream, &[]).await;
    let account = app.account("100000").await;
    play(&upstream);
    let mut moved = 0;
    for number in 0..cases(120) {
        let case = Case::new(number);
        app.advance(TimeDelta::minutes(1));
        let answer = case.send(&app, &account).await;
        app.idle().await;
        let history = app
            .get(&account.key, "/v1/generate/history?per_page=1")
            .await;
        let uuid = history.expect(200)["data"][0]["uuid"].clone();
        let record: Value = app.record(&account, uuid.as_str().unwrap()).await;
        let (provider, end) = case.last();
        let mut serves = matches!(end, Fate::Serves | Fate::Lies);
        if end == Fate::Unknown && moves_on_unknown(number) {
            // Another one may serve it.
            serves = record["status"] == "completed";
            moved += usize::from(serves);
        } else {
            assert_eq!(record["provider"], provider, "{case:?}: {record}");
        }
        assert_eq!(
            record["status"] == "completed",
            serves,
            "{case:?}: {record}"
        );
        assert_eq!(
            answer.text.contains("there."),
            serves,
            "{case:?}: {}",
            answer.text
        );
        let calls = upstream.requests();
        let calls = calls.iter().filter(|call| case_of(call).0 == number);
        assert_eq!(record["metadata"]["attempts"], calls.count(), "{case:?}");
        if end == Fate::Serves {
            assert_eq!(record["credits"]["charged"], record["bill"]["total"]);
        }
    }
    assert!(moved > 0);
    audit(&app, &upstream, &account, 100_000_000_000).await;
}

/// Many at once, with circuits that open and close.
#[sqlx::test]
async fn a_fleet_under_load_is_one_bill_each(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = routed(options, &upstream, &[]).await;
    let account = app.account("100000").await;
    play(&upstream);
    // Whether a circuit opens is a matter of chance.
    let (mut rounds, mut metrics) = (0, String::new());
    while !metrics.contains("reason=\"circuit_open\"") {
        assert!(rounds < 5, "{metrics}");
        let numbers = cases(400) * rounds..cases(400) * (rounds + 1);
        let sent = stream::iter(numbers.map(Case::new)).map(|case| {
            let (app, account) = (&app, &account);
            async move {
                app.advance(TimeDelta::seconds(fastrand::i64(0..8)));
                case.send(app, account).await;
            }
        });
        sent.buffer_unordered(16).collect::<Vec<()>>().await;
        app.idle().await;
        metrics = app.metrics(&[("host", "localhost")]).await.text;
        rounds += 1;
    }
    audit(&app, &upstream, &account, 100_000_000_000).await;
}
