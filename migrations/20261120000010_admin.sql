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
