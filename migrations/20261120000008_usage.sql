-- Usage by the day and by the hour (UTC) in which generations were made: counted by the
-- statement that finishes them, so that a report over millions adds up a few thousand rows:
-- the whole days of its span, the whole hours of the days that it cuts, and the generations
-- themselves of the hours that it cuts.
create table usage_sums (
    account_id bigint not null,
    -- 'd' for a day, 'h' for an hour.
    span "char" not null,
    -- When it begins.
    start timestamptz not null,
    type text not null,
    provider text not null,
    model text not null,
    -- 0 for sessions, because a primary key takes no null.
    api_key_id bigint not null,
    completed bigint not null,
    failed bigint not null,
    -- Micro-credits.
    charged bigint not null,
    -- As providers report them, who may say anything: no sum of lies overflows.
    input_tokens numeric not null,
    output_tokens numeric not null,
    images bigint not null,
    seconds bigint not null,
    characters bigint not null,
    constraint usage_sums_pkey primary key (account_id, span, start, type, provider, model, api_key_id),
    constraint usage_sums_account_fkey foreign key (account_id) references accounts (id),
    constraint usage_sums_span_known check (span in ('d', 'h'))
)
with (fillfactor = 50);

-- When the day or hour began that a moment lies in.
create function usage_start(span "char", moment timestamptz) returns timestamptz
language sql immutable parallel safe as $$
    select date_trunc(case span when 'd' then 'day' else 'hour' end, moment at time zone 'UTC')
        at time zone 'UTC'
$$;

insert into usage_sums
select account_id, span, usage_start(span, created_at), type, provider, model, coalesce(api_key_id, 0),
       count(*) filter (where status = 'completed'), count(*) filter (where status = 'failed'),
       coalesce(sum(charged), 0),
       coalesce(sum((usage ->> 'input_tokens')::bigint), 0),
       coalesce(sum((usage ->> 'output_tokens')::bigint), 0),
       coalesce(sum((usage ->> 'images')::bigint), 0),
       coalesce(sum((usage ->> 'seconds')::bigint), 0),
       coalesce(sum((usage ->> 'characters')::bigint), 0)
from generations, (values ('d'::"char"), ('h')) spans (span)
where status in ('completed', 'failed')
group by 1, 2, 3, 4, 5, 6, 7;

-- What still runs in an account: at most its limit.
create index generations_running_idx on generations (account_id, id)
    where status in ('pending', 'processing');
-- With the history's index, all that an account made in a span of time.
create index generations_deleted_idx on generations (account_id, id)
    where deleted_at is not null;
