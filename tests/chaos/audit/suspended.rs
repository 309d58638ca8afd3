//! Suspended accounts: nothing was made for them while the suspension stood.

use crate::stage::Stage;

/// The database noted when it made each generation, within the statement that did.
const MADE: &str = "
    select format('%s of account %s, made at %s', generation, account, at) from chaos.begins
    where account = $1 and at between $2 and $3";

/// Checks all suspensions so far.
pub async fn check(stage: &Stage) {
    let mut database = stage.postgres.connect().await;
    let suspensions = stage.seen.state().suspensions.clone();
    for suspension in suspensions {
        let lines: Vec<String> = sqlx::query_scalar(MADE)
            .bind(stage.accounts[suspension.account].id)
            .bind(suspension.from)
            .bind(suspension.to)
            .fetch_all(&mut database)
            .await
            .unwrap();
        for line in lines {
            stage.tally.violation("work for a suspended account", line);
        }
    }
}
