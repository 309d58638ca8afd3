-- The first tries of one request, each of which has a binding of its own: a retry looks for them by
-- what they ask. Keys of callers begin with no space.
create index idempotency_keys_tries_idx on idempotency_keys (account_id, fingerprint)
    where starts_with(key, ' ');
