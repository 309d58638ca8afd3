//! The program itself: started, killed with -9, stopped, with its private Postgres, over HTTP.

mod catalogue;
mod client;
mod files;
mod log;
mod metrics;
mod operator;
mod paused;
mod retention;
mod risks;
mod secrets;
mod start;
mod stop;
mod terminal;
mod traces;

use std::{path::PathBuf, process::Stdio, time::Duration};

use futures_util::future::join_all;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, BufReader, Lines},
    process::{Child, ChildStderr, Command},
};
use uuid::Uuid;

use crate::{cluster::Cluster, signal::signal};

mod hanging;

/// The longest any single wait may take on a slow machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// A data folder and the demo account in it.
struct Site {
    folder: PathBuf,
    env: Vec<(&'static str, &'static str)>,
    /// Its private Postgres, if it has one.
    cluster: Cluster,
}

/// The lines of a log.
type Log = Lines<BufReader<ChildStderr>>;

/// A running server.
struct Server {
    child: Child,
    url: String,
    /// One for all requests: each takes a while to create.
    client: reqwest::Client,
    stderr: Log,
}

impl Site {
    fn new(env: &[(&'static str, &'static str)]) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(Uuid::now_v7().to_string());
        Self::at(folder, env)
    }

    fn at(folder: PathBuf, env: &[(&'static str, &'static str)]) -> Self {
        Self {
            cluster: Cluster::new(&folder),
            folder,
            env: env.to_vec(),
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gensvc"));
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("GENSVC_DATA_DIR", &self.folder)
            .env("GENSVC_BIND", "127.0.0.1:0")
            .env("GENSVC__METRICS__PORT", "0")
            .env("GENSVC_LOG", "info")
            .envs(self.env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Starts a server on a new data folder; returns the key that it prints.
    async fn first(&self) -> (Server, String) {
        let mut server = self.serve().await;
        let mut stdout = lines(server.child.stdout.take());
        let key = line_with(&mut stdout, "  key ").await;
        (
            server,
            key.trim().trim_start_matches("key").trim().to_owned(),
        )
    }

    /// Starts a server.
    async fn serve(&self) -> Server {
        let mut child = self.command().arg("serve").spawn().unwrap();
        let mut stderr = lines(child.stderr.take());
        let url = listening(&mut stderr).await;
        let client = reqwest::Client::new();
        Server {
            child,
            url,
            client,
            stderr,
        }
    }

    /// `gensvc ledger verify --json`
    async fn audit(&self) -> Value {
        let output = self
            .command()
            .args(["ledger", "verify", "--json"])
            .output()
            .await
            .unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    }
}

/// The lines of a piped output.
fn lines<R: AsyncRead>(output: Option<R>) -> Lines<BufReader<R>> {
    BufReader::new(output.unwrap()).lines()
}

/// The next line that contains this; any, if it is empty.
async fn line_with<R: AsyncRead + Unpin>(lines: &mut Lines<BufReader<R>>, wanted: &str) -> String {
    let mut seen = String::new();
    tokio::time::timeout(PATIENCE, async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains(wanted) {
                return line;
            }
            seen.push_str(&line);
            seen.push('\n');
        }
        panic!("it ended without {wanted:?}:\n{seen}");
    })
    .await
    .unwrap_or_else(|_| panic!("no {wanted:?} in time"))
}

/// The URL of a server, once it logs that it listens.
async fn listening(log: &mut Log) -> String {
    let line = line_with(log, "listening on ").await;
    let (_, url) = line.split_once("listening on ").unwrap();
    url.split(['"', ' ']).next().unwrap().to_owned()
}

