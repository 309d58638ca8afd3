//! Plans of statements, as reported by the database in notices.

use std::{
    fmt::{self, Write as _},
    sync::{Arc, Mutex},
};

use sqlx::postgres::PgConnectOptions;
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{Layer, layer::Context, prelude::*};

/// The notices that came.
pub struct Plans(Arc<Mutex<Vec<String>>>);

/// What a plan tells.
pub struct Plan {
    /// Pages of the database that were touched.
    pub pages: u64,
    /// Tables that were scanned sequentially.
    pub scanned: Vec<String>,
}

/// The same connection, whose statements tell their plans.
pub fn explained(options: PgConnectOptions) -> PgConnectOptions {
    options.options([
        ("session_preload_libraries", "auto_explain"),
        ("auto_explain.log_min_duration", "0"),
        ("auto_explain.log_analyze", "on"),
        ("auto_explain.log_buffers", "on"),
        ("auto_explain.log_timing", "off"),
        ("auto_explain.log_level", "notice"),
    ])
}

impl Plans {
    /// The plans that come as notices, and what collects them once it is a subscriber.
    pub fn new() -> (Self, impl Subscriber + Send + Sync) {
        let notices = Arc::new(Mutex::new(Vec::new()));
        let layer = Notices(Arc::clone(&notices));
        (Self(notices), tracing_subscriber::registry().with(layer))
    }

    /// Forgets what came so far.
    pub fn forget(&self) {
        self.0.lock().unwrap().clear();
    }

    /// The statements and plans that came, in their order.
    pub fn all(&self) -> Vec<(String, Plan)> {
        let notices = self.0.lock().unwrap();
        let plans: Vec<_> = notices
            .iter()
            .filter_map(|text| Some(Plan::of(text.split_once("Query Text: ")?.1)))
            .collect();
        assert!(
            !plans.is_empty(),
            "no plan came: is auto_explain installed?"
        );
        plans
    }
}

impl Plan {
    fn of(plan: &str) -> (String, Self) {
        // The first line of buffers belongs to the top of the plan, and is the sum.
        let buffers = plan
            .lines()
            .find_map(|line| line.trim().strip_prefix("Buffers: shared"));
        let pages = buffers.unwrap_or_default().split_whitespace();
        let pages = pages.filter_map(|word| {
            let (name, count) = word.split_once('=')?;
            ["hit", "read"]
                .contains(&name)
                .then(|| count.parse::<u64>().ok())?
        });
        let mut scanned: Vec<_> = plan
            .lines()
            .filter_map(|line| line.split_once("Seq Scan on "))
            .filter_map(|(_, rest)| Some(rest.split_whitespace().next()?.to_owned()))
            .collect();
        scanned.dedup();
        // Nodes of the plan name their costs.
        let statement = plan
            .lines()
            .take_while(|line| !line.contains("(cost=") && !line.starts_with("Query Parameters: "));
        let plan = Self {
            pages: pages.sum(),
            scanned,
        };
        (statement.collect::<Vec<_>>().join("\n"), plan)
    }
}

struct Notices(Arc<Mutex<Vec<String>>>);

impl<S: Subscriber> Layer<S> for Notices {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() == "sqlx::postgres::notice" {
            let mut text = Text(String::new());
            event.record(&mut text);
            self.0.lock().unwrap().push(text.0);
        }
    }
}

struct Text(String);

impl Visit for Text {
    fn record_str(&mut self, _: &Field, value: &str) {
        self.0.push_str(value);
    }

    fn record_debug(&mut self, _: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, "{value:?}");
    }
}
