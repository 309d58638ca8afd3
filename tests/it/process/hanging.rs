//! A Postgres that is alive but does not respond, like one on an unreachable host.

use futures_util::future::join_all;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{PATIENCE, Site};
use crate::{children::children, signal::signal};

/// All processes of a Postgres, suspended until this is dropped.
struct Paused(Vec<u32>);

impl Paused {
    fn new(postmaster: u32) -> Self {
        let mut pids = vec![postmaster];
        pids.extend(children(postmaster));
        let paused = Self(pids);
        paused.send(Signal::SIGSTOP);
        paused
    }

    fn send(&self, name: Signal) {
        for pid in &self.0 {
            signal(*pid, name);
        }
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        self.send(Signal::SIGCONT);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_postgres_that_hangs_makes_503_and_loses_nothing() {
    let site = Site::new(&[]);
    let (server, key) = site.first().await;
    // They end while the database hangs: their results are settled when it resumes.
    let running = server.streams(&key, "[[slow:0.3]]", 20).await;
    let paused = Paused::new(site.cluster.pid().unwrap());
    let client = &server.client;
    let at = |path: &str| format!("{}{path}", server.url);
    let text = json!({"prompt": "x", "parameters": {"max_tokens": 8}});
    let post = || client.post(at("/v1/generate/text")).json(&text);
    let requests = [
        post().bearer_auth(&key),
        client.get(at("/v1/credits/balance")).bearer_auth(&key),
        client.get(at("/v1/generate/history")).bearer_auth(&key),
    ];
    let answers = join_all(requests.map(reqwest::RequestBuilder::send));
    for answer in tokio::time::timeout(PATIENCE, answers).await.unwrap() {
        let answer = answer.unwrap();
        assert_eq!(answer.status(), 503);
        assert_eq!(answer.headers()["retry-after"], "2");
        let body: Value = answer.json().await.unwrap();
        assert_eq!(body["error"]["code"], "database_unavailable");
    }
    let live = client.get(at("/health/live")).send().await.unwrap();
    assert_eq!(live.status(), 200);
    drop(paused);

    let texts = join_all(running.into_iter().map(reqwest::Response::text));
    for text in tokio::time::timeout(PATIENCE, texts).await.unwrap() {
        assert!(text.unwrap().contains("event: completed"));
    }
    let answer = post().bearer_auth(&key).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    // The hold of the text that was refused may be placed when Postgres resumes; then it is released.
    let released = async {
        while server.get(&key, "/v1/credits/balance").await["held"] != "0" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, released).await.unwrap();
    for (status, most) in [("completed", 21..=21), ("failed", 0..=1)] {
        let path = format!("/v1/generate/history?per_page=100&status={status}");
        let page = server.get(&key, &path).await;
        let ended = page["data"].as_array().unwrap().len();
        assert!(most.contains(&ended), "{page}");
    }
    let audit = site.audit().await;
    assert_eq!(audit["ok"], true, "{audit}");
    server.stop().await;
}
