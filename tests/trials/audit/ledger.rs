//! The ledger: every statement returns one line per violation.

use serde_json::Value;
use sqlx::{AssertSqlSafe, Executor as _, FromRow, PgConnection};

use crate::stage::Stage;

/// A generation of a round.
#[derive(Debug, FromRow)]
pub struct Row {
    pub uuid: String,
    pub account_id: i64,
    pub status: String,
    pub prompt: String,
    /// Micro-credits.
    pub estimated: i64,
    pub charged: Option<i64>,
    pub attempts: i32,
    pub finish_reason: Option<String>,
    pub outputs: Value,
    pub deleted: bool,
}

const CHECKS: [(&str, &str); 14] = [
    (
        "a generation without an end",
        "select format('%s (%s, made %s)', id, type, created_at) from generations
         where status not in ('completed', 'failed')",
    ),
    (
        "a hold that is not resolved once",
        "select format('%s (%s): %s', g.id, g.status, string_agg(e.kind || ' ' || e.amount, ', '))
         from generations g left join ledger_entries e
             on e.generation_id = g.id and e.kind <> 'refund'
         where g.estimated > 0 group by g.id, g.status, g.estimated, g.charged
         having count(*) filter (where e.kind = 'hold' and e.amount = g.estimated) <> 1
             or count(*) filter (where e.kind = 'charge' and e.amount = g.charged
                                 or e.kind = 'release' and e.amount = g.estimated) <> 1
             or count(*) <> 2",
    ),
    (
        "a balance that is not what the ledger says",
        "select format('account %s: %s, the ledger says %s', a.id, a.balance, sum(case e.kind
                    when 'grant' then amount when 'adjustment' then amount when 'refund' then amount
                    when 'charge' then -amount else 0 end))
         from accounts a left join ledger_entries e on e.account_id = a.id group by a.id
         having a.balance <> coalesce(sum(case e.kind when 'grant' then amount
                    when 'adjustment' then amount when 'refund' then amount
                    when 'charge' then -amount else 0 end), 0)",
    ),
    (
        "something on hold for nothing",
        "select format('account %s: held %s, jobs %s', id, held, jobs) from accounts
         where held <> 0 or jobs <> 0",
    ),
    (
        "a balance below zero",
        "select format('account %s: entry %s, balance %s, held %s', account_id, id, balance, held)
         from ledger_entries where balance < 0 or held < 0 or held > balance",
    ),
    (
        "a charge above its hold",
        "select format('%s: %s of %s', id, charged, estimated) from generations
         where charged > estimated",
    ),
    (
        "a failure was charged",
        "select format('%s: %s', id, charged) from generations g where status = 'failed'
           and (charged <> 0 or exists (select from ledger_entries e
                                        where e.generation_id = g.id and e.kind = 'charge'))",
    ),
    (
        "paid for nothing",
        "select format('%s (%s)', id, type) from generations
         where status = 'completed' and deleted_at is null
           and case type when 'text' then result is null else outputs = '[]' end",
    ),
    (
        "one request made two generations",
        "select format('%s: %s', min(prompt), string_agg(id::text, ', ')) from generations
         where deleted_at is null and prompt not like '%mk-sdk-%' group by substring(prompt from 'mk-.*-end')
         having count(*) > 1",
    ),
    (
        "a request of an SDK was charged twice",
        "select format('%s: %s', min(prompt), string_agg(id::text, ', ')) from generations
         where prompt like '%mk-sdk-%' and charged > 0
         group by prompt having count(*) > 1",
    ),
    (
        "a version of a template with two texts",
        "select format('template %s, version %s: %s', template_id, template_version,
                       string_agg(distinct substring(prompt from '^Edition [^:]*'), ' and '))
         from generations where template_id is not null and deleted_at is null
         group by template_id, template_version
         having count(distinct coalesce(substring(prompt from '^Edition [^:]*'), '')) > 1
             or bool_or(prompt !~ '^Edition [0-9a-f]+, calm: Say mk-')",
    ),
    (
        "a generation was settled twice",
        "select format('%s: %s', generation, string_agg(status || ' by ' || ender, ', '))
         from chaos.ends group by generation having count(*) > 1",
    ),
    (
        "settled by another than its worker",
        "select format('%s: completed by %s, worked on by %s', generation, ender, owner)
         from chaos.ends left join chaos.owners on instance = lease
         where status = 'completed' and owner is distinct from ender",
    ),
    (
        "a grant that was not made once",
        "select format('%s of account %s: %s times', reference, account_id, count(*))
         from ledger_entries where kind = 'grant' and reference is not null
         group by reference, account_id having count(*) > 1",
    ),
];

/// How many generations are unfinished.
pub async fn unfinished(database: &mut PgConnection) -> i64 {
    let count = "select count(*) from running_generations";
    sqlx::query_scalar(count).fetch_one(database).await.unwrap()
}

/// Runs all checks, and returns the generations of the round.
pub async fn check(stage: &Stage, round: u32) -> Vec<Row> {
    let mut database = stage.postgres.connect().await;
    let database = &mut database;
    database
        .execute("begin isolation level repeatable read")
        .await
        .unwrap();
    for (name, sql) in CHECKS {
        let lines: Vec<String> = sqlx::query_scalar(AssertSqlSafe(sql))
            .fetch_all(&mut *database)
            .await
            .unwrap();
        for line in lines {
            stage.tally.violation(name, line);
        }
    }
    let grants = stage.seen.state().grants.clone();
    for grant in grants {
        let made: Option<i64> = sqlx::query_scalar(
            "select sum(amount)::bigint from ledger_entries where account_id = $1 and reference = $2",
        )
        .bind(stage.accounts[grant.account].id)
        .bind(&grant.reference)
        .fetch_one(&mut *database)
        .await
        .unwrap();
        if made != Some(grant.amount * 1_000_000) {
            let detail = format!("{grant:?}: {made:?}");
            stage
                .tally
                .violation("a grant that was not made once", detail);
        }
    }
    // Ids contain the creation time, but rounds are identified by marks: the text of deleted ones
    // is gone, so these are included in every round.
    sqlx::query_as(
        "select id::text as uuid, account_id, status, prompt, estimated, charged, attempts,
                finish_reason, outputs, deleted_at is not null as deleted
         from generations where prompt like $1 or deleted_at is not null",
    )
    .bind(format!("%mk-{round}-%"))
    .fetch_all(database)
    .await
    .unwrap()
}
