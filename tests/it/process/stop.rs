//! Shutdown: with hanging work, with waiting callers, behind a load balancer.

use std::{
    fs::{self, OpenOptions},
    io::{ErrorKind, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{PATIENCE, Server, Site, line_with};

const NO_GRACE: (&str, &str) = ("GENSVC__SERVER__SHUTDOWN_SECONDS", "0");
/// Longer than any test: only a signal ends it.
const LONG_GRACE: (&str, &str) = ("GENSVC__SERVER__SHUTDOWN_SECONDS", "300");

/// Replaces a file by a pipe without a writer: opening it blocks for ever.
fn pipe_at(path: &Path) {
    let pipe = path.with_added_extension("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    fs::rename(&pipe, path).unwrap();
}

/// A file that is such a pipe until this is dropped.
struct Blocked {
    path: PathBuf,
    original: PathBuf,
}

impl Blocked {
    fn new(path: PathBuf) -> Self {
        let original = path.with_added_extension("original");
        fs::copy(&path, &original).unwrap();
        pipe_at(&path);
        Self { path, original }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        let _ = fs::rename(&self.original, &self.path);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn blocking_work_that_never_ends_does_not_keep_the_process() {
    let site = Site::new(&[NO_GRACE]);
    let (mut server, key) = site.first().await;
    let probe = format!("media/incoming/.probe-{}", server.child.id().unwrap());
    pipe_at(&site.folder.join(probe));
    // The storage probe opens it, and times out.
    let health = server.get(&key, "/health").await;
    assert_ne!(health["checks"]["storage"], "ok", "{health}");
    server.terminate();
    line_with(&mut server.stderr, "blocking work did not end in time").await;
    server.ended().await;
    let postmaster = site.cluster.path.join("postmaster.pid");
    assert!(!postmaster.exists(), "all else was stopped");
}

/// The file is read by a thread that all others wait for.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_thread_that_hangs_does_not_keep_the_process() {
    let site = Site::new(&[NO_GRACE, ("GENSVC__SERVER__THREADS", "1")]);
    let (mut server, _) = site.first().await;
    let blocked = Blocked::new(site.cluster.path.join("postmaster.pid"));
    server.terminate();
    line_with(&mut server.stderr, "did not end in time").await;
    server.ended().await;
    drop(blocked);
    // The private Postgres was left running; the next one stops it.
    let next = site.serve().await;
    let audit = site.audit().await;
    assert_eq!(audit["ok"], true, "{audit}");
    next.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_nobody_reads_does_not_keep_the_process() {
    let site = Site::new(&[NO_GRACE]);
    let (mut server, _) = site.first().await;
    // Another description of the same pipe, so that the server's own keeps blocking.
    let stderr = format!("/proc/{}/fd/2", server.child.id().unwrap());
    let mut options = OpenOptions::new();
    let mut stderr = options
        .write(true)
        .custom_flags(0o4000) // O_NONBLOCK
        .open(stderr)
        .unwrap();
    for size in [4_096, 1] {
        let full = loop {
            if let Err(error) = stderr.write(&vec![b'.'; size]) {
                break error;
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
    }
    server.terminate();
    server.ended().await;
    let audit = site.audit().await;
    assert_eq!(audit["ok"], true, "{audit}");
}

impl Server {
    async fn video(&self, key: &str, prefer: &str) -> reqwest::Response {
        let request = self
            .client
            .post(format!("{}/v1/generate/video", self.url))
            .bearer_auth(key)
            .header("prefer", prefer)
            .json(&json!({"prompt": "[[slow:600]]", "parameters": {"duration": 1}}));
        request.send().await.unwrap()
    }

    async fn lookup(&self, key: &str, uuid: &Value, prefer: &str) -> reqwest::Response {
        let uuid = uuid.as_str().unwrap();
        let request = self
            .client
            .get(format!("{}/v1/generate/{uuid}", self.url))
            .bearer_auth(key)
            .header("prefer", prefer);
        request.send().await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_who_wait_are_answered_at_the_signal() {
    let site = Site::new(&[LONG_GRACE]);
    let (mut server, key) = site.first().await;
    // What keeps the grace period running.
    let running = server.stream(&key, "[[slow:600]]").await;
    let first: Value = server.video(&key, "").await.json().await.unwrap();
    let stop = async {
        loop {
            let listed = server.get(&key, "/v1/generate/history?type=video").await;
            if listed["data"].as_array().unwrap().len() == 11 {
                break;
            }
        }
        server.terminate();
    };
    let posts = join_all((0..10).map(|_| server.video(&key, "wait=60")));
    let lookups = join_all((0..10).map(|_| server.lookup(&key, &first["uuid"], "wait=60")));
    let all = async { tokio::join!(posts, lookups, stop) };
    let (posts, lookups, ()) = tokio::time::timeout(PATIENCE, all).await.unwrap();
    for (answers, status) in [(posts, 202), (lookups, 200)] {
        for answer in answers {
            assert_eq!(answer.status(), status);
            assert_eq!(answer.headers()["retry-after"], "5");
            assert!(!answer.headers().contains_key("preference-applied"));
            assert_eq!(answer.headers().contains_key("location"), status == 202);
            let record: Value = answer.json().await.unwrap();
            assert_eq!(record["error"], Value::Null, "{record}");
        }
    }
    // A second signal ends the grace period.
    server.terminate();
    let text = running.text().await.unwrap();
    assert!(text.contains("interrupted"), "{text}");
    server.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_that_is_announced_first_takes_work_until_a_second_signal() {
    let site = Site::new(&[NO_GRACE, ("GENSVC__SERVER__DRAIN_SECONDS", "300")]);
    let (mut server, key) = site.first().await;
    let video: Value = server.video(&key, "").await.json().await.unwrap();
    server.terminate();
    let health = format!("{}/health", server.url);
    let turned_away =
        async { while server.client.get(&health).send().await.unwrap().status() != 503 {} };
    tokio::time::timeout(PATIENCE, turned_away).await.unwrap();
    let text = server.stream(&key, "x").await.text().await.unwrap();
    assert!(text.contains("event: completed"), "{text}");
    assert_eq!(server.video(&key, "").await.status(), 202);
    let waited = server.lookup(&key, &video["uuid"], "wait=1").await;
    assert_eq!(waited.headers()["preference-applied"], "wait=1");
    server.terminate();
    server.ended().await;
}
