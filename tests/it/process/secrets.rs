//! Everything that a run writes: no secret, prompt or result.

use std::sync::{Arc, Mutex};

use http::Method;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::{
    process::{Child, ChildStderr},
    sync::watch,
    task::JoinHandle,
};

use super::{PATIENCE, Site, line_with, lines};
use crate::{
    common::{Reply, Upstream},
    signal::signal,
};

const PROVIDER_KEY: &str = "sk-own-key-of-the-operator-5f2d";
const METRICS_TOKEN: &str = "metrics-token-81c7";
const PASSWORD: &str = "a-password-nobody-may-read";
const PROMPT: &str = "a-prompt-nobody-may-read";
const RESULT: &str = "a-result-nobody-may-read";
/// The upstream's response when requested.
const FAILURES: [u16; 5] = [400, 401, 403, 429, 500];

/// Everything that a process writes to stderr, as it arrives.
struct Log {
    text: Arc<Mutex<String>>,
    address: watch::Receiver<String>,
    /// Ends when all of it has been read.
    written: JoinHandle<()>,
}

fn record(stderr: ChildStderr) -> Log {
    let text = Arc::new(Mutex::new(String::new()));
    let (sender, address) = watch::channel(String::new());
    let keep = Arc::clone(&text);
    let written = tokio::spawn(async move {
        let mut log = lines(Some(stderr));
        while let Ok(Some(line)) = log.next_line().await {
            if let Some((_, rest)) = line.split_once("listening on ") {
                let url = rest.split(['"', ',', ' ']).next().unwrap_or_default();
                sender.send_replace(url.to_owned());
            }
            keep.lock().unwrap().extend([line.as_str(), "\n"]);
        }
    });
    Log {
        text,
        address,
        written,
    }
}

/// An API caller.
struct Caller {
    client: reqwest::Client,
    url: String,
}

