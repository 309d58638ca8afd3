//! Transport: timeouts, limits, refused connections, redirects, and that no upstream text is kept.

use std::{
    io,
    net::TcpListener,
    sync::{Arc, Mutex},
};

use reqwest::header::HeaderName;
use secrecy::SecretString;
use serde_json::json;
use url::Url;

use super::{
    base_url::VersionPath,
    classify::{ErrorInfo, by_status, clean_id, error, machine_code},
    client::secret_header,
    *,
};
use crate::providers::{
    ProviderErrorKind, Setup,
    tests::fake::{Reply, TIMEOUT, Upstream, client, setup},
};

/// Sends once, whatever the status of the response.
async fn post(base: &str, timeout: Duration) -> Result<Answer, ProviderError> {
    let setup = Setup {
        http: client(),
        api_key: Some(" test-key\n".into()),
        ..setup(base, timeout)
    };
    let key = (HeaderName::from_static("x-api-key"), "");
    let client = VendorClient::new(&setup, VersionPath::Last("v1"), key, |_| {
        ErrorInfo::default()
    });
    let body = RequestJson::of(&json!({"prompt": "x"})).unwrap();
    let url = Url::parse(base).unwrap();
    client.unwrap().post_within(url, body, timeout).await
}

#[tokio::test]
async fn refused_means_not_started() {
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let error = post(&format!("http://{free}"), TIMEOUT).await.unwrap_err();
    assert_eq!(
        (error.kind, error.not_started),
        (ProviderErrorKind::Failed, true)
    );
    assert!(error.detail.starts_with("connect: "), "{}", error.detail);
    assert!(!error.detail.contains("http://"), "{}", error.detail);
    let error = post("http://nowhere.invalid", TIMEOUT).await.unwrap_err();
    assert_eq!(
        (error.kind, error.not_started),
        (ProviderErrorKind::Failed, true)
    );
}

#[tokio::test]
async fn silence_is_a_timeout_and_may_have_started() {
    let upstream = Upstream::start(Reply::Stalled(String::new())).await;
    let error = post(&upstream.base, Duration::from_millis(100))
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind, error.not_started),
        (ProviderErrorKind::Timeout, false)
    );
    let slow = "HTTP/1.1 200 X\r\ncontent-length: 9\r\nx-request-id: r\r\n\r\n";
    // The connection closes after the head, so the body is too short.
    let upstream = Upstream::start(Reply::Raw(slow.to_owned())).await;
    let error = post(&upstream.base, TIMEOUT)
        .await
        .unwrap()
        .json(100)
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind, error.not_started),
        (ProviderErrorKind::Failed, false)
    );
    assert_eq!(
        (error.status, error.request_id.as_deref()),
        (Some(200), Some("r"))
    );
}

#[tokio::test]
async fn a_cut_or_garbled_answer_is_a_failure() {
    for raw in ["", "HTTP/1.1 200", "SSH-2.0-OpenSSH\r\n\r\n"] {
        let upstream = Upstream::start(Reply::Raw(raw.to_owned())).await;
        let error = post(&upstream.base, TIMEOUT).await.unwrap_err();
        assert_eq!(
            (error.kind, error.not_started),
            (ProviderErrorKind::Failed, false),
            "{raw:?}"
        );
        assert_eq!(upstream.seen().len(), 1, "sent once");
    }
}

#[tokio::test]
async fn bodies_are_bounded() {
    let head = "HTTP/1.1 200 X\r\n\r\n".to_owned();
    let upstream = Upstream::start(Reply::Endless(head, "x".repeat(1000))).await;
    let error = post(&upstream.base, TIMEOUT)
        .await
        .unwrap()
        .json(50_000)
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind, error.detail.as_str()),
        (ProviderErrorKind::Failed, "body over the cap")
    );
    // An endless error page is judged by its status.
    let head = "HTTP/1.1 502 X\r\n\r\n".to_owned();
    let upstream = Upstream::start(Reply::Endless(head, "x".repeat(1000))).await;
    let (head, body) = post(&upstream.base, TIMEOUT)
        .await
        .unwrap()
        .error_json()
        .await;
    assert_eq!((head.status, body), (502, None));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let other = Upstream::start(Reply::json(&json!({}))).await;
    for status in [301, 302, 303, 307, 308] {
        let reply = Reply::status(status, &[("location", &other.base)], "");
        let upstream = Upstream::start(reply).await;
        let answer = post(&upstream.base, TIMEOUT).await.unwrap();
        assert!(!answer.head().is_success());
        assert_eq!(by_status(status), (ProviderErrorKind::Failed, false));
        let seen = &upstream.seen()[0];
        assert_eq!(seen.header("x-api-key"), Some("test-key"));
        assert_eq!(seen.header("accept-encoding"), Some("gzip"));
    }
    assert!(other.seen().is_empty(), "the key left the base URL");
}

