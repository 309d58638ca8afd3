//! Bodies: media type, size, time, JSON.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use futures_util::stream;
use http::Method;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{TEXT, raw};
use crate::common::{Account, Answer, TestApp};

/// The routes with a body.
const ROUTES: [&str; 3] = [TEXT, "/v1/api-keys", "/v1/auth/login"];
pub const JSON: (&str, &str) = ("content-type", "application/json");
/// The largest allowed body.
const MOST: usize = 256 * 1024;

pub async fn post(
    app: &TestApp,
    account: &Account,
    path: &str,
    headers: &[(&str, &str)],
    body: Body,
) -> Answer {
    app.send(raw(Method::POST, path, &account.key, headers, body))
        .await
}

/// A chunked body, without a Content-Length.
fn chunked(bytes: usize) -> Body {
    let piece = Bytes::from(vec![b'x'; 1000]);
    let pieces = (0..bytes / 1000).map(move |_| piece.clone());
    let rest = Bytes::from(vec![b'x'; bytes % 1000]);
    Body::from_stream(stream::iter(pieces.chain([rest]).map(Ok::<_, Infallible>)))
}

#[sqlx::test]
async fn what_is_no_json_object_is_malformed(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let nested = |levels: usize| {
        let (open, close) = ("[".repeat(levels), "]".repeat(levels));
        format!(r#"{{"zzz": {open}{close}}}"#)
    };
    let cases: Vec<Vec<u8>> = [
        "",
        " ",
        "{",
        "}",
        "nul",
        "null",
        "[]",
        "[{}]",
        "\"text\"",
        "1",
        "true",
        "{} {}",
        "{} x",
        "{},",
        "{\"a\":1,}",
        "{'a':1}",
        "{a:1}",
        "{\"a\":01}",
        "{\"a\":.5}",
        "{\"a\":NaN}",
        "{\"a\":\"\t\"}",
        "{\"a\":\"\\ud800\"}",
        "{\"a\":1,\"a\":1}",
        "{\"a\":1,\"\\u0061\":2}",
        "{\"parameters\":{\"b\":null,\"b\":null}}",
        "{\"a\":[{\"b\":1,\"b\":2}]}",
        "\u{feff}{}",
        "/**/{}",
        &nested(64),
        &nested(200_000 / 2),
        "prompt=x",
    ]
    .iter()
    .map(|text| text.as_bytes().to_vec())
    .chain([
        b"{\"prompt\":\"\xff\"}".to_vec(),
        b"\xff\xfe{\0}\0".to_vec(),
    ])
    .collect();
    for path in ROUTES {
        for bytes in &cases {
            let answer = post(&app, &account, path, &[JSON], bytes.clone().into()).await;
            let error = answer.error(400, "malformed_json");
            assert_eq!(error["type"], "invalid_request");
            assert_eq!(error["retryable"], false);
        }
        // 64 levels are allowed: the object and 63 arrays.
        let answer = post(&app, &account, path, &[JSON], nested(63).into()).await;
        assert_eq!(answer.fields()["zzz"], "unknown_field", "{path}");
        let spaced = " \t\r\n{ } \n";
        let answer = post(&app, &account, path, &[JSON], spaced.into()).await;
        answer.error(422, "validation_failed");
    }
    let cut = [
        Ok(Bytes::from_static(b"{\"prompt\":")),
        Err(std::io::Error::other("cut")),
    ];
    let body = Body::from_stream(stream::iter(cut));
    post(&app, &account, TEXT, &[JSON], body)
        .await
        .error(400, "malformed_json");
}

#[sqlx::test]
async fn the_media_type_must_be_json(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let refused: [&[(&str, &str)]; 10] = [
        &[],
        &[("content-type", "")],
        &[("content-type", "text/plain")],
        &[("content-type", "application/x-www-form-urlencoded")],
        &[("content-type", "multipart/form-data; boundary=x")],
        &[("content-type", "application/jsonp")],
        &[("content-type", "text/json; application/json")],
        &[JSON, ("content-encoding", "gzip")],
        &[JSON, ("content-encoding", "br")],
        &[JSON, ("content-encoding", "identity, gzip")],
    ];
    let accepted: [&[(&str, &str)]; 5] = [
        &[JSON],
        &[("content-type", "application/json; charset=utf-8")],
        &[("content-type", "Application/JSON;charset=\"UTF-8\"")],
        &[("content-type", " application/json ; x=y")],
        &[JSON, ("content-encoding", "identity")],
    ];
    for path in ROUTES {
        for headers in refused {
            let answer = post(&app, &account, path, headers, "{}".into()).await;
            let error = answer.error(415, "unsupported_media_type");
            assert_eq!(error["type"], "invalid_request", "{headers:?}");
        }
        for headers in accepted {
            post(&app, &account, path, headers, "{}".into())
                .await
                .error(422, "validation_failed");
        }
    }
    // A request without a body needs none.
    app.call(
        Method::POST,
        &app.login(&account).await,
        "/v1/auth/logout",
        &[],
        None,
    )
    .await
    .expect(204);
}

#[sqlx::test]
async fn a_body_has_256_kib_at_most(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let long = |bytes: usize| {
        let prompt = "x".repeat(bytes - r#"{"prompt":""}"#.len());
        format!(r#"{{"prompt":"{prompt}"}}"#)
    };
    let announced = |bytes: usize| ("content-length", bytes.to_string());
    for path in ROUTES {
        for body in [
            Body::from(long(MOST + 1)),
            chunked(MOST + 1),
            chunked(MOST * 9),
        ] {
            let answer = post(&app, &account, path, &[JSON], body).await;
            let error = answer.error(413, "payload_too_large");
            assert_eq!(error["type"], "invalid_request");
        }
        // With a Content-Length it is refused before it arrives.
        let (name, length) = announced(MOST + 1);
        let never = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        post(&app, &account, path, &[JSON, (name, &length)], never)
            .await
            .error(413, "payload_too_large");
        post(&app, &account, path, &[JSON], long(MOST).into())
            .await
            .error(422, "validation_failed");
        post(&app, &account, path, &[JSON], chunked(MOST))
            .await
            .error(400, "malformed_json");
    }
    let (name, length) = announced(MOST);
    let fields = post(
        &app,
        &account,
        TEXT,
        &[JSON, (name, &length)],
        long(MOST).into(),
    )
    .await
    .fields();
    assert_eq!(fields["prompt"], "too_long");
}

#[sqlx::test]
async fn a_body_that_does_not_arrive_is_timed_out(_: PgPoolOptions, options: PgConnectOptions) {
    let env = [("GENSVC__SERVER__BODY_TIMEOUT_SECONDS", "1")];
    let app = TestApp::with(options, &env).await;
    let account = app.account("1").await;
    let never = stream::pending::<Result<Bytes, Infallible>>();
    let start = stream::iter([Ok(Bytes::from_static(b"{"))]);
    let body = Body::from_stream(futures_util::StreamExt::chain(start, never));
    let answer = post(&app, &account, TEXT, &[JSON], body).await;
    let error = answer.error(408, "request_timeout");
    assert_eq!(error["type"], "invalid_request");
    assert_eq!(app.balance(&account).await.1, "0");
}
