//! Every error of sections, files and variables: one sentence with the key, the bad value and how to
//! fix it.

use super::*;

#[test]
fn of_the_server() {
    for (file, want) in [
        (
            "[server]\nbind = \"localhost:80\"",
            r#"server.bind is "localhost:80": must be an IP address and a port, such as "127.0.0.1:8080""#,
        ),
        (
            "[server]\nbind = 80",
            "server.bind is 80: must be text in quotes",
        ),
        (
            "[server]\npublic_url = \"ftp://a\"",
            r#"server.public_url is "ftp://a": must be an http or https URL, such as "https://api.example.com""#,
        ),
        (
            "[server]\npublic_url = \"a.test\"",
            r#"server.public_url is "a.test": must be an http or https URL, such as "https://api.example.com""#,
        ),
        (
            "[server]\npublic_url = \"http://a/?q\"",
            "server.public_url holds a query or fragment (not shown): take out what follows the path",
        ),
        (
            "[server]\npublic_url = \"http://u:p@a/\"",
            "server.public_url holds a user or password (not shown): take it out",
        ),
        (
            "[server]\ncors_origins = [\"https://a/b\"]",
            r#"server.cors_origins holds "https://a/b": must be origins, such as "https://app.example.com", or "*""#,
        ),
        (
            "[server]\ncors_origins = [\"*\", \"https://a\"]",
            r#"server.cors_origins holds "*" and other origins: "*" must be the only one"#,
        ),
        (
            "[server]\ncors_origins = [1]",
            "server.cors_origins[0] is 1: must be text in quotes",
        ),
        (
            "[server]\ncors_origins = 1",
            "server.cors_origins is 1: must be a list",
        ),
        (
            "[server]\ntrusted_proxies = [\"10.0.0.0/33\"]",
            r#"server.trusted_proxies holds "10.0.0.0/33": must be addresses or networks, such as "10.0.0.0/8" or "::1""#,
        ),
        (
            "[server]\ndrain_seconds = -1",
            "server.drain_seconds is -1: must be a whole number from 0 to 300",
        ),
        (
            "[server]\nshutdown_seconds = 301",
            "server.shutdown_seconds is 301: must be a whole number from 0 to 300",
        ),
        (
            "[server]\nbody_timeout_seconds = 0",
            "server.body_timeout_seconds is 0: must be a whole number from 1 to 300",
        ),
        (
            "[server]\nmax_body_bytes = 1e6",
            "server.max_body_bytes is 1000000: must be a whole number from 1024 to 16777216",
        ),
        (
            "[server]\nmax_body_bytes = true",
            "server.max_body_bytes is true: must be a whole number from 1024 to 16777216",
        ),
        (
            "[server]\naccount_share_percent = 101",
            "server.account_share_percent is 101: must be a whole number from 1 to 100",
        ),
    ] {
        check(file, &[], want);
    }
    let long = format!("[server]\nbind = \"{}\"", "x".repeat(500));
    assert!(error_of(&long, &[]).len() < 250);
}

#[test]
fn of_database_log_and_jobs() {
    for (file, want) in [
        (
            "[database]\nurl = \"mysql://u:hunter2@h\"",
            "database.url is not a Postgres URL (its value is not shown): must begin with postgres:// or postgresql://",
        ),
        (
            "[database]\nmax_connections = -1",
            "database.max_connections is -1: must be a whole number from 4 to 1000",
        ),
        (
            "[database]\nmax_connections = 3",
            "database.max_connections is 3: must be a whole number from 4 to 1000",
        ),
        (
            "[database]\nacquire_timeout_ms = 99",
            "database.acquire_timeout_ms is 99: must be a whole number from 100 to 60000",
        ),
        (
            "[data]\ndir = \"\"",
            r#"data.dir is empty: must be a directory, such as "data""#,
        ),
        (
            "[log]\nfilter = \"\"",
            r#"log.filter is empty: must be a log filter, such as "info" or "off""#,
        ),
        (
            "[log]\nformat = \"xml\"",
            r#"log.format is "xml": must be one of text, json"#,
        ),
        (
            "[jobs]\nlease_seconds = 3.7",
            "jobs.lease_seconds is 3.7: must be a whole number from 1 to 3600",
        ),
        (
            "[jobs]\npoll_interval_ms = 9",
            "jobs.poll_interval_ms is 9: must be a whole number from 10 to 600000",
        ),
        (
            "[jobs]\ndeadline_seconds = 0",
            "jobs.deadline_seconds is 0: must be a whole number from 1 to 604800",
        ),
        (
            "[jobs]\nmax_per_account = 0",
            "jobs.max_per_account is 0: must be a whole number from 1 to 1000000",
        ),
    ] {
        check(file, &[], want);
    }
}

