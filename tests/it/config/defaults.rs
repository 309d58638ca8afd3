//! The built-in file: it loads, it is complete, and it documents itself.

use std::collections::BTreeSet;

use super::*;
use gensvc::{
    catalogue::ModelKind,
    config::{LogFormat, Status, load::DEFAULT_TOML},
    domain::{
        conversation::{Detail, Image, ImageSource},
        generation::Modality,
    },
    providers::{
        anthropic::AnthropicModel,
        gemini::GeminiModel,
        openai::{Api, OpenAiModel, SystemRole, TokenField},
    },
};

pub(super) const ALL_KEYS: &[(&str, &str)] = &[
    ("OPENAI_API_KEY", "sk-openai"),
    ("ANTHROPIC_API_KEY", "sk-anthropic"),
    ("GEMINI_API_KEY", "gemini-key"),
    ("STABILITY_API_KEY", "sk-stability"),
    ("RUNWAYML_API_SECRET", "key_runway"),
    ("ELEVENLABS_API_KEY", "sk_elevenlabs"),
];

#[test]
fn the_values_of_the_contract() {
    let c = from_env(&[]).unwrap();
    assert_eq!(c.server.bind.to_string(), "127.0.0.1:8080");
    assert_eq!(c.public_url(), "http://127.0.0.1:8080");
    assert!(c.server.drain_seconds.is_zero());
    assert_eq!(c.server.shutdown_seconds.as_secs(), 10);
    assert_eq!(c.server.body_timeout_seconds.as_secs(), 10);
    assert_eq!(*c.server.max_body_bytes, 256 * 1024);
    assert_eq!(c.server.header_timeout_seconds.as_secs(), 30);
    assert_eq!(c.server.keep_alive_seconds.as_secs(), 75);
    assert_eq!(c.server.write_timeout_seconds.as_secs(), 30);
    assert_eq!(c.server.request_timeout_seconds.as_secs(), 20);
    assert!(*c.server.request_timeout_seconds > *c.server.body_timeout_seconds);
    assert_eq!(*c.server.max_header_bytes, 32 * 1024);
    assert_eq!(
        (*c.server.max_connections, *c.server.max_requests),
        (4096, 2048)
    );
    assert_eq!(*c.server.max_waiting_logins, 64);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    assert!((cores..=cores + 1).contains(&(2 * c.server.threads())));
    assert_eq!(*c.server.account_share_percent, 50);
    assert!(c.server.memory_bytes() >= 512 << 20);
    assert!(c.server.cors_origins.is_empty() && c.server.trusted_proxies.is_empty());
    assert!(c.database.url.is_none());
    assert_eq!(*c.database.max_connections, 24);
    assert_eq!(c.database.acquire_timeout_ms.as_millis(), 5000);
    assert_eq!(c.data.dir, PathBuf::from("data"));
    assert_eq!(
        (c.log.filter.as_str(), c.log.format),
        ("info,sqlx=warn", LogFormat::Text)
    );
    assert_eq!(c.jobs.lease_seconds.as_secs(), 30);
    assert_eq!(c.jobs.poll_interval_ms.as_millis(), 5000);
    assert_eq!(c.jobs.deadline_seconds.as_secs(), 1800);
    assert_eq!((*c.jobs.max_per_account, *c.jobs.workers), (100, 64));
    assert_eq!(*c.jobs.max_workers_per_account, 16);
    let calls = c
        .providers
        .iter()
        .map(|p| (p.name.as_str(), p.max_concurrent));
    let calls: BTreeMap<_, _> = calls.collect();
    assert_eq!((calls["openai"], calls["sandbox"]), (256, 2_048));
    assert_eq!(c.media.url_seconds.as_secs(), 86_400);
    assert!(!c.media.allow_private_urls && c.media.s3.is_none());
    assert_eq!(*c.retention.days, 0);
    assert_eq!(
        (
            *c.submissions.attempts,
            c.submissions.window_seconds.as_secs()
        ),
        (3, 20)
    );
    assert_eq!(c.submissions.retry_base_ms.as_millis(), 500);
    assert!(!c.webhooks.allow_private);
    assert_eq!(
        (c.webhooks.timeout_ms.as_millis(), *c.webhooks.log_days),
        (15_000, 30)
    );
    assert_eq!(*c.sessions.days, 30);
    assert_eq!(
        (*c.idempotency.hours, c.idempotency.wait_seconds.as_secs()),
        (24, 60)
    );
    assert_eq!(*c.idempotency.join_minutes, 10);
    assert_eq!(c.credits.hold_wait_seconds.as_secs(), 10);
    assert_eq!(c.demo.credits.to_string(), "1000");
    assert!(c.metrics.token.is_none());
    assert_eq!(*c.metrics.port, 9_321);
    assert_eq!(c.metrics.audit_seconds.as_secs(), 60);
    assert!(c.traces.otlp_endpoint.is_none());
    assert_eq!(c.traces.service_name, "gensvc");
    assert!((c.traces.sample_ratio - 1.0).abs() < f64::EPSILON);
    assert!(c.warnings.is_empty());
    c.check_servable().unwrap();
}

