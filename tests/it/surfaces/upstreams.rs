//! What upstream answers mean: counts, calls, thinking and forms of answers in which servers differ.

mod calls;
mod content;
mod forms;
mod reasoning;
mod usage;

use std::{fs, path::PathBuf};

use serde_json::{Value, json};
use sqlx::postgres::PgConnectOptions;
use uuid::Uuid;

use super::{CHAT, MESSAGES, MODELS, RESPONSES, ask, error, events, record, text_of, with};
use crate::common::{Account, Answer, CONFIG_FILE, Recorded, Reply, TestApp, Upstream};

const PATHS: [&str; 3] = [CHAT, RESPONSES, MESSAGES];
const ACME: &str = "acme/acme-1";

/// A server with all vendors and the compatible provider `acme`, whose prices are 100, cached 10, and
/// 1,000 per million. `acme-2` is called by Responses.
async fn acme(options: PgConnectOptions, upstream: &Upstream) -> (TestApp, Account) {
    let url = upstream.url();
    let prices = "prices = { input_per_million = \"100\", cached_input_per_million = \"10\", \
                  output_per_million = \"1000\" }";
    let file = format!(
        "[providers.acme]\nkind = \"openai_compatible\"\nbase_url = \"{url}/openai/v1\"\n\
         [[providers.acme.models]]\nid = \"acme-1\"\ntype = \"text\"\ndefault = true\n{prices}\n\
         [[providers.acme.models]]\nid = \"acme-2\"\ntype = \"text\"\n{prices}\n\
         wire = {{ api = \"responses\" }}\n"
    );
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(Uuid::now_v7().to_string());
    fs::write(&path, file).unwrap();
    let env = [(CONFIG_FILE, path.to_str().unwrap())];
    let app = TestApp::upstream_with(options, upstream, &env).await;
    fs::remove_file(path).unwrap();
    let account = app.account("100").await;
    (app, account)
}

/// A request in the dialect of the path.
fn request(path: &str, model: &str, text: &str) -> Value {
    let mut body = ask(model, text);
    body["max_tokens"] = json!(500);
    if path == RESPONSES {
        body = json!({"model": model, "input": text, "max_output_tokens": 500});
    }
    body
}

fn is_streamed(request: &Recorded) -> bool {
    request.body["stream"] == true || request.path.contains("streamGenerateContent")
}

fn sse(events: &[Value]) -> Reply {
    let text = super::breakers::stream_of(events);
    Reply::Raw(200, "text/event-stream; charset=utf-8", text)
}

fn chunk(delta: &Value, finish: Option<&str>) -> Value {
    json!({"id": "c", "model": "acme-1",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
}

/// An answer of a chat server, in the form that was requested: the deltas, or the message.
fn chat(
    deltas: Vec<Value>,
    message: Value,
    finish: &'static str,
    usage: Value,
) -> impl Fn(&Recorded) -> Reply {
    move |request| {
        if !is_streamed(request) {
            let choice = json!({"index": 0, "message": message, "finish_reason": finish});
            return Reply::Status(200, json!({"id": "c", "choices": [choice], "usage": usage}));
        }
        let mut all: Vec<Value> = deltas.iter().map(|delta| chunk(delta, None)).collect();
        all.push(chunk(&json!({}), Some(finish)));
        all.push(json!({"id": "c", "choices": [], "usage": usage}));
        sse(&all)
    }
}

/// A text of a chat server.
fn said(text: &str, usage: &Value) -> impl Fn(&Recorded) -> Reply + use<> {
    let message = json!({"role": "assistant", "content": text});
    chat(vec![message.clone()], message, "stop", usage.clone())
}

fn counted() -> Value {
    json!({"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14})
}

/// The answer and its record.
async fn answered(app: &TestApp, account: &Account, path: &str, body: &Value) -> (Answer, Value) {
    let answer = app.post(&account.key, path, body).await;
    assert_eq!(answer.status, 200, "{path} {}", answer.text);
    let record = record(app, account, &answer).await;
    (answer, record)
}

/// Both forms of a request.
fn both(body: &Value) -> [Value; 2] {
    [false, true].map(|stream| with(body.clone(), &json!({"stream": stream})))
}
