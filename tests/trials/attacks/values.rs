//! Bodies of 255 KiB of small values that name answers that do not exist.

use futures_util::future::join_all;
use serde_json::json;

use super::{Answers, scene::Attacker};

pub async fn run(attacker: &Attacker<'_>) -> Answers {
    let ids = (0..64).map(|_| {
        let id = format!("msg_{:032x}_0", fastrand::u128(..));
        json!({"type": "item_reference", "id": id})
    });
    let items: Vec<_> = ids.collect();
    let items = serde_json::to_string(&items).unwrap();
    let zeros = "0,".repeat((255 << 10) / 2 - items.len());
    let model = attacker.model;
    let body = format!(r#"{{"model":"openai/{model}","input":{items},"x":[{zeros}0]}}"#);
    let path = "/openai/v1/responses/input_tokens";
    let requests = (0..600).map(|_| attacker.answer(path, body.as_bytes()));
    let answers = join_all(requests).await.into_iter();
    answers.map(|(status, _)| status).collect()
}
