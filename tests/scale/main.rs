//! `make scale`: the cost of history, usage reports, audits and the console's pages over millions of
//! generations.
//!
//! A benchmark, not a test: it fills a database, requests every page and report some times, and
//! prints how long each took, how many database pages it touched, and which tables its plan scanned
//! sequentially. Nothing is asserted.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark that cannot go on ends, and its output is its purpose"
)]

mod audits;
mod filters;
mod pages;
mod plans;

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use gensvc::{
    domain::{
        generation::{Modality, Status},
        ids::AccountId,
        page::{Cursor, PageRequest},
        report::{Span, UsageGroup},
    },
    store::{
        Connections, Store,
        history::{CallerFilter, HistoryFilter},
    },
};
use sqlx::{AssertSqlSafe, PgPool, postgres::PgConnectOptions};
use tracing_subscriber::util::SubscriberInitExt as _;
use uuid::Uuid;

/// The page that is compared with the first.
const FAR: i64 = 10_000;
const PER_PAGE: i64 = 20;
/// The best of that many.
const TRIES: usize = 5;
const ACCOUNT: AccountId = AccountId(1);
const DATABASE: &str = "gensvc_scale";

#[tokio::main]
async fn main() {
    let rows: u64 = match std::env::args().nth(1).map(|n| n.parse()) {
        None => 5_000_000,
        Some(Ok(rows)) if rows >= 1000 => rows,
        Some(_) => panic!("say how many rows, 1000 at least"),
    };
    let url = std::env::var("DATABASE_URL").unwrap();
    let options: PgConnectOptions = url.parse().unwrap();
    let options = options.database(DATABASE);
    let admin = PgPool::connect(&url).await.unwrap();
    run(
        &admin,
        &format!("drop database if exists {DATABASE} with (force)"),
    )
    .await;
    run(
        &admin,
        &format!("create database {DATABASE} template template0"),
    )
    .await;
    let store = store(options.clone());
    store.migrate().await.unwrap();
    let begun = Instant::now();
    let pool = PgPool::connect_with(options.clone()).await.unwrap();
    let filled = include_str!("fill.sql").replace(":rows", &rows.to_string());
    run(&pool, &filled).await;
    run(&pool, "vacuum analyze").await;
    println!("{rows} generations, made in {:.0?}\n", begun.elapsed());
    let (plans, subscriber) = plans::Plans::new();
    subscriber.init();
    let bench = Bench {
        store,
        explained: self::store(plans::explained(options.clone())),
        plans,
        pool,
        rows,
    };
    bench.history().await;
    bench.usage().await;
    audits::run(&bench).await;
    // What no audit would let pass.
    let more = include_str!("more.sql").replace(":rows", &rows.to_string());
    run(&bench.pool, &more).await;
    run(&bench.pool, "vacuum analyze").await;
    let folder = std::env::temp_dir().join(format!("gensvc-scale-{}", std::process::id()));
    pages::measure(&bench.pool, options, &folder).await;
    let _ = std::fs::remove_dir_all(&folder);
    bench.pool.close().await;
    bench.store.close(Duration::from_secs(1)).await;
    bench.explained.close(Duration::from_secs(1)).await;
    run(&admin, &format!("drop database {DATABASE} with (force)")).await;
}

fn store(options: PgConnectOptions) -> Store {
    let connections = Connections {
        requests: 2,
        credits: 1,
        locked: 1,
        keys: 1,
        jobs: 1,
        acquire_timeout: Duration::from_secs(30),
    };
    Store::connect_lazy(options, connections)
}

async fn run(pool: &PgPool, statement: &str) {
    let statement = AssertSqlSafe(statement.to_owned());
    sqlx::raw_sql(statement).execute(pool).await.unwrap();
}

struct Bench {
    store: Store,
    /// Whose statements tell their plans.
    explained: Store,
    plans: plans::Plans,
    pool: PgPool,
    rows: u64,
}

/// The cost of one query.
struct Cost {
    best: Duration,
    plan: plans::Plan,
    rows: usize,
}

impl Bench {
    async fn cost(&self, ask: impl AsyncFn(&Store) -> usize) -> Cost {
        let mut best = Duration::MAX;
        for _ in 0..TRIES {
            let begun = Instant::now();
            ask(&self.store).await;
            best = best.min(begun.elapsed());
        }
        self.plans.forget();
        let rows = ask(&self.explained).await;
        Cost {
            best,
            plan: self.plans.all().pop().unwrap().1,
            rows,
        }
    }

