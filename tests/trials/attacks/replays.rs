//! One paid answer of four images, replayed on many connections that are not read.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;

use super::{
    Answers,
    scene::{Attacker, status_of},
    upstream::Mode,
};

pub async fn run(attacker: &Attacker<'_>) -> Answers {
    attacker.set_provider(Mode::Images(4));
    let body = format!(
        r#"{{"model": "openai/{}", "prompt": "x", "n": 4, "size": "1024x1024",
            "response_format": "b64_json"}}"#,
        attacker.model
    );
    let key = format!("idempotency-key: {}\r\n", fastrand::u64(..));
    let send = || attacker.send("/openai/v1/images/generations", &key, body.as_bytes());
    status_of(&mut send().await).await;
    let mut replays = join_all((0..150).map(|_| send())).await;
    let statuses = join_all(replays.iter_mut().map(status_of)).await;
    // They stay open and unread for a while.
    sleep(Duration::from_secs(5)).await;
    statuses.into_iter().collect()
}
