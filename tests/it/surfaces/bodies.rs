//! Bodies of the SDKs' routes, which may be large and slow.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::body::{Body, Bytes};
use futures_util::stream;
use http::Method;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::task::yield_now;

use super::{CHAT, MODELS, ask};
use crate::{
    common::{Account, Answer, TestApp},
    envelope::raw,
};

const PATIENCE: usize = 10_000_000;

async fn post(app: &TestApp, account: &Account, body: Body, length: Option<usize>) -> Answer {
    let length = length.map(|length| length.to_string());
    let mut headers = vec![("content-type", "application/json")];
    headers.extend(
        length
            .iter()
            .map(|length| ("content-length", length.as_str())),
    );
    let request = raw(Method::POST, CHAT, &account.key, &headers, body);
    app.send(request).await
}

async fn send(app: &TestApp, account: &Account, text: &str) -> Answer {
    post(app, account, Body::from(text.to_owned()), Some(text.len())).await
}

/// More than most routes take, of which a part comes at once and the rest never.
fn endless(begun: &Arc<AtomicUsize>) -> Body {
    let begun = Arc::clone(begun);
    let first = stream::once(async move {
        begun.fetch_add(1, Ordering::SeqCst);
        Ok::<_, Infallible>(Bytes::from(vec![b' '; 4 << 20]))
    });
    let rest = stream::pending::<Result<Bytes, Infallible>>();
    Body::from_stream(futures_util::StreamExt::chain(first, rest))
}

#[sqlx::test]
async fn bodies_that_arrive_slowly_take_no_place(_: PgPoolOptions, options: PgConnectOptions) {
    // What has arrived of them is worth another minute.
    let env = [("GENSVC__SERVER__BODY_TIMEOUT_SECONDS", "1")];
    let app = Arc::new(TestApp::with(options, &env).await);
    let account = app.account("10").await;
    let begun = Arc::new(AtomicUsize::new(0));
    let slow = [(); 16].map(|()| {
        let (app, account, body) = (Arc::clone(&app), account.clone(), endless(&begun));
        tokio::spawn(async move { post(&app, &account, body, None).await })
    });
    let mut looks = 0;
    while begun.load(Ordering::SeqCst) < slow.len() {
        assert!(looks < PATIENCE, "{begun:?}");
        looks += 1;
        yield_now().await;
    }
    let whole = ask(MODELS[0], "x").to_string();
    let large = format!("{whole}{}", " ".repeat(300_000));
    for text in [&whole, &large] {
        send(&app, &account, text).await.expect(200);
    }
    for one in slow {
        one.abort();
    }
    app.assert_settled().await;
}
