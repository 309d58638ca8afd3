//! Which layer wins.

use secrecy::ExposeSecret as _;

use super::*;
use gensvc::{
    config::{LogFormat, Status},
    domain::party::Network,
};

#[test]
fn every_script_name_works() {
    let c = from_env(&[
        ("GENSVC__PROVIDERS__SANDBOX__TIMEOUT_SECONDS", "5"),
        ("GENSVC__PROVIDERS__OPENAI__TIMEOUT_SECONDS", "6"),
        ("GENSVC__JOBS__POLL_INTERVAL_MS", "50"),
        ("GENSVC__JOBS__LEASE_SECONDS", "2"),
        ("GENSVC__JOBS__DEADLINE_SECONDS", "3"),
        ("GENSVC__JOBS__MAX_PER_ACCOUNT", "4"),
        ("GENSVC__SERVER__SHUTDOWN_SECONDS", "0"),
        ("GENSVC__SERVER__DRAIN_SECONDS", "300"),
        ("GENSVC__DEMO__CREDITS", "0.5"),
        ("OPENAI_API_KEY", "k"),
    ])
    .unwrap();
    let timeout = |name: &str| {
        let found = c.enabled_providers().into_iter().find(|p| p.name == name);
        found.unwrap().timeout.as_secs()
    };
    assert_eq!((timeout("sandbox"), timeout("openai")), (5, 6));
    assert_eq!(c.jobs.poll_interval_ms.as_millis(), 50);
    assert_eq!(
        (
            c.jobs.lease_seconds.as_secs(),
            c.jobs.deadline_seconds.as_secs()
        ),
        (2, 3)
    );
    assert_eq!(*c.jobs.max_per_account, 4);
    assert!(c.server.shutdown_seconds.is_zero());
    assert_eq!(c.server.drain_seconds.as_secs(), 300);
    assert_eq!(c.demo.credits.to_string(), "0.5");
}

#[test]
fn short_names_and_lists() {
    let c = from_env(&[
        ("GENSVC_BIND", "[::1]:9"),
        ("GENSVC_PUBLIC_URL", "https://api.example.com/base/"),
        ("DATABASE_URL", "postgres://u:hunter2@h/db"),
        ("GENSVC_DATA_DIR", "/var/lib/gensvc"),
        ("GENSVC_LOG", "debug,sqlx=warn"),
        ("GENSVC_LOG_FORMAT", "json"),
        (
            "GENSVC__SERVER__CORS_ORIGINS",
            "https://a.test, http://b.test:8080/",
        ),
        ("GENSVC__SERVER__TRUSTED_PROXIES", "10.1.2.3/8,::1"),
        ("GENSVC__DEFAULTS__TEXT", "sandbox,openai"),
        // Other programs' names, and those of the client, are none of our business. Nor are those
        // that Kubernetes makes of services, here of `gensvc` and `gensvc-db`.
        ("GENSVC_API_KEY", "svc_x"),
        ("PATH", "/bin"),
        ("GENSVC_SERVICE_HOST", "10.0.0.1"),
        ("GENSVC_SERVICE_PORT_HTTP", "80"),
        ("GENSVC_PORT", "tcp://10.0.0.1:80"),
        ("GENSVC_PORT_80_TCP_ADDR", "10.0.0.1"),
        ("GENSVC_DB_SERVICE_HOST", "10.0.0.2"),
        ("GENSVC_DB_PORT", "tcp://10.0.0.2:5432"),
    ])
    .unwrap();
    assert_eq!(c.server.bind.to_string(), "[::1]:9");
    assert_eq!(c.public_url(), "https://api.example.com/base");
    assert_eq!(
        c.database.url.as_ref().unwrap().expose_secret(),
        "postgres://u:hunter2@h/db"
    );
    assert_eq!(c.data.dir, PathBuf::from("/var/lib/gensvc"));
    assert_eq!(c.log.filter, "debug,sqlx=warn");
    assert_eq!(c.log.format, LogFormat::Json);
    assert_eq!(
        c.server.cors_origins,
        ["https://a.test", "http://b.test:8080"]
    );
    let networks = ["10.1.2.3/8", "::1/128"].map(|text| Network::parse(text).unwrap());
    assert_eq!(c.server.trusted_proxies, networks);
    assert_eq!(c.defaults.text, ["sandbox", "openai"]);
}

#[test]
fn layers_in_order() {
    let file = "[server]\nbind = \"127.0.0.1:1\"\n[jobs]\nlease_seconds = 7\n";
    let c = from_file(file, &[]).unwrap();
    assert_eq!(
        (c.server.bind.port(), c.jobs.lease_seconds.as_secs()),
        (1, 7)
    );
    assert_eq!(
        c.jobs.deadline_seconds.as_secs(),
        1800,
        "the rest of the table stays"
    );
    let c = from_file(file, &[("GENSVC_BIND", "127.0.0.1:2")]).unwrap();
    assert_eq!(c.server.bind.port(), 2);
    let both = [
        ("GENSVC_BIND", "127.0.0.1:2"),
        ("GENSVC__SERVER__BIND", "127.0.0.1:3"),
    ];
    assert_eq!(from_file(file, &both).unwrap().server.bind.port(), 3);
    // A blank short name is an unset one.
    let c = from_file(file, &[("GENSVC_BIND", " ")]).unwrap();
    assert_eq!(c.server.bind.port(), 1);
}

