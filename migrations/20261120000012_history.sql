-- One index serves every combination of filters: the history looks up which combinations an
-- account has, some dozens, and merges the newest rows of each that the filters let through.
-- An index for each filter alone would leave the combinations to luck.
create index generations_history_kinds_idx
    on generations (account_id, type, provider, model, status, id desc)
    where deleted_at is null;
drop index generations_history_type_idx;
drop index generations_history_status_idx;
drop index generations_history_provider_idx;
drop index generations_history_model_idx;
