//! A streamed event of 60 MiB of small values from a provider.

use futures_util::future::join_all;

use super::{Answers, scene::Attacker, upstream::Mode};

pub async fn run(attacker: &Attacker<'_>) -> Answers {
    attacker.set_provider(Mode::Event(30 << 20));
    let body = format!(
        r#"{{"model": "openai/{}", "stream": true, "max_tokens": 10,
            "messages": [{{"role": "user", "content": "x"}}]}}"#,
        attacker.model
    );
    let path = "/openai/v1/chat/completions";
    let requests = (0..4).map(|_| attacker.answer(path, body.as_bytes()));
    let answers = join_all(requests).await.into_iter();
    answers.map(|(status, _)| status).collect()
}
