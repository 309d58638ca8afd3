//! GET /v1/media/{uuid}/{file}: signed links.

mod bucket;

use chrono::TimeDelta;
use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::{Account, TestApp, link};

async fn picture(app: &TestApp, account: &Account) -> Value {
    let body = json!({"prompt": "x", "parameters": {"size": "256x256"}});
    app.post(&account.key, "/v1/generate/image", &body)
        .await
        .expect(200)
}

#[sqlx::test]
async fn a_link_opens_without_a_token_until_it_expires(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let record = picture(&app, &account).await;
    let url = &record["result"];
    let file = app.file(url, &[]).await;
    assert_eq!(file.status, 200);
    for (name, value) in [
        ("content-type", "image/png"),
        ("accept-ranges", "bytes"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(file.header(name), value);
    }
    assert_eq!(file.header("content-length"), file.bytes.len().to_string());
    assert_eq!(record["outputs"][0]["bytes"], file.bytes.len());
    // An invalid token is ignored.
    let ignored = app
        .call(Method::GET, "svc_wrong", &link(url), &[], None)
        .await;
    assert_eq!(ignored.status, 200);
    let head = app.call(Method::HEAD, "", &link(url), &[], None).await;
    assert_eq!((head.status.as_u16(), head.bytes.len()), (200, 0));
    assert_eq!(head.header("content-length"), file.header("content-length"));
    assert_eq!(head.header("etag"), file.header("etag"));
    // A second server has the secret too.
    let other = app.replica().await;
    assert_eq!(other.file(url, &[]).await.status, 200);
    app.advance(TimeDelta::hours(24) - TimeDelta::seconds(1));
    assert_eq!(app.file(url, &[]).await.status, 200);
    app.advance(TimeDelta::seconds(1));
    app.file(url, &[]).await.error(403, "expired_signature");
    // A lookup signs a new link.
    let uuid = record["uuid"].as_str().unwrap();
    let fresh = app.record(&account, uuid).await;
    assert_ne!(&fresh["result"], url);
    assert_eq!(app.file(&fresh["result"], &[]).await.status, 200);
    let history = app.history(&account).await;
    assert_eq!(history[0]["result"], fresh["result"]);
}

#[sqlx::test]
async fn a_link_cannot_be_made_up(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let first = link(&picture(&app, &account).await["result"]);
    let second = link(&picture(&app, &account).await["result"]);
    let (path, query) = first.split_once('?').unwrap();
    let (other, _) = second.split_once('?').unwrap();
    let (expires, signature) = query.split_once('&').unwrap();
    let expires: i64 = expires.strip_prefix("expires=").unwrap().parse().unwrap();
    let signature = signature.strip_prefix("signature=").unwrap();
    let get = async |url: String| app.call(Method::GET, "", &url, &[], None).await;
    for query in [
        format!("expires={}&signature={signature}", expires + 1),
        format!("expires={expires}&signature={}", "0".repeat(64)),
        format!("expires={expires}&signature={}", signature.to_uppercase()),
        format!("expires={expires}&signature=x"),
        format!("expires=0&signature={signature}"),
        format!("expires=-1&signature={signature}"),
        format!("expires={expires}&signature="),
        format!("expires={expires}"),
        format!("signature={signature}"),
        String::new(),
    ] {
        let answer = get(format!("{path}?{query}")).await;
        assert_eq!(answer.status, 403, "{query} {}", answer.text);
        answer.error(403, "invalid_signature");
    }
    get(format!("{other}?{query}"))
        .await
        .error(403, "invalid_signature");
    // Nothing but valid keys is looked up.
    let uuid = path.split('/').nth(3).unwrap();
    for odd in [
        format!("/v1/media/{}/0.png", uuid.to_uppercase()),
        format!("/v1/media/{uuid}/0.PNG"),
        format!("/v1/media/{uuid}/00.png"),
        format!("/v1/media/{uuid}/0.exe"),
        format!("/v1/media/{uuid}/%2e%2e"),
        format!("/v1/media/{uuid}/..%2f..%2fetc"),
        format!("/v1/media/{uuid}/%ff"),
        format!("/v1/media/{uuid}"),
        format!("/v1/media/{uuid}/"),
        format!("/v1/media/{uuid}/0.png/"),
        "/v1/media/incoming/.clock".to_owned(),
        "/v1/media/".to_owned(),
        "/v1/media//0.png".to_owned(),
        format!("/v1/media/{uuid}/0.exe?utm=1"),
    ] {
        let separator = if odd.contains('?') { '&' } else { '?' };
        let answer = get(format!("{odd}{separator}{query}")).await;
        assert_eq!(answer.status, 404, "{odd} {}", answer.text);
        answer.error(404, "not_found");
    }
    let answer = app.call(Method::POST, "", &first, &[], None).await;
    answer.error(405, "method_not_allowed");
}

#[sqlx::test]
async fn ranges_and_entity_tags(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let record = picture(&app, &account).await;
    let url = &record["result"];
    let whole = app.file(url, &[]).await;
    let (all, n) = (whole.bytes.clone(), whole.bytes.len());
    let etag = whole.header("etag").to_owned();
    assert!(etag.starts_with('"') && etag.ends_with('"'), "{etag}");
    for (range, from, to) in [
        ("bytes=0-0", 0, 1),
        ("bytes=5-9", 5, 10),
        ("bytes=10-", 10, n),
        ("bytes=-7", n - 7, n),
        ("bytes=-99999999", 0, n),
        ("bytes=3-99999999", 3, n),
        ("bytes=3-18446744073709551615", 3, n),
    ] {
        let part = app.file(url, &[("range", range)]).await;
        assert_eq!(part.status, 206, "{range}");
        assert_eq!(part.bytes, all.slice(from..to), "{range}");
        let expected = format!("bytes {from}-{}/{n}", to - 1);
        assert_eq!(part.header("content-range"), expected);
        assert_eq!(part.header("content-length"), (to - from).to_string());
        assert_eq!(part.header("x-content-type-options"), "nosniff");
    }
    for range in [
        format!("bytes={n}-"),
        format!("bytes={n}-{}", n + 5),
        "bytes=-0".to_owned(),
    ] {
        let answer = app.file(url, &[("range", &range)]).await;
        answer.error(416, "range_not_satisfiable");
        assert_eq!(
            answer.header("content-range"),
            format!("bytes */{n}"),
            "{range}"
        );
    }
    for range in [
        "bytes=9-5",
        "bytes=a-b",
        "items=0-1",
        "bytes=",
        "bytes=+1-2",
        "bytes=0-1,4-5",
    ] {
        let answer = app.file(url, &[("range", range)]).await;
        assert_eq!(
            (answer.status.as_u16(), answer.bytes.len()),
            (200, n),
            "{range}"
        );
    }
    for (name, value) in [
        ("if-none-match", etag.clone()),
        ("if-none-match", format!("\"other\", W/{etag}")),
        ("if-none-match", "*".to_owned()),
    ] {
        let answer = app.file(url, &[(name, &value)]).await;
        assert_eq!(
            (answer.status.as_u16(), answer.bytes.len()),
            (304, 0),
            "{value}"
        );
        assert_eq!(answer.header("etag"), etag);
    }
    let changed = app.file(url, &[("if-none-match", "\"other\"")]).await;
    assert_eq!(changed.status, 200);
    for (version, status) in [(etag.as_str(), 206), ("\"other\"", 200)] {
        let headers = [("range", "bytes=0-0"), ("if-range", version)];
        assert_eq!(app.file(url, &headers).await.status, status);
    }
    let headers = [("range", "bytes=0-0")];
    let head = app.call(Method::HEAD, "", &link(url), &headers, None).await;
    // A range applies to GET only.
    assert_eq!(head.header("content-length"), n.to_string());
}

#[sqlx::test]
async fn a_deleted_generation_takes_its_files_along(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let record = picture(&app, &account).await;
    let kept = picture(&app, &account).await;
    assert_eq!(app.files().len(), 2);
    let path = format!("/v1/generate/{}", record["uuid"].as_str().unwrap());
    app.delete(&account.key, &path).await.expect(204);
    app.get(&account.key, &path).await.error(404, "not_found");
    assert!(!app.app.runner.empty_trash(100).await.unwrap());
    app.file(&record["result"], &[])
        .await
        .error(404, "not_found");
    assert_eq!(app.files().len(), 1);
    assert_eq!(app.file(&kept["result"], &[]).await.status, 200);
    assert_eq!(app.balance(&account).await.0, "8");
    app.delete(&account.key, &path)
        .await
        .error(404, "not_found");
    app.assert_settled().await;
}

/// A worker that was paused may store a file after its generation was ended, and deleted.
#[sqlx::test]
async fn files_that_are_written_after_a_deletion_are_removed(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    for prompt in ["x", "[[fail]]"] {
        let body = json!({"prompt": prompt});
        let made = app.post(&account.key, "/v1/generate/image", &body).await;
        let made = made.json();
        let record = if prompt == "x" {
            &made
        } else {
            &made["generation"]
        };
        let uuid = record["uuid"].as_str().unwrap();
        let path = format!("/v1/generate/{uuid}");
        app.delete(&account.key, &path).await.expect(204);
        assert!(app.files().is_empty());
        let folder = app.media_folder().join(uuid);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("0.png"), "late").unwrap();
        let audit = app.app.runner.verify_files().await.unwrap();
        assert!(audit.unknown.is_empty(), "{:?}", audit.unknown);
        app.assert_nothing_kept().await;
    }
}

