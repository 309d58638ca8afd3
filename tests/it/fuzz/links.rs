//! Mutated file links and tokens: only the original ones work.

use std::sync::Arc;

use chrono::TimeDelta;
use http::Method;
use proptest::prelude::*;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{
    Size,
    bytes::{cut, cuts},
    check,
};
use crate::common::{TestApp, link};

#[sqlx::test]
async fn only_the_link_that_was_signed_opens(_: PgPoolOptions, options: PgConnectOptions) {
    let app = Arc::new(TestApp::new(options).await);
    let account = app.account("100").await;
    let body = json!({"prompt": "x", "parameters": {"size": "256x256"}});
    let made = app.post(&account.key, "/v1/generate/image", &body).await;
    let good = link(&made.expect(200)["result"]);
    let file = app.get("", &good).await;
    assert_eq!(file.status, 200);
    let range = prop_oneof![
        Just(None),
        "bytes=[0-9]{0,20}-[0-9]{0,20}".prop_map(Some),
        "[ -~]{0,30}".prop_map(Some),
        "bytes=([0-9]{0,4}-[0-9]{0,4},){0,50}".prop_map(Some),
    ];
    let size = Size {
        small: 250,
        cost: 1,
    };
    check(size, (cuts(2), range), move |(cuts, range)| {
        let (app, good, file) = (Arc::clone(&app), good.clone(), file.bytes.clone());
        async move {
            let mut bytes = good.clone().into_bytes();
            cut(&mut bytes, &cuts);
            let Ok(url) = String::from_utf8(bytes) else {
                return;
            };
            if url
                .parse::<http::Uri>()
                .map_or(true, |uri| uri.path_and_query().is_none())
            {
                return;
            }
            let headers: Vec<_> = range.iter().map(|r| ("range", r.trim())).collect();
            let answer = app.call(Method::GET, "", &url, &headers, None).await;
            match answer.status.as_u16() {
                200 | 206 if url.starts_with("/v1/media/") => {
                    // Only what is not part of the URL may have been changed.
                    let bare = url.split('#').next().unwrap();
                    assert_eq!(plain(bare), plain(&good), "{url} opens");
                    let part = file.windows(answer.bytes.len().max(1));
                    assert!(answer.bytes.is_empty() || part.into_iter().any(|w| w == answer.bytes));
                }
                416 => assert_eq!(plain(&url), plain(&good)),
                // The front page.
                200 => assert_eq!(url.split(['?', '#']).next(), Some("/"), "{url}"),
                status => assert!((400..500).contains(&status), "{url}: {status}"),
            }
        }
    })
    .await;
}

/// A URL without meaningless variations: escapes of plain letters, empty parameters.
fn plain(url: &str) -> (String, Vec<(String, String)>) {
    let url = url::Url::parse(&format!("http://test{url}")).unwrap();
    let mut pairs: Vec<(String, String)> = url
        .query_pairs()
        .map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect();
    pairs.sort();
    (url.path().to_owned(), pairs)
}

#[sqlx::test]
async fn only_the_token_that_was_made_opens(_: PgPoolOptions, options: PgConnectOptions) {
    let app = Arc::new(TestApp::new(options).await);
    let account = app.account("1").await;
    let session = app.login(&account).await;
    let tokens = prop::sample::select(vec![account.key.clone(), session]);
    let size = Size {
        small: 200,
        cost: 1,
    };
    check(size, (tokens, cuts(2)), move |(token, cuts)| {
        let app = Arc::clone(&app);
        async move {
            let mut bytes = token.clone().into_bytes();
            cut(&mut bytes, &cuts);
            let value = [b"Bearer ", &bytes[..]].concat();
            let Ok(value) = http::HeaderValue::from_bytes(&value) else {
                return;
            };
            // Within the rate limit of a session.
            app.advance(TimeDelta::milliseconds(200));
            let request = http::Request::builder()
                .uri("/v1/auth/me")
                .header("authorization", value)
                .body(axum::body::Body::empty());
            let answer = app.send(request.unwrap()).await;
            if answer.status == 200 {
                let given = String::from_utf8(bytes).unwrap();
                assert_eq!(given.trim(), token);
            } else {
                assert_eq!(answer.status, 401, "{}", answer.text);
                let code = answer.json()["error"]["code"].clone();
                answer.error(401, code.as_str().unwrap());
            }
        }
    })
    .await;
}
