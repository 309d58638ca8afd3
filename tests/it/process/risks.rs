//! A database that is configured to lose confirmed writes.

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{Site, line_with, lines, listening, operator::database_url};
use crate::database::set_default;

#[sqlx::test]
async fn a_start_warns_that_answered_charges_can_be_lost(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    set_default(&options, "synchronous_commit = off").await;
    let site = Site::new(&[("DATABASE_URL", database_url(&options).leak())]);
    let mut server = site.command().spawn().unwrap();
    let mut log = lines(server.stderr.take());
    let line = line_with(&mut log, "synchronous_commit is off").await;
    assert!(line.contains("WARN") && line.contains("charges"), "{line}");
    listening(&mut log).await;
}
