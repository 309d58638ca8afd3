//! The accounts of the clients.

use serde_json::Value;

use crate::postgres::Postgres;

/// Every account's password.
pub const PASSWORD: &str = "correct horse battery";

/// A client's account.
pub struct Account {
    pub id: i64,
    pub email: String,
    /// A key with a rate limit that never applies.
    pub key: String,
}

/// The output of a command that must succeed.
pub async fn command(postgres: &Postgres, args: &[&str]) -> Value {
    let printed = postgres.gensvc(postgres.url(), args).await;
    serde_json::from_str(&printed.unwrap()).unwrap()
}

impl Account {
    /// The account with that number, its credits, and a key.
    pub async fn make(postgres: &Postgres, n: usize, credits: &str) -> Self {
        let email = format!("client{n}@example.com");
        let create = [
            "account",
            "create",
            "--email",
            &email,
            "--password",
            PASSWORD,
        ];
        let account = command(postgres, &[&create[..], &["--credits", credits]].concat()).await;
        let create = ["key", "create", "--email", &email, "--name", "main"];
        let key = command(
            postgres,
            &[&create[..], &["--rate-limit", "1000000"]].concat(),
        )
        .await;
        Self {
            id: account["account_id"].as_i64().unwrap(),
            key: key["key"].as_str().unwrap().to_owned(),
            email,
        }
    }
}
