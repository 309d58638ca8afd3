-- no-transaction
-- Calls whose answer was lost, by the creation of their generations, for the report of the margin.
create index concurrently generation_attempts_lost_idx on generation_attempts (generation_id)
    where outcome = 'unknown';
