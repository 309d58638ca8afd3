-- A server of the previous release ignores the inputs of a video job and charges its hold. It must not
-- claim one, as for jobs with candidates (`0028_routes`).
drop trigger running_generations_route_is_known on running_generations;
create trigger running_generations_route_is_known
    before update of lease_token on running_generations for each row
    when ((new.route is not null or new.parameters ? 'inputs')
          and old.lease_token is null and new.lease_token is not null)
    execute function skip_unknown_route();