/// The toml crate reads inline tables over several lines, which are TOML 1.1; others refuse them.
#[test]
fn what_people_copy_is_toml_1_0() {
    let docs = include_str!("../../../docs/configure.md");
    let blocks = docs.split("```toml").skip(1);
    let examples = blocks.map(|rest| rest.split("```").next().unwrap());
    for text in examples.chain([DEFAULT_TOML]) {
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            assert_eq!(
                line.matches('{').count(),
                line.matches('}').count(),
                "{line}"
            );
        }
    }
}

#[test]
fn without_keys_the_sandbox_alone_serves() {
    let c = from_env(&[]).unwrap();
    let names: Vec<String> = c.enabled_providers().into_iter().map(|p| p.name).collect();
    assert_eq!(names, ["sandbox"]);
    let catalogue = c.catalogue();
    for (modality, id) in [
        (Modality::Text, "sandbox-text-1"),
        (Modality::Image, "sandbox-image-1"),
        (Modality::Video, "sandbox-video-1"),
        (Modality::Audio, "sandbox-speech-1"),
    ] {
        assert_eq!(catalogue.default_provider(modality), Some("sandbox"));
        assert_eq!(catalogue.default_model("sandbox", modality).unwrap().id, id);
    }
    assert_eq!(catalogue.models().len(), 5);
    let text = text_of(&catalogue.find("sandbox", "sandbox-text-1").unwrap().kind);
    assert_eq!(text.prices.base.input_per_million.to_string(), "10");
    assert_eq!(text.prices.base.output_per_million.to_string(), "50");
    assert_eq!(text.limits.temperature, Some([0.0, 2.0]));
    assert_eq!(text.overhead_tokens, 64);
}

#[test]
fn with_keys_the_vendors_serve_by_preference() {
    let c = from_env(ALL_KEYS).unwrap();
    assert!(c.providers.iter().all(|p| p.status == Status::Enabled));
    let catalogue = c.catalogue();
    assert_eq!(catalogue.default_provider(Modality::Text), Some("openai"));
    for (provider, model) in [
        ("openai", "gpt-6-luna"),
        ("anthropic", "claude-haiku-5-5"),
        ("gemini", "gemini-3.5-flash-lite"),
    ] {
        let default = catalogue.default_model(provider, Modality::Text).unwrap();
        assert_eq!(default.id, model);
    }
    let sol = |id: &str| match &catalogue.find("openai", id).unwrap().kind {
        ModelKind::Text(text) => text.limits.temperature,
        other => panic!("{other:?}"),
    };
    for id in ["gpt-6.2-sol", "gpt-6.2-astra"] {
        assert!(sol(id).is_none(), "{id} takes no temperature");
    }
    for id in ["gemini-4-hydrogen", "gemini-4-neon"] {
        assert!(catalogue.find("gemini", id).is_some(), "{id}");
    }
    let ends = |provider, id| catalogue.find(provider, id).unwrap().retiring.unwrap();
    assert_eq!(
        ends("anthropic", "claude-opus-4-5").to_string(),
        "2027-01-22"
    );
    assert_eq!(
        ends("gemini", "gemini-omni-1.1-flash").to_string(),
        "2026-12-03"
    );
    let nano = catalogue.find("openai", "gpt-5.4-nano").unwrap();
    assert_eq!(nano.retiring.unwrap().to_string(), "2027-04-01");
}

