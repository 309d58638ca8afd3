-- API keys, sessions and admin tokens: only SHA-256 digests are stored.
create table api_keys (
    id bigint generated always as identity,
    account_id bigint not null,
    name text not null,
    digest bytea not null,
    -- First and last characters, to recognise a key by.
    key_hint text not null,
    abilities text[] not null,
    rate_limit_per_minute integer not null,
    expires_at timestamptz,
    -- An optional limit on what the key may spend, for ever or in each day or month (UTC).
    spend_limit bigint,
    spend_period text,
    -- May lag by 60 s.
    last_used_at timestamptz,
    -- Set once, never cleared.
    revoked_at timestamptz,
    created_at timestamptz not null,
    constraint api_keys_pkey primary key (id),
    constraint api_keys_account_fkey foreign key (account_id) references accounts (id),
    constraint api_keys_digest_key unique (digest),
    constraint api_keys_rate_limit_range check (rate_limit_per_minute between 1 and 1000000),
    constraint api_keys_spend_limit_not_negative check (spend_limit >= 0),
    constraint api_keys_spend_period_known check (spend_period in ('day', 'month')),
    constraint api_keys_spend_period_of_a_limit
        check (spend_period is null or spend_limit is not null)
);
create index api_keys_account_idx on api_keys (account_id, id desc);

create table sessions (
    id bigint generated always as identity,
    user_id bigint not null,
    account_id bigint not null,
    digest bytea not null,
    expires_at timestamptz not null,
    -- Logout. Set once.
    revoked_at timestamptz,
    created_at timestamptz not null,
    constraint sessions_pkey primary key (id),
    constraint sessions_user_fkey foreign key (user_id) references users (id),
    constraint sessions_account_fkey foreign key (account_id) references accounts (id),
    constraint sessions_digest_key unique (digest)
);
create index sessions_expires_idx on sessions (expires_at);

-- Tokens of the operator's own systems. Only the command line makes them.
create table admin_tokens (
    id bigint generated always as identity,
    name text not null,
    digest bytea not null,
    -- May lag by 60 s.
    last_used_at timestamptz,
    -- Set once, never cleared.
    revoked_at timestamptz,
    created_at timestamptz not null,
    constraint admin_tokens_pkey primary key (id),
    constraint admin_tokens_digest_key unique (digest)
);

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

-- The rate limit's state: GCRA, nanoseconds since the epoch (see src/domain/rate.rs). Unlogged,
-- because it is worth one minute at most: it survives every restart but a crash of the database,
-- and no request waits for its flush.
create unlogged table rate_limits (
    -- 'k' for an API key, 's' for a session, 'a' for an admin token.
    kind "char" not null,
    id bigint not null,
    per_minute integer not null,
    -- Theoretical arrival time: when the whole burst is there again.
    tat bigint not null,
    -- How many of the requests that were counted last were let through: what the statement that
    -- counted them answers.
    admitted integer not null,
    constraint rate_limits_pkey primary key (kind, id)
)
with (fillfactor = 50);

-- Nanoseconds between two requests at a limit, rounded up, so that never more than the limit get
-- through.
create function emission(per_minute integer) returns bigint
language sql immutable parallel safe as $$
    select (60000000000 + per_minute - 1) / per_minute
$$;

-- Counts requests that came together against their callers' limits: of each caller `counts` at
-- once. Answers how many are let through, and the state after them. In PL/pgSQL, which keeps the
-- plan: it runs for every request.
create function count_requests(
    caller_kind "char", callers bigint[], limits integer[], counts integer[], now_nanos bigint
)
returns table (caller bigint, tat bigint, admitted integer)
language plpgsql as $$
#variable_conflict use_column
begin
    return query
    insert into rate_limits as r (kind, id, per_minute, tat, admitted)
    select caller_kind, c.id, c.per_minute,
           now_nanos + emission(c.per_minute) * least(c.n, c.per_minute),
           least(c.n, c.per_minute)
    from unnest(callers, limits, counts) as c (id, per_minute, n)
    -- One order of locks.
    order by c.id
    on conflict (kind, id) do update
        set per_minute = excluded.per_minute,
            (tat, admitted) = (
                select start + spacing * fits, fits
                from (
                    -- A state that lies more than a burst and a minute ahead is from before the
                    -- clock was set back, and counts as none.
                    select emission(excluded.per_minute) as spacing,
                           case when r.tat - now_nanos > 120000000000 then now_nanos
                                else greatest(r.tat, now_nanos) end as start
                ) s, lateral (
                    select greatest(0, least(excluded.admitted,
                        (spacing * excluded.per_minute - (start - now_nanos)) / spacing))::integer
                        as fits
                ) f)
    returning r.id, r.tat, r.admitted;
end
$$;

-- Failed logins of the last 15 minutes, at most 10 for each email and address. Unknown emails
-- are counted alike, so that the answer tells nothing.
create unlogged table login_attempts (
    email text not null,
    address text not null,
    failed_at timestamptz[] not null default '{}',
    -- Attempts whose password is being looked at: they count until their verdict, so that
    -- parallel guesses cannot overrun the limit.
    pending timestamptz[] not null default '{}',
    constraint login_attempts_pkey primary key (email, address)
);
