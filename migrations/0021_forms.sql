-- Forms of the console create once: a form that is sent again has the same digest.
-- An API key needs no column: its own digest is derived from the form.
alter table webhooks add column form_digest bytea;
alter table template_versions add column form_digest bytea;
create unique index webhooks_form_key on webhooks (form_digest) where form_digest is not null;
create unique index template_versions_form_key on template_versions (form_digest)
    where form_digest is not null;
