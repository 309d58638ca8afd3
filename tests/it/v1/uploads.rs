//! /v1/uploads

mod hostile;

use axum::body::Body;
use bytes::Bytes;
use chrono::TimeDelta;
use gensvc::{
    domain::ids::UploadId,
    store::uploads::{UploadLifetime, UploadRecord, UploadStored},
};
use http::{Method, Request};
use image::{ImageFormat, Rgb, RgbImage};
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::{
    common::{Account, Answer, TestApp, link, vendors::png},
    picture::encoded,
};

pub async fn post(app: &TestApp, token: &str, media_type: &str, bytes: impl Into<Bytes>) -> Answer {
    post_at(app, token, "/v1/uploads", media_type, bytes).await
}

/// As [`post`], with a query.
pub async fn post_at(
    app: &TestApp,
    token: &str,
    url: &str,
    media_type: &str,
    bytes: impl Into<Bytes>,
) -> Answer {
    let bytes = bytes.into();
    let request = Request::post(url)
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", media_type)
        .header("content-length", bytes.len());
    app.send(request.body(Body::from(bytes)).unwrap()).await
}

/// Uploads a PNG and returns the upload.
pub async fn upload(app: &TestApp, account: &Account, width: u32, height: u32) -> Value {
    let answer = post(app, &account.key, "image/png", png(width, height)).await;
    answer.expect(201)
}

fn path(upload: &Value) -> String {
    format!("/v1/uploads/{}", upload["id"].as_str().unwrap())
}

#[sqlx::test]
async fn an_upload_is_stored_once_listed_and_deleted(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("0").await;
    let first = upload(&app, &account, 30, 20).await;
    assert_eq!(first["type"], "image/png");
    assert_eq!(
        (&first["width"], &first["height"]),
        (&json!(30), &json!(20))
    );
    assert_eq!(first["bytes"], png(30, 20).len());
    assert_eq!(first["expires_at"], "2027-01-16T08:00:00.000000Z");
    let file = app.file(&first["url"], &[]).await;
    assert_eq!((file.status.as_u16(), &file.bytes), (200, &png(30, 20)));
    assert_eq!(file.header("content-type"), "image/png");

    app.advance(TimeDelta::hours(1));
    let again = upload(&app, &account, 30, 20).await;
    assert_eq!(again["id"], first["id"]);
    assert_eq!(again["created_at"], first["created_at"]);
    assert_eq!(again["expires_at"], "2027-01-16T09:00:00.000000Z");
    assert_eq!(app.files().len(), 1);

    let second = upload(&app, &account, 31, 20).await;
    let page = app.get(&account.key, "/v1/uploads?per_page=1").await;
    assert_eq!(page.json()["data"][0]["id"], second["id"]);
    let next = app.get(&account.key, &page.next_page()).await;
    assert_eq!(next.json()["data"][0]["id"], first["id"]);
    assert_eq!(next.next_page(), "");
    let found = app.get(&account.key, &path(&first)).await.expect(200);
    assert_eq!(found["sha256"], first["sha256"]);

    app.delete(&account.key, &path(&first)).await.expect(204);
    for gone in [
        app.get(&account.key, &path(&first)).await,
        app.delete(&account.key, &path(&first)).await,
        app.call(Method::GET, "", &link(&found["url"]), &[], None)
            .await,
    ] {
        gone.error(404, "not_found");
    }
    assert_eq!(app.files().len(), 1);
    let audit = app.app.runner.verify_files().await.unwrap();
    assert_eq!((audit.files, audit.unknown.len()), (1, 0));
    assert_eq!((audit.missing.len(), audit.damaged.len()), (0, 0));
}

#[sqlx::test]
async fn an_upload_belongs_to_its_account(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (owner, other) = (app.account("0").await, app.account("0").await);
    let mine = upload(&app, &owner, 4, 4).await;
    let theirs = upload(&app, &other, 4, 4).await;
    assert_ne!(mine["id"], theirs["id"]);
    for answer in [
        app.get(&other.key, &path(&mine)).await,
        app.delete(&other.key, &path(&mine)).await,
        app.get(&other.key, "/v1/uploads/upl_x").await,
    ] {
        answer.error(404, "not_found");
    }
    let listed = app.get(&other.key, "/v1/uploads").await.expect(200);
    assert_eq!(listed["data"].as_array().unwrap().len(), 1);
    for (ability, status) in [("generate:video", 200), ("read:history", 403)] {
        let key = json!({"name": "k", "abilities": [ability]});
        let key = app.key(owner.id, key).await;
        let found = app.get(&key, &path(&mine)).await;
        assert_eq!(found.status, status, "{ability}");
        if status == 403 {
            let error = found.error(403, "missing_ability");
            assert_eq!(error["required_ability"], "generate:*");
        }
    }
}

