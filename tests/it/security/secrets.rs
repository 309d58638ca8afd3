//! Secrets at rest, and secrets in output.

use gensvc::{
    domain::{token, validate::Body as _},
    request::Login,
};
use secrecy::ExposeSecret as _;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::{
    common::{PASSWORD, TestApp},
    v1::admin::operator,
};

/// Everything in the database, as text.
async fn dump(app: &TestApp) -> String {
    let tables: Vec<String> = sqlx::query_scalar(
        "select table_name::text from information_schema.tables where table_schema = 'public'",
    )
    .fetch_all(&app.pool)
    .await
    .unwrap();
    assert!(tables.len() > 10, "{tables:?}");
    let mut all = String::new();
    for table in tables {
        let statement = format!("select coalesce(string_agg(t::text, ' '), '') from \"{table}\" t");
        let rows: String = sqlx::query_scalar(sqlx::AssertSqlSafe(statement))
            .fetch_one(&app.pool)
            .await
            .unwrap();
        all.push_str(&rows);
        all.push('\n');
    }
    all
}

#[sqlx::test]
async fn a_stolen_database_opens_no_door(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let session = app.login(&account).await;
    let admin = operator(&app).await;
    for token in [&account.key, &session] {
        app.text(
            token,
            json!({"prompt": "x", "parameters": {"max_tokens": 1}}),
        )
        .await
        .expect(200);
    }
    app.get(&admin, "/v1/admin/accounts").await.expect(200);
    let wrong = json!({"email": account.email, "password": "a wrong password"});
    app.post("", "/v1/auth/login", &wrong)
        .await
        .error(401, "invalid_credentials");
    let all = dump(&app).await;
    assert!(
        all.contains(&account.email) && all.contains("argon2id"),
        "nothing was read"
    );
    let (key, admin) = (&account.key["svc_".len()..], &admin["adm_".len()..]);
    for secret in [key, &session, admin, PASSWORD, "a wrong password"] {
        // The whole secret, and most of it: a hint may be stored.
        assert!(!all.contains(secret) && !all.contains(&secret[4..secret.len() - 4]));
        let hex: Vec<_> = secret.bytes().map(|b| format!("{b:02x}")).collect();
        assert!(!all.contains(&hex.concat()));
    }
}

#[sqlx::test]
async fn an_answer_with_a_secret_is_kept_nowhere(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let login = json!({"email": account.email, "password": PASSWORD});
    let webhook = json!({"url": "http://127.0.0.1:9/"});
    for (token, path, body, secret) in [
        ("", "/v1/auth/login", login, "token"),
        (&account.key, "/v1/api-keys", json!({"name": "a"}), "key"),
        (&account.key, "/v1/webhooks", webhook, "secret"),
    ] {
        let answer = app.post(token, path, &body).await;
        assert!(answer.json()[secret].is_string(), "{path} {}", answer.text);
        assert_eq!(answer.header("cache-control"), "no-store", "{path}");
    }
}

#[test]
fn what_is_printed_for_a_developer_holds_no_secret() {
    let body = json!({"email": "a@b", "password": "hunter2-hunter2"});
    let (login, _) = Login::parse(body.as_object().unwrap());
    let login = login.unwrap();
    let made = [
        token::new_api_key(),
        token::new_admin_token(),
        token::new_session_token(),
    ];
    for made in made {
        let made = made.unwrap();
        let secret = made.secret.expose_secret();
        assert!(!format!("{made:?} {:?}", made.digest).contains(&secret[8..secret.len() - 4]));
    }
    assert!(!format!("{login:?}").contains("hunter2"));
}
