-- no-transaction
-- Lost calls for the margin report. Ids of generations begin with the time of creation.
create index concurrently generation_attempts_lost_idx on generation_attempts (generation_id)
    where outcome = 'unknown';
