//! Free counts of tokens that each name 64 stored answers of 1 MiB.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{Answers, scene::Attacker, upstream::Mode};

const RESPONSES: &str = "/openai/v1/responses";
const COUNTS: &str = "/openai/v1/responses/input_tokens";

pub async fn run(attacker: &Attacker<'_>) -> Answers {
    attacker.set_provider(Mode::Text(1 << 20));
    let model = format!("openai/{}", attacker.model);
    let body = json!({"model": model, "input": "x", "max_output_tokens": 20});
    let body = body.to_string();
    let mut items = Vec::new();
    for _ in 0..64 {
        let (_, answer) = attacker.answer(RESPONSES, body.as_bytes()).await;
        let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
        let id = answer["output"][0]["id"].as_str().unwrap_or_default();
        items.push(json!({"type": "item_reference", "id": id}));
    }
    let body = json!({"model": model, "input": items}).to_string();
    let counts = (0..16).map(|_| attacker.answer(COUNTS, body.as_bytes()));
    let answers = join_all(counts).await.into_iter();
    answers.map(|(status, _)| status).collect()
}
