-- Generations of half a year, made up: account 1 with 98 of 100 of them, account 2 with the
-- rest. `:rows` of them, in five modalities and models and one rare model.
set synchronous_commit = off;
insert into accounts (name, created_at)
select 'account ' || n, '2026-01-01' from generate_series(1, 2) n;
insert into users (account_id, email, password_hash, created_at)
select id, 'account' || id || '@example.com', '-', '2026-01-01' from accounts;
insert into api_keys
    (account_id, name, digest, key_hint, abilities, rate_limit_per_minute, created_at)
select 1, 'key ' || n, sha256(n::text::bytea), '-', array['*'], 600, '2026-01-01'
from generate_series(1, 20) n;
insert into api_keys
    (account_id, name, digest, key_hint, abilities, rate_limit_per_minute, created_at)
values (1, 'rare', sha256('rare'), '-', array['*'], 600, '2026-01-01');

insert into models (type, provider, name) values
    ('text', 'openai', 'text-a'), ('text', 'openai', 'text-b'), ('text', 'anthropic', 'text-c'),
    ('image', 'openai', 'image-a'), ('audio', 'elevenlabs', 'speech-a'),
    ('video', 'runway', 'video-a'), ('text', 'openai', 'rare');
insert into prices (model_id, pricing)
select id, '{"input_per_million": "10", "output_per_million": "50"}' from models;

insert into finished_generations
    (id, account_id, model_id, price_id, prompt, parameters, api_key_id, estimated, charged, usage,
     result, error_code, attempts, created_at, started_at, completed_at)
select (lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '7'
            || substr(md5(random()::text), 1, 3) || '8' || substr(md5(random()::text), 1, 15))::uuid,
       case when n % 50 = 0 then 2 else 1 end, model.id, price.id,
       'prompt ' || n || repeat(' lorem ipsum', 10), '{"max_tokens": 100}',
       -- Some by people, and by a key that is hardly used.
       case n % (:rows / 50) when 11 then null when 13 then 21 else 1 + n % 20 end, 100,
       case when failed then 0 else 90 end,
       case when not failed
           then '{"input_tokens": 10, "output_tokens": 20, "total_tokens": 30}'::jsonb end,
       case when not failed then repeat('result ', 30) end,
       case when failed then 'provider_error' end, 1, at, at, at
from (
    select n, random() as dice, random() < 0.05 as failed,
           date_trunc('milliseconds', timestamptz '2026-01-01' + n * interval '180 days' / :rows) as at
    from generate_series(1, :rows) n
) made, lateral (
    select case when n % (:rows / 10) = 7 then 'rare' else kind.model end as model
    from (values
        (0.3, 'text-a'), (0.5, 'text-b'), (0.8, 'text-c'), (0.9, 'image-a'), (0.96, 'speech-a'),
        (1.1, 'video-a')
    ) kind (share, model) where dice < share order by share limit 1
) kind join models model on model.name = kind.model join prices price on price.model_id = model.id;

-- Each generation's hold and its end, after a grant that is more than enough.
insert into ledger_entries (account_id, kind, amount, balance, held, created_at)
select id, 'grant', 1000000000000, 1000000000000, 0, created_at from accounts;
insert into ledger_entries
    (account_id, kind, amount, balance, held, generation_id, created_at)
select account_id, kind, case kind when 'charge' then charged else estimated end,
       1000000000000 - spent + case kind when 'hold' then charged else 0 end,
       case kind when 'hold' then estimated else 0 end, id, created_at
from (
    select *, sum(charged) over (partition by account_id order by id) as spent
    from finished_generations
) made, lateral (
    values (1, 'hold'), (2, case when charged > 0 then 'charge' else 'release' end)
) entry (place, kind)
order by id, place;
update accounts set balance = 1000000000000 - spent
from (select account_id, sum(charged) as spent from finished_generations group by account_id) made
where id = account_id;

insert into usage_sums
select account_id, span, start, model_id, api_key_id, sum(completed), sum(failed), sum(charged),
       sum(input_tokens), sum(output_tokens), 0, 0, 0
from usage_counted group by 1, 2, 3, 4, 5;
-- Beyond this transaction, all of which is counted.
update settled_cursors set upto = (pg_current_xact_id()::text::bigint + 1)::text::xid8
where name = 'usage';
