//! Statements that hold together.

use futures_util::{future::BoxFuture, stream::BoxStream};
use sqlx::{
    Describe, Execute, Executor, Postgres, SqlStr,
    postgres::{PgRow, PgStatement, PgTypeInfo},
};

use super::call::{Active, Step, steps};

/// A transaction under way. Dropped before it is committed, it is rolled back.
#[derive(Debug)]
pub struct Transaction(Active);

impl Transaction {
    pub async fn begin(mut active: Active) -> Result<Self, sqlx::Error> {
        active.set_in_transaction(true);
        active.execute("begin").await?;
        Ok(Self(active))
    }

    /// Makes it last. After an error it may have happened or not.
    pub async fn commit(mut self) -> Result<(), sqlx::Error> {
        self.0.execute("commit").await?;
        self.0.finish();
        Ok(())
    }
}

impl<'c> Executor<'c> for &'c mut Transaction {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Result<Step, sqlx::Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        steps(self.0.many(query))
    }

    fn fetch_optional<'e, 'q: 'e, E>(
        self,
        query: E,
    ) -> BoxFuture<'e, Result<Option<PgRow>, sqlx::Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        Box::pin(self.0.optional(query))
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, Result<PgStatement, sqlx::Error>>
    where
        'c: 'e,
    {
        Box::pin(self.0.prepare(sql, parameters))
    }

    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, Result<Describe<Postgres>, sqlx::Error>>
    where
        'c: 'e,
    {
        Box::pin(self.0.describe(sql))
    }
}
