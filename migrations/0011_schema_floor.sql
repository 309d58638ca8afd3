-- Which versions may run together: a server that does not know the migration of this number cannot
-- work with the schema. A file that contracts raises it, in the same transaction.
create table schema_floor (
    only_row boolean primary key default true check (only_row),
    version bigint not null
);
insert into schema_floor (version) values (11);
