-- A server process that works on generations. Its row is its lease: while `seen_at` is fresh,
-- what it works on is its own; when it is stale, any other server may end or take over the work.
create table instances (
    id uuid not null,
    seen_at timestamptz not null,
    constraint instances_pkey primary key (id)
);

create table generations (
    -- Version 7: sorts by creation.
    id uuid not null,
    account_id bigint not null,
    type text not null,
    status text not null,
    provider text not null,
    model text not null,
    prompt text not null,
    system_prompt text,
    parameters jsonb not null,
    -- The price row that the bill is made from, as it stood at creation.
    pricing jsonb not null,
    -- Read by the statement that makes the row, and never deleted: a foreign key would only
    -- add a lock on a busy key's row.
    api_key_id bigint,
    session_id bigint,
    -- The ceiling that was held at creation; on hold while unfinished.
    estimated bigint not null,
    charged bigint,
    usage jsonb,
    result text,
    error_code text,
    error_message text,
    -- Submissions to the provider.
    attempts integer not null default 0,
    provider_request_id text,
    -- The instance that works on it; only it may finish the work (a cancel may end it too).
    lease_token uuid,
    created_at timestamptz not null,
    started_at timestamptz,
    completed_at timestamptz,
    -- Removed by its owner: prompt and result are gone, the numbers stay.
    deleted_at timestamptz,
    constraint generations_pkey primary key (id),
    constraint generations_account_fkey foreign key (account_id) references accounts (id),
    constraint generations_type_known check (type in ('text', 'image', 'video', 'audio')),
    constraint generations_status_known
        check (status in ('pending', 'processing', 'completed', 'failed')),
    constraint generations_estimated_not_negative check (estimated >= 0),
    -- Never more than was held; nothing for a failure; a finished one says what it cost.
    constraint generations_charged_within_hold check (charged between 0 and estimated),
    constraint generations_finished_is_settled
        check ((status in ('completed', 'failed')) = (charged is not null)
           and (status in ('completed', 'failed')) = (completed_at is not null)),
    constraint generations_failed_costs_nothing
        check (status <> 'failed' or (charged = 0 and error_code is not null))
);

-- The history, newest first, with each filter.
create index generations_history_idx on generations (account_id, id desc)
    where deleted_at is null;
create index generations_history_type_idx on generations (account_id, type, id desc)
    where deleted_at is null;
create index generations_history_status_idx on generations (account_id, status, id desc)
    where deleted_at is null;
create index generations_history_provider_idx on generations (account_id, provider, id desc)
    where deleted_at is null;
create index generations_history_model_idx on generations (account_id, model, id desc)
    where deleted_at is null;
-- What is still running, and on which instance.
create index generations_unfinished_idx on generations (lease_token)
    where status in ('pending', 'processing');

-- A key that the caller chose, bound to the generation that it made.
create table idempotency_keys (
    account_id bigint not null,
    key text not null,
    -- SHA-256 of the route and the request's JSON value.
    fingerprint bytea not null,
    generation_id uuid not null,
    expires_at timestamptz not null,
    constraint idempotency_keys_pkey primary key (account_id, key),
    constraint idempotency_keys_generation_fkey
        foreign key (generation_id) references generations (id)
);
create index idempotency_keys_expires_idx on idempotency_keys (expires_at);