#[test]
fn of_rules_and_of_unknown_keys() {
    for (file, want) in [
        (
            "[submissions]\nattempts = 11",
            "submissions.attempts is 11: must be a whole number from 1 to 10",
        ),
        (
            "[submissions]\nwindow_seconds = \"x\"",
            r#"submissions.window_seconds is "x": must be a whole number from 0 to 3600"#,
        ),
        (
            "[submissions]\nretry_base_ms = 0",
            "submissions.retry_base_ms is 0: must be a whole number from 1 to 60000",
        ),
        (
            "[sessions]\ndays = 0",
            "sessions.days is 0: must be a whole number from 1 to 3650",
        ),
        (
            "[idempotency]\nhours = 0",
            "idempotency.hours is 0: must be a whole number from 1 to 8760",
        ),
        (
            "[idempotency]\nwait_seconds = [1]",
            "idempotency.wait_seconds is a list: must be a whole number from 1 to 600",
        ),
        (
            "[defaults]\ntext = [\"opnai\"]",
            r#"defaults.text names "opnai", which is no provider: use anthropic, elevenlabs, gemini, openai, runway, sandbox, stability"#,
        ),
        (
            "[demo]\ncredits = 10.5",
            r#"demo.credits is 10.5: write credits in quotes, such as "10.5", so that no digit is lost"#,
        ),
        (
            "[demo]\ncredits = -1",
            r#"demo.credits is "-1": must not be negative"#,
        ),
        (
            "[demo]\ncredits = \"0.1234567\"",
            r#"demo.credits is "0.1234567": must have at most six digits after the point"#,
        ),
        (
            "[demo]\ncredits = \"1000000001\"",
            r#"demo.credits is "1000000001": must be at most "1000000000""#,
        ),
        (
            "[jobs]\nlease = 3",
            "jobs.lease is not a known key: remove it or use one of lease_seconds, poll_interval_ms, deadline_seconds, max_per_account, workers, max_workers_per_account, paused",
        ),
        (
            "[demo]\ncredit = 3",
            "demo.credit is not a known key: remove it or use one of credits",
        ),
        (
            "[sever]\nbind = 3",
            "sever is not a known key: remove it or use one of server, database, data, media, retention, log, jobs, submissions, webhooks, sessions, idempotency, defaults, pricing, credits, demo, metrics, traces, providers, routes",
        ),
        ("jobs = 5", "jobs is 5: must be a table with keys"),
        (
            "database = \"postgres://u:hunter2@h\"",
            "database is text (not shown): must be a table with keys",
        ),
        (
            "[jobs]\nlease_seconds = {a = 1}",
            "jobs.lease_seconds is a table: must be a whole number from 1 to 3600",
        ),
    ] {
        check(file, &[], want);
    }
}

#[test]
fn of_log_filters() {
    let error = error_of("[log]\nfilter = \"info,sqlx=loud\"", &[]);
    assert!(
        error.starts_with(r#"log.filter is "info,sqlx=loud": must be a level (error, warn, "#),
        "{error}"
    );
}

#[test]
fn of_files() {
    let missing = load(Some("/nowhere/gensvc.toml".as_ref()), &env(&[])).unwrap_err();
    assert_eq!(
        missing.to_string(),
        "config file /nowhere/gensvc.toml cannot be read (No such file or directory (os error 2)): \
         check the path of --config or GENSVC_CONFIG"
    );
    let error = error_of("[database]\nurl = \"postgres://u:hunter2@h\n", &[]);
    assert!(
        error.starts_with("config file FILE is not valid TOML: line 2, column "),
        "{error}"
    );
    assert!(
        !error.contains("hunter2") && !error.contains('\n'),
        "{error}"
    );
    let error = error_of("[jobs]\nlease_seconds = 1\nlease_seconds = 2\n", &[]);
    assert!(error.ends_with("duplicate key"), "{error}");
}
