//! Keys with a spend limit: what they had spent at every moment by the ledger, and what the API
//! reports.

use gensvc::domain::credits::Credits;
use serde_json::Value;

use super::super::scene::Scene;
use crate::http::Http;

/// What a key had charged and on hold after each movement: the ledger's order is the order in which
/// the account changed, and a key belongs to one account.
const OVERDRAWN: &str = "
    with moves as (
        select g.api_key_id, k.spend_limit, e.id,
               case k.spend_period when 'day' then (g.created_at at time zone 'UTC')::date end as day,
               case e.kind when 'hold' then g.estimated when 'charge' then g.charged - g.estimated
                           else -g.estimated end as amount
        from ledger_entries e
            join generations g on g.id = e.generation_id
            join api_keys k on k.id = g.api_key_id and k.spend_limit is not null
        where e.kind <> 'refund'
    ), sums as (
        select *, sum(amount) over (partition by api_key_id, day order by id) as spent from moves
    )
    select format('key %s may spend %s; %s at ledger entry %s', api_key_id, spend_limit, spent, id)
    from sums where spent > spend_limit";

/// By the generations themselves.
const OVERCHARGED: &str = "
    select format('key %s may spend %s: %s', k.id, k.spend_limit,
                  sum(coalesce(g.charged, g.estimated)))
    from generations g join api_keys k on k.id = g.api_key_id
    where k.spend_limit is not null
    group by k.id, k.spend_limit,
             case k.spend_period when 'day' then (g.created_at at time zone 'UTC')::date end
    having sum(coalesce(g.charged, g.estimated)) > k.spend_limit";

/// What a key was charged in the current period.
const CHARGED: &str = "
    select coalesce(sum(g.charged), 0)::bigint
    from generations g join api_keys k on k.id = g.api_key_id
    where k.id = $1 and (k.spend_period is null
        or (g.created_at at time zone 'UTC')::date = (now() at time zone 'UTC')::date)";

/// Checks the spend limits of all keys, and what is reported for the keys of a round; `None`: for
/// all.
pub async fn check(scene: &Scene, http: &Http, round: Option<u32>) {
    let mut database = scene.postgres.connect().await;
    for sql in [OVERDRAWN, OVERCHARGED] {
        let lines: Vec<String> = sqlx::query_scalar(sql)
            .fetch_all(&mut database)
            .await
            .unwrap();
        for line in lines {
            scene.tally.violation("a key spent more than it may", line);
        }
    }
    let caps = scene.seen.state().caps.clone();
    let caps = caps
        .iter()
        .filter(|cap| round.is_none_or(|round| cap.round == round));
    for cap in caps {
        let charged: i64 = sqlx::query_scalar(CHARGED)
            .bind(cap.id)
            .fetch_one(&mut database)
            .await
            .unwrap();
        let charged = Credits::from_micros(charged).to_string();
        let path = format!("/v1/api-keys/{}", cap.id);
        let key = &scene.accounts[cap.account].key;
        let mut reported = Value::Null;
        for server in [0, 1, 0] {
            if let Some(answer) = http.get(server, &path, key).await {
                reported = answer.body;
                break;
            }
        }
        if reported["spent"] != *charged {
            let detail = format!("charged {charged}: {reported}");
            scene
                .tally
                .violation("a key's `spent` is not what it was charged", detail);
        }
    }
}
