-- Who runs the server: the sessions of these users are good for /v1/admin too. Only the command
-- line sets it.
alter table users add column operator_since timestamptz;

-- Why an account is suspended, for the operator.
alter table accounts add column suspended_reason text;
