-- A deleted account keeps its row, its ledger and the numbers of its generations. `deleted_at` is
-- set with the removal of its users and tokens; `erased_at` when its last prompt is removed.
alter table accounts add column deleted_at timestamptz;
alter table accounts add column erased_at timestamptz;
create index accounts_to_erase_idx on accounts (id)
    where deleted_at is not null and erased_at is null;

-- Grows with every change of a key, so that a server that has cached the key notices the change.
alter table api_keys add column version integer not null default 0;
