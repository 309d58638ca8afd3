//! Requests with a prompt template that is rendered, whose sender hangs up after 20 ms.

use std::{iter::repeat_n, time::Duration};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{Answers, scene::Attacker};

pub async fn run(attacker: &Attacker<'_>) -> Answers {
    let template = json!({
        "name": format!("t{}", fastrand::u32(..)),
        "prompt": "{% for a in x %}{% for b in x %}{{ a }}{% endfor %}{% endfor %}",
    });
    let template = template.to_string();
    let (status, created) = attacker.answer("/v1/templates", template.as_bytes()).await;
    let created: Value = serde_json::from_str(&created).unwrap_or_default();
    let body = json!({"template_id": created["id"], "template_variables": {"x": vec!["y"; 100]},
        "provider": "sandbox"});
    let body = body.to_string();
    let end = Instant::now() + Duration::from_secs(8);
    let senders = (0..16).map(|_| async {
        let mut sent_requests = 0;
        while Instant::now() < end {
            let sent = attacker
                .send("/v1/generate/text", "", body.as_bytes())
                .await;
            sleep(Duration::from_millis(20)).await;
            sent_requests += usize::from(sent.is_some());
        }
        sent_requests
    });
    let dropped: usize = join_all(senders).await.into_iter().sum();
    // The response to a dropped request is not read.
    [status].into_iter().chain(repeat_n(0, dropped)).collect()
}