/// Waits for the transactions of other tests that began before the last generation ended.
pub async fn ended_for_all(app: &TestApp) {
    let ended = "select bool_and(settled < pg_snapshot_xmin(pg_current_snapshot()))
        from finished_generations";
    let waiting = async {
        while !sqlx::query_scalar::<_, bool>(ended)
            .fetch_one(&app.pool)
            .await
            .unwrap()
        {}
    };
    let waited = tokio::time::timeout(std::time::Duration::from_mins(1), waiting);
    waited.await.unwrap();
}

#[sqlx::test]
async fn old_generations_are_deleted_in_batches(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("100").await;
    let mut old = Vec::new();
    for _ in 0..3 {
        old.push(picture(&app, &account).await);
    }
    let body = json!({"prompt": "x", "parameters": {"duration": 1}});
    let running = app.queue(&account, "video", &body).await;
    app.advance(TimeDelta::days(2));
    let fresh = picture(&app, &account).await;
    ended_for_all(&app).await;
    let delete = async || {
        let runner = &app.app.runner;
        runner.delete_old(TimeDelta::days(1), 2).await.unwrap()
    };
    assert_eq!([delete().await, delete().await], [true, false]);
    app.advance(TimeDelta::minutes(16));
    assert!(app.app.runner.empty_trash(2).await.unwrap());
    assert!(!app.app.runner.empty_trash(2).await.unwrap());
    for record in &old {
        let path = format!("/v1/generate/{}", record["uuid"].as_str().unwrap());
        app.get(&account.key, &path).await.error(404, "not_found");
    }
    assert_eq!(app.files().len(), 1);
    let uuid = fresh["uuid"].as_str().unwrap();
    assert_eq!(app.record(&account, uuid).await["status"], "completed");
    assert_eq!(app.record(&account, &running).await["status"], "processing");
    // The ledger entries stay.
    let charges = app
        .get(&account.key, "/v1/credits/ledger?kind=charge")
        .await
        .expect(200);
    assert_eq!(charges["data"].as_array().unwrap().len(), 4);
    app.assert_verified().await;
}
