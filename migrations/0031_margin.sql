-- The member `list` of prices.pricing has the vendor's list prices, without the operator's markup. It is
-- part of the unique key, so a generation pins list prices together with its prices. Rows written by
-- earlier releases lack it. Callers do not see it.
create or replace view generations as
select g.id, g.account_id, m.type, g.status, m.provider, m.name as model, g.prompt,
       g.system_prompt, g.negative_prompt, g.parameters, p.pricing - 'list' as pricing, g.api_key_id, g.session_id,
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
       g.prompt, g.system_prompt, g.negative_prompt, g.parameters, p.pricing - 'list', g.api_key_id,
       g.session_id, g.estimated, g.charged, g.usage, g.result, coalesce(g.outputs, '[]'),
       g.error_code,
       g.error_message, g.finish_reason, g.attempts, g.provider_request_id, null::smallint,
       g.template_id, g.template_version, g.created_at, g.started_at, g.completed_at,
       g.deleted_at, g.surface, g.answer,
       g.joined, g.stop_reason, g.route
from finished_generations g
    join models m on m.id = g.model_id
    join prices p on p.id = g.price_id;

-- Cost of a completed generation at its list prices, in micro-credits; null if unknown.
alter table finished_generations add column list_cost bigint;

-- For completed generations: the number with a known list cost, their charges, their list cost, and the
-- number charged by estimated counts. Servers of the previous release do not update these columns.
alter table usage_sums
    add column costed bigint default 0,
    add column costed_charged bigint default 0,
    -- numeric, because providers can report absurd counts.
    add column list_cost numeric default 0,
    add column estimated_counts bigint default 0;

create or replace view usage_counted as
select account_id, settled, span,
       date_trunc(case span when 'd' then 'day' else 'hour' end, created_at at time zone 'UTC')
           at time zone 'UTC' as start,
       model_id, coalesce(api_key_id, 0) as api_key_id,
       (not failed)::int as completed, failed::int as failed, charged,
       coalesce((usage ->> 'input_tokens')::numeric, 0) as input_tokens,
       coalesce((usage ->> 'output_tokens')::numeric, 0) as output_tokens,
       coalesce((usage ->> 'images')::bigint, 0) as images,
       coalesce((usage ->> 'seconds')::bigint, 0) as seconds,
       coalesce((usage ->> 'characters')::bigint, 0) as characters,
       (list_cost is not null)::int as costed,
       case when list_cost is not null then charged else 0 end as costed_charged,
       coalesce(list_cost, 0) as list_cost,
       coalesce(usage -> 'estimated' = 'true', false)::int as estimated_counts
from finished_generations, (values ('d'::"char"), ('h')) spans (span);
