//! Stored files against the records that name them.

use std::fs;

use serde_json::{Value, json};
use uuid::Uuid;

use super::Site;

impl Site {
    /// `gensvc media verify --json`, and whether it succeeded.
    async fn verify_files(&self) -> (bool, Value) {
        let output = self.command().args(["media", "verify", "--json"]).output();
        let output = output.await.unwrap();
        let answer = serde_json::from_slice(&output.stdout);
        (
            output.status.success(),
            answer.unwrap_or_else(|_| panic!("{output:?}")),
        )
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_missing_damaged_or_unknown_are_named() {
    let site = Site::new(&[]);
    let (server, key) = site.first().await;
    let mut names = Vec::new();
    for _ in 0..3 {
        let body = json!({"prompt": "x", "parameters": {"size": "256x256"}});
        let (status, image) = server.ask(&key, "POST", "/v1/generate/image", &body).await;
        assert_eq!(status, 200, "{image}");
        names.push(format!("{}/0.png", image["uuid"].as_str().unwrap()));
    }
    let (clean, audit) = site.verify_files().await;
    let nothing = json!([]);
    assert_eq!(
        (clean, audit),
        (
            true,
            json!({"ok": true, "files": 3, "missing": nothing, "damaged": nothing, "unknown": nothing})
        )
    );

    let media = site.folder.join("media");
    fs::remove_file(media.join(&names[0])).unwrap();
    fs::write(media.join(&names[1]), "cut").unwrap();
    let stranger = format!("{}/0.png", Uuid::now_v7());
    fs::create_dir(media.join(&stranger).parent().unwrap()).unwrap();
    for name in [&stranger, "notes.txt"] {
        fs::write(media.join(name), "?").unwrap();
    }
    // What is deleted is removed.
    let deleted = format!("/v1/generate/{}", names[2].split('/').next().unwrap());
    let (status, _) = server.ask(&key, "DELETE", &deleted, &Value::Null).await;
    assert_eq!(status, 204);
    let (clean, audit) = site.verify_files().await;
    assert_eq!(
        (clean, audit),
        (
            false,
            json!({"ok": false, "files": 2, "missing": [names[0]], "damaged": [names[1]],
                "unknown": [stranger, "notes.txt"]})
        )
    );
    server.stop().await;
}