#[test]
fn base_urls_in_order() {
    let url = |pairs: &[(&str, &str)], file: &str| {
        let c = from_file(file, pairs).unwrap();
        let openai = c.providers.iter().find(|p| p.name == "openai").unwrap();
        openai.base_url.as_ref().unwrap().to_string()
    };
    let file = "[providers.openai]\nbase_url = \"http://file.test\"\n";
    let vendor = ("OPENAI_BASE_URL", "http://vendor.test/v1/");
    let ours = ("GENSVC__PROVIDERS__OPENAI__BASE_URL", "http://ours.test/v1");
    assert_eq!(url(&[], ""), "https://api.openai.com/v1");
    assert_eq!(
        url(&[("OPENAI_BASE_URL", "")], ""),
        "https://api.openai.com/v1"
    );
    assert_eq!(url(&[], file), "http://file.test/");
    assert_eq!(url(&[vendor], file), "http://vendor.test/v1/");
    assert_eq!(url(&[vendor, ours], file), "http://ours.test/v1");
}

#[test]
fn the_sandbox_goes_off_and_nothing_is_left() {
    for value in ["false", "False", " FALSE ", "0"] {
        let c = from_env(&[("GENSVC__PROVIDERS__SANDBOX__ENABLED", value)]).unwrap();
        assert!(c.enabled_providers().is_empty() && c.catalogue().models().is_empty());
        let error = c.check_servable().unwrap_err().to_string();
        assert_eq!(
            error,
            "no provider is enabled: anthropic (no key in ANTHROPIC_API_KEY), \
             elevenlabs (no key in ELEVENLABS_API_KEY), gemini (no key in GEMINI_API_KEY or \
             GOOGLE_API_KEY), openai (no key in OPENAI_API_KEY), runway (no key in \
             RUNWAYML_API_SECRET), sandbox (switched off by enabled = false), stability (no key \
             in STABILITY_API_KEY); set the key of one or \
             GENSVC__PROVIDERS__SANDBOX__ENABLED=true"
        );
        let summary = serde_json::to_value(c.summary()).unwrap();
        assert_eq!(summary["servable"], false);
    }
}

#[test]
fn keys_are_found_trimmed_and_blank_ones_do_not_count() {
    let gemini = |pairs: &[(&str, &str)]| {
        let c = from_env(pairs).unwrap();
        let p = c
            .providers
            .iter()
            .find(|p| p.name == "gemini")
            .unwrap()
            .clone();
        (
            p.status,
            p.api_key.map(|key| key.expose_secret().to_owned()),
        )
    };
    assert_eq!(
        gemini(&[("GEMINI_API_KEY", "  ")]),
        (Status::KeyMissing, None)
    );
    let fallback = [("GEMINI_API_KEY", ""), ("GOOGLE_API_KEY", "two\n")];
    assert_eq!(gemini(&fallback), (Status::Enabled, Some("two".into())));
    let both = [("GEMINI_API_KEY", "one"), ("GOOGLE_API_KEY", "two")];
    assert_eq!(gemini(&both), (Status::Enabled, Some("one".into())));
}

#[test]
fn the_public_url_of_what_was_bound() {
    let c = from_env(&[("GENSVC_BIND", "0.0.0.0:0")]).unwrap();
    let bound = "0.0.0.0:4321".parse().unwrap();
    assert_eq!(c.public_url_at(bound), "http://127.0.0.1:4321");
    assert_eq!(c.public_url_at("[::]:5".parse().unwrap()), "http://[::1]:5");
    assert_eq!(c.warnings.len(), 1);
    let c = from_env(&[("GENSVC_PUBLIC_URL", "http://x.test")]).unwrap();
    assert_eq!(c.public_url_at(bound), "http://x.test");
}

#[test]
fn a_misspelt_variable_is_refused_with_the_nearest_one() {
    for (wrong, right) in [
        ("GENSVC_DATABASE_URL", "DATABASE_URL"),
        ("GENSVC_PORT", "GENSVC_BIND"),
        ("GENSVC_SERVER__BIND", "GENSVC__SERVER__BIND"),
        ("GENSVC_DATA", "GENSVC_DATA_DIR"),
        ("GENSVC_LOGFORMAT", "GENSVC_LOG_FORMAT"),
        ("GENSVC_LOG_LEVEL", "GENSVC_LOG"),
        ("GENSVC_METRICS_TOKEN", "GENSVC__METRICS__TOKEN"),
        ("GENSVC_JOBS__LEASE_SECOND", "GENSVC__JOBS__LEASE_SECONDS"),
    ] {
        let want = format!("{wrong} is not a known variable: did you mean {right}?");
        check("", &[(wrong, "1")], &want);
    }
}

