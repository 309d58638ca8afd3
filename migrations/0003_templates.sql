-- Prompt templates. A change makes a new version; those before it are kept, because records
-- name the version that they were made with.
create table templates (
    id bigint generated always as identity,
    account_id bigint not null,
    name text not null,
    -- The newest version.
    version integer not null default 1,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    constraint templates_pkey primary key (id),
    constraint templates_account_fkey foreign key (account_id) references accounts (id)
);
create index templates_account_idx on templates (account_id, id desc);

create table template_versions (
    template_id bigint not null,
    version integer not null,
    prompt text not null,
    system_prompt text,
    -- Names that the two use, without `prompt`.
    variables text[] not null,
    created_at timestamptz not null,
    constraint template_versions_pkey primary key (template_id, version),
    constraint template_versions_template_fkey
        foreign key (template_id) references templates (id) on delete cascade
);
