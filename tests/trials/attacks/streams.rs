//! Streams of almost 4 MiB that are not read.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;

use super::{
    Answers,
    scene::{Attacker, status_of},
    upstream::Mode,
};

pub async fn run(attacker: &Attacker<'_>) -> Answers {
    attacker.set_provider(Mode::Pieces(4_000));
    let body = format!(
        r#"{{"model": "openai/{}", "stream": true, "max_tokens": 1000,
            "messages": [{{"role": "user", "content": "x"}}]}}"#,
        attacker.model
    );
    let path = "/openai/v1/chat/completions";
    let send = || attacker.send(path, "", body.as_bytes());
    let mut streams = join_all((0..1_000).map(|_| send())).await;
    let statuses = join_all(streams.iter_mut().map(status_of)).await;
    // They stay open and unread for a while.
    sleep(Duration::from_secs(5)).await;
    statuses.into_iter().collect()
}
