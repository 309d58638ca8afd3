//! How long `gensvc ledger verify` takes.

use std::time::Instant;

use gensvc::store::verify::Scope;

use crate::Bench;

/// Texts of today: one for every thousand existing ones.
const NEW: &str = "
with made as (
    insert into finished_generations
        (id, account_id, model_id, price_id, prompt, parameters, api_key_id, estimated, charged,
         created_at, started_at, completed_at, attempts)
    select (lpad(to_hex((extract(epoch from now()) * 1000)::bigint), 12, '0') || '7000'
               || '8' || substr(md5(n::text), 1, 15))::uuid, 1, 1, 1, 'prompt', '{}', 1, 100, 90,
           now(), now(), now(), 1
    from generate_series(1, :rows / 1000) n
    returning *
), entries as (
    insert into ledger_entries
        (account_id, kind, amount, balance, held, generation_id, created_at)
    select 1, kind, case kind when 'hold' then 100 else 90 end,
           a.balance - case kind when 'hold' then place - 1 else place end * 90,
           case kind when 'hold' then 100 else 0 end, made.id, now()
    from (select *, row_number() over (order by id) as place from made) made
        cross join (values ('hold'), ('charge')) kinds (kind)
        join accounts a on a.id = 1
    order by place, kind = 'charge'
)
update accounts set balance = balance - (select sum(charged) from made) where id = 1";

pub async fn run(bench: &Bench) {
    println!("\n| audit | entries | generations | s |");
    println!("|---|---:|---:|---:|");
    let audit = async |name, scope| {
        let begun = Instant::now();
        let audit = bench.store.verify_ledger(scope).await.unwrap();
        assert!(audit.differences.is_empty(), "{:?}", audit.differences);
        let (entries, generations) = (audit.entries, audit.generations);
        let seconds = begun.elapsed().as_secs_f64();
        println!("| {name} | {entries} | {generations} | {seconds:.2} |");
    };
    audit("of everything", Scope::Whole).await;
    audit("of what is new, the first time", Scope::SinceLast).await;
    let new = NEW.replace(":rows", &bench.rows.to_string());
    crate::run(&bench.pool, &new).await;
    bench.store.count_usage().await.unwrap();
    audit("of what is new", Scope::SinceLast).await;
}
