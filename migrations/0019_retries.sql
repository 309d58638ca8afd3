-- The latest expiry of a binding that a retry of an SDK has made. An attempt whose binding expires
-- earlier arrived before that retry, which may have replaced it. On the row of the account, because an
-- update that waited for the row's lock evaluates its condition again with the row's newest version.
alter table accounts add column retries_until timestamptz;
