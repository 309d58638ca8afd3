//! A statement by its name, and what happens to its connection.

use std::{sync::Arc, time::Duration};

use deadpool::managed::Object;
use futures_util::{
    StreamExt as _, TryStreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use sqlx::{
    Connection as _, Describe, Either, Execute, Executor, PgConnection, Postgres, SqlStr,
    error::DatabaseError,
    postgres::{PgDatabaseError, PgQueryResult, PgRow, PgSeverity, PgStatement, PgTypeInfo},
    raw_sql,
};
use tokio::{
    runtime::Handle,
    time::{Instant, timeout, timeout_at},
};

use tracing::{Span, field::Empty};

use super::{Outages, Pool, Transaction, session::Sessions, timed_out};
use crate::observe::TRACES;

/// How long a statement may take that reads or removes much: a little longer than the server's
/// own `statement_timeout`, so that the server ends it.
const LONG_LIMIT: Duration = Duration::from_secs(16);
/// A statement that takes longer, and is not known to, is logged.
const SLOW: Duration = Duration::from_secs(1);
/// How long the rest of an answer that nobody waits for any more may take: what waits for a lock
/// has ended by then (`lock_timeout`). Meanwhile its place in the pool is taken, so that callers
/// who hang up cannot make the server do more at once than the pool is large.
const RECOVERY_LIMIT: Duration = Duration::from_secs(3);

/// SQLSTATE of a server that takes no writes (any more).
const READ_ONLY: &str = "25006";
/// SQLSTATE of a server that lost a prepared statement: it is not the one it was.
const STATEMENT_LOST: &str = "26000";

/// A result or a row, as statements answer them.
pub type Step = Either<PgQueryResult, PgRow>;

/// A statement or a transaction that is to run on a connection of a pool.
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

    /// It reads or removes much, and may take as long as the server lets it.
    pub fn long(self) -> Self {
        self.within(LONG_LIMIT)
    }

    /// It may take this long.
    pub fn within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Begins a transaction. All of it has the time limit of one statement.
    pub async fn begin(self) -> Result<Transaction, sqlx::Error> {
        Transaction::begin(self.start().await?).await
    }

    /// Passes each row to `read` as it arrives, so that only one is in memory.
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

    async fn start(self) -> Result<Active, sqlx::Error> {
        let span = statement_span(self.name);
        let mut connection = self
            .pool
            .acquire()
            .await
            .inspect_err(|error| note(&span, error))?;
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

/// From the wait for a connection to the last answer. Only within another span: what runs in the
/// background would be a trace of its own each time.
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

/// A call under way. Dropped before it has ended, it gets its connection back into the pool
/// where the server answers soon.
#[derive(Debug)]
pub struct Active {
    /// `None` once the call has ended, or the connection has failed.
    connection: Option<Object<Sessions>>,
    outages: Arc<Outages>,
    name: &'static str,
    limit: Duration,
    started: Instant,
    span: Span,
    in_transaction: bool,
}

impl Active {
    pub async fn execute(&mut self, statement: &'static str) -> Result<(), sqlx::Error> {
        self.many(statement).await.map(drop)
    }

    pub async fn many<'q, E>(&mut self, query: E) -> Result<Vec<Step>, sqlx::Error>
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
                // After a failure the rest is skipped, so that the connection can be used again.
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

    pub async fn optional<'q, E>(&mut self, query: E) -> Result<Option<PgRow>, sqlx::Error>
    where
        E: 'q + Execute<'q, Postgres>,
    {
        let (connection, end) = self.connection()?;
        let answer = timeout_at(end, connection.fetch_optional(query)).await;
        self.check(answer.ok())
    }

    pub async fn prepare(
        &mut self,
        sql: SqlStr,
        parameters: &[PgTypeInfo],
    ) -> Result<PgStatement, sqlx::Error> {
        let (connection, end) = self.connection()?;
        let answer = timeout_at(end, connection.prepare_with(sql, parameters)).await;
        self.check(answer.ok())
    }

    pub async fn describe(&mut self, sql: SqlStr) -> Result<Describe<Postgres>, sqlx::Error> {
        let (connection, end) = self.connection()?;
        let answer = timeout_at(end, connection.describe(sql)).await;
        self.check(answer.ok())
    }

    pub fn set_in_transaction(&mut self, in_transaction: bool) {
        self.in_transaction = in_transaction;
    }

    pub fn finish(mut self) {
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

    /// Gives up a connection that did not answer in time (`None`) or failed.
    fn check<T>(&mut self, answer: Option<Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
        let result = answer.unwrap_or_else(|| Err(timed_out(self.name)));
        if let Err(error) = &result {
            note(&self.span, error);
        }
        if let Err(error) = &result
            && is_broken(error)
        {
            if is_read_only(error) {
                // It is a standby by now, and so is what all others lead to.
                self.outages.dead_since(Instant::now());
            } else {
                self.outages.suspect_idle();
            }
            // Closed at once: the server then ends a transaction with its locks.
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

/// Notes in a span how its statement failed.
fn note(span: &Span, error: &sqlx::Error) {
    let code = error.as_database_error().and_then(DatabaseError::code);
    let kind = match error {
        sqlx::Error::PoolTimedOut => "no_connection",
        _ => code.as_deref().unwrap_or("connection_failed"),
    };
    span.record("error.type", kind);
    span.record("otel.status_code", "ERROR");
}

/// Whether a connection is of no use after that error.
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

impl<'c> Executor<'c> for Call<'c> {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Result<Step, sqlx::Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let all = async move {
            let mut active = self.start().await?;
            let answer = active.many(query).await;
            active.finish();
            answer
        };
        steps(all)
    }

    fn fetch_optional<'e, 'q: 'e, E>(
        self,
        query: E,
    ) -> BoxFuture<'e, Result<Option<PgRow>, sqlx::Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        Box::pin(async move {
            let mut active = self.start().await?;
            let answer = active.optional(query).await;
            active.finish();
            answer
        })
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, Result<PgStatement, sqlx::Error>>
    where
        'c: 'e,
    {
        Box::pin(async move {
            let mut active = self.start().await?;
            let answer = active.prepare(sql, parameters).await;
            active.finish();
            answer
        })
    }

    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, Result<Describe<Postgres>, sqlx::Error>>
    where
        'c: 'e,
    {
        Box::pin(async move {
            let mut active = self.start().await?;
            let answer = active.describe(sql).await;
            active.finish();
            answer
        })
    }
}

/// A stream of what comes all at once.
pub fn steps<'e>(
    all: impl Future<Output = Result<Vec<Step>, sqlx::Error>> + Send + 'e,
) -> BoxStream<'e, Result<Step, sqlx::Error>> {
    stream::once(all)
        .map_ok(|steps| stream::iter(steps).map(Ok))
        .try_flatten()
        .boxed()
}
