-- Generations with several candidates. `route` is null for all others:
-- {"name", "ceiling": of the candidate that serves, in micro-credits, "dropped": [{"provider",
-- "model", "code", "message"}], "next": [{"model_id", "price_id", "ceiling", "parameters"}]}.
-- The hold (`estimated`) is the maximum of the ceilings.
alter table running_generations add column route jsonb;
alter table finished_generations add column route jsonb;
-- Not validated: every row before it has null.
alter table finished_generations add constraint finished_generations_charged_within_ceiling
    check (route is null or charged <= (route ->> 'ceiling')::bigint) not valid;

-- Candidates that a generation has left, each written with the move to the next. The last one is the
-- generation's own row.
create table generation_attempts (
    generation_id uuid not null,
    account_id bigint not null,
    -- From 1.
    number integer not null,
    model_id integer not null,
    -- When the provider was called; null if it was not.
    submitted_at timestamptz,
    ended_at timestamptz not null,
    -- Why it was left.
    outcome text not null,
    -- Of the provider's answer.
    status integer,
    provider_request_id text,
    constraint generation_attempts_pkey primary key (generation_id, number)
);

-- A server of the release before charges such a job by its hold. It must not claim one: to its
-- statement, the row is locked.
alter table instances add column knows_routes boolean not null default false;

create function skip_unknown_route() returns trigger language plpgsql as $$
begin
    if exists (select from instances where id = new.lease_token and knows_routes) then
        return new;
    end if;
    return null;
end
$$;
create trigger running_generations_route_is_known
    before update of lease_token on running_generations for each row
    when (new.route is not null and old.lease_token is null and new.lease_token is not null)
    execute function skip_unknown_route();

-- As hold_row, with the candidates. Servers of the release before send that.
create type routed_hold_row as (
    id uuid,
    account_id bigint,
    api_key_id bigint,
    session_id bigint,
    hold bigint,
    job boolean,
    max_jobs integer,
    status text,
    model_id integer,
    price_id integer,
    negative_prompt text,
    parameters jsonb,
    streamed boolean,
    instance uuid,
    deadline_at timestamptz,
    template_id bigint,
    template_version integer,
    bind_key text,
    bind_fingerprint bytea,
    bind_until timestamptz,
    surface text,
    now timestamptz,
    prompt text,
    system_prompt text,
    route jsonb
);

create or replace view generations as
select g.id, g.account_id, m.type, g.status, m.provider, m.name as model, g.prompt,
       g.system_prompt, g.negative_prompt, g.parameters, p.pricing, g.api_key_id, g.session_id,
       g.estimated, null::bigint as charged, null::jsonb as usage, null::text as result,
       '[]'::jsonb as outputs, null::text as error_code, null::text as error_message,
       null::text as finish_reason, g.attempts, null::text as provider_request_id, g.progress,
       g.template_id, g.template_version, g.created_at, g.started_at,
       null::timestamptz as completed_at, null::timestamptz as deleted_at, g.surface,
       null::jsonb as answer, g.joined, null::text as stop_reason, g.route
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
       g.deleted_at, g.surface, g.answer,
       g.joined, g.stop_reason, g.route
from finished_generations g
    join models m on m.id = g.model_id
    join prices p on p.id = g.price_id;
