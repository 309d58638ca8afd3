-- What the keys without a limit of an account have spent, all in one pass: charged, and on hold for
-- what still runs.
create function spent_without_limits(account bigint)
returns table (api_key_id bigint, spent bigint)
language sql stable as $$
    select api_key_id, sum(amount)::bigint
    from (select u.api_key_id, u.charged as amount from usage_sums u
          where u.account_id = account and u.span = 'd'
          union all
          select g.api_key_id, g.charged from usage_tail(account) g
          union all
          select g.api_key_id, g.estimated from running_generations g
          where g.account_id = account) spent
    group by api_key_id
$$;

create or replace function spent_by(key api_keys, moment timestamptz) returns bigint
language sql stable as $$
    select coalesce(
        case when key.spend_limit is not null then
            (select s.spent from key_spend s where s.api_key_id = key.id
             and s.period = spend_period_start(key.spend_period, moment))
        else
            (select s.spent from spent_without_limits(key.account_id) s
             where s.api_key_id = key.id)
        end, 0)
$$;
