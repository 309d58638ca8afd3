//! Named statements and transactions, and when their connections return to the pool.

use std::{sync::Arc, time::Duration};

use deadpool::managed::Object;
use futures_util::{
    StreamExt as _, TryStreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use sqlx::{
    Connection as _, Describe, Either, Execute, Executor as _, PgConnection, Postgres, SqlStr,
    error::DatabaseError,
    postgres::{PgDatabaseError, PgQueryResult, PgRow, PgSeverity, PgStatement, PgTypeInfo},
    raw_sql,
};
use tokio::{
    runtime::Handle,
    time::{Instant, timeout, timeout_at},
};
use tracing::{Span, field::Empty};

use super::{Outages, Pool, Sessions, timed_out};
use crate::observe::TRACES;

/// Limit of a statement that reads or removes many rows: longer than `statement_timeout`, so that
/// the server ends it.
const LONG_LIMIT: Duration = Duration::from_secs(16);
/// A statement that takes longer is logged, unless its limit is longer than [`LONG_LIMIT`].
const SLOW: Duration = Duration::from_secs(1);
/// Limit for reading the rest of an answer whose caller is gone; a statement that waits for a lock
/// has ended by then (`lock_timeout`). The connection keeps its slot until then, so callers that
/// disconnect cannot start more work on the server than the pool has connections.
const RECOVERY_LIMIT: Duration = Duration::from_secs(3);

/// SQLSTATE of a read-only server: the primary has become a standby.
const READ_ONLY: &str = "25006";
/// SQLSTATE of an unknown prepared statement: the connection leads to another server process.
const STATEMENT_LOST: &str = "26000";

type Step = Either<PgQueryResult, PgRow>;

/// A statement or transaction that does not have a connection yet.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    pool: &'a Pool,
    name: &'static str,
    limit: Duration,
}

impl<'a> Call<'a> {
    pub fn new(pool: &'a Pool, name: &'static str, limit: Duration) -> Self {
        Self { pool, name, limit }
    }

    /// Extends the limit to the server's own, to read or remove many rows.
    pub fn long(self) -> Self {
        self.within(LONG_LIMIT)
    }

    pub fn within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Begins a transaction. The time limit applies to all of it.
    pub async fn begin(self) -> Result<Transaction, sqlx::Error> {
        let mut active = self.start().await?;
        active.in_transaction = true;
        active.many("begin").await?;
        Ok(Transaction(active))
    }

    /// Passes each row to `read` as it arrives, so that only one row is in memory.
    pub async fn each<'q, E>(
        self,
        query: E,
        read: impl FnMut(PgRow) -> Result<(), sqlx::Error> + Send,
    ) -> Result<(), sqlx::Error>
    where
        E: 'q + Execute<'q, Postgres>,
    {
        let mut active = self.start().await?;
        let answer = active.each(query, read).await;
        active.finish();
        answer
    }

    async fn many<'q, E>(self, query: E) -> Result<Vec<Step>, sqlx::Error>
    where
        E: 'q + Execute<'q, Postgres>,
    {
        let mut active = self.start().await?;
        let answer = active.many(query).await;
        active.finish();
        answer
    }

    async fn start(self) -> Result<Active, sqlx::Error> {
        let span = statement_span(self.name);
        let mut connection = self
            .pool
            .acquire()
            .await
            .inspect_err(|error| record(&span, error))?;
        connection.started();
        let started = Instant::now();
        Ok(Active {
            connection: Some(connection),
            outages: Arc::clone(self.pool.outages()),
            name: self.name,
            limit: self.limit,
            started,
            span,
            in_transaction: false,
        })
    }
}

/// Creates a span for the wait for a connection and the statement. Returns `Span::none` without a
/// parent, because each statement of background work would become its own trace.
pub fn statement_span(name: &'static str) -> Span {
    if Span::current().is_none() {
        return Span::none();
    }
    tracing::info_span!(
        target: TRACES,
        "statement",
        otel.name = name,
        otel.kind = "client",
        otel.status_code = Empty,
        "error.type" = Empty,
        db.system.name = "postgresql",
        db.query.summary = name,
    )
}

/// A transaction. Rolled back when dropped before [`Transaction::commit`].
#[derive(Debug)]
pub struct Transaction(Active);

impl Transaction {
    /// Commits. After an error the transaction may or may not be committed.
    pub async fn commit(mut self) -> Result<(), sqlx::Error> {
        self.0.many("commit").await?;
        self.0.finish();
        Ok(())
    }
}

/// A connection in use. If dropped before [`Active::finish`], the connection returns to the pool
/// once the server has answered, or is closed.
#[derive(Debug)]
struct Active {
    /// `None` after the end or a failure of the connection.
    connection: Option<Object<Sessions>>,
    outages: Arc<Outages>,
    name: &'static str,
    limit: Duration,
    started: Instant,
    span: Span,
    in_transaction: bool,
}

impl Active {
    async fn many<'q, E>(&mut self, query: E) -> Result<Vec<Step>, sqlx::Error>
    where
        E: 'q + Execute<'q, Postgres>,
    {
        let (connection, end) = self.connection()?;
        let answer = timeout_at(end, connection.fetch_many(query).try_collect()).await;
        self.check(answer.ok())
    }

