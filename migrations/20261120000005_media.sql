-- What images, videos and speech need beside text.
alter table generations
    add column negative_prompt text,
    -- Stored files: [{"key", "type", "content_type", "bytes", "sha256", ...}].
    add column outputs jsonb not null default '[]',
    -- The intent to call the provider, stored before the call. With it and without a
    -- remote_id the outcome of the call is unknown: the job is never submitted again.
    add column submitted_at timestamptz,
    -- The provider's id of its task.
    add column remote_id text,
    -- When the job is to be looked at again; only for jobs.
    add column next_step_at timestamptz,
    -- When the job is given up; only for jobs.
    add column deadline_at timestamptz,
    add column progress smallint,
    add constraint generations_progress_range check (progress between 0 and 100),
    add constraint generations_remote_after_intent
        check (remote_id is null or submitted_at is not null);

-- Jobs that wait for somebody to take their next step.
create index generations_due_idx on generations (next_step_at)
    where status in ('pending', 'processing') and lease_token is null;

-- What may be deleted by age.
create index generations_kept_idx on generations (id)
    where deleted_at is null and status in ('completed', 'failed');

-- Generations whose files are to be removed: written with the end that makes them useless,
-- worked off afterwards.
create table media_trash (
    generation_id uuid not null,
    created_at timestamptz not null,
    constraint media_trash_pkey primary key (generation_id)
);
create index media_trash_created_idx on media_trash (created_at);

-- Secrets of this installation, made at its first start and shared by all replicas.
create table secrets (
    name text not null,
    value bytea not null,
    constraint secrets_pkey primary key (name)
);
