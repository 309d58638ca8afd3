-- An account owns a balance. All amounts are micro-credits (BIGINT), never floats.
create table accounts (
    id bigint generated always as identity,
    name text not null,
    -- What is owned.
    balance bigint not null default 0,
    -- What running work may cost at most. Part of the balance.
    held bigint not null default 0,
    -- Unfinished jobs, kept by the statements that create and end them, so that the limit on them
    -- needs no count over a table.
    jobs integer not null default 0,
    suspended_at timestamptz,
    -- Account defaults by modality: {"text": {"provider": "...", "model": "..."}}.
    defaults jsonb not null default '{}',
    created_at timestamptz not null,
    constraint accounts_pkey primary key (id),
    constraint accounts_held_within_balance check (held >= 0 and held <= balance),
    constraint accounts_jobs_not_negative check (jobs >= 0)
)
-- A busy account is updated all the time: room on the page keeps these updates HOT.
with (fillfactor = 50);

create table users (
    id bigint generated always as identity,
    account_id bigint not null,
    -- As typed; compared without case.
    email text not null,
    name text,
    -- argon2id, PHC string.
    password_hash text not null,
    created_at timestamptz not null,
    constraint users_pkey primary key (id),
    constraint users_account_fkey foreign key (account_id) references accounts (id)
);
create unique index users_email_key on users (lower(email));
create index users_account_idx on users (account_id);