#[sqlx::test]
async fn an_upload_expires_with_its_file(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("0").await;
    let made = upload(&app, &account, 4, 4).await;
    app.advance(TimeDelta::hours(24));
    app.get(&account.key, &path(&made))
        .await
        .error(404, "not_found");
    // The same bytes are the same upload again, even if its file was not removed yet.
    let again = upload(&app, &account, 4, 4).await;
    assert_eq!(again["id"], made["id"]);
    app.advance(TimeDelta::hours(24));
    app.app.runner.purge(TimeDelta::days(1), 10).await.unwrap();
    let audit = app.app.runner.verify_files().await.unwrap();
    assert_eq!((audit.files, audit.unknown.len()), (0, 0));
    app.assert_nothing_kept().await;
    let third = upload(&app, &account, 4, 4).await;
    assert_eq!(third["id"], made["id"]);
    assert_eq!(app.files().len(), 1);
}

#[sqlx::test]
async fn uploads_are_counted_against_a_quota(_: PgPoolOptions, options: PgConnectOptions) {
    let env = [("GENSVC__MEDIA__UPLOAD_BYTES_PER_ACCOUNT", "1048576")];
    let app = TestApp::with(options, &env).await;
    let account = app.account("0").await;
    let picture = |n: u8| {
        let noise = RgbImage::from_fn(400, 500, |x, y| {
            let at = (x.wrapping_mul(7919) ^ y.wrapping_mul(104_729)).wrapping_mul(2_654_435_761);
            Rgb([at.to_le_bytes()[3], at.to_le_bytes()[2], n])
        });
        encoded(noise, ImageFormat::Png)
    };
    let mut made = Vec::new();
    let refused = loop {
        let n = u8::try_from(made.len()).unwrap();
        let answer = post(&app, &account.key, "image/png", picture(n)).await;
        if answer.status != 201 {
            break answer;
        }
        made.push(answer.json());
    };
    assert!(!made.is_empty());
    assert_eq!(refused.fields()["body"], "not_allowed");
    // Expired uploads count again when their bytes are used again.
    app.advance(TimeDelta::hours(25));
    let first = made.len();
    for n in 0..first {
        let n = u8::try_from(100 + n).unwrap();
        let answer = post(&app, &account.key, "image/png", picture(n)).await;
        made.push(answer.expect(201));
    }
    let answer = post(&app, &account.key, "image/png", picture(0)).await;
    assert_eq!(answer.fields()["body"], "not_allowed");
    app.app.runner.purge(TimeDelta::days(1), 10).await.unwrap();
    app.advance(TimeDelta::minutes(16));
    while app.app.runner.empty_trash(10).await.unwrap() {}
    made.drain(..first);
    assert_eq!(app.files().len(), made.len());
    app.delete(&account.key, &path(&made[0])).await.expect(204);
    let n = u8::try_from(made.len()).unwrap();
    let answer = post(&app, &account.key, "image/png", picture(n)).await;
    answer.expect(201);
}

/// The use and the deletion are concurrent, and the use commits last.
#[sqlx::test]
async fn a_concurrent_use_does_not_undo_a_deletion(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("0").await;
    let made = upload(&app, &account, 4, 4).await;
    let id = UploadId::parse(made["id"].as_str().unwrap()).unwrap();
    let now = app.now();
    let deleted = now + TimeDelta::seconds(1);
    assert!(
        app.store
            .hide_upload(account.id, id, deleted)
            .await
            .unwrap()
    );
    let term = UploadLifetime {
        expires_at: now + TimeDelta::hours(24),
        kept_until: now,
    };
    let used = app.store.extend_upload(account.id, id, term, true, now);
    assert_eq!(used.await.unwrap(), None);
}

/// Simulates a server that is killed after writing the file and before inserting its row.
#[sqlx::test]
async fn a_file_without_its_row_is_removed(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let id = uuid::Uuid::now_v7();
    app.store.begin_upload(id, app.now()).await.unwrap();
    let folder = app.media_folder().join(id.to_string());
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("0.png"), "cut off").unwrap();
    let audit = app.app.runner.verify_files().await.unwrap();
    assert!(audit.unknown.is_empty(), "{:?}", audit.unknown);
    app.assert_nothing_kept().await;
}

