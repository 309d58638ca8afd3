-- Counts requests to reload the catalogue. A server that may have missed a NOTIFY compares the count
-- with the last one it saw.
create table catalogue_reloads (
    only_row boolean primary key default true check (only_row),
    requested bigint not null
);
insert into catalogue_reloads (requested) values (0);
