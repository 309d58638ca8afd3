//! Machines with wrong clocks, and a database whose clock jumps.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use gensvc::{
    app::App,
    domain::clock::{ClockReading, DatabaseClock, SharedClock},
};
use sqlx::{ConnectOptions as _, PgConnection, postgres::PgConnectOptions};

use super::TestApp;

impl TestApp {
    /// The same server on a machine with that clock, using the database's clock as in production.
    pub async fn on_machine(mut self, machine: fn() -> DateTime<Utc>) -> Self {
        let config = super::config(None, &self.env);
        let reading = ClockReading::of(self.store.time()).await.unwrap();
        let clock: SharedClock = Arc::new(DatabaseClock::new(machine, &reading));
        let app = App::build(&config, self.store.clone(), clock, "http://test").await;
        self.app = app.unwrap();
        self.app.runner.sweep_step().await.unwrap();
        self
    }
}

/// The clock of a test's database: connections that are opened after the takeover see it instead of
/// the real one.
pub struct MovableClock(PgConnection);

impl MovableClock {
    pub async fn take_over(options: &PgConnectOptions) -> Self {
        let mut database = options.connect().await.unwrap();
        sqlx::raw_sql(
            "create schema moved;
             create table moved.clock (ahead interval not null);
             insert into moved.clock values ('0');
             create function moved.clock_timestamp() returns timestamptz language sql volatile
                 as 'select pg_catalog.clock_timestamp() + ahead from moved.clock';
             do $$ begin execute format(
                 'alter database %I set search_path = moved, pg_catalog, public',
                 current_database()); end $$",
        )
        .execute(&mut database)
        .await
        .unwrap();
        Self(database)
    }

    pub async fn jump(&mut self, by: TimeDelta) {
        sqlx::query("update moved.clock set ahead = ahead + make_interval(secs => $1)")
            .bind(by.as_seconds_f64())
            .execute(&mut self.0)
            .await
            .unwrap();
    }
}
