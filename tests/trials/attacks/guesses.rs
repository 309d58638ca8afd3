//! Connections that guess passwords of unknown e-mail addresses.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::{Answers, scene::Attacker};

pub async fn run(attacker: &Attacker<'_>) -> Answers {
    let end = Instant::now() + Duration::from_secs(8);
    let guessers = (0..150).map(|_| async {
        let mut answers = Answers::default();
        while Instant::now() < end {
            let body = format!(
                r#"{{"email": "{}@example.org", "password": "guess"}}"#,
                fastrand::u64(..)
            );
            let (status, _) = attacker.answer("/v1/auth/login", body.as_bytes()).await;
            answers.add(status);
        }
        answers
    });
    let mut answers = Answers::default();
    for got in join_all(guessers).await {
        answers.extend(got);
    }
    answers
}
