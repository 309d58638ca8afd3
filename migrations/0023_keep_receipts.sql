-- Receipts are written with the settlements of their generations, which must not fail because of
-- them: an error undoes only this function's work, and a lock is waited for no longer than here.
create function keep_receipts(accounts bigint[], keys uuid[], bounds bigint[], counts bigint[],
                              moment timestamptz) returns void
language plpgsql set lock_timeout = '5ms' as $$
begin
    -- Of the same input that was counted twice the larger count stays.
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
