//! Runway against a fake upstream.

mod states;

use std::{collections::BTreeMap, time::Duration};

use serde_json::json;
use url::Url;

use super::*;
use crate::{
    domain::pricing::Quality,
    providers::{
        ImageCall, ImageProvider as _, ProviderErrorKind, VideoOutput,
        tests::fake::{Reply, Seen, TIMEOUT, Upstream, ends, recorded, setup},
    },
};

const TASK: &str = "17f20503-6c24-4c16-946b-35dbbce2af2f";

fn call() -> VideoCall {
    VideoCall {
        model: "gen4.5".to_owned(),
        prompt: "A red fox.".to_owned(),
        duration: 5,
        ratio: (16, 9),
        inputs: Vec::new(),
    }
}

fn adapter(base: &str, timeout: Duration) -> Runway {
    Runway::new(&setup(base, timeout), client).unwrap()
}

fn same(seen: &Seen, want: &Seen) {
    assert_eq!(
        (&seen.method, &seen.path, &seen.body),
        (&want.method, &want.path, &want.body)
    );
    for (name, value) in &want.headers {
        // These headers mean nothing for a DELETE without a body and without a response body.
        if want.method != "DELETE" || !matches!(name.as_str(), "accept" | "content-type") {
            assert_eq!(seen.header(name), Some(value.as_str()), "{name}");
        }
    }
}

#[tokio::test]
async fn sends_what_the_sdk_sends() {
    for suffix in ["", "/", "/v1", "/v1/"] {
        let upstream = Upstream::start(Reply::json(&json!({"id": TASK}))).await;
        let adapter = adapter(&format!("{}{suffix}", upstream.base), TIMEOUT);
        assert_eq!(adapter.submit(&call()).await.unwrap(), TASK);
        let _no_status = adapter.poll(TASK, &call()).await;
        adapter.cancel(TASK).await.unwrap();
        for (seen, want) in upstream.seen().iter().zip([
            include_str!("../../../tests/fixtures/sdk/runway_submit.json"),
            include_str!("../../../tests/fixtures/sdk/runway_poll.json"),
            include_str!("../../../tests/fixtures/sdk/runway_cancel.json"),
        ]) {
            same(seen, &recorded(want));
        }
        assert_eq!(upstream.seen().len(), 3);
    }
}

fn image_call() -> ImageCall {
    ImageCall {
        model: "gen4_image".to_owned(),
        prompt: "A red fox.".to_owned(),
        negative_prompt: None,
        size: (1024, 1024),
        outpaint: None,
        quality: Quality::Standard,
        style: None,
        background: None,
        n: 1,
        inputs: vec![InputPicture {
            role: InputRole::Reference,
            content_type: "image/png".to_owned(),
            bytes: vec![0; 3].into(),
        }],
    }
}

#[tokio::test]
async fn an_image_is_sent_as_the_sdk_sends_it() {
    let url = "https://files.example/image.png";
    let task = json!({"id": TASK, "status": "SUCCEEDED", "output": [url]});
    let upstream = Upstream::start(Reply::json(&task)).await;
    let (adapter, call) = (adapter(&upstream.base, TIMEOUT), image_call());
    let answer = adapter.generate(&call).await.unwrap();
    assert_eq!(answer.urls, [Url::parse(url).unwrap()]);
    assert_eq!(answer.request_id.as_deref(), Some(TASK));
    let sent = include_str!("../../../tests/fixtures/sdk/runway_image.json");
    same(&upstream.seen()[0], &recorded(sent));
    let polled = include_str!("../../../tests/fixtures/sdk/runway_poll.json");
    same(&upstream.seen()[1], &recorded(polled));
    // A finished task is not cancelled.
    assert_eq!(upstream.seen().len(), 2);
}

