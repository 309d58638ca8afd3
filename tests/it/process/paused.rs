//! A restored copy, whose jobs another server may still run.

use serde_json::{Value, json};

use super::Site;

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_server_shows_everything_and_changes_nothing() {
    let site = Site::new(&[]);
    let (mut server, key) = site.first().await;
    let video = json!({"prompt": "[[slow:600]]"});
    let (status, video) = server.ask(&key, "POST", "/v1/generate/video", &video).await;
    assert_eq!(status, 202, "{video}");
    let path = format!("/v1/generate/{}", video["uuid"].as_str().unwrap());
    // Progress means that the submission is stored: without it, the video would end as interrupted.
    while server.get_within(&key, &path, 1).await["progress"].is_null() {}
    let text = server.stream(&key, "[[slow:600]]").await;
    let before = server.get(&key, "/v1/credits/balance").await;
    server.child.kill().await.unwrap();
    drop(text);

    let paused = Site::at(site.folder.clone(), &[("GENSVC__JOBS__PAUSED", "true")]);
    let server = paused.serve().await;
    assert_eq!(server.get(&key, "/v1/credits/balance").await, before);
    assert_eq!(server.get(&key, &path).await["status"], "processing");
    let refused = [
        (
            "POST",
            "/v1/generate/text".to_owned(),
            json!({"prompt": "x"}),
        ),
        ("POST", format!("{path}/cancel"), Value::Null),
        ("DELETE", path.clone(), Value::Null),
    ];
    for (method, path, body) in refused {
        let (status, answer) = server.ask(&key, method, &path, &body).await;
        assert_eq!(
            (status, &answer["error"]["code"]),
            (503, &json!("paused")),
            "{path}"
        );
    }
    server.stop().await;

    // What it left is taken up by the next one.
    let server = site.serve().await;
    let history = server.get(&key, "/v1/generate/history?status=failed").await;
    assert_eq!(history["data"][0]["error"]["code"], "interrupted");
    let (status, cancelled) = server
        .ask(&key, "POST", &format!("{path}/cancel"), &Value::Null)
        .await;
    assert_eq!(status, 200, "{cancelled}");
    let balance = server.get(&key, "/v1/credits/balance").await;
    assert_eq!(balance["held"], "0");
    server.stop().await;
}
