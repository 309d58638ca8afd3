//! The sandbox's answers: repeatable, within the limit, and failing on demand.

use std::time::Instant;

use super::*;
use crate::{
    domain::conversation::{Conversation, Sampling, Visibility},
    providers::{ProviderErrorKind, tests::fake::dialogue},
};

fn call(prompt: &str, max_tokens: u32) -> TextCall {
    TextCall {
        model: "sandbox-text".to_owned(),
        conversation: Conversation::from_prompt(prompt.to_owned(), None).into(),
        max_tokens,
        sampling: Sampling::default(),
        ..TextCall::default()
    }
}

async fn plain(call: &TextCall) -> Result<TextAnswer, ProviderError> {
    SandboxText::default().generate(call, None).await
}

async fn streamed(call: &TextCall) -> (Result<TextAnswer, ProviderError>, Vec<String>) {
    let (sink, mut source) = DeltaSink::channel(Visibility::TEXT);
    let result = SandboxText::default().generate(call, Some(&sink)).await;
    drop(sink);
    let mut deltas = Vec::new();
    while let Some(delta) = source.recv().await {
        if let Delta::Text(text) = delta {
            deltas.push(text);
        }
    }
    (result, deltas)
}

#[tokio::test]
async fn the_same_call_gets_the_same_answer() {
    let one = plain(&call("Write about the sea.", 1024)).await.unwrap();
    assert_eq!(
        plain(&call("Write about the sea.", 1024)).await.unwrap(),
        one
    );
    assert!(one.text().contains("Write about the sea"));
    assert_ne!(
        plain(&call("Write about the sky.", 1024)).await.unwrap(),
        one
    );
    let (result, deltas) = streamed(&call("Write about the sea.", 1024)).await;
    assert_eq!(result.unwrap(), one);
    assert_eq!(deltas.concat(), one.text());
    let words = u64::try_from(one.text().split(' ').count()).unwrap();
    assert_eq!(one.usage.output, Some(words));
    assert_eq!(deltas.len(), one.text().split(' ').count());
    assert_eq!(one.usage.input, Some(5));
    let id: uuid::Uuid = one.request_id.unwrap().parse().unwrap();
    assert_eq!(id.get_version_num(), 8);
}

#[tokio::test]
async fn answers_the_last_message_and_knows_the_ones_before() {
    let call = |conversation| TextCall {
        conversation: Conversation::into(conversation),
        ..call("", 1024)
    };
    let mut conversation = dialogue();
    let one = plain(&call(conversation.clone())).await.unwrap();
    assert!(one.text().contains("And goodbye?"));
    assert_eq!(one.usage.input, Some(8));
    conversation.messages[1].parts[0] = Part::text("Hi. [[fail]]");
    assert_ne!(plain(&call(conversation)).await.unwrap(), one);
}

#[tokio::test]
async fn stops_at_the_limit_and_within_the_hold() {
    for prompt in [
        "x",
        "",
        "  ",
        "日本語のとても長い文章",
        "[[slow:0]]",
        "a b c d e f g h i j k l m n o",
    ] {
        for limit in [1, 3, 4096] {
            let call = call(prompt, limit);
            let answer = plain(&call).await.unwrap();
            let bytes = u64::try_from(prompt.len()).unwrap();
            assert!(answer.usage.input.unwrap() <= bytes + 64);
            assert!(answer.usage.output.unwrap() <= u64::from(limit));
            assert!(!answer.text().is_empty() && !answer.text().ends_with(' '));
            assert!(answer.text().split(' ').count() <= usize::try_from(limit).unwrap());
        }
    }
}

#[tokio::test]
async fn faults_in_both_forms() {
    for (marker, kind, shown) in [
        ("[[fail]]", ProviderErrorKind::Failed, 5),
        ("[[timeout]]", ProviderErrorKind::Timeout, 5),
        ("[[reject]]", ProviderErrorKind::Rejected, 0),
        ("[[rate_limit]]", ProviderErrorKind::Overloaded, 0),
    ] {
        let call = call(&format!("tell me {marker} a story"), 100);
        assert_eq!(plain(&call).await.unwrap_err().kind, kind, "{marker}");
        let (result, deltas) = streamed(&call).await;
        assert_eq!(result.unwrap_err().kind, kind, "{marker} streamed");
        assert_eq!(deltas.len(), shown, "{marker}");
        assert!(!deltas.concat().contains("[["));
    }
}

#[tokio::test]
async fn slow_waits_and_answers() {
    let start = Instant::now();
    let answer = plain(&call("[[slow:0.05]] hello", 100)).await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(50));
    assert!(answer.text().contains("hello") && !answer.text().contains("slow"));
}
