-- Every movement of credits, append-only. `balance` and `held` stand as they are after it; ids
-- ascend within an account, because an entry is written while its account's row is locked.
create table ledger_entries (
    id bigint generated always as identity,
    account_id bigint not null,
    kind text not null,
    amount bigint not null,
    balance bigint not null,
    held bigint not null,
    generation_id uuid,
    reference text,
    created_at timestamptz not null,
    -- A list of all kinds merges the newest of each.
    constraint ledger_entries_pkey primary key (account_id, kind, id),
    constraint ledger_entries_kind_known
        check (kind in ('grant', 'hold', 'charge', 'release', 'adjustment', 'refund')),
    constraint ledger_entries_amount_moves_something
        check (case kind when 'adjustment' then amount <> 0 else amount > 0 end),
    constraint ledger_entries_generation_where_due
        check ((kind in ('hold', 'charge', 'release', 'refund')) = (generation_id is not null))
);
-- One hold, one resolution and one refund for each generation, whatever retries, crashes or
-- replicas do; serves the filter by generation too.
create unique index ledger_entries_once_for_each_generation
    on ledger_entries (generation_id, (case kind when 'hold' then 'hold' when 'refund' then 'refund'
                                                 else 'resolution' end))
    where generation_id is not null;
-- An operator's reference moves credits once for each account and kind.
create unique index ledger_entries_reference_once
    on ledger_entries (account_id, kind, reference)
    where reference is not null;

create function ledger_entries_are_append_only() returns trigger
language plpgsql as $$
begin
    raise exception 'ledger entries are append-only';
end
$$;
create trigger ledger_entries_append_only
    before update or delete or truncate on ledger_entries
    for each statement execute function ledger_entries_are_append_only();

-- Usage by the day and by the hour (UTC) in which generations were made, so that a report over
-- millions adds up a few thousand rows: the whole days of its span, the whole hours of the days
-- that it cuts, and the generations themselves of the hours that it cuts. What was settled since
-- the cursor 'usage' is not counted here yet; reports add it.
create table usage_sums (
    account_id bigint not null,
    -- 'd' for a day, 'h' for an hour.
    span "char" not null,
    -- When it begins.
    start timestamptz not null,
    model_id integer not null,
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
    constraint usage_sums_pkey primary key (account_id, span, start, model_id, api_key_id),
    constraint usage_sums_span_known check (span in ('d', 'h'))
)
with (fillfactor = 50);

-- What finished generations count in the sums, by the spans that they belong to.
create view usage_counted as
select account_id, settled, span,
       date_trunc(case span when 'd' then 'day' else 'hour' end, created_at at time zone 'UTC')
           at time zone 'UTC' as start,
       model_id, coalesce(api_key_id, 0) as api_key_id,
       (not failed)::int as completed, failed::int as failed, charged,
       coalesce((usage ->> 'input_tokens')::numeric, 0) as input_tokens,
       coalesce((usage ->> 'output_tokens')::numeric, 0) as output_tokens,
       coalesce((usage ->> 'images')::bigint, 0) as images,
       coalesce((usage ->> 'seconds')::bigint, 0) as seconds,
       coalesce((usage ->> 'characters')::bigint, 0) as characters
from finished_generations, (values ('d'::"char"), ('h')) spans (span);

-- What an account's sums do not count yet. Nothing tells the planner how little it is: it is to go
-- by the settled, and neither by the account nor through the table.
create function usage_tail(account bigint) returns setof finished_generations
language plpgsql stable set enable_seqscan = off as $$
begin
    return query
    select * from finished_generations
    where settled >= (select upto from settled_cursors where name = 'usage')
      and account_id + 0 = account;
end
$$;

-- When the period began that a moment lies in.
create function spend_period_start(period text, moment timestamptz) returns date
language sql immutable parallel safe as $$
    select case period
        when 'day' then (moment at time zone 'UTC')::date
        when 'month' then date_trunc('month', moment at time zone 'UTC')::date
        else '-infinity'::date
    end
$$;

-- What a key with a limit has spent in a period: charged for the generations that it made in it,
-- and on hold for those that still run. Moved by the statements that place and settle holds,
-- always after the account's row, so that the locks have one order.
create table key_spend (
    api_key_id bigint not null,
    period date not null,
    -- The key's, which never changes: here for the constraint.
    spend_limit bigint,
    spent bigint not null,
    constraint key_spend_pkey primary key (api_key_id, period),
    constraint key_spend_key_fkey foreign key (api_key_id) references api_keys (id),
    -- Refuses holds only. Nothing here may refuse a settlement: its end gives back at most
    -- what its hold took.
    constraint key_spend_within_limit check (spent <= spend_limit)
)
with (fillfactor = 50);

-- What a key has spent in the period of a moment: charged, and on hold for what still runs. Of a
-- key without a limit it is not counted, but summed up.
create function spent_by(key api_keys, moment timestamptz) returns bigint
language sql stable as $$
    select case when key.spend_limit is not null then
        coalesce((select s.spent from key_spend s where s.api_key_id = key.id
                  and s.period = spend_period_start(key.spend_period, moment)), 0)
    else
        (select coalesce(sum(u.charged), 0) from usage_sums u
         where u.account_id = key.account_id and u.span = 'd' and u.api_key_id = key.id)::bigint
        + (select coalesce(sum(g.charged), 0) from usage_tail(key.account_id) g
           where g.api_key_id = key.id)::bigint
        + (select coalesce(sum(g.estimated), 0) from running_generations g
           where g.account_id = key.account_id and g.api_key_id = key.id)::bigint
    end
$$;
