//! Streams that end well, in the shapes of several servers.

use super::*;

#[tokio::test]
async fn streams() {
    let done = json!("[DONE]");
    let usage = json!({"prompt_tokens": 16, "completion_tokens": 3, "total_tokens": 19});
    let other = json!({"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2});
    let first = chunk(
        &json!({"role": "assistant", "content": "", "refusal": null}),
        None,
    );
    let hi = chunk(&json!({"content": "Hi", "reasoning_content": "hm"}), None);
    let you = chunk(&json!({"content": " you"}), None);
    let stop = chunk(&json!({}), Some("stop"));
    let trailer = json!({"id": "chatcmpl-1", "choices": [], "usage": usage});
    let with = |mut chunk: Value, name: &str, value: &Value| {
        chunk[name] = value.clone();
        chunk
    };
    let groq = with(stop.clone(), "x_groq", &json!({"id": "g", "usage": usage}));
    for (name, items) in [
        (
            "openai",
            vec![
                first.clone(),
                hi.clone(),
                you.clone(),
                stop.clone(),
                trailer.clone(),
                done.clone(),
            ],
        ),
        (
            "no [DONE]",
            vec![hi.clone(), you.clone(), stop.clone(), trailer.clone()],
        ),
        (
            "groq",
            vec![
                hi.clone(),
                you.clone(),
                with(groq.clone(), "usage", &usage),
                done.clone(),
            ],
        ),
        (
            "groq, its own field",
            vec![hi.clone(), you.clone(), groq, done.clone()],
        ),
        (
            "last one counts",
            vec![
                with(hi.clone(), "usage", &other),
                you.clone(),
                stop.clone(),
                trailer.clone(),
                done.clone(),
            ],
        ),
        (
            "role with the text",
            vec![
                chunk(&json!({"role": "assistant", "content": "Hi"}), None),
                chunk(&json!({"content": " you"}), Some("stop")),
                trailer,
                done,
            ],
        ),
    ] {
        let (result, deltas, _) = ask(Reply::events(&items), true).await;
        let got = result.unwrap();
        assert_eq!(
            (got.text().as_str(), &deltas[..]),
            ("Hi you", &["Hi".to_owned(), " you".to_owned()][..]),
            "{name}"
        );
        assert_eq!(
            (got.usage.input, got.usage.output),
            (Some(16), Some(3)),
            "{name}"
        );
        assert_eq!(got.request_id.as_deref(), Some("chatcmpl-1"));
    }
    let (result, deltas, _) = ask(
        Reply::events(&[first, chunk(&json!({}), Some("length"))]),
        true,
    )
    .await;
    assert_eq!((result.unwrap().text().as_str(), deltas.len()), ("", 0));
}

#[tokio::test]
async fn a_reader_that_left_does_not_stop_the_answer() {
    let items = [chunk(&json!({"content": "Hi"}), Some("stop"))];
    let upstream = Upstream::start(Reply::events(&items)).await;
    let (sink, source) = DeltaSink::channel();
    drop(source);
    let adapter = adapter(&upstream.base, None, OpenAiModel::default());
    assert_eq!(
        adapter.generate(&call(), Some(&sink)).await.unwrap().text(),
        "Hi"
    );
}
