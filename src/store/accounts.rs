//! Accounts and the people who log in to them.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use sqlx::{FromRow, QueryBuilder};
use utoipa::ToSchema;

use super::{Result, Store};
use crate::domain::{
    clock::rfc3339,
    credits::Credits,
    ids::{AccountId, GenerationId, UserId},
    page::{Page, PageRequest},
};

/// Prefix of the account list's cursors.
pub const ACCOUNTS_CURSOR: u8 = b'a';

pub const USERS_EMAIL_KEY: &str = "users_email_key";

/// Filters of the list of accounts.
#[derive(Debug, Clone, Default)]
pub struct AccountFilter {
    /// The email of one of its users, compared without case.
    pub email: Option<String>,
    /// A generation of the account, also a deleted one, but not a finished one that was free.
    pub generation: Option<GenerationId>,
    /// The hint of one of its API keys, also of a revoked one.
    pub key_hint: Option<String>,
}

/// A new account and its first user.
#[derive(Debug)]
pub struct NewAccount<'a> {
    pub name: &'a str,
    pub email: &'a str,
    /// argon2id, PHC string.
    pub password_hash: &'a str,
    /// Credits granted at creation.
    pub credits: Credits,
    pub now: DateTime<Utc>,
}

/// A user's login data.
#[derive(Debug)]
pub struct UserRow {
    pub id: UserId,
    pub account_id: AccountId,
    /// As entered, in lower case if it is not ASCII.
    pub email: String,
    pub name: Option<String>,
    /// argon2id, PHC string.
    pub password_hash: String,
    pub account_name: String,
}

/// An account, as the operator sees it.
#[derive(Debug, Clone, FromRow, Serialize, ToSchema)]
#[schema(as = AdminAccountBody)]
pub struct AccountRecord {
    /// Its id.
    pub id: AccountId,
    /// Its name.
    pub name: String,
    /// The first user's email, as entered, in lower case if it is not ASCII; empty for a deleted
    /// account.
    pub email: String,
    /// Credits that the account owns, including those on hold.
    pub balance: Credits,
    /// Credits on hold: the maximum cost of running work.
    pub held: Credits,
    /// `balance - held`.
    pub available: Credits,
    /// Total charged, less refunds.
    pub spent: Credits,
    /// When it was suspended; null if it is not.
    #[schema(required, nullable)]
    #[serde(serialize_with = "rfc3339")]
    pub suspended_at: Option<DateTime<Utc>>,
    /// Why it is suspended; null if no reason was given.
    #[schema(required, nullable)]
    pub suspended_reason: Option<String>,
    /// When it was deleted; null if it is not.
    #[schema(required, nullable)]
    #[serde(serialize_with = "rfc3339")]
    pub deleted_at: Option<DateTime<Utc>>,
    /// When the last prompt and file of a deleted account were removed; null before that.
    #[schema(required, nullable)]
    #[serde(serialize_with = "rfc3339")]
    pub erased_at: Option<DateTime<Utc>>,
    /// When it was created.
    #[serde(serialize_with = "rfc3339")]
    pub created_at: DateTime<Utc>,
}

/// Email and account that a token belongs to, for display.
#[derive(Debug)]
pub struct Identity {
    /// The session's user; `None` for keys.
    pub user: Option<(UserId, String, Option<String>)>,
    pub account_name: String,
}

/// The owner's view of an account.
#[derive(Debug, Clone)]
pub struct AccountSettings {
    pub id: AccountId,
    pub name: String,
    /// Default providers and models by modality.
    pub defaults: Value,
    pub created_at: DateTime<Utc>,
}

impl Store {
    /// Creates an account, its user and its first grant in one statement. Returns `None` if the
    /// email is taken. A concurrent request for the same email fails with [`USERS_EMAIL_KEY`].
    pub async fn create_account(
        &self,
        new: &NewAccount<'_>,
    ) -> Result<Option<(AccountId, UserId)>> {
        let row = sqlx::query!(
            r#"
            with account as (
                insert into accounts (name, balance, created_at)
                -- A refused email uses up no id.
                select $1, $2, $5
                where not exists (select from users where lower(email) = lower($3))
                returning id
            ), granted as (
                insert into ledger_entries (account_id, kind, amount, balance, held, reference, created_at)
                select id, 'grant', $2, $2, 0, 'account creation', $5 from account where $2 > 0
            )
            insert into users (account_id, email, name, password_hash, created_at)
            select id, $3, $1, $4, $5 from account
            returning id as "user: UserId", account_id as "account: AccountId"
            "#,
            new.name,
            new.credits.micros(),
            new.email,
            new.password_hash,
            new.now,
        )
        .fetch_optional(self.requests.named("create an account"))
        .await?;
        Ok(row.map(|row| (row.account, row.user)))
    }

    /// Finds a user by email, compared without case.
    pub async fn user_by_email(&self, email: &str) -> Result<Option<UserRow>> {
        let reading = sqlx::query_as!(
            UserRow,
            r#"
            select u.id as "id: _", u.account_id as "account_id: _", u.email, u.name,
                   u.password_hash, a.name as account_name
            from users u join accounts a on a.id = u.account_id
            where lower(u.email) = lower($1)
            "#,
            email
        )
        .fetch_optional(self.requests.named("find a user by email"));
        Ok(reading.await?)
    }

    /// Finds the account's email and the session's user.
    pub async fn identity(&self, account: AccountId, user: Option<UserId>) -> Result<Identity> {
        let row = sqlx::query!(
            r#"
            select a.name as account_name, u.id as "user_id?: UserId", u.email as "email?", u.name as user_name
            from accounts a left join users u on u.id = $2
            where a.id = $1
            "#,
            account.0,
            user.map(|u| u.0),
        )
        .fetch_one(self.requests.named("read an identity"))
        .await?;
        Ok(Identity {
            user: row
                .user_id
                .zip(row.email)
                .map(|(id, email)| (id, email, row.user_name)),
            account_name: row.account_name,
        })
    }

