//! Accounts with plenty of credits and a key each, made by the thousand.

use gensvc::domain::token;
use secrecy::ExposeSecret as _;

use crate::postgres;

/// Micro-credits of each.
const CREDITS: i64 = 1_000_000_000_000;
/// Accounts of one statement.
const BATCH: usize = 10_000;

/// Keys without a rate limit that would get in the way.
const MAKE: &str = "
    with made as (
        insert into accounts (name, balance, created_at)
        select 'bench', $1, now() from unnest($2::bytea[])
        returning id
    ), granted as (
        insert into ledger_entries (account_id, kind, amount, balance, held, created_at)
        select id, 'grant', $1, $1, 0, now() from made
    ), numbered as (
        select id, row_number() over (order by id) as n from made
    )
    insert into api_keys
        (account_id, name, digest, key_hint, abilities, rate_limit_per_minute, created_at)
    select id, 'bench', digest, '', array['*'], 1000000, now()
    from numbered join unnest($2::bytea[]) with ordinality as made (digest, n) using (n)
    returning account_id";

/// An account and its key.
pub struct Account {
    pub id: i64,
    pub key: String,
}

pub async fn make(database: &str, accounts: usize) -> Vec<Account> {
    let mut connection = postgres::connect(database).await;
    let mut made = Vec::with_capacity(accounts);
    while made.len() < accounts {
        let batch = BATCH.min(accounts - made.len());
        let tokens: Vec<_> = (0..batch).map(|_| token::new_api_key().unwrap()).collect();
        let digests: Vec<Vec<u8>> = tokens.iter().map(|token| token.digest.0.to_vec()).collect();
        let mut ids: Vec<i64> = sqlx::query_scalar(MAKE)
            .bind(CREDITS)
            .bind(&digests)
            .fetch_all(&mut connection)
            .await
            .unwrap();
        ids.sort_unstable();
        let keys = tokens
            .iter()
            .map(|token| token.secret.expose_secret().to_owned());
        made.extend(
            ids.into_iter()
                .zip(keys)
                .map(|(id, key)| Account { id, key }),
        );
    }
    postgres::analyze(database).await;
    made
}
