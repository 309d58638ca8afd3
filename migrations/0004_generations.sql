-- A generation is a row of running_generations until it ends, and one of finished_generations
-- from then on: the statement that ends it removes the one and inserts the other. So neither is
-- written twice on the way of a text, and what runs stays small. Who only reads takes the view
-- `generations`.
--
-- No foreign keys here and in the ledger: the statement that inserts has read what it refers to,
-- nothing of it is ever deleted, and each key would lock a row of a busy account or price.

-- A server process that works on generations. Its row is its lease: while `seen_at` changes,
-- what it works on is its own; when it does not, any other server may end or take over the work.
create table instances (
    id uuid not null,
    seen_at timestamptz not null,
    constraint instances_pkey primary key (id)
);

-- What generations are made with. Rows are added when a server first sees a model in its
-- catalogue, and stay.
create table models (
    id integer generated always as identity,
    type text not null,
    provider text not null,
    name text not null,
    constraint models_pkey primary key (id),
    constraint models_key unique (type, provider, name),
    constraint models_type_known check (type in ('text', 'image', 'video', 'audio'))
);

-- What a model costs. A row never changes: a new price is a new row, and what a generation was
-- priced with stays as it was.
create table prices (
    id integer generated always as identity,
    model_id integer not null,
    pricing jsonb not null,
    constraint prices_pkey primary key (id),
    constraint prices_key unique (model_id, pricing),
    constraint prices_model_fkey foreign key (model_id) references models (id)
);

create table running_generations (
    -- Version 7: sorts by creation.
    id uuid not null,
    account_id bigint not null,
    -- The caller: one of the two.
    api_key_id bigint,
    session_id bigint,
    -- The ceiling that is on hold.
    estimated bigint not null,
    created_at timestamptz not null,
    started_at timestamptz,
    -- The intent to call the provider, stored before the call. With it and without a
    -- remote_id the outcome of the call is unknown: the job is never submitted again.
    submitted_at timestamptz,
    -- When the job is to be looked at again; only for jobs that workers take.
    next_step_at timestamptz,
    -- When the job is given up; only for jobs that workers take.
    deadline_at timestamptz,
    -- A cancel that reached another server, for the one that streams the text to see.
    cancel_requested_at timestamptz,
    template_id bigint,
    template_version integer,
    model_id integer not null,
    price_id integer not null,
    -- The period of the key's spend limit that the hold counts in; null without a limit.
    spend_period date,
    -- Submissions to the provider.
    attempts integer not null default 0,
    progress smallint,
    -- Whether it counts against the account's limit of unfinished jobs.
    job boolean not null,
    -- A text that is passed on as it comes is ended by the server that does so: it alone knows
    -- what was delivered, which a cancel does not make free.
    streamed boolean not null,
    -- The instance that works on it; only it may finish the work (a cancel may end it too).
    lease_token uuid,
    -- `pending` while it waits for a free worker.
    status text not null,
    prompt text not null,
    system_prompt text,
    negative_prompt text,
    parameters jsonb not null,
    -- The provider's id of its task.
    remote_id text,
    constraint running_generations_pkey primary key (id),
    constraint running_generations_status_known check (status in ('pending', 'processing')),
    constraint running_generations_estimated_not_negative check (estimated >= 0),
    constraint running_generations_template_has_version
        check ((template_id is null) = (template_version is null)),
    constraint running_generations_progress_range check (progress between 0 and 100),
    constraint running_generations_remote_after_intent
        check (remote_id is null or submitted_at is not null)
)
-- Every row is soon dead: the table is vacuumed by what has died, not by a part of it.
with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
      autovacuum_vacuum_insert_threshold = -1);
create index running_generations_account_idx on running_generations (account_id);
-- Jobs that wait for somebody to take their next step.
create index running_generations_due_idx on running_generations (next_step_at)
    where lease_token is null;

