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

insert into generations
    (id, account_id, type, status, provider, model, prompt, parameters, pricing, api_key_id,
     estimated, charged, usage, result, error_code, attempts, created_at, started_at, completed_at)
select (lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '7'
            || substr(md5(random()::text), 1, 3) || '8' || substr(md5(random()::text), 1, 15))::uuid,
       case when n % 50 = 0 then 2 else 1 end, type, status, provider,
       case when n % (:rows / 10) = 7 then 'rare' else model end,
       'prompt ' || n || repeat(' lorem ipsum', 10), '{"max_tokens": 100}',
       '{"input_per_million": "10", "output_per_million": "50"}', 1 + n % 20, 100,
       case status when 'completed' then 90 else 0 end,
       case status when 'completed'
           then '{"input_tokens": 10, "output_tokens": 20, "total_tokens": 30}'::jsonb end,
       case status when 'completed' then repeat('result ', 30) end,
       case status when 'failed' then 'provider_error' end, 1, at, at, at
from (
    select n, random() as dice, case when random() < 0.05 then 'failed' else 'completed' end as status,
           date_trunc('milliseconds', timestamptz '2026-01-01' + n * interval '180 days' / :rows) as at
    from generate_series(1, :rows) n
) made, lateral (
    select * from (values
        (0.3, 'text', 'openai', 'text-a'), (0.5, 'text', 'openai', 'text-b'),
        (0.8, 'text', 'anthropic', 'text-c'), (0.9, 'image', 'openai', 'image-a'),
        (0.96, 'audio', 'elevenlabs', 'speech-a'), (1.1, 'video', 'runway', 'video-a')
    ) kinds (share, type, provider, model) where dice < share order by share limit 1
) kind;

insert into usage_sums
select account_id, span, usage_start(span, created_at), type, provider, model, api_key_id,
       count(*) filter (where status = 'completed'), count(*) filter (where status = 'failed'),
       sum(charged), sum(coalesce((usage ->> 'input_tokens')::bigint, 0)),
       sum(coalesce((usage ->> 'output_tokens')::bigint, 0)), 0, 0, 0
from generations, (values ('d'::"char"), ('h')) spans (span)
group by 1, 2, 3, 4, 5, 6, 7;
