//! `[metrics]` and `[traces]`: what is read, and what is refused.

use secrecy::ExposeSecret as _;

use super::*;

#[test]
fn settings_come_from_the_environment_and_the_token_is_not_shown() {
    let c = from_env(&[
        ("GENSVC__METRICS__TOKEN", "hunter2"),
        ("GENSVC__METRICS__PORT", "9100"),
        ("GENSVC__METRICS__AUDIT_SECONDS", "0"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
        ("OTEL_SERVICE_NAME", "paint"),
        ("GENSVC__TRACES__SAMPLE_RATIO", "0.25"),
    ])
    .unwrap();
    assert_eq!(c.metrics.token.as_ref().unwrap().expose_secret(), "hunter2");
    assert_eq!(*c.metrics.port, 9_100);
    assert!(c.metrics.audit_seconds.is_zero());
    let endpoint = c.traces.otlp_endpoint.as_ref().unwrap();
    assert_eq!(endpoint.as_str(), "http://collector:4318/");
    assert_eq!(c.traces.service_name, "paint");
    assert!((c.traces.sample_ratio - 0.25).abs() < f64::EPSILON);
    assert!(!format!("{c:?}").contains("hunter2"));
    // Our own name wins.
    let c = from_env(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
        ("GENSVC__TRACES__OTLP_ENDPOINT", ""),
    ]);
    assert!(c.unwrap().traces.otlp_endpoint.is_none());
}

#[test]
fn bad_values_are_named_and_secrets_are_not() {
    for (file, want) in [
        (
            "[metrics]\ntoken = \"two words\"",
            "metrics.token is no token (its value is not shown): must be text without spaces",
        ),
        (
            "[metrics]\ntoken = 7",
            "metrics.token is no token (its value is not shown): must be text without spaces",
        ),
        (
            "[metrics]\nport = 65536",
            "metrics.port is 65536: must be a whole number from 0 to 65535",
        ),
        (
            "[metrics]\naudit_seconds = -1",
            "metrics.audit_seconds is -1: must be a whole number from 0 to 86400",
        ),
        (
            "[traces]\nsample_ratio = 1.5",
            "traces.sample_ratio is 1.5: must be a number from 0 to 1, such as 0.1",
        ),
        (
            "[traces]\nsample_ratio = \"NaN\"",
            "traces.sample_ratio is \"NaN\": must be a number from 0 to 1, such as 0.1",
        ),
        (
            "[traces]\nservice_name = \"\"",
            "traces.service_name is empty: must be a name, such as \"gensvc\"",
        ),
        (
            "[traces]\notlp_endpoint = \"collector:4318\"",
            "traces.otlp_endpoint is \"collector:4318\": must be an http or https URL, such as \
             \"https://api.example.com\"",
        ),
    ] {
        check(file, &[], want);
    }
}