impl Server {
    /// Starts a streamed generation; returns once its hold is placed.
    async fn stream(&self, key: &str, prompt: &str) -> reqwest::Response {
        let body = json!({"prompt": prompt, "stream": true, "parameters": {"max_tokens": 8}});
        let mut response = self
            .client
            .post(format!("{}/v1/generate/text", self.url))
            .bearer_auth(key)
            .json(&body)
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), 200);
        let first = response.chunk().await.unwrap().unwrap();
        assert!(first.starts_with(b"event: generation"), "{first:?}");
        response
    }

    async fn streams(&self, key: &str, prompt: &str, n: usize) -> Vec<reqwest::Response> {
        join_all((0..n).map(|_| self.stream(key, prompt))).await
    }

    /// Sends a request, with a body unless that is null.
    async fn ask(&self, key: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let method = method.parse().unwrap();
        let mut request = self
            .client
            .request(method, format!("{}{path}", self.url))
            .bearer_auth(key);
        if !body.is_null() {
            request = request.json(body);
        }
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        (status, response.json().await.unwrap_or_default())
    }

    async fn get(&self, key: &str, path: &str) -> Value {
        self.get_within(key, path, 0).await
    }

    /// A lookup that waits for completion, at most that many seconds.
    async fn get_within(&self, key: &str, path: &str, seconds: u32) -> Value {
        let request = self
            .client
            .get(format!("{}{path}", self.url))
            .header("prefer", format!("wait={seconds}"))
            .bearer_auth(key);
        request.send().await.unwrap().json().await.unwrap()
    }

    /// SIGTERM.
    fn terminate(&self) {
        signal(self.child.id().unwrap(), Signal::SIGTERM);
    }

    /// Its exit without a signal, successful.
    async fn ended(&mut self) {
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        let status = ended.unwrap().unwrap();
        assert!(status.success(), "{status}");
    }

    /// SIGTERM and a successful exit.
    async fn stop(mut self) {
        self.terminate();
        self.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_of_the_server_in_the_middle_of_100_generations_leaves_no_hold() {
    let site = Site::new(&[]);
    let (mut server, key) = site.first().await;
    let running = server.streams(&key, "[[slow:600]]", 100).await;
    let before = server.get(&key, "/v1/credits/balance").await;
    assert_ne!(before["held"], "0");
    server.child.kill().await.unwrap();
    drop(running);

    let mut server = site.serve().await;
    let mut stdout = lines(server.child.stdout.take());
    let after = server.get(&key, "/v1/credits/balance").await;
    assert_eq!(
        after,
        json!({"balance": "1000", "held": "0", "available": "1000"})
    );
    let failed = server
        .get(&key, "/v1/generate/history?status=failed&per_page=100")
        .await;
    let failed = failed["data"].as_array().unwrap().clone();
    assert_eq!(failed.len(), 100);
    assert!(failed.iter().all(|g| g["error"]["code"] == "interrupted"));
    let audit = site.audit().await;
    assert_eq!(
        (&audit["ok"], &audit["generations"]),
        (&json!(true), &json!(100)),
        "{audit}"
    );
    server.stop().await;
    assert_eq!(
        stdout.next_line().await.unwrap(),
        None,
        "the demo account is made once"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_of_postgres_in_the_middle_of_100_generations_loses_nothing() {
    let site = Site::new(&[]);
    let (mut server, key) = site.first().await;
    // They end while the database is unavailable: their results are settled when it is back.
    let running = server.streams(&key, "[[slow:0.3]]", 100).await;
    signal(site.cluster.pid().unwrap(), Signal::SIGKILL);
    line_with(&mut server.stderr, "had died and was started again").await;
    let texts = tokio::time::timeout(
        PATIENCE,
        join_all(running.into_iter().map(reqwest::Response::text)),
    );
    for text in texts.await.unwrap() {
        assert!(text.unwrap().contains("event: completed"));
    }
    let balance = server.get(&key, "/v1/credits/balance").await;
    assert_eq!(balance["held"], "0");
    let audit = site.audit().await;
    assert_eq!(audit["ok"], true, "{audit}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_of_the_server_between_submission_and_end_of_a_video_loses_and_repeats_nothing() {
    let site = Site::new(&[("GENSVC__JOBS__POLL_INTERVAL_MS", "100")]);
    let (mut server, key) = site.first().await;
    let body = json!({"prompt": "[[slow:2]] waves", "parameters": {"duration": 1}});
    let (status, made) = server.ask(&key, "POST", "/v1/generate/video", &body).await;
    assert_eq!(status, 202, "{made}");
    let path = format!("/v1/generate/{}", made["uuid"].as_str().unwrap());
    // Progress means that a task was submitted and polled.
    let watched = async { while server.get_within(&key, &path, 1).await["progress"].is_null() {} };
    tokio::time::timeout(PATIENCE, watched).await.unwrap();
    server.child.kill().await.unwrap();

    let server = site.serve().await;
    let found = server.get_within(&key, &path, 60).await;
    assert_eq!(found["status"], "completed", "{found}");
    assert_eq!(found["metadata"]["attempts"], 1);
    assert_eq!(found["credits"]["charged"], "5");
    let balance = server.get(&key, "/v1/credits/balance").await;
    assert_eq!(
        (&balance["balance"], &balance["held"]),
        (&json!("995"), &json!("0"))
    );
    let audit = site.audit().await;
    assert_eq!(audit["ok"], true, "{audit}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_lets_running_work_finish_and_interrupts_what_takes_longer() {
    let site = Site::new(&[("GENSVC__SERVER__SHUTDOWN_SECONDS", "2")]);
    let (server, key) = site.first().await;
    let quick = server.stream(&key, "[[slow:0.2]]").await;
    let slow = server.stream(&key, "[[slow:600]]").await;
    let stopped = tokio::spawn(server.stop());
    assert!(quick.text().await.unwrap().contains("event: completed"));
    let slow = slow.text().await.unwrap();
    assert!(
        slow.contains("event: failed") && slow.contains("interrupted"),
        "{slow}"
    );
    stopped.await.unwrap();
    let audit = site.audit().await;
    assert_eq!(audit["ok"], true, "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_start_tells_how_to_make_a_key_for_the_demo_account() {
    let site = Site::new(&[]);
    let (server, _) = site.first().await;
    server.stop().await;
    let mut child = site.command().spawn().unwrap();
    let mut stderr = lines(child.stderr.take());
    let line = line_with(&mut stderr, "a new key of the demo account: ").await;
    let (_, command) = line.split_once("demo account: ").unwrap();
    let mut words = command.split_whitespace();
    let setting = format!("GENSVC_DATA_DIR={}", site.folder.display());
    assert_eq!(words.next(), Some(setting.as_str()));
    assert_eq!(words.next(), Some(env!("CARGO_BIN_EXE_gensvc")));
    let made = site.command().args(words).output().await.unwrap();
    let key = String::from_utf8(made.stdout).unwrap();
    let url = listening(&mut stderr).await;
    let me = reqwest::Client::new()
        .get(format!("{url}/v1/auth/me"))
        .bearer_auth(key.trim_end())
        .send()
        .await
        .unwrap();
    assert_eq!(me.status(), 200);
    signal(child.id().unwrap(), Signal::SIGTERM);
    assert!(child.wait().await.unwrap().success());
}

#[tokio::test]
async fn a_bad_configuration_stops_the_start_with_one_sentence() {
    let site = Site::new(&[("GENSVC__SERVER__SHUTDOWN_SECONDS", "soon")]);
    let output = site.command().output().await.unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.trim().lines().count(), 1, "{text}");
    assert!(text.contains("GENSVC__SERVER__SHUTDOWN_SECONDS"), "{text}");
}