impl Caller {
    async fn post(&self, token: &str, path: &str, body: &Value) -> (u16, String) {
        let request = self.client.post(format!("{}{path}", self.url));
        let answer = request.bearer_auth(token).json(body).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    async fn get(&self, token: &str, path: &str) -> (u16, String) {
        let request = self.client.get(format!("{}{path}", self.url));
        let answer = request.bearer_auth(token).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }
}

fn member(answer: &(u16, String), name: &str) -> String {
    let body: Value = serde_json::from_str(&answer.1).unwrap();
    body[name]
        .as_str()
        .unwrap_or_else(|| panic!("{body}"))
        .to_owned()
}

/// An upstream that echoes key and prompt in every error, as real ones do.
fn echoing(upstream: &Upstream) {
    upstream.play(|request| {
        let said = request.body.to_string();
        let status = FAILURES
            .into_iter()
            .find(|s| said.contains(&format!("s{s}")));
        let Some(status) = status else {
            return Reply::Text(RESULT.to_owned(), 10, 3);
        };
        let message = format!("Incorrect key {PROVIDER_KEY} for {said}\nERROR forged");
        let error = json!({"message": message, "code": message, "type": message, "param": said});
        Reply::Status(status, json!({"error": error}))
    });
}

/// A server with the most verbose log, and everything that it has written.
struct Run {
    site: Site,
    child: Child,
    log: Log,
    upstream: Upstream,
    caller: Caller,
    /// The key of the demo account.
    key: String,
}

async fn start(format: &'static str) -> Run {
    let upstream = Upstream::start().await;
    echoing(&upstream);
    let base: &'static str = format!("{}/openai/v1", upstream.url()).leak();
    let site = Site::new(&[
        ("GENSVC_LOG", "trace"),
        ("GENSVC_LOG_FORMAT", format),
        ("OPENAI_API_KEY", PROVIDER_KEY),
        ("OPENAI_BASE_URL", base),
        ("GENSVC__METRICS__TOKEN", METRICS_TOKEN),
        ("GENSVC__WEBHOOKS__ALLOW_PRIVATE", "true"),
        ("GENSVC__SUBMISSIONS__RETRY_BASE_MS", "1"),
    ]);
    let mut child = site.command().arg("serve").spawn().unwrap();
    let mut log = record(child.stderr.take().unwrap());
    let mut stdout = lines(child.stdout.take());
    let first = line_with(&mut stdout, "  key ").await;
    let key = first.trim().trim_start_matches("key").trim().to_owned();
    let heard = log.address.wait_for(|url| !url.is_empty());
    let url = tokio::time::timeout(PATIENCE, heard).await.unwrap();
    let url = url.unwrap().clone();
    let caller = Caller {
        client: reqwest::Client::new(),
        url,
    };
    Run {
        site,
        child,
        log,
        upstream,
        caller,
        key,
    }
}

/// Uses everything that involves a secret; returns the resulting secrets.
async fn used(run: &Run) -> Vec<(&'static str, String)> {
    let Run {
        caller, upstream, ..
    } = run;
    let login = json!({"email": "ann@example.com", "password": PASSWORD});
    let session = member(&caller.post("", "/v1/auth/login", &login).await, "token");
    let wrong = json!({"email": "ann@example.com", "password": format!("{PASSWORD}-wrong")});
    assert_eq!(caller.post("", "/v1/auth/login", &wrong).await.0, 401);
    let body = json!({"name": "k"});
    let key = member(&caller.post(&session, "/v1/api-keys", &body).await, "key");
    let body = json!({"url": format!("{}/hook", upstream.url())});
    let hook = member(
        &caller.post(&session, "/v1/webhooks", &body).await,
        "secret",
    );
    for stream in [false, true] {
        let ask = |prompt: &str| json!({"prompt": prompt, "provider": "openai", "stream": stream});
        let path = "/v1/generate/text";
        let (status, text) = caller.post(&key, path, &ask(PROMPT)).await;
        assert_eq!(status, 200, "{text}");
        for status in FAILURES {
            let body = ask(&format!("{PROMPT} s{status}"));
            let (_, text) = caller.post(&session, path, &body).await;
            // Nor does the caller see the operator's key.
            assert!(
                text.contains("error") && !text.contains(PROVIDER_KEY),
                "{text}"
            );
        }
    }
    let body = json!({"prompt": PROMPT, "provider": "sandbox"});
    let image = caller.post(&run.key, "/v1/generate/image", &body).await;
    let image = member(&image, "result");
    let file = caller.client.get(&image).send().await.unwrap();
    assert_eq!(file.status(), 200);
    let signature = image.split("signature=").nth(1).unwrap().to_owned();
    assert_eq!(caller.get(METRICS_TOKEN, "/metrics").await.0, 200);
    let mistaken = format!("{}-", &key[..key.len() - 1]);
    assert_eq!(caller.get(&mistaken, "/v1/auth/me").await.0, 401);
    assert_eq!(caller.get(&key, "/v1/nowhere").await.0, 404);
    // Twelve events are delivered eventually.
    while upstream.calls(&Method::POST, "/hook") < 2 {
        upstream.arrived(upstream.count() + 1).await;
    }
    vec![
        ("a session", session),
        ("a key", key),
        ("a mistaken key", mistaken),
        ("a webhook's secret", hook.replace("whsec_", "")),
        ("a link's signature", signature),
    ]
}

/// The output of a command.
async fn printed(site: &Site, arguments: &[&str]) -> String {
    let output = site.command().args(arguments).output().await.unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

async fn a_run(format: &'static str) {
    let mut run = start(format).await;
    let create = ["account", "create", "--email", "ann@example.com"];
    let with = ["--password", PASSWORD, "--credits", "10"];
    let mut output = printed(&run.site, &[create, with].concat()).await;
    let mut secrets = used(&run).await;
    secrets.push(("the demo key", run.key.clone()));
    for (what, secret) in [
        ("the provider's key", PROVIDER_KEY),
        ("the token of the metrics", METRICS_TOKEN),
        ("a password", PASSWORD),
        ("a prompt", PROMPT),
        ("a result", RESULT),
    ] {
        secrets.push((what, secret.to_owned()));
    }
    let pid = run.child.id().unwrap();
    let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    output.push_str(&String::from_utf8_lossy(&arguments));
    signal(pid, Signal::SIGTERM);
    let status = tokio::time::timeout(PATIENCE, run.child.wait()).await;
    assert!(status.unwrap().unwrap().success());
    for json in [&["config", "check"][..], &["config", "check", "--json"]] {
        output.push_str(&printed(&run.site, json).await);
    }
    let written = tokio::time::timeout(PATIENCE, run.log.written).await;
    written.unwrap().unwrap();
    let log = run.log.text.lock().unwrap().clone();
    assert!(
        log.contains("answered") && log.contains("refuses our account"),
        "{log}"
    );
    for (what, secret) in secrets {
        for (place, text) in [("log", &log), ("output", &output)] {
            let found = text.find(&secret).map(|at| {
                let line = text[..at].lines().last().unwrap_or_default();
                format!("{line}{secret}")
            });
            assert_eq!(found, None, "{what} is in the {place}");
        }
    }
    assert!(!log.lines().any(|line| line.starts_with("ERROR forged")));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_and_nobodys_words_are_logged_as_text() {
    a_run("text").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_and_nobodys_words_are_logged_as_json() {
    a_run("json").await;
}
