//! The worker of the application under test, driven manually, and its stored files.

use std::{
    path::{Path, PathBuf},
    pin::pin,
    time::Duration,
};

use chrono::TimeDelta;
use http::Method;
use serde_json::Value;
use sqlx::postgres::PgConnectOptions;
use tokio::task::JoinSet;

use super::{Account, Answer, TestApp, Upstream};

/// The longest wait for anything, in steps of [`STEP`].
const PATIENCE: usize = 15_000;
const STEP: Duration = Duration::from_millis(2);

impl TestApp {
    /// With every vendor, all served by `upstream`.
    pub async fn vendors(
        options: PgConnectOptions,
        upstream: &Upstream,
        more: &[(&str, &str)],
    ) -> Self {
        let url = upstream.url();
        let at = |name: &str| format!("{url}/{name}");
        let (openai, gemini, stability) = (at("openai/v1"), at("gemini"), at("stability"));
        let (runway, elevenlabs) = (at("runway"), at("elevenlabs"));
        let mut env = vec![
            ("OPENAI_API_KEY", "sk-test-openai"),
            ("OPENAI_BASE_URL", &openai),
            ("GEMINI_API_KEY", "test-gemini"),
            ("GOOGLE_GEMINI_BASE_URL", &gemini),
            ("STABILITY_API_KEY", "test-stability"),
            ("STABILITY_BASE_URL", &stability),
            ("RUNWAYML_API_SECRET", "test-runway"),
            ("RUNWAYML_BASE_URL", &runway),
            ("ELEVENLABS_API_KEY", "test-elevenlabs"),
            ("ELEVENLABS_BASE_URL", &elevenlabs),
        ];
        env.extend_from_slice(more);
        Self::with(options, &env).await
    }

    /// One round of the worker, to completion. Returns how many jobs it claimed.
    pub async fn work_once(&self) -> usize {
        let claimed = self.app.runner.work_step().await.unwrap();
        self.idle().await;
        claimed
    }

    /// One round of webhook deliveries, to completion. Returns how many it claimed.
    pub async fn deliver_once(&self) -> usize {
        let taken = self.app.dispatcher.step().await.unwrap();
        for _ in 0..PATIENCE {
            if self.app.dispatcher.running() == 0 {
                return taken;
            }
            tokio::time::sleep(STEP).await;
        }
        panic!("deliveries still run");
    }

    /// Delivers until nothing is due.
    pub async fn deliver(&self) {
        while self.deliver_once().await > 0 {}
    }

    /// Waits for an answer, and works on what it may wait for.
    pub async fn working(&self, answer: impl Future<Output = Answer>) -> Answer {
        let mut answer = pin!(answer);
        loop {
            tokio::select! {
                answer = &mut answer => return answer,
                () = self.work() => tokio::task::yield_now().await,
            }
        }
    }

    /// Works until nothing is due.
    pub async fn work(&self) {
        while self.work_once().await > 0 {}
    }

    /// Waits until nothing runs here.
    pub async fn idle(&self) {
        for _ in 0..PATIENCE {
            if self.app.runner.running() == 0 {
                return;
            }
            tokio::time::sleep(STEP).await;
        }
        panic!("{} generations still run", self.app.runner.running());
    }

    /// The generations of an account, newest first.
    pub async fn history(&self, account: &Account) -> Vec<Value> {
        let page = self.get(&account.key, "/v1/generate/history").await;
        page.expect(200)["data"].as_array().unwrap().clone()
    }

    pub async fn record(&self, account: &Account, uuid: &str) -> Value {
        let path = format!("/v1/generate/{uuid}");
        self.get(&account.key, &path).await.expect(200)
    }

    /// Runs the worker and advances the clock until a generation is finished.
    pub async fn until_finished(&self, account: &Account, uuid: &str) -> Value {
        for _ in 0..400 {
            self.work().await;
            let record = self.record(account, uuid).await;
            if record["status"] != "processing" && record["status"] != "pending" {
                return record;
            }
            self.advance(TimeDelta::milliseconds(500));
        }
        panic!(
            "{uuid} does not finish: {:?}",
            self.record(account, uuid).await
        );
    }

    /// Posts, expects 202, and returns the uuid.
    pub async fn queue(&self, account: &Account, kind: &str, body: &Value) -> String {
        let path = format!("/v1/generate/{kind}");
        let record = self.post(&account.key, &path, body).await.expect(202);
        assert_eq!(record["status"], "processing");
        record["uuid"].as_str().unwrap().to_owned()
    }

    /// Downloads a file by the link in a record.
    pub async fn file(&self, url: &Value, headers: &[(&str, &str)]) -> Answer {
        let path = link(url);
        self.call(Method::GET, "", &path, headers, None).await
    }

    /// Sees no heartbeat of the other instances for longer than a lease, and sweeps. Returns how
    /// many generations it ended.
    pub async fn bury(&self) -> u64 {
        self.app.runner.sweep_step().await.unwrap();
        self.advance(TimeDelta::seconds(31));
        self.app.runner.sweep_step().await.unwrap()
    }

    /// Stored files, and those still being uploaded.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        walk(&self.media_folder(), &mut found);
        found
    }

    /// The folder of stored files.
    pub fn media_folder(&self) -> PathBuf {
        Path::new(&self.env["GENSVC_DATA_DIR"]).join("media")
    }

    /// Nothing is stored, and nothing on hold.
    pub async fn assert_nothing_kept(&self) {
        // Workers that do not know of an end yet may still write for a while.
        self.advance(TimeDelta::minutes(16));
        while self.app.runner.empty_trash(100).await.unwrap() {}
        assert_eq!(self.files(), Vec::<PathBuf>::new());
        self.assert_settled().await;
    }
}

/// Lets the servers hear each other, as running ones do, until the set is dropped.
pub async fn listening(servers: &[&TestApp]) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for server in servers {
        let runner = server.app.runner.clone();
        tasks.spawn(async move { runner.listen().await });
    }
    let counting = "select count(*) from pg_stat_activity
        where datname = current_database() and query = 'LISTEN \"gensvc\"' and state = 'idle'";
    for _ in 0..PATIENCE {
        let listen: i64 = sqlx::query_scalar(counting)
            .fetch_one(&servers[0].pool)
            .await
            .unwrap();
        if usize::try_from(listen).is_ok_and(|n| n >= servers.len()) {
            return tasks;
        }
        tokio::time::sleep(STEP).await;
    }
    panic!("they do not listen");
}

/// The path and query of a link.
pub fn link(url: &Value) -> String {
    let url = url.as_str().unwrap();
    url.strip_prefix("http://test").unwrap().to_owned()
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        // The store's own files begin with a dot.
        if name.starts_with('.') {
            continue;
        }
        if path.is_dir() {
            walk(&path, found);
        } else {
            found.push(path);
        }
    }
}
