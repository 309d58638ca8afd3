-- For pages of people, which answer soon whatever lies behind them.

-- The operator's report adds up the days of all accounts. Sums are written behind the requests, and
-- their updates change nothing of this index.
create index usage_sums_days_idx on usage_sums (start) where span = 'd';

-- The newest finished generations of one caller (0: of sessions), at most `most`, that were made
-- from `since` until before `until`, and before the one of `before`. No index leads from a caller to
-- its generations, which every settlement would have to keep. The sums say in which hours it made
-- any of these models and this outcome (null: of both), so only these hours are read. What the sums
-- do not count yet is in usage_tail().
create function finished_of_caller(
    account bigint, caller bigint, models integer[], failure boolean, since timestamptz,
    until timestamptz, before uuid, most integer
)
returns setof uuid
language plpgsql stable rows 20 as $$
declare
    one_day timestamptz;
    one_hour timestamptz;
    rows_now integer;
begin
    for one_day in
        select s.start from usage_sums s
        where s.account_id = account and s.span = 'd' and s.api_key_id = caller
          and s.start > since - interval '1 day' and s.start < until
          and s.model_id = any (models)
          and case failure when true then s.failed > 0 when false then s.completed > 0 else true end
        group by s.start order by s.start desc
    loop
        for one_hour in
            select s.start from usage_sums s
            where s.account_id = account and s.span = 'h' and s.api_key_id = caller
              and s.start >= one_day and s.start < one_day + interval '1 day'
              and s.start > since - interval '1 hour' and s.start < until
              and s.model_id = any (models)
              and case failure when true then s.failed > 0 when false then s.completed > 0
                       else true end
            group by s.start order by s.start desc
        loop
            return query
            select g.id from finished_generations g
            where g.account_id = account and g.id >= lowest_generation_id(one_hour)
              -- An id may run a second ahead of its creation.
              and g.id < lowest_generation_id(one_hour + interval '1 hour 1 second')
              and g.created_at >= one_hour and g.created_at < one_hour + interval '1 hour'
              and (before is null or g.id < before)
              and g.created_at >= since and g.created_at < until
              and g.model_id = any (models) and (failure is null or g.failed = failure)
              and coalesce(g.api_key_id, 0) = caller and g.deleted_at is null
            order by g.id desc limit most;
            get diagnostics rows_now = row_count;
            most := most - rows_now;
            if most <= 0 then
                return;
            end if;
        end loop;
    end loop;
end
$$;

-- Ids are of version 7: they begin with the milliseconds of their creation.
create function lowest_generation_id(moment timestamptz) returns uuid
language sql immutable parallel safe as $$
    select (lpad(to_hex(trunc(extract(epoch from moment) * 1000)::bigint), 12, '0')
            || repeat('0', 20))::uuid
$$;

-- What an account was charged and not refunded: what came in but is not there any more. So few
-- movements are read, however much it made.
create function spent_by(account accounts) returns bigint
language sql stable as $$
    select coalesce(sum(amount), 0)::bigint - account.balance from ledger_entries
    where account_id = account.id and kind in ('grant', 'adjustment')
$$;
