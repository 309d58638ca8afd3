//! Traces, as a collector receives them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use axum::{Router, body::Bytes, extract::State, routing::post};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{AnyValue, KeyValue, any_value},
    trace::v1::Span,
};
use prost::Message as _;
use serde_json::json;
use tokio::net::TcpListener;

use super::{Server, Site};

type Bodies = Arc<Mutex<Vec<Bytes>>>;

/// A collector; returns its address and what it receives.
async fn collector() -> (String, Bodies) {
    let bodies = Bodies::default();
    let router = Router::new()
        .route("/v1/traces", post(receive))
        .with_state(Arc::clone(&bodies));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, bodies)
}

async fn receive(State(bodies): State<Bodies>, body: Bytes) {
    bodies.lock().unwrap().push(body);
}

fn attributes(list: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |value: &AnyValue| match value.value.as_ref().unwrap() {
        any_value::Value::StringValue(text) => text.clone(),
        any_value::Value::IntValue(number) => number.to_string(),
        any_value::Value::DoubleValue(number) => number.to_string(),
        any_value::Value::BoolValue(flag) => flag.to_string(),
        other => format!("{other:?}"),
    };
    list.iter()
        .map(|pair| (pair.key.clone(), text(pair.value.as_ref().unwrap())))
        .collect()
}

async fn generate(server: &Server, key: &str, prompt: &str) -> u16 {
    let body = json!({"prompt": prompt, "parameters": {"max_tokens": 8, "temperature": 0.5}});
    let (status, _) = server.ask(key, "POST", "/v1/generate/text", &body).await;
    status
}

/// The only span of a name in a trace, or in the first trace.
#[track_caller]
fn named<'a>(spans: &'a [Span], name: &str, failed: bool) -> &'a Span {
    let status = |span: &Span| span.status.as_ref().is_some_and(|status| status.code == 2);
    let found = spans.iter().find(|s| s.name == name && status(s) == failed);
    found.unwrap_or_else(|| panic!("no {name}: {spans:#?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_and_provider_calls_are_exported_by_the_stop_without_their_words() {
    let (url, bodies) = collector().await;
    let site = Site::new(&[("GENSVC__TRACES__OTLP_ENDPOINT", url.leak())]);
    let (server, key) = site.first().await;
    assert_eq!(generate(&server, &key, "a-very-private-prompt").await, 200);
    assert_eq!(generate(&server, &key, "[[reject]] too-private").await, 502);
    server.stop().await;

    let bodies = bodies.lock().unwrap().clone();
    let mut spans = Vec::new();
    for body in bodies {
        for secret in ["private", &key] {
            let found = body
                .windows(secret.len())
                .any(|part| part == secret.as_bytes());
            assert!(!found, "{secret} was exported");
        }
        let request = ExportTraceServiceRequest::decode(body).unwrap();
        for resource in request.resource_spans {
            let about = attributes(&resource.resource.unwrap().attributes);
            assert_eq!(about["service.name"], "gensvc");
            spans.extend(
                resource
                    .scope_spans
                    .into_iter()
                    .flat_map(|scope| scope.spans),
            );
        }
    }

    let request = named(&spans, "POST /v1/generate/text", false);
    let shown = attributes(&request.attributes);
    assert_eq!(shown["http.request.method"], "POST");
    assert_eq!(shown["http.route"], "/v1/generate/text");
    assert_eq!(shown["http.response.status_code"], "200");
    assert_eq!((request.kind, request.parent_span_id.len()), (2, 0));

    let chat = named(&spans, "chat sandbox-text-1", false);
    let shown = attributes(&chat.attributes);
    for (name, value) in [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "sandbox"),
        ("gen_ai.request.model", "sandbox-text-1"),
        ("gen_ai.request.max_tokens", "8"),
        ("gen_ai.request.temperature", "0.5"),
        ("gen_ai.usage.output_tokens", "8"),
    ] {
        assert_eq!(
            shown.get(name).map(String::as_str),
            Some(value),
            "{name}: {shown:?}"
        );
    }
    assert!(shown["gen_ai.usage.input_tokens"].parse::<u32>().unwrap() > 0);
    assert_eq!(chat.kind, 3);
    // One trace: the request, the generation's task, the call.
    assert_eq!(chat.trace_id, request.trace_id);
    let generation = spans
        .iter()
        .find(|s| s.span_id == chat.parent_span_id)
        .unwrap();
    assert_eq!(generation.name, "generation");
    assert_eq!(generation.parent_span_id, request.span_id);

    // Statement spans are named and are children of the span that runs them; none is a root.
    for (statement, parent) in [
        ("authenticate a key", &request.span_id),
        ("place a hold", &generation.span_id),
    ] {
        let of = |span: &&Span| span.name == statement && span.parent_span_id == *parent;
        let span = spans.iter().find(of).unwrap();
        let noted = attributes(&span.attributes);
        assert_eq!(noted["db.system.name"], "postgresql");
        assert_eq!(noted["db.query.summary"], statement);
        assert_eq!((span.kind, &span.trace_id), (3, &request.trace_id));
    }
    for span in &spans {
        let is_statement = attributes(&span.attributes).contains_key("db.system.name");
        assert!(!is_statement || !span.parent_span_id.is_empty(), "{span:?}");
    }

    let failed = named(&spans, "chat sandbox-text-1", true);
    assert_eq!(attributes(&failed.attributes)["error.type"], "rejected");
    let answer = named(&spans, "POST /v1/generate/text", true);
    assert_eq!(
        attributes(&answer.attributes)["http.response.status_code"],
        "502"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_never_answers_stops_nothing() {
    // The operating system accepts connections, but no program responds.
    let deaf = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", deaf.local_addr().unwrap());
    let site = Site::new(&[("OTEL_EXPORTER_OTLP_ENDPOINT", url.leak())]);
    let (server, key) = site.first().await;
    assert_eq!(generate(&server, &key, "x").await, 200);
    server.stop().await;
}
