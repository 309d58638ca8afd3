//! Files on a real S3 server, and its faults. `make test-s3` runs these tests; they are ignored
//! otherwise, because they need that server.

mod server;

use std::{env, time::Duration};

use chrono::TimeDelta;
use http::Method;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::{Account, TestApp};
use server::{Fault, S3};

const MODALITIES: [&str; 3] = ["image", "audio", "video"];

/// A generation that is stored as a file, begun.
async fn begin(app: &TestApp, account: &Account, modality: &str) -> String {
    let path = format!("/v1/generate/{modality}");
    let body = json!({"prompt": "x", "provider": "sandbox"});
    let prefer = [("prefer", "respond-async")];
    let begun = app.post_with(&account.key, &path, &prefer, &body).await;
    begun.expect(202)["uuid"].as_str().unwrap().to_owned()
}

/// Opens the links of a completed record; what they lead to is what the record says.
async fn assert_readable(app: &TestApp, record: &Value) {
    assert_eq!(record["status"], "completed", "{record}");
    for output in record["outputs"].as_array().unwrap() {
        let url = output["url"].as_str().unwrap();
        let url = &url[url.find("/v1/").unwrap()..];
        let sent = app.call(Method::GET, "", url, &[], None).await;
        assert_eq!(sent.status, 307);
        let file = reqwest::get(sent.header("location")).await.unwrap();
        assert_eq!(file.status().as_u16(), 200);
        assert_eq!(
            file.headers()["content-type"],
            output["content_type"].as_str().unwrap()
        );
        let bytes = file.bytes().await.unwrap();
        assert_eq!(output["bytes"], bytes.len());
        let digest = Sha256::digest(&bytes);
        let digest: Vec<String> = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(output["sha256"], digest.concat());
    }
}

/// Asserts that no file is missing, damaged or unknown, and that nothing is on hold.
async fn assert_clean(app: &TestApp) {
    // Workers that do not know of an end yet may still write for a while.
    app.advance(TimeDelta::minutes(16));
    while app.app.runner.empty_trash(100).await.unwrap() {}
    let audit = app.app.runner.verify_files().await.unwrap();
    let differences = [audit.missing, audit.damaged, audit.unknown].concat();
    assert_eq!(differences, [""; 0]);
    app.assert_settled().await;
}

#[sqlx::test]
#[ignore = "needs an S3 server: make test-s3"]
async fn files_lie_in_the_bucket_until_they_are_deleted(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let s3 = S3::start(env::var("S3_SERVER").unwrap()).await;
    let app = TestApp::with(options, &s3.env()).await;
    let account = app.account("100").await;
    for modality in MODALITIES {
        let uuid = begin(&app, &account, modality).await;
        let record = app.until_finished(&account, &uuid).await;
        assert_readable(&app, &record).await;
    }
    let audit = app.app.runner.verify_files().await.unwrap();
    assert_eq!(audit.files, 3);
    assert_clean(&app).await;

    for record in app.history(&account).await {
        let path = format!("/v1/generate/{}", record["uuid"].as_str().unwrap());
        let deleted = app
            .call(Method::DELETE, &account.key, &path, &[], None)
            .await;
        assert_eq!(deleted.status, 204);
    }
    assert_clean(&app).await;
    assert_eq!(app.app.runner.verify_files().await.unwrap().files, 0);
}

#[sqlx::test]
#[ignore = "needs an S3 server: make test-s3"]
async fn with_every_fault_it_is_stored_whole_or_costs_nothing(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let s3 = S3::start(env::var("S3_SERVER").unwrap()).await;
    let app = TestApp::with(options, &s3.env()).await;
    let account = app.account("1000").await;
    let uuid = begin(&app, &account, "image").await;
    let stored = app.until_finished(&account, &uuid).await;
    for fault in [
        Fault::Slow(Duration::from_millis(300)),
        Fault::Refuses(503, "SlowDown"),
        Fault::Refuses(507, "XMinioStorageFull"),
        Fault::Refuses(403, "QuotaExceeded"),
        Fault::Refuses(413, "EntityTooLarge"),
        Fault::Gone,
        Fault::Cut,
    ] {
        s3.set(fault).await;
        let mut begun = Vec::new();
        for modality in MODALITIES {
            begun.push(begin(&app, &account, modality).await);
        }
        app.work().await;
        // Links to what was stored before: to the bucket, or an error that says when to come back.
        let url = stored["outputs"][0]["url"].as_str().unwrap();
        let url = &url[url.find("/v1/").unwrap()..];
        let link = app.call(Method::GET, "", url, &[], None).await;
        assert_eq!(link.status, 307, "{fault:?}");
        let head = app.call(Method::HEAD, "", url, &[], None).await;
        assert!(
            [200, 503].contains(&head.status.as_u16()),
            "{fault:?}: {}",
            head.status
        );
        assert_eq!(head.status == 503, !head.header("retry-after").is_empty());
        let failed = !matches!(fault, Fault::Slow(_));
        assert_eq!(head.status == 503, failed, "{fault:?}");
        // Images and speech have no other copy; the provider keeps its video for some time.
        for uuid in &begun[..2] {
            let record = app.record(&account, uuid).await;
            assert_eq!(record["status"] == "failed", failed, "{fault:?}: {record}");
        }
        s3.set(Fault::None).await;
        for uuid in begun {
            let record = app.until_finished(&account, &uuid).await;
            if record["status"] == "completed" {
                assert_readable(&app, &record).await;
                continue;
            }
            assert!(failed, "{fault:?}: {record}");
            assert_eq!(record["error"]["code"], "storage_unavailable", "{record}");
            assert_eq!(record["credits"]["charged"], "0");
            assert_eq!(record["outputs"], json!([]));
        }
        assert_clean(&app).await;
    }
    assert_readable(&app, &stored).await;
}