#[test]
fn every_priced_model_costs_something_and_output_costs_more() {
    for model in from_env(ALL_KEYS).unwrap().catalogue().models() {
        let ModelKind::Text(text) = &model.kind else {
            continue;
        };
        let prices = text.prices.base;
        assert!(prices.input_per_million.micros() > 0, "{}", model.id);
        assert!(
            prices.output_per_million > prices.input_per_million,
            "{}",
            model.id
        );
        assert_eq!(text.limits.max_tokens, 4096, "{}", model.id);
    }
}

/// What each family refuses (providers.md, sections 1 to 3).
#[test]
fn the_rules_of_the_vendors_hold() {
    for provider in from_env(ALL_KEYS).unwrap().enabled_providers() {
        for model in &provider.models {
            let id = model.id.as_str();
            let ModelKind::Text(text) = &model.kind else {
                continue;
            };
            let takes = text.limits.temperature;
            if let Some(wire) = settings_of::<OpenAiModel>(model) {
                assert_eq!(wire.token_field, TokenField::MaxCompletionTokens, "{id}");
                assert_eq!(wire.service_tier.as_deref(), Some("default"), "{id}");
                assert!(wire.stream_usage && wire.no_obfuscation, "{id}");
                let reasons = !id.starts_with("gpt-4");
                let role = if reasons {
                    SystemRole::Developer
                } else {
                    SystemRole::System
                };
                assert_eq!(wire.system_role, role, "{id}");
                assert_eq!(wire.reasoning_effort.is_some(), reasons, "{id}");
                let is_older = ["gpt-4", "gpt-5.2"]
                    .iter()
                    .any(|older| id.starts_with(older));
                let api = if is_older { Api::Chat } else { Api::Responses };
                assert_eq!(wire.api, api, "{id}");
                let writes = id.starts_with("gpt-6") || id.starts_with("gpt-5.6");
                assert_eq!(wire.explicit_cache, writes, "{id}");
                let hidden = wire.reasoning_effort.as_deref() == Some("low");
                assert_eq!(takes.is_none(), hidden, "{id}");
                assert_eq!(
                    hidden,
                    ["gpt-6-astra", "gpt-6.1-sol", "gpt-6.2-astra", "gpt-6.2-sol"].contains(&id),
                    "{id}"
                );
            } else if let Some(wire) = settings_of::<AnthropicModel>(model) {
                let old = wire.version == "2023-06-01";
                assert_eq!(takes, old.then_some([0.0, 1.0]), "{id}");
                assert!(!old || wire.thinking.is_none(), "{id}");
                let always = id.contains("fable") || id == "claude-opus-5-5";
                assert_eq!(wire.thinking.as_deref() == Some("always"), always, "{id}");
                let between = wire.thinking.as_deref() == Some("between_tools");
                assert_eq!(between, id == "claude-sonnet-5-5", "{id}");
            } else if let Some(wire) = settings_of::<GeminiModel>(model) {
                let budget = id.starts_with("gemini-2.5");
                assert_eq!(wire.thinking_budget.is_some(), budget, "{id}");
                assert_eq!(wire.thinking_level.is_some(), !budget, "{id}");
                let minimal = wire.thinking_level.as_deref() == Some("MINIMAL");
                assert!(!minimal || id == "gemini-3.5-flash-lite", "{id}");
                assert!(takes.is_none() || !id.starts_with("gemini-4"), "{id}");
            } else {
                assert_eq!(provider.vendor.kind, "sandbox");
            }
        }
    }
}

