-- Requests to read the catalogue again. A server that may have missed a notification compares it.
create table catalogue_reloads (
    only_row boolean primary key default true check (only_row),
    requested bigint not null
);
insert into catalogue_reloads (requested) values (0);
