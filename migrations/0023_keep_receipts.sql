-- Writes receipts in the statement that settles their generations, without failing it: an error
-- rolls back only this function, and a wait for a lock ends after 1 ms.
create function keep_receipts(accounts bigint[], keys uuid[], bounds bigint[], counts bigint[],
                              moment timestamptz) returns void
language plpgsql set lock_timeout = '1ms' as $$
begin
    -- If the same input was counted twice, the larger count is kept.
    insert into prefix_receipts as r (account_id, key, bound, tokens, counted_at)
    select distinct on (w.account_id, w.key) w.account_id, w.key, w.bound, w.tokens, moment
    from unnest(accounts, keys, bounds, counts) as w (account_id, key, bound, tokens)
    order by w.account_id, w.key, w.tokens desc
    on conflict (account_id, key) do update
        set tokens = greatest(r.tokens, excluded.tokens), counted_at = excluded.counted_at;
exception when others then
    raise warning 'receipts were not written: %', sqlerrm;
end
$$;
