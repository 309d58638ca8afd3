-- Every movement of credits, append-only. `balance` and `held` stand as they are after it; ids
-- ascend within an account, because an entry is written while its account's row is locked.
create table ledger_entries (
    id bigint generated always as identity,
    account_id bigint not null,
    kind text not null,
    amount bigint not null,
    balance bigint not null,
    held bigint not null,
    generation_id uuid,
    reference text,
    created_at timestamptz not null,
    constraint ledger_entries_pkey primary key (id),
    constraint ledger_entries_account_fkey foreign key (account_id) references accounts (id),
    constraint ledger_entries_generation_fkey
        foreign key (generation_id) references generations (id),
    constraint ledger_entries_kind_known
        check (kind in ('grant', 'hold', 'charge', 'release', 'adjustment')),
    constraint ledger_entries_amount_moves_something
        check (case kind when 'adjustment' then amount <> 0 else amount > 0 end),
    constraint ledger_entries_generation_where_due
        check ((kind in ('hold', 'charge', 'release')) = (generation_id is not null))
);
create index ledger_entries_account_idx on ledger_entries (account_id, id desc);
create index ledger_entries_account_kind_idx on ledger_entries (account_id, kind, id desc);
-- One hold and one resolution for each generation, whatever retries, crashes or replicas do;
-- serves the filter by generation too.
create unique index ledger_entries_one_hold_one_resolution
    on ledger_entries (generation_id, (kind = 'hold'))
    where generation_id is not null;

-- An operator's reference moves credits once for each account and kind.
create unique index ledger_entries_reference_once
    on ledger_entries (account_id, kind, reference)
    where reference is not null;

create function ledger_entries_are_append_only() returns trigger
language plpgsql as $$
begin
    raise exception 'ledger entries are append-only';
end
$$;
create trigger ledger_entries_append_only
    before update or delete or truncate on ledger_entries
    for each statement execute function ledger_entries_are_append_only();