    async fn each<'q, E>(
        &mut self,
        query: E,
        mut read: impl FnMut(PgRow) -> Result<(), sqlx::Error> + Send,
    ) -> Result<(), sqlx::Error>
    where
        E: 'q + Execute<'q, Postgres>,
    {
        let (connection, end) = self.connection()?;
        let mut outcome = Ok(());
        let reading = async {
            let mut rows = connection.fetch(query);
            while let Some(row) = rows.try_next().await? {
                // Reads the rest too, so that the connection can be used again.
                if outcome.is_ok() {
                    outcome = read(row);
                }
            }
            Ok(())
        };
        let answer = timeout_at(end, reading).await;
        self.check(answer.ok())?;
        outcome
    }

    fn finish(mut self) {
        if let Some(mut connection) = self.connection.take() {
            connection.finished();
        }
        let took = self.started.elapsed();
        let (statement, milliseconds) = (self.name, took.as_millis());
        if took > SLOW && self.limit <= LONG_LIMIT {
            tracing::warn!(statement, milliseconds, "a slow statement");
        } else {
            tracing::debug!(statement, milliseconds, "a statement");
        }
    }

    fn connection(&mut self) -> Result<(&mut PgConnection, Instant), sqlx::Error> {
        let end = self.started + self.limit;
        match &mut self.connection {
            Some(connection) => Ok((&mut connection.connection, end)),
            None => Err(sqlx::Error::PoolClosed),
        }
    }

    /// Closes a connection that did not answer in time (`None`) or failed.
    fn check<T>(&mut self, answer: Option<Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
        let result = answer.unwrap_or_else(|| Err(timed_out(self.name)));
        if let Err(error) = &result {
            record(&self.span, error);
        }
        if let Err(error) = &result
            && is_broken(error)
        {
            if is_read_only(error) {
                // The other connections lead to the same standby.
                self.outages.dead_since(Instant::now());
            } else {
                self.outages.suspect_idle();
            }
            // Closing it makes the server roll back and release its locks.
            self.connection.take().map(Object::take);
        }
        result
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        let (Some(mut dropped), Ok(runtime)) = (self.connection.take(), Handle::try_current())
        else {
            return;
        };
        let in_transaction = self.in_transaction;
        runtime.spawn(async move {
            let connection = &mut dropped.connection;
            let recovering = async {
                if in_transaction {
                    raw_sql("rollback").execute(connection).await.map(drop)
                } else {
                    connection.ping().await
                }
            };
            match timeout(RECOVERY_LIMIT, recovering).await {
                Ok(Ok(())) => dropped.finished(),
                _ => drop(Object::take(dropped)),
            }
        });
    }
}

/// Records an error in a statement's span.
fn record(span: &Span, error: &sqlx::Error) {
    let code = error.as_database_error().and_then(DatabaseError::code);
    let kind = match error {
        sqlx::Error::PoolTimedOut => "no_connection",
        _ => code.as_deref().unwrap_or("connection_failed"),
    };
    span.record("error.type", kind);
    span.record("otel.status_code", "ERROR");
}

/// Whether the connection cannot be used again.
fn is_broken(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => true,
        sqlx::Error::Database(error) => {
            let error = error.try_downcast_ref::<PgDatabaseError>();
            error.is_some_and(|e| {
                matches!(e.severity(), PgSeverity::Fatal | PgSeverity::Panic)
                    || [READ_ONLY, STATEMENT_LOST].contains(&e.code())
            })
        }
        _ => false,
    }
}

fn is_read_only(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(error) if error.code().as_deref() == Some(READ_ONLY))
}

/// Implements `Executor` with the method `many` of a type or of one of its fields. Statements are
/// prepared when they run, never separately.
macro_rules! executor {
    ($executor:ty $(, $field:tt)?) => {
        impl<'c> sqlx::Executor<'c> for $executor {
            type Database = Postgres;

            fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Result<Step, sqlx::Error>>
            where
                'c: 'e,
                E: 'q + Execute<'q, Postgres>,
            {
                stream::once(self$(.$field)?.many(query))
                    .map_ok(|steps| stream::iter(steps).map(Ok))
                    .try_flatten()
                    .boxed()
            }

            fn fetch_optional<'e, 'q: 'e, E>(
                self,
                query: E,
            ) -> BoxFuture<'e, Result<Option<PgRow>, sqlx::Error>>
            where
                'c: 'e,
                E: 'q + Execute<'q, Postgres>,
            {
                let answer = self$(.$field)?.many(query);
                Box::pin(async move { Ok(answer.await?.into_iter().find_map(Either::right)) })
            }

            fn prepare_with<'e>(
                self,
                _sql: SqlStr,
                _parameters: &'e [PgTypeInfo],
            ) -> BoxFuture<'e, Result<PgStatement, sqlx::Error>>
            where
                'c: 'e,
            {
                Box::pin(async { Err(sqlx::Error::Protocol("not supported".to_owned())) })
            }

            fn describe<'e>(
                self,
                _sql: SqlStr,
            ) -> BoxFuture<'e, Result<Describe<Postgres>, sqlx::Error>>
            where
                'c: 'e,
            {
                Box::pin(async { Err(sqlx::Error::Protocol("not supported".to_owned())) })
            }
        }
    };
}

executor!(Call<'c>);
executor!(&'c mut Transaction, 0);
