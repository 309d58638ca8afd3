//! Texts with `Prefer: respond-async`, of which a provider takes seconds for each.

use std::time::Duration;

use futures_util::future::join_all;

use super::{
    Answers,
    scene::{Attacker, status},
    upstream::Mode,
};

pub async fn run(attacker: &Attacker<'_>) -> Answers {
    attacker.set_provider(Mode::Wait(Duration::from_secs(4)));
    let body = format!(
        r#"{{"prompt": "x", "provider": "openai", "model": "{}"}}"#,
        attacker.model
    );
    let requests = (0..400).map(|_| async {
        let header = "prefer: respond-async\r\nconnection: close\r\n";
        let sent = attacker.send("/v1/generate/text", header, body.as_bytes());
        status(sent.await).await
    });
    join_all(requests).await.into_iter().collect()
}
