//! Failures that every adapter must classify in the same way.

use std::{net::TcpListener, time::Duration};

use super::{Reply, TIMEOUT, Upstream};
use crate::providers::{ProviderError, ProviderErrorKind};

/// Calls `ask(base URL, timeout)` for every failure and checks the resulting error.
pub async fn check<T, A, F>(ask: A)
where
    T: std::fmt::Debug,
    A: Fn(String, Duration) -> F,
    F: Future<Output = Result<T, ProviderError>>,
{
    use ProviderErrorKind::{Account, Failed, Overloaded, Rejected, Timeout};
    let page = "<html>Bad gateway, your prompt was: A red fox.</html>";
    let wait = [("retry-after", "2"), ("x-request-id", "req-7")];
    let elsewhere = Upstream::start(Reply::status(200, &[], "{}")).await;
    let moved = [("location", elsewhere.base.as_str())];
    let status = Reply::status;
    for (reply, kind, not_started, seconds) in [
        (status(200, &[], ""), Failed, false, None),
        (status(200, &[], page), Failed, false, None),
        (status(200, &[], "{}"), Failed, false, None),
        (status(200, &[], "[]"), Failed, false, None),
        (
            status(200, &[], "{\"id\": 7, \"data\": 7"),
            Failed,
            false,
            None,
        ),
        (status(301, &moved, ""), Failed, false, None),
        (status(307, &moved, ""), Failed, false, None),
        (status(400, &[], page), Rejected, false, None),
        (status(401, &[], ""), Account, false, None),
        (status(402, &[], "[]"), Account, false, None),
        (status(403, &[], "7"), Account, false, None),
        (status(404, &[], page), Rejected, false, None),
        (status(405, &[], page), Rejected, false, None),
        (status(408, &[], page), Timeout, false, None),
        (status(413, &[], page), Rejected, false, None),
        (status(422, &[], "null"), Rejected, false, None),
        (status(429, &wait, page), Overloaded, true, Some(2)),
        (status(500, &[], page), Failed, false, None),
        (status(502, &[], page), Failed, false, None),
        (status(503, &wait, page), Overloaded, true, Some(2)),
        (status(504, &wait, page), Timeout, false, Some(2)),
        (status(529, &[], ""), Overloaded, true, None),
        (Reply::Raw(String::new()), Failed, false, None),
        (
            Reply::Raw("SSH-2.0-X\r\n\r\n".to_owned()),
            Failed,
            false,
            None,
        ),
        (Reply::cut("{\"id\":"), Failed, false, None),
    ] {
        let case = format!("{reply:?}");
        let upstream = Upstream::start(reply).await;
        let error = ask(upstream.base.clone(), TIMEOUT).await.unwrap_err();
        assert_eq!(
            (error.kind, error.not_started, error.retry_after),
            (kind, not_started, seconds.map(Duration::from_secs)),
            "{case}: {error}"
        );
        let said = format!("{} {}", error.message(), error.detail);
        assert!(!said.contains("prompt") && !said.contains("key"), "{said}");
        assert_eq!(upstream.seen().len(), 1, "sent once: {case}");
    }
    assert!(elsewhere.seen().is_empty(), "the key left the base URL");

    let silent = Upstream::start(Reply::Stalled(String::new())).await;
    let error = ask(silent.base.clone(), Duration::from_millis(150))
        .await
        .unwrap_err();
    assert_eq!((error.kind, error.not_started), (Timeout, false));

    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let error = ask(base, TIMEOUT).await.unwrap_err();
    assert_eq!((error.kind, error.not_started), (Failed, true));
}

/// An endless response fails at its size limit.
pub async fn check_cap<T, A, F>(head: &str, piece: &str, ask: A)
where
    T: std::fmt::Debug,
    A: Fn(String, Duration) -> F,
    F: Future<Output = Result<T, ProviderError>>,
{
    let head = format!("HTTP/1.1 200 X\r\n\r\n{head}");
    let upstream = Upstream::start(Reply::Endless(head, piece.repeat(1 << 20))).await;
    let error = ask(upstream.base.clone(), TIMEOUT).await.unwrap_err();
    assert_eq!(
        (error.kind, error.not_started, error.detail.as_str()),
        (ProviderErrorKind::Failed, false, "body over the cap")
    );
}