#[tokio::test]
async fn headers_of_an_answer() {
    let headers = [
        ("request-id", "req_9"),
        ("retry-after-ms", "250"),
        ("x-should-retry", "false"),
    ];
    let upstream = Upstream::start(Reply::status(429, &headers, "{}")).await;
    let answer = post(&upstream.base, TIMEOUT).await.unwrap();
    let limited = error("p", answer.head(), &ErrorInfo::default());
    assert_eq!(
        (limited.kind, limited.not_started),
        (ProviderErrorKind::Overloaded, false)
    );
    assert_eq!(limited.retry_after, Some(Duration::from_millis(250)));
    assert_eq!(limited.request_id.as_deref(), Some("req_9"));
    let headers = [("request-id", "with space"), ("x-should-retry", "true")];
    let upstream = Upstream::start(Reply::status(500, &headers, "{}")).await;
    let answer = post(&upstream.base, TIMEOUT).await.unwrap();
    let failed = error("p", answer.head(), &ErrorInfo::default());
    assert_eq!(
        (failed.kind, failed.not_started),
        (ProviderErrorKind::Failed, false)
    );
    assert_eq!(failed.request_id, None);
}

#[test]
fn statuses() {
    use ProviderErrorKind::{Account, Failed, Overloaded, Rejected, Timeout};
    for (kind, not_started, statuses) in [
        (Rejected, false, &[400, 404, 405, 413, 415, 422][..]),
        (Account, false, &[401, 402, 403]),
        (Timeout, false, &[408, 504]),
        (Overloaded, true, &[429, 503, 529]),
        (
            Failed,
            false,
            &[
                100, 204, 301, 304, 307, 406, 409, 410, 418, 499, 500, 501, 502, 520, 599,
            ],
        ),
    ] {
        for status in statuses {
            assert_eq!(by_status(*status), (kind, not_started), "{status}");
        }
    }
}

#[test]
fn nothing_of_a_body_is_kept_but_a_code() {
    for (code, want) in [
        ("overloaded", ", code overloaded"),
        ("Your prompt was: tell me", ""),
        ("", ""),
        ("<b>", ""),
    ] {
        let error_info = ErrorInfo {
            code: Some(code.to_owned()),
            hint: Some(ProviderErrorKind::Overloaded),
            ..ErrorInfo::default()
        };
        for (status, not_started) in [(503, true), (200, false)] {
            let head = Head {
                status,
                ..Head::default()
            };
            let error = error("p", &head, &error_info);
            assert_eq!(error.detail, format!("status {status}{want}"));
            assert!(error.message().starts_with("the provider "));
            assert_eq!(error.not_started, not_started);
        }
    }
    assert_eq!(machine_code(&"a".repeat(64)).map(str::len), Some(64));
    assert_eq!(machine_code(&"a".repeat(65)), None);
    assert_eq!(
        clean_id("chatcmpl-1:a/b"),
        Some("chatcmpl-1:a/b".to_owned())
    );
    assert_eq!(clean_id("a b"), None);
}

#[test]
fn a_key_is_trimmed_hidden_and_checked() {
    let value = secret_header("Bearer ", &SecretString::from("k\n")).unwrap();
    assert_eq!(value.to_str().unwrap(), "Bearer k");
    assert_eq!(format!("{value:?}"), "Sensitive");
    let error = secret_header("", &SecretString::from("a\nb")).unwrap_err();
    assert!(!error.to_string().contains('\n'));
}

/// Collects what a subscriber writes.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn trouble_with_our_account_is_logged_loudly() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        for status in [401, 500] {
            let head = Head {
                status,
                ..Head::default()
            };
            error("my_groq", &head, &ErrorInfo::default());
        }
    });
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(
        text.contains("ERROR") && text.contains("my_groq") && text.contains("401"),
        "{text}"
    );
}

#[tokio::test]
async fn the_duration_of_a_stream_is_our_limit_and_a_gap_is_not() {
    let event = "HTTP/1.1 200 X\r\n\r\ndata: x\n\n".to_owned();
    let upstream = Upstream::start(Reply::Stalled(event)).await;
    let short = Duration::from_millis(300);
    for (total, gap, is_over_limit) in [(short, TIMEOUT, true), (TIMEOUT, short, false)] {
        let answer = post(&upstream.base, total).await.unwrap();
        let mut events = Answer {
            idle: gap,
            ..answer
        }
        .events(1_000);
        assert!(events.next().await.unwrap().is_some());
        let error = events.next().await.unwrap_err();
        assert_eq!(
            (error.kind, error.is_over_limit),
            (ProviderErrorKind::Timeout, is_over_limit)
        );
    }
}
