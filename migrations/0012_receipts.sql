-- What vendors have counted of an account's dialogues, by digests of what they had: the holds of
-- dialogues that go on from there. Unlogged, because one that is lost makes a hold larger, no more.
create unlogged table prefix_receipts (
    account_id bigint not null,
    -- The first half of a SHA-256.
    key uuid not null,
    -- Input tokens: what the bytes bound them by, and how many the vendor has counted.
    bound bigint not null,
    tokens bigint not null,
    counted_at timestamptz not null,
    constraint prefix_receipts_pkey primary key (account_id, key)
);
create index prefix_receipts_counted_idx on prefix_receipts (counted_at);
