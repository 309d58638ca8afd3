-- Rows other than generations that the console's pages read.
insert into running_generations
    (id, account_id, estimated, created_at, model_id, price_id, job, streamed, status, prompt,
     parameters, next_step_at)
select (lpad(to_hex(1782759600000 + n), 12, '0') || '7000' || lpad(to_hex(n), 16, '8'))::uuid,
       1, 100, '2026-06-29T19:00:00Z', 6, 6, true, false, 'pending', 'prompt ' || n, '{}', 'infinity'
from generate_series(1, 1000) n;
insert into webhooks (account_id, url, events, secret, created_at)
values (1, 'https://example.com', array['generation.completed'], '-', '2026-01-01');
insert into webhook_deliveries
    (webhook_id, account_id, generation_id, event, status, attempts, created_at)
select 1, 1, id, 'generation.completed', 'delivered', 1, created_at
from finished_generations limit :rows / 20;

-- Other accounts, which the operator's reports add up too.
insert into accounts (name, created_at)
select 'account ' || n, '2026-01-01' from generate_series(3, 1000) n;
insert into usage_sums
select account.id, 'd', day, 1, 0, 10, 1, 900, 100, 200, 0, 0, 0
from accounts account, generate_series('2026-01-01Z'::timestamptz, '2026-06-29Z', '3 days') day
where account.id > 2;