    pub async fn account(&self, id: AccountId) -> Result<Option<AccountRecord>> {
        let reading = sqlx::query_as!(
            AccountRecord,
            r#"
            select id as "id: _", name, balance as "balance: _", held as "held: _",
                   balance - held as "available!: _", spent_by(a) as "spent!: _", suspended_at, suspended_reason, deleted_at,
                   erased_at, created_at,
                   coalesce((select u.email from users u where u.account_id = a.id
                             order by u.id limit 1), '') as "email!"
            from accounts a where id = $1
            "#,
            id.0,
        )
        .fetch_optional(self.requests.named("read an account"));
        Ok(reading.await?)
    }

    /// Returns the accounts that match all filters, newest first.
    pub async fn accounts(
        &self,
        filter: &AccountFilter,
        page: &PageRequest,
    ) -> Result<Page<AccountRecord>> {
        let mut query = QueryBuilder::new(
            "select id, name, balance, held, balance - held as available, spent_by(a) as spent, suspended_at, suspended_reason, deleted_at, erased_at, created_at, \
                    coalesce((select u.email from users u where u.account_id = a.id \
                              order by u.id limit 1), '') as email \
             from accounts a where true",
        );
        if let Some(email) = &filter.email {
            query
                .push(" and id in (select account_id from users where lower(email) = lower(")
                .push_bind(email.clone())
                .push("))");
        }
        if let Some(hint) = &filter.key_hint {
            query
                .push(" and id in (select account_id from api_keys where key_hint = ")
                .push_bind(hint.clone())
                .push(")");
        }
        if let Some(generation) = filter.generation {
            query
                .push(
                    " and id = coalesce(\
                     (select account_id from running_generations where id = ",
                )
                .push_bind(generation.0)
                .push("), (select account_id from ledger_entries where generation_id = ")
                .push_bind(generation.0)
                .push(" limit 1))");
        }
        if let Some(after) = page.after_number() {
            query.push(" and id < ").push_bind(after);
        }
        query
            .push(" order by id desc limit ")
            .push_bind(page.per_page + 1);
        let accounts: Vec<AccountRecord> = query
            .build_query_as()
            .fetch_all(self.requests.named("list accounts").long())
            .await?;
        Ok(page.numbered(ACCOUNTS_CURSOR, accounts, |row| row.id.0))
    }

    /// Suspends or resumes an account. Idempotent; a deleted account stays suspended. Returns
    /// `None` if there is no such account.
    pub async fn set_suspended(
        &self,
        account: AccountId,
        suspended: bool,
        reason: Option<&str>,
        now: DateTime<Utc>,
    ) -> Result<Option<AccountRecord>> {
        let done = sqlx::query!(
            "update accounts
             set suspended_at = case when $2 or deleted_at is not null
                                     then coalesce(suspended_at, $3) end,
                 suspended_reason = case when $2 then coalesce($4, suspended_reason) end
             where id = $1",
            account.0,
            suspended,
            now,
            reason,
        )
        .execute(self.requests.named("suspend or resume an account"))
        .await?;
        if done.rows_affected() == 0 {
            return Ok(None);
        }
        self.account(account).await
    }

    /// Changes the name of an account and the email of its first user, both or neither. Returns
    /// `false` if there is no such account, it is deleted, or it has no user whose email could
    /// change.
    pub async fn update_account(
        &self,
        account: AccountId,
        email: Option<&str>,
        name: Option<&str>,
    ) -> Result<bool> {
        let reading = sqlx::query_scalar!(
            r#"with found as (
                 select id from accounts where id = $1 and deleted_at is null for no key update
             ), moved as (
                 update users set email = $2::text
                 where $2::text is not null
                   and id = (select u.id from users u join found on u.account_id = found.id
                             order by u.id limit 1)
                 returning id
             ), renamed as (
                 update accounts set name = coalesce($3::text, name)
                 where id in (select id from found)
                   and ($2::text is null or exists (select from moved))
                 returning id
             )
             select exists (select from renamed) as "is_changed!""#,
            account.0,
            email,
            name,
        )
        .fetch_one(self.requests.named("change an account"));
        Ok(reading.await?)
    }

    /// Whether there is no account at all.
    pub async fn is_empty(&self) -> Result<bool> {
        let any = sqlx::query_scalar!(r#"select exists (select from accounts) as "any!""#)
            .fetch_one(self.requests.named("look for any account"))
            .await?;
        Ok(!any)
    }

    pub async fn account_settings(&self, id: AccountId) -> Result<AccountSettings> {
        let reading = sqlx::query_as!(
            AccountSettings,
            r#"select id as "id: _", name, defaults, created_at from accounts where id = $1"#,
            id.0,
        )
        .fetch_one(self.requests.named("read account settings"));
        Ok(reading.await?)
    }

    /// Merges defaults by modality; null clears a modality. Runs as one statement, so that
    /// concurrent changes of different modalities do not overwrite each other.
    pub async fn merge_defaults(&self, id: AccountId, changes: &Value) -> Result<AccountSettings> {
        let reading = sqlx::query_as!(
            AccountSettings,
            r#"update accounts set defaults = jsonb_strip_nulls(defaults || $2)
             where id = $1
             returning id as "id: _", name, defaults, created_at"#,
            id.0,
            changes,
        )
        .fetch_one(self.requests.named("merge account settings"));
        Ok(reading.await?)
    }
}
