-- Where an account's events go.
create table webhooks (
    id bigint generated always as identity,
    account_id bigint not null,
    url text not null,
    -- generation.completed, generation.failed
    events text[] not null,
    -- Signs the deliveries: needed as it is, and shown once.
    secret bytea not null,
    created_at timestamptz not null,
    -- Never removed while a settlement might write a delivery to it.
    deleted_at timestamptz,
    constraint webhooks_pkey primary key (id),
    constraint webhooks_account_fkey foreign key (account_id) references accounts (id)
);
create index webhooks_account_idx on webhooks (account_id, id desc) where deleted_at is null;
-- For removing them for good.
create index webhooks_deleted_idx on webhooks (deleted_at) where deleted_at is not null;

-- The outbox and the log: written by the statement that finishes a generation, delivered
-- afterwards. No foreign keys, so that nothing here can refuse a settlement.
create table webhook_deliveries (
    id bigint generated always as identity,
    webhook_id bigint not null,
    account_id bigint not null,
    generation_id uuid not null,
    event text not null,
    status text not null default 'pending',
    attempts integer not null default 0,
    -- Attempts before the owner last asked for the delivery anew: the back-off begins after them.
    earlier_attempts integer not null default 0,
    -- When it is due; set ahead while somebody delivers it, so that a death loses nothing.
    next_attempt_at timestamptz,
    last_attempt_at timestamptz,
    -- The receiver's last answer; null when there was none.
    response_status integer,
    -- Why the last attempt failed, in words that the owner may read.
    error text,
    created_at timestamptz not null,
    delivered_at timestamptz,
    constraint webhook_deliveries_pkey primary key (id),
    constraint webhook_deliveries_status_known check (status in ('pending', 'delivered', 'failed')),
    constraint webhook_deliveries_due_while_pending
        check ((status = 'pending') = (next_attempt_at is not null))
);
-- What has waited for too long.
create index webhook_deliveries_due_idx on webhook_deliveries (next_attempt_at)
    where status = 'pending';
-- A receiver that does not answer must not stand before the others: deliveries are taken
-- webhook by webhook, and this index steps from one webhook that has any to the next.
create index webhook_deliveries_queue_idx on webhook_deliveries (webhook_id, next_attempt_at)
    where status = 'pending';
create index webhook_deliveries_webhook_idx on webhook_deliveries (webhook_id, id desc);
create index webhook_deliveries_created_idx on webhook_deliveries (created_at)
    where status <> 'pending';
