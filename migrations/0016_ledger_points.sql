-- Where the audit of what is new (`gensvc ledger verify --since-last`) goes on: the newest entry of
-- each account that it found right, and what the account had then.
create table ledger_points (
    account_id bigint not null,
    entry_id bigint not null,
    balance bigint not null,
    held bigint not null,
    constraint ledger_points_pkey primary key (account_id)
);

-- All generations that earlier transactions settled are verified, and in the sums of usage.
insert into settled_cursors (name, upto) values ('verified', '0');

-- What came after the points, by a look into an index for each account and kind: nothing tells the
-- planner how few they are.
create view unverified_entries as
select e.*, coalesce(p.balance, 0) as verified_balance, coalesce(p.held, 0) as verified_held
from accounts a
    left join ledger_points p on p.account_id = a.id
    cross join (values ('grant'), ('hold'), ('charge'), ('release'), ('adjustment'), ('refund'))
        kinds (kind)
    cross join lateral (
        select * from ledger_entries e
        where e.account_id = a.id and e.kind = kinds.kind and e.id > coalesce(p.entry_id, 0)
        offset 0
    ) e;
