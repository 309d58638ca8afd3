-- Pictures that callers send as inputs of generations. The file of a row exists as long as the row:
-- it is written while `media_trash` has its `file_id`, which the statement that inserts the row
-- removes; the statement that deletes the row puts it back.
create table uploads (
    account_id bigint not null,
    -- Derived from the account and the bytes, so that the same bytes have the same id.
    id uuid not null,
    -- The folder of the file in the media store. Version 7: sorts by creation.
    file_id uuid not null,
    content_type text not null,
    bytes bigint not null,
    width integer not null,
    height integer not null,
    sha256 bytea not null,
    created_at timestamptz not null,
    -- When its owner no longer sees it. In the past for a picture that came within a request.
    expires_at timestamptz not null,
    -- Until when generations that were accepted may still read the file.
    kept_until timestamptz not null,
    constraint uploads_pkey primary key (account_id, id),
    constraint uploads_file_key unique (account_id, file_id),
    constraint uploads_bytes_positive check (bytes > 0)
);
create index uploads_end_idx on uploads (greatest(expires_at, kept_until));