create table finished_generations (
    id uuid not null,
    account_id bigint not null,
    api_key_id bigint,
    session_id bigint,
    -- The ceiling that was held.
    estimated bigint not null,
    charged bigint not null,
    created_at timestamptz not null,
    started_at timestamptz not null,
    completed_at timestamptz not null,
    -- Removed by its owner: prompt and result are gone, the numbers stay.
    deleted_at timestamptz,
    -- The transaction that ended it, for the cursors below.
    settled xid8 not null default pg_current_xact_id(),
    template_id bigint,
    template_version integer,
    model_id integer not null,
    price_id integer not null,
    attempts integer not null,
    prompt text not null,
    system_prompt text,
    negative_prompt text,
    parameters jsonb not null,
    usage jsonb,
    result text,
    -- Stored files: [{"key", "type", "content_type", "bytes", "sha256", ...}].
    outputs jsonb,
    -- Why it failed; null where it completed.
    error_code text,
    failed boolean not null generated always as (error_code is not null) stored,
    error_message text,
    -- Why it was completed early; null where the provider ended it.
    finish_reason text,
    provider_request_id text,
    constraint finished_generations_pkey primary key (account_id, id),
    -- Never more than was held, and nothing for a failure.
    constraint finished_generations_charged_within_hold check (charged between 0 and estimated),
    constraint finished_generations_failed_costs_nothing
        check (not failed or charged = 0),
    constraint finished_generations_finish_reason_of_completed
        check (finish_reason is null or (finish_reason = 'cancelled' and not failed)),
    constraint finished_generations_template_has_version
        check ((template_id is null) = (template_version is null))
);
-- The history, newest first: it merges the newest rows of each model and outcome that its
-- filters let through, so that one index serves every combination.
create index finished_generations_history_idx
    on finished_generations (account_id, model_id, failed, id)
    where deleted_at is null;
create index finished_generations_settled_idx on finished_generations (settled);

create view generations as
select g.id, g.account_id, m.type, g.status, m.provider, m.name as model, g.prompt,
       g.system_prompt, g.negative_prompt, g.parameters, p.pricing, g.api_key_id, g.session_id,
       g.estimated, null::bigint as charged, null::jsonb as usage, null::text as result,
       '[]'::jsonb as outputs, null::text as error_code, null::text as error_message,
       null::text as finish_reason, g.attempts, null::text as provider_request_id, g.progress,
       g.template_id, g.template_version, g.created_at, g.started_at,
       null::timestamptz as completed_at, null::timestamptz as deleted_at
from running_generations g
    join models m on m.id = g.model_id
    join prices p on p.id = g.price_id
union all
select g.id, g.account_id, m.type,
       case when g.failed then 'failed' else 'completed' end, m.provider, m.name,
       g.prompt, g.system_prompt, g.negative_prompt, g.parameters, p.pricing, g.api_key_id,
       g.session_id, g.estimated, g.charged, g.usage, g.result, coalesce(g.outputs, '[]'),
       g.error_code,
       g.error_message, g.finish_reason, g.attempts, g.provider_request_id, null::smallint,
       g.template_id, g.template_version, g.created_at, g.started_at, g.completed_at,
       g.deleted_at
from finished_generations g
    join models m on m.id = g.model_id
    join prices p on p.id = g.price_id;

-- How far what reads finished generations one after the other has come: all that were settled
-- by an earlier transaction are done. A transaction below pg_snapshot_xmin() has ended, so none
-- is passed over, whatever the order of commits.
create table settled_cursors (
    -- 'usage': the sums of usage. 'retention': deletion by age.
    name text not null,
    upto xid8 not null,
    constraint settled_cursors_pkey primary key (name)
);
insert into settled_cursors (name, upto) values ('usage', '0'), ('retention', '0');

-- A key that the caller chose, bound to the generation that it made.
create table idempotency_keys (
    account_id bigint not null,
    key text not null,
    -- SHA-256 of the route and the request's JSON value.
    fingerprint bytea not null,
    generation_id uuid not null,
    expires_at timestamptz not null,
    constraint idempotency_keys_pkey primary key (account_id, key)
);
create index idempotency_keys_expires_idx on idempotency_keys (expires_at);

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
