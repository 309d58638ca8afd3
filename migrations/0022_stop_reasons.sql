-- Why a completed text may be incomplete, where it was not cancelled. Servers of the release before
-- read `finish_reason` and know 'cancelled' only, so the other reasons have a column of their own.
alter table finished_generations add column stop_reason text;
-- Not validated: every row before it has null.
alter table finished_generations add constraint finished_generations_stop_reason_of_completed
    check (stop_reason is null or (finish_reason is null and not failed)) not valid;

create or replace view generations as
select g.id, g.account_id, m.type, g.status, m.provider, m.name as model, g.prompt,
       g.system_prompt, g.negative_prompt, g.parameters, p.pricing, g.api_key_id, g.session_id,
       g.estimated, null::bigint as charged, null::jsonb as usage, null::text as result,
       '[]'::jsonb as outputs, null::text as error_code, null::text as error_message,
       null::text as finish_reason, g.attempts, null::text as provider_request_id, g.progress,
       g.template_id, g.template_version, g.created_at, g.started_at,
       null::timestamptz as completed_at, null::timestamptz as deleted_at, g.surface,
       null::jsonb as answer, g.joined, null::text as stop_reason
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
       g.joined, g.stop_reason
from finished_generations g
    join models m on m.id = g.model_id
    join prices p on p.id = g.price_id;
