-- A refund is a kind of its own, which names its generation.
alter table ledger_entries drop constraint ledger_entries_kind_known;
alter table ledger_entries add constraint ledger_entries_kind_known
    check (kind in ('grant', 'hold', 'charge', 'release', 'adjustment', 'refund'));
alter table ledger_entries drop constraint ledger_entries_generation_where_due;
-- It would take a refund for a second resolution.
drop index ledger_entries_one_hold_one_resolution;

-- Refunds were adjustments that named it in their reference. No amount changes: only what the
-- reference says is said by the columns too, so that none of them is given back again.
alter table ledger_entries disable trigger ledger_entries_append_only;
update ledger_entries e set kind = 'refund', generation_id = r.generation_id
from (
    select distinct on (g.id) e.id, g.id as generation_id
    from ledger_entries e
        join generations g on g.id::text = substring(e.reference from '^refund of ([0-9a-f-]{36}): ')
    where e.kind = 'adjustment' and e.amount between 1 and g.charged
      and e.account_id = g.account_id and g.status = 'completed'
    order by g.id, e.id
) r
where e.id = r.id;
alter table ledger_entries enable trigger ledger_entries_append_only;

alter table ledger_entries add constraint ledger_entries_generation_where_due
    check ((kind in ('hold', 'charge', 'release', 'refund')) = (generation_id is not null));
-- One hold, one resolution and one refund for each generation, whatever retries, crashes or
-- replicas do; serves the filter by generation too.
create unique index ledger_entries_once_for_each_generation
    on ledger_entries (generation_id, (case kind when 'hold' then 'hold' when 'refund' then 'refund'
                                                 else 'resolution' end))
    where generation_id is not null;
