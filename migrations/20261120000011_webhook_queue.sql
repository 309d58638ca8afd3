-- A receiver that does not answer must not stand before the others: deliveries are taken
-- webhook by webhook, and this index steps from one webhook that has any to the next.
create index webhook_deliveries_queue_idx on webhook_deliveries (webhook_id, next_attempt_at)
    where status = 'pending';

-- Attempts before the owner last asked for a delivery anew: the back-off begins after them.
alter table webhook_deliveries
    add column earlier_attempts integer not null default 0;

-- For removing them for good.
create index webhooks_deleted_idx on webhooks (deleted_at) where deleted_at is not null;
