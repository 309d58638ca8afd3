-- API keys and sessions: only SHA-256 digests are stored.
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
    -- May lag by 60 s.
    last_used_at timestamptz,
    -- Set once, never cleared.
    revoked_at timestamptz,
    created_at timestamptz not null,
    constraint api_keys_pkey primary key (id),
    constraint api_keys_account_fkey foreign key (account_id) references accounts (id),
    constraint api_keys_digest_key unique (digest),
    constraint api_keys_rate_limit_range check (rate_limit_per_minute between 1 and 1000000)
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

-- The rate limit's state: GCRA, nanoseconds since the epoch. Unlogged, because it is worth one
-- minute at most: it survives every restart but a crash of the database, and no request waits
-- for its flush.
create unlogged table rate_limits (
    -- 'k' for an API key, 's' for a session.
    kind "char" not null,
    id bigint not null,
    -- Theoretical arrival time: when the whole burst is there again.
    tat bigint not null,
    -- Whether the last request was let through: what the statement that counted it answers.
    admitted boolean not null,
    constraint rate_limits_pkey primary key (kind, id)
)
with (fillfactor = 50);

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
