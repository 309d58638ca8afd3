//! Streams that were cancelled: delivered text is charged, unless the upstream broke down.

use super::super::scene::Scene;

const FREE: &str = "
    select format('%s: %s, charged %s, %s', id, status, charged, coalesce(error_code, finish_reason))
    from generations
    where id::text = any($1) and coalesce(charged, 0) = 0
      and coalesce(error_code, 'none') not in
          ('provider_error', 'provider_timeout', 'provider_overloaded', 'interrupted')";

/// Checks all streams so far.
pub async fn check(scene: &Scene) {
    let mut database = scene.postgres.connect().await;
    let delivered = scene.seen.state().delivered.clone();
    let lines: Vec<String> = sqlx::query_scalar(FREE)
        .bind(delivered)
        .fetch_all(&mut database)
        .await
        .unwrap();
    for line in lines {
        let name = "delivered text was not charged";
        scene.tally.violation(name, line);
    }
}