/// Drops an image call after `calls` of the provider, and checks that its task is cancelled.
async fn drop_image_call(calls: usize) {
    let task = json!({"id": TASK, "status": "RUNNING"});
    let upstream = Upstream::start(Reply::json(&task)).await;
    let (adapter, call) = (adapter(&upstream.base, TIMEOUT), image_call());
    let received = async {
        while upstream.seen().len() < calls {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        () = received => {}
        answer = adapter.generate(&call) => panic!("{answer:?}"),
    }
    let cancelled = loop {
        let mut seen = upstream.seen().into_iter();
        if let Some(cancelled) = seen.find(|seen| seen.method == "DELETE") {
            break cancelled;
        }
        tokio::task::yield_now().await;
    };
    let sent = include_str!("../../../tests/fixtures/sdk/runway_cancel.json");
    same(&cancelled, &recorded(sent));
}

#[tokio::test]
async fn a_dropped_image_call_cancels_its_task() {
    drop_image_call(2).await;
}

/// The response with the task's id arrives after the caller has left.
#[tokio::test]
async fn a_call_that_is_dropped_while_its_task_is_created_cancels_it() {
    drop_image_call(1).await;
}

#[tokio::test]
async fn settings_shape_the_request() {
    let upstream = Upstream::start(Reply::json(&json!({"id": TASK}))).await;
    let settings = RunwayModel {
        ratios: BTreeMap::from([("1:1".to_owned(), "1:1".to_owned())]),
        resolution: Some("768p".to_owned()),
        audio: Some(false),
    };
    let setup = setup(&upstream.base, TIMEOUT).with("hailuo3", settings);
    let runway = Runway::new(&setup, client).unwrap();
    let square = VideoCall {
        model: "hailuo3".to_owned(),
        ratio: (1, 1),
        ..call()
    };
    runway.submit(&square).await.unwrap();
    assert_eq!(
        upstream.seen()[0].body,
        json!({"model": "hailuo3", "promptText": "A red fox.", "ratio": "1:1", "duration": 5,
            "resolution": "768p", "audio": false})
    );
    // An unsupported ratio is not sent.
    let odd = VideoCall {
        ratio: (4, 3),
        ..call()
    };
    let error = runway.submit(&odd).await.unwrap_err();
    assert_eq!(error.kind, ProviderErrorKind::Rejected);
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test]
async fn an_id_that_cannot_be_asked_for_is_a_failure() {
    let long = "a".repeat(129);
    for id in [
        json!(null),
        json!(7),
        json!(""),
        json!("a b"),
        json!(".."),
        json!(long),
    ] {
        let upstream = Upstream::start(Reply::json(&json!({"id": id}))).await;
        let error = adapter(&upstream.base, TIMEOUT)
            .submit(&call())
            .await
            .unwrap_err();
        assert_eq!(
            (error.kind, error.not_started),
            (ProviderErrorKind::Failed, false),
            "{id}"
        );
    }
    // A malformed id stays one path segment.
    let upstream = Upstream::start(Reply::status(404, &[], "")).await;
    let _gone = adapter(&upstream.base, TIMEOUT)
        .poll("a/../b", &call())
        .await;
    assert_eq!(upstream.seen()[0].path, "/v1/tasks/a%2F..%2Fb");
}

async fn poll(reply: Reply) -> Result<VideoStatus, ProviderError> {
    let upstream = Upstream::start(reply).await;
    adapter(&upstream.base, TIMEOUT).poll(TASK, &call()).await
}

#[tokio::test]
async fn cancelling() {
    for (status, ok) in [
        (204, true),
        (200, true),
        (404, true),
        (400, false),
        (502, false),
    ] {
        let upstream = Upstream::start(Reply::status(status, &[], "")).await;
        let result = adapter(&upstream.base, TIMEOUT).cancel(TASK).await;
        assert_eq!(result.is_ok(), ok, "{status}");
    }
}

#[tokio::test]
async fn error_answers() {
    use ProviderErrorKind::{Account, Rejected};
    for (status, text, kind) in [
        (
            400,
            "promptText: Too big: expected string to have <=1000 characters",
            Rejected,
        ),
        (
            400,
            "You do not have enough credits to run this task.",
            Account,
        ),
        (401, "The API key was not found", Account),
    ] {
        let body = json!({"error": text, "issues": [], "docUrl": "x"}).to_string();
        let upstream = Upstream::start(Reply::status(status, &[], &body)).await;
        let error = adapter(&upstream.base, TIMEOUT)
            .submit(&call())
            .await
            .unwrap_err();
        assert_eq!((error.kind, error.not_started), (kind, false), "{text}");
        assert!(!error.detail.contains("run this"), "{}", error.detail);
    }
}

#[tokio::test]
async fn bad_ends() {
    let ask = |base: String, timeout| async move { adapter(&base, timeout).submit(&call()).await };
    ends::check(ask).await;
    ends::check_cap("{\"x\": \"", "A", ask).await;
}
