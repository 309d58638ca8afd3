//! GET /v1/admin/accounts: `generation` and `key_hint`.

use http::Method;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{ACCOUNTS, ids, operator};
use crate::common::TestApp;

async fn find(app: &TestApp, token: &str, query: &str) -> Vec<i64> {
    ids(&app.get(token, &format!("{ACCOUNTS}?{query}")).await)
}

#[sqlx::test]
async fn the_owner_of_a_generation_is_found(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let token = operator(&app).await;
    let (account, other) = (app.account("100").await, app.account("100").await);
    app.account("0").await;
    let text = app.text(&account.key, json!({"prompt": "x"})).await;
    let text = text.expect(200)["uuid"].as_str().unwrap().to_owned();
    let failed = app
        .text(&account.key, json!({"prompt": "[[fail]] x"}))
        .await;
    let failed = failed.json()["generation"]["uuid"]
        .as_str()
        .unwrap()
        .to_owned();
    let video = json!({"prompt": "[[slow:60]] x"});
    let running = app.queue(&other, "video", &video).await;
    for (uuid, owner) in [(&text, &account), (&failed, &account), (&running, &other)] {
        for uuid in [uuid.clone(), uuid.to_uppercase()] {
            let found = find(&app, &token, &format!("generation={uuid}")).await;
            assert_eq!(found, [owner.id.0], "{uuid}");
        }
        let of_both = format!("generation={uuid}&email={}", account.email);
        let expected = Vec::from_iter((owner.id == account.id).then_some(account.id.0));
        assert_eq!(find(&app, &token, &of_both).await, expected);
    }
    app.delete(&account.key, &format!("/v1/generate/{text}"))
        .await
        .expect(204);
    let of_text = format!("generation={text}");
    assert_eq!(find(&app, &token, &of_text).await, [account.id.0]);
    let last = if text.ends_with('0') { '1' } else { '0' };
    let near = format!("{}{last}", &text[..35]);
    for unknown in [near.as_str(), "00000000-0000-4000-8000-000000000000"] {
        let found = find(&app, &token, &format!("generation={unknown}")).await;
        assert!(found.is_empty(), "{unknown}");
    }
    let wrong = app.get(&token, &format!("{ACCOUNTS}?generation=x")).await;
    assert_eq!(wrong.fields()["generation"], "invalid_format");
}

#[sqlx::test]
async fn the_owner_of_a_key_is_found_by_its_hint(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let token = operator(&app).await;
    let (account, other) = (app.account("0").await, app.account("0").await);
    let keys = app.get(&account.key, "/v1/api-keys").await.expect(200);
    let key = &keys["data"][0];
    let hint = key["key_hint"].as_str().unwrap();
    let query = format!("key_hint={hint}");
    assert_eq!(find(&app, &token, &query).await, [account.id.0]);
    let of_other = format!("{query}&email={}", other.email);
    for none in [&query[..query.len() - 1], &of_other, "key_hint="] {
        assert!(find(&app, &token, none).await.is_empty(), "{none}");
    }
    let path = format!("{ACCOUNTS}/{}/api-keys/{}", account.id, key["id"]);
    let revoked = app.call(Method::DELETE, &token, &path, &[], None).await;
    revoked.expect(200);
    assert_eq!(find(&app, &token, &query).await, [account.id.0]);
}