/// The most tokens of an image, by its family.
#[test]
fn images_are_counted_as_each_family_does() {
    for model in from_env(ALL_KEYS).unwrap().catalogue().models() {
        let ModelKind::Text(text) = &model.kind else {
            continue;
        };
        let id = model.id.as_str();
        let of = |names: &[&str]| names.iter().any(|name| id.starts_with(name));
        let image = |detail| {
            let source = ImageSource::Url("https://example.com/a.png".to_owned());
            Image { source, detail }
        };
        let most = |detail| {
            let images = text.limits.images;
            images.map(|vision| vision.most_tokens(&image(detail)))
        };
        let original = match id {
            _ if of(&["gpt-6", "gpt-5.6"]) => Some(36_000),
            _ if of(&["gpt-5.5", "gpt-5.4"]) => Some(12_000),
            "gpt-5.2" => Some(4_916),
            "gpt-4.1-mini" => Some(6_636),
            "gpt-4o-mini" => Some(2_833 + 8 * 5_667),
            "gpt-4o" | "gpt-4.1" => Some(85 + 8 * 170),
            "claude-opus-4-6" | "claude-opus-4-5" | "claude-sonnet-4-6" | "claude-haiku-4-5"
            | "sandbox-text-1" => Some(1_568),
            _ if of(&["claude"]) => Some(4_784),
            _ if of(&["gemini-3", "gemini-4"]) => Some(1_120),
            _ => None,
        };
        assert_eq!(most(None), original, "{id}");
        if of(&["gpt-6", "gpt-5.6", "gpt-5.5", "gpt-5.4"]) {
            assert_eq!(most(Some(Detail::High)), Some(3_000), "{id}");
        }
    }
}

/// Every key has a comment right above it; a model's keys are explained once, above all
/// models, and each model has a comment of its own.
#[test]
fn every_key_is_documented() {
    let lines: Vec<&str> = DEFAULT_TOML.lines().collect();
    let mut explained = BTreeSet::new();
    let (mut in_model, mut in_tier) = (false, false);
    for (number, line) in lines.iter().enumerate() {
        if let Some(rest) = line.strip_prefix("# `") {
            explained.extend(rest.split('`').next());
        }
        assert!(line.len() <= 100, "line {}: {line}", number + 1);
        // The lines of a list or table that is too long for one belong to its first.
        let inside = line.starts_with([' ', ']', '}']);
        if line.is_empty() || line.starts_with('#') || inside {
            continue;
        }
        if line.starts_with('[') {
            in_model = line.starts_with("[[");
            in_tier = line.ends_with(".tiers]]");
        } else if in_tier {
            // Explained with `prices`.
            continue;
        } else if in_model {
            let key = line.split([' ', '.']).next().unwrap();
            assert!(explained.contains(key), "{key} is not explained");
            continue;
        }
        assert!(
            lines[number - 1].starts_with("# "),
            "line {}: {line}",
            number + 1
        );
    }
}

/// Every example of a file in the documentation is one that loads.
#[test]
fn the_examples_load() {
    let page = std::fs::read_to_string("docs/configure.md").unwrap();
    let examples: Vec<&str> = page
        .split("\n```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    let keys = [ALL_KEYS, &[("VLLM_API_KEY", "v"), ("GROQ_API_KEY", "g")]].concat();
    let mut names = BTreeSet::new();
    for example in examples {
        let c = from_file(example, &keys).unwrap();
        names.extend(c.enabled_providers().into_iter().map(|p| p.name));
        let models = &c.catalogue();
        for id in example
            .lines()
            .filter_map(|line| line.strip_prefix("id = "))
            .filter(|id| !example.contains(&format!("id = {id}\nenabled = false")))
        {
            let listed = |name: &String| models.find(name, id.trim_matches('"')).is_some();
            assert!(names.iter().any(listed), "{id}");
        }
    }
    for name in ["groq", "ollama", "vllm"] {
        assert!(names.contains(name), "{name}");
    }
}
