//! Successful streams in the formats of several servers.

use super::*;
use crate::domain::conversation::Visibility;

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
    // Hidden reasoning, or reasoning that used up the limit.
    for reason in ["stop", "length"] {
        let usage = json!({"prompt_tokens": 16, "completion_tokens": 300});
        let counted = json!({"choices": [], "usage": usage});
        let end = chunk(&json!({}), Some(reason));
        let items = [first.clone(), end.clone(), counted];
        let (result, deltas, _) = ask(Reply::events(&items), true).await;
        assert_eq!((result.unwrap().text().as_str(), deltas.len()), ("", 0));
        let (result, ..) = ask(Reply::events(&[first.clone(), end]), true).await;
        assert_eq!(result.unwrap_err().detail, "empty answer");
    }
}

#[tokio::test]
async fn only_known_reasons_end_an_answer() {
    use crate::domain::conversation::Stop;
    for (reason, stop) in [
        ("stop", Some(Stop::Done)),
        ("eos", Some(Stop::Done)),
        ("length", Some(Stop::Limit)),
        ("model_length", Some(Stop::Limit)),
        ("content_filter", Some(Stop::ContentFilter)),
        ("sensitive", Some(Stop::ContentFilter)),
        ("network_error", None),
        ("abort", None),
        ("error", None),
        ("insufficient_system_resource", None),
        ("a_reason_of_tomorrow", None),
    ] {
        let items = [
            chunk(&json!({"content": "Hi"}), None),
            chunk(&json!({}), Some(reason)),
            json!("[DONE]"),
        ];
        let (result, deltas, _) = ask(Reply::events(&items), true).await;
        assert_eq!(deltas, ["Hi"], "{reason}");
        assert_eq!(result.map(|answer| answer.stop).ok(), stop, "{reason}");
        // A whole answer is delivered at its end, so a policy refusal fails it.
        let whole = answer(&json!("Hi"), reason, &Value::Null);
        let (result, ..) = ask(Reply::json(&whole), false).await;
        let stop = stop.filter(|stop| *stop != Stop::ContentFilter);
        assert_eq!(result.map(|answer| answer.stop).ok(), stop, "{reason}");
    }
}

#[tokio::test]
async fn a_refusal_keeps_the_text_before_it() {
    use crate::domain::conversation::Stop;
    let refusal = chunk(&json!({"refusal": "I cannot"}), None);
    let items = [
        chunk(&json!({"content": "Hi"}), None),
        refusal.clone(),
        chunk(&json!({}), Some("stop")),
        json!({"choices": [], "usage": {"prompt_tokens": 16, "completion_tokens": 3}}),
    ];
    let (result, deltas, _) = ask(Reply::events(&items), true).await;
    let got = result.unwrap();
    assert_eq!((got.stop, got.usage.output), (Stop::ContentFilter, Some(3)));
    assert_eq!(deltas, ["Hi"]);
    let (result, ..) = ask(Reply::events(&[refusal]), true).await;
    assert_eq!(result.unwrap_err().kind, ProviderErrorKind::ContentPolicy);
}

#[tokio::test]
async fn a_reader_that_left_does_not_stop_the_answer() {
    let items = [chunk(&json!({"content": "Hi"}), Some("stop"))];
    let upstream = Upstream::start(Reply::events(&items)).await;
    let (sink, source) = DeltaSink::channel(Visibility::TEXT);
    drop(source);
    let adapter = adapter(&upstream.base, None, OpenAiModel::default());
    assert_eq!(
        adapter.generate(&call(), Some(&sink)).await.unwrap().text(),
        "Hi"
    );
}
