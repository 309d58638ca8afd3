//! A streamed event of 60 MiB of small values from a provider.

use futures_util::future::join_all;

use super::{Answers, scene::Scene, upstream::Mode};

pub async fn run(scene: &Scene) -> Answers {
    scene.provider.set(Mode::Event(30 << 20));
    let body = r#"{"model": "openai/gpt-5.2", "stream": true, "max_tokens": 10,
        "messages": [{"role": "user", "content": "x"}]}"#;
    let path = "/openai/v1/chat/completions";
    let requests = (0..4).map(|_| scene.answer(path, body.as_bytes()));
    let answers = join_all(requests).await.into_iter();
    answers.map(|(status, _)| status).collect()
}
