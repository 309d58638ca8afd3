-- How a server sends the rows of the statements that place and settle holds, many at once. A type
-- never changes: servers of two versions run beside each other, and what another version sends is
-- a type of another name.
create type hold_row as (
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
    system_prompt text
);

create type settlement_row as (
    id uuid,
    account_id bigint,
    instance uuid,
    charged bigint,
    usage jsonb,
    outputs jsonb,
    answer jsonb,
    error_code text,
    error_message text,
    finish_reason text,
    attempts integer,
    provider_request_id text,
    now timestamptz,
    result text
);
