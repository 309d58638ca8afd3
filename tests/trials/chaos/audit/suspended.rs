//! Suspended accounts: nothing was created for them during the suspension.

use super::super::scene::Scene;

/// The database recorded when it created each generation, within the same statement.
const MADE: &str = "
    select format('%s of account %s, made at %s', generation, account, at) from chaos.begins
    where account = $1 and at between $2 and $3";

/// Checks all suspensions so far.
pub async fn check(scene: &Scene) {
    let mut database = scene.postgres.connect().await;
    let suspensions = scene.seen.state().suspensions.clone();
    for suspension in suspensions {
        let lines: Vec<String> = sqlx::query_scalar(MADE)
            .bind(scene.accounts[suspension.account].id)
            .bind(suspension.from)
            .bind(suspension.to)
            .fetch_all(&mut database)
            .await
            .unwrap();
        for line in lines {
            scene.tally.violation("work for a suspended account", line);
        }
    }
}