    async fn history(&self) {
        println!("| history of | page | rows | ms | database pages | read from end to end |");
        println!("|---|---|---|---|---|---|");
        for (name, filter) in filters::all() {
            for (page, cursor) in [(1, None), (FAR, self.far(&filter).await)] {
                let page_is = if page == 1 {
                    "1".to_owned()
                } else {
                    cursor
                        .as_ref()
                        .map_or_else(|| "last".to_owned(), |(at, _)| at.to_string())
                };
                let request = page_request(cursor.map(|(_, cursor)| cursor));
                let cost = self
                    .cost(async |store| {
                        store
                            .history(ACCOUNT, &filter, &request)
                            .await
                            .unwrap()
                            .rows
                            .len()
                    })
                    .await;
                println!("| {name} | {page_is} | {} |", cost.cells());
            }
        }
    }

    /// The cursor of page [`FAR`], or of the last page where there are fewer.
    async fn far(&self, filter: &HistoryFilter) -> Option<(i64, Cursor)> {
        let clause = |name: &str, value: Option<&str>| {
            value.map_or_else(String::new, |value| format!(" and {name} = '{value}'"))
        };
        let time = |op: &str, at: Option<DateTime<Utc>>| {
            at.map_or_else(String::new, |at| format!(" and created_at {op} '{at}'"))
        };
        let wanted = [
            clause("type", filter.modality.map(Modality::as_str)),
            clause("status", filter.status.map(Status::as_str)),
            clause("provider", filter.provider.as_deref()),
            clause("model", filter.model.as_deref()),
            match filter.caller {
                None => String::new(),
                Some(CallerFilter::Key(id)) => format!(" and api_key_id = {}", id.0),
                Some(CallerFilter::Session) => " and api_key_id is null".to_owned(),
            },
            time(">=", filter.created_after),
            time("<", filter.created_before),
        ]
        .concat();
        let statement = format!(
            "select id, n from (select id, row_number() over (order by id desc) as n
                 from generations where account_id = 1{wanted}) numbered
             where n % {PER_PAGE} = 0 and n <= {} order by n desc limit 1",
            (FAR - 1) * PER_PAGE
        );
        let found: Option<(Uuid, i64)> = sqlx::query_as(AssertSqlSafe(statement))
            .fetch_optional(&self.pool)
            .await
            .unwrap();
        found.map(|(id, n)| (n / PER_PAGE + 1, Cursor::Generation(id)))
    }

    async fn usage(&self) {
        println!(
            "\n| usage of | grouped by | groups | ms | database pages | read from end to end |"
        );
        println!("|---|---|---|---|---|---|");
        for (name, from, to) in [
            ("30 days", "2026-05-20T10:20:30Z", "2026-06-19T10:40:50Z"),
            (
                "half a year",
                "2026-01-01T00:20:30Z",
                "2026-06-30T00:40:50Z",
            ),
            ("10 minutes", "2026-05-20T10:20:30Z", "2026-05-20T10:30:30Z"),
        ] {
            let span = Span {
                from: from.parse().unwrap(),
                to: to.parse().unwrap(),
            };
            for groups in [&[][..], &[UsageGroup::Day], UsageGroup::ALL] {
                let cost = self
                    .cost(async |store| {
                        store
                            .usage(ACCOUNT, span, groups, 100_000)
                            .await
                            .unwrap()
                            .len()
                    })
                    .await;
                let names: Vec<_> = groups.iter().map(|g| g.as_str()).collect();
                println!("| {name} | {} | {} |", names.join(", "), cost.cells());
            }
        }
    }
}

impl Cost {
    fn cells(&self) -> String {
        let scanned = match self.plan.scanned.as_slice() {
            [] => "nothing".to_owned(),
            tables => tables.join(", "),
        };
        let ms = self.best.as_secs_f64() * 1000.0;
        format!("{} | {ms:.1} | {} | {scanned}", self.rows, self.plan.pages)
    }
}

fn page_request(after: Option<Cursor>) -> PageRequest {
    let per_page = PER_PAGE;
    PageRequest { per_page, after }
}