#[sqlx::test]
async fn a_lost_file_of_an_upload_is_reported(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("0").await;
    upload(&app, &account, 4, 4).await;
    for folder in std::fs::read_dir(app.media_folder()).unwrap() {
        let folder = folder.unwrap();
        if folder.file_name().len() == 36 {
            std::fs::remove_dir_all(folder.path()).unwrap();
        }
    }
    let audit = app.app.runner.verify_files().await.unwrap();
    assert_eq!(audit.missing.len(), 1);
}

/// A refused request removes its inputs, but not those that another has begun to use meanwhile.
#[sqlx::test]
async fn inputs_of_another_request_outlive_a_refused_one(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("0").await;
    let made = upload(&app, &account, 4, 4).await;
    let id = UploadId::parse(made["id"].as_str().unwrap()).unwrap();
    let now = app.now();
    let until = |minutes| UploadLifetime {
        expires_at: now,
        kept_until: now + TimeDelta::minutes(minutes),
    };
    let refused = until(90);
    for term in [refused, until(10)] {
        let used = app.store.extend_upload(account.id, id, term, false, now);
        assert!(used.await.unwrap().is_some());
    }
    assert!(app.store.hide_upload(account.id, id, now).await.unwrap());
    let kept_until = Some(refused.kept_until);
    let removed = app
        .store
        .delete_unused_uploads(account.id, &[id], kept_until, now)
        .await;
    assert!(removed.unwrap().is_empty());
}

#[sqlx::test]
async fn a_file_of_an_account_that_was_deleted_meanwhile_is_removed(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("0").await;
    let now = app.now();
    let file_id = uuid::Uuid::now_v7();
    app.store.begin_upload(file_id, now).await.unwrap();
    app.store.close_account(account.id, now).await.unwrap();
    let new = UploadRecord {
        id: UploadId::of(account.id, &[7; 32]),
        file_id,
        content_type: "image/png".to_owned(),
        bytes: 10,
        width: 1,
        height: 1,
        sha256: vec![7; 32],
        created_at: now,
        expires_at: now,
    };
    let term = UploadLifetime {
        expires_at: now,
        kept_until: now,
    };
    let stored = app.store.store_upload(account.id, &new, term, 1_000).await;
    assert!(matches!(stored.unwrap(), UploadStored::TooLate));
    // It names the file, whose removal may have to be repeated.
    assert_eq!(
        app.store
            .trash_or_uploads_among(&[file_id])
            .await
            .unwrap()
            .len(),
        1
    );
}

#[sqlx::test]
async fn parallel_uploads_of_the_same_bytes_are_one(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("0").await;
    let all = (0..8).map(|_| upload(&app, &account, 40, 40));
    let all = futures_util::future::join_all(all).await;
    assert!(all.iter().all(|made| made["id"] == all[0]["id"]));
    assert_eq!(app.files().len(), 1);
    app.advance(TimeDelta::minutes(16));
    while app.app.runner.empty_trash(10).await.unwrap() {}
    assert_eq!(app.file(&all[0]["url"], &[]).await.status, 200);
}

#[sqlx::test]
async fn what_is_no_picture_is_refused_with_a_reason(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("0").await;
    let whole = png(8, 8);
    for (media_type, bytes, reason) in [
        ("image/png", Bytes::new(), "empty"),
        ("image/png", whole.slice(..whole.len() - 9), "cut off"),
        ("image/jpeg", whole.clone(), "image/png, not image/jpeg"),
        ("image/png", Bytes::from_static(b"<svg/>"), "no known type"),
    ] {
        let answer = post(&app, &account.key, media_type, bytes).await;
        let error = answer.error(422, "validation_failed");
        assert_eq!(error["param"], "body");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(reason), "{message}");
    }
    for (media_type, status) in [("image/gif", 415), ("application/json", 415), ("", 415)] {
        let answer = post(&app, &account.key, media_type, whole.clone()).await;
        assert_eq!(answer.status, status, "{media_type}");
    }
    let huge = Bytes::from(vec![0; (20 << 20) + 1]);
    let answer = post(&app, &account.key, "image/png", huge).await;
    answer.error(413, "payload_too_large");
    app.assert_nothing_kept().await;
}