#[test]
fn errors_name_the_variable() {
    for (name, value, want) in [
        (
            "GENSVC__JOBS__LEASE_SECONDS",
            "0",
            r#"GENSVC__JOBS__LEASE_SECONDS (jobs.lease_seconds) is "0": must be a whole number from 1 to 3600"#,
        ),
        (
            "GENSVC__JOBS__LEASE_SECONDS",
            "",
            r#"GENSVC__JOBS__LEASE_SECONDS (jobs.lease_seconds) is "": must be a whole number from 1 to 3600"#,
        ),
        (
            "GENSVC_BIND",
            "8080",
            r#"GENSVC_BIND (server.bind) is "8080": must be an IP address and a port, such as "127.0.0.1:8080""#,
        ),
        (
            "GENSVC_LOG_FORMAT",
            "JSON",
            r#"GENSVC_LOG_FORMAT (log.format) is "JSON": must be one of text, json"#,
        ),
        (
            "GENSVC_LOG",
            "loud",
            r#"GENSVC_LOG (log.filter) is "loud": must be a level (error, warn, info, debug, trace, off), or levels by target, such as "info,sqlx=warn" ("loud" is no level)"#,
        ),
        (
            "DATABASE_URL",
            "host=x password=hunter2",
            "DATABASE_URL (database.url) is not a Postgres URL (its value is not shown): must begin with postgres:// or postgresql://",
        ),
        (
            "GENSVC__DEFAULTS__TEXT",
            "sandbox,x",
            r#"GENSVC__DEFAULTS__TEXT (defaults.text) names "x", which is no provider: use anthropic, elevenlabs, gemini, openai, runway, sandbox, stability"#,
        ),
        (
            "GENSVC__PROVIDERS__SANDBOX__ENABLED",
            "no",
            r#"GENSVC__PROVIDERS__SANDBOX__ENABLED (providers.sandbox.enabled) is "no": must be true or false"#,
        ),
        (
            "GENSVC__PROVIDERS__OPENAI__BASE_URL",
            "x",
            r#"GENSVC__PROVIDERS__OPENAI__BASE_URL (providers.openai.base_url) is "x": must be an http or https URL, such as "https://api.example.com""#,
        ),
        (
            "OPENAI_BASE_URL",
            "api.openai.com",
            r#"OPENAI_BASE_URL (providers.openai.base_url) is "api.openai.com": must be an http or https URL, such as "https://api.example.com""#,
        ),
        (
            "OPENAI_BASE_URL",
            "x:hunter2@h",
            "OPENAI_BASE_URL (providers.openai.base_url) is not shown, as it may hold a password: must be an http or https URL, such as \"https://api.example.com\"",
        ),
        (
            "OPENAI_API_KEY",
            "sk hunter2",
            "OPENAI_API_KEY holds a space or another character that no key has (its value is not shown): set it to the bare key",
        ),
        (
            "GENSVC__JOBS__LEASE",
            "1",
            "GENSVC__JOBS__LEASE is not a known setting: [jobs] has deadline_seconds, lease_seconds, max_per_account, max_workers_per_account, paused, poll_interval_ms, workers; remove it or correct the name",
        ),
        (
            "GENSVC__JOB__LEASE_SECONDS",
            "1",
            "GENSVC__JOB__LEASE_SECONDS is not a known setting: write GENSVC__SECTION__KEY or GENSVC__PROVIDERS__NAME__KEY, the sections are credits, data, database, defaults, demo, idempotency, jobs, log, media, metrics, pricing, providers, retention, server, sessions, submissions, traces, webhooks",
        ),
        (
            "GENSVC__PROVIDERS__OPNAI__ENABLED",
            "1",
            r#"GENSVC__PROVIDERS__OPNAI__ENABLED names "opnai", which is no provider of the configuration: use one of anthropic, elevenlabs, gemini, openai, runway, sandbox, stability"#,
        ),
        (
            "GENSVC__PROVIDERS__OPENAI__TIMEOUT",
            "1",
            "GENSVC__PROVIDERS__OPENAI__TIMEOUT is not a known setting: a provider has api_key_env, base_url, base_url_env, enabled, kind, markup, max_concurrent, timeout_seconds; remove it or correct the name",
        ),
        (
            "GENSVC__PROVIDERS__OPENAI__MODELS",
            "[]",
            "GENSVC__PROVIDERS__OPENAI__MODELS cannot be set by a variable: list the models in a config file",
        ),
    ] {
        check("", &[(name, value)], want);
    }
    let general = "is not a known setting: write GENSVC__SECTION__KEY";
    for name in [
        "GENSVC__",
        "GENSVC__JOBS",
        "GENSVC__SERVER__BIND__X",
        "GENSVC__PROVIDERS__OPENAI",
        "GENSVC__A.B__C[0]",
    ] {
        let error = error_of("", &[(name, "1")]);
        assert!(error.starts_with(&format!("{name} {general}")), "{error}");
    }
}
