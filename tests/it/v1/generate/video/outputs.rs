//! The vendor's output, and the URL that it claims.

use chrono::TimeDelta;
use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::body;
use crate::common::{
    Reply, TestApp, Upstream,
    vendors::{mp4, runway},
};

#[sqlx::test]
async fn outputs_that_lie_are_refused(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    let port = upstream.url().rsplit(':').next().unwrap().to_owned();
    let at = |host: &str| Some(format!("http://{host}:{port}/files/out.mp4"));
    let good = || async { Reply::File("video/mp4", mp4(2).await) };
    let away = |to: String| Reply::Redirect(to);
    let cases = [
        (at("127.0.0.2"), good().await),
        (at("localhost"), good().await),
        (at("[::1]"), good().await),
        (Some("file:///etc/passwd".to_owned()), good().await),
        (
            Some("https://169.254.169.254/latest".to_owned()),
            good().await,
        ),
        (None, away(at("127.0.0.2").unwrap())),
        (None, away(at("localhost").unwrap())),
        (None, away("https://10.0.0.1/x".to_owned())),
        (None, Reply::File("video/mp4", vec![7; 5000].into())),
        (None, Reply::File("video/mp4", Vec::new().into())),
        (None, Reply::Status(400, Value::Null)),
    ];
    for (output, file) in cases {
        let context = format!("{output:?} {file:.60?}");
        runway(&upstream, 1, output, file);
        let uuid = app.queue(&account, "video", &body()).await;
        for _ in 0..3 {
            app.work_once().await;
            app.advance(TimeDelta::seconds(1));
        }
        let record = app.record(&account, &uuid).await;
        assert_eq!(record["error"]["code"], "provider_error", "{context}");
        assert_eq!(record["credits"]["charged"], "0", "{context}");
    }
    app.assert_nothing_kept().await;
}

#[sqlx::test]
async fn a_cut_file_is_fetched_again(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let film = mp4(2).await;
    runway(&upstream, 1, None, Reply::Short("video/mp4", film.clone()));
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let uuid = app.queue(&account, "video", &body()).await;
    for _ in 0..4 {
        app.work_once().await;
        app.advance(TimeDelta::seconds(1));
    }
    assert_eq!(app.record(&account, &uuid).await["status"], "processing");
    assert_eq!(app.files(), Vec::<std::path::PathBuf>::new());
    runway(&upstream, 1, None, Reply::File("video/mp4", film));
    let record = app.until_finished(&account, &uuid).await;
    assert_eq!(record["status"], "completed");
    assert_eq!(upstream.calls(&Method::POST, "text_to_video"), 1);
    assert_eq!(app.files().len(), 1);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_film_that_is_too_short_is_refused(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    runway(&upstream, 1, None, Reply::File("video/mp4", mp4(1).await));
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    let ask = json!({"prompt": "x", "provider": "runway", "parameters": {"duration": 8}});
    let uuid = app.queue(&account, "video", &ask).await;
    let record = app.until_finished(&account, &uuid).await;
    assert_eq!(record["error"]["code"], "provider_error");
    app.assert_nothing_kept().await;
}

#[sqlx::test]
async fn omni_is_asked_in_the_background(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let film = mp4(3).await;
    let output = format!("{}/gemini/v1beta/files/f:download", upstream.url());
    upstream.play(move |request| {
        if request.method == Method::POST {
            return Reply::Status(200, json!({"id": "int-1", "status": "in_progress"}));
        }
        if request.path.contains("/files/") {
            return Reply::File("video/mp4", film.clone());
        }
        Reply::Status(
            200,
            json!({"id": "int-1", "status": "completed",
                "outputs": [{"type": "video", "uri": output, "mime_type": "video/mp4"}],
                "steps": [{"type": "model_output", "content": [{"type": "video", "uri": output, "mime_type": "video/mp4"}]}]}),
        )
    });
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let ask = json!({"prompt": "x", "provider": "gemini", "parameters": {"duration": 3}});
    let uuid = app.queue(&account, "video", &ask).await;
    let record = app.until_finished(&account, &uuid).await;
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["credits"]["charged"], "21");
    let requests = upstream.requests();
    assert_eq!(requests[0].body["background"], true);
    let fetch = requests.last().unwrap();
    assert!(fetch.path.contains("alt=media"), "{}", fetch.path);
    assert_eq!(fetch.headers["x-goog-api-key"], "test-gemini");
    app.assert_settled().await;
}
