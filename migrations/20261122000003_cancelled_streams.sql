-- A text that is passed on as it comes is ended by the server that does so: it alone knows what
-- was delivered, which a cancel does not make free.
alter table generations
    add column streamed boolean not null default false,
    -- A cancel that reached another server, for the one that streams the text to see.
    add column cancel_requested_at timestamptz,
    -- Why it was completed early; null where the provider ended it.
    add column finish_reason text,
    add constraint generations_finish_reason_of_completed
        check (finish_reason is null or (finish_reason = 'cancelled' and status = 'completed'));
