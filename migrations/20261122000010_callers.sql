-- Counts a request against a limit per minute and says whether it is let through (GCRA, in
-- nanoseconds; see src/domain/rate.rs). One for all kinds of callers. In PL/pgSQL, which keeps
-- the plan: it runs for every request.
create function count_request(
    caller_kind "char", caller_id bigint, per_minute integer, now_nanos bigint,
    out tat bigint, out admitted boolean
)
language plpgsql as $$
declare
    -- Rounded up, so that never more than the limit get through.
    emission constant bigint := (60000000000 + per_minute - 1) / per_minute;
begin
    insert into rate_limits as r (kind, id, tat, admitted)
    values (caller_kind, caller_id, now_nanos + emission, true)
    on conflict (kind, id) do update
        -- A state that lies more than a burst and a minute ahead is from before the clock was
        -- set back, and counts as none. A refusal writes the row too, so that it answers with
        -- the state that it was refused by.
        set (tat, admitted) = (
            select case when outdated then excluded.tat when fits then next else r.tat end,
                   fits or outdated
            from (select r.tat - now_nanos > 120000000000 as outdated,
                         greatest(r.tat, now_nanos) + emission as next) s,
                 lateral (select next - now_nanos <= emission * per_minute as fits) f)
    returning r.tat, r.admitted into tat, admitted;
end
$$;

-- Whether a key or a session is still alive. Its row stays locked until the end of the
-- transaction, so that its revocation and what is done in its name are in an order.
create function lock_live_caller(key_id bigint, session_id bigint, at timestamptz)
returns boolean
language sql as $$
    with by_key as (
        select from api_keys
        where id = key_id and revoked_at is null and (expires_at is null or expires_at > at)
        for share
    ), by_session as (
        select from sessions
        where id = session_id and revoked_at is null and expires_at > at
        for share
    )
    select exists (select from by_key) or exists (select from by_session)
$$;
