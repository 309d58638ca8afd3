//! Known mistakes of other gateways with other people's money, each as a test that would catch it
//! here. One test per mistake; its name says which one, its comment whose.
//!
//! Many of these rules are tested in more detail with their routes; this list is complete on its
//! own, so that it can be read as one.

mod admission;
mod broken;
mod ends;
mod keys;
mod once;

use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::common::{Account, Answer, TestApp};

/// With a one-byte prompt and 64 tokens on gpt-6-luna (10 and 50 credits per million):
/// 65 × 10 + 64 × 50 micro-credits.
const HOLD: &str = "0.00385";

fn text() -> Value {
    json!({"prompt": "x", "provider": "openai", "parameters": {"max_tokens": 64}})
}

/// `n` concurrent posts of a text, spread over the servers.
fn posted(servers: &[&Arc<TestApp>], key: &str, n: usize) -> Vec<tokio::task::JoinHandle<Answer>> {
    let post = |i: usize| servers[i % servers.len()].spawn_text(key, text());
    (0..n).map(post).collect()
}

async fn answers(posted: Vec<tokio::task::JoinHandle<Answer>>) -> Vec<Answer> {
    let all = join_all(posted).await;
    all.into_iter().map(Result::unwrap).collect()
}

/// Kinds and amounts of an account's ledger entries, oldest first, without the initial grant.
async fn movements(app: &TestApp, account: &Account) -> Vec<(String, String)> {
    let path = "/v1/credits/ledger?per_page=100";
    let page = app.get(&account.key, path).await.expect(200);
    let text = |entry: &Value, name: &str| entry[name].as_str().unwrap().to_owned();
    let mut all: Vec<_> = page["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (text(entry, "kind"), text(entry, "amount")))
        .collect();
    all.reverse();
    all.split_off(1)
}

fn pair(kind: &str, amount: &str) -> (String, String) {
    (kind.to_owned(), amount.to_owned())
}
