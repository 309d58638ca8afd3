-- An optional cap on what a key may spend, for ever or in each day or month (UTC).
alter table api_keys
    add column spend_limit bigint,
    add column spend_period text,
    add constraint api_keys_spend_limit_not_negative check (spend_limit >= 0),
    add constraint api_keys_spend_period_known check (spend_period in ('day', 'month')),
    add constraint api_keys_spend_period_of_a_limit
        check (spend_period is null or spend_limit is not null);

-- When the period began that a moment lies in.
create function spend_period_start(period text, moment timestamptz) returns date
language sql immutable parallel safe as $$
    select case period
        when 'day' then (moment at time zone 'UTC')::date
        when 'month' then date_trunc('month', moment at time zone 'UTC')::date
        else '-infinity'::date
    end
$$;

-- What a key has spent in a period: charged for the generations that it made in it, and on hold
-- for those that still run. Moved by the statements that place and settle holds, always after
-- the account's row, so that the locks have one order.
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

insert into key_spend (api_key_id, period, spent)
select api_key_id, '-infinity', sum(coalesce(charged, estimated))
from generations where api_key_id is not null
group by api_key_id;
