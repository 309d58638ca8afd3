//! Compatible servers from a file, and the summary of providers, which never shows secrets.

use super::*;
use gensvc::{
    config::Status,
    domain::{
        generation::{Modality, Surface},
        validate::FieldCode,
    },
    providers::openai::{Api, OpenAiModel, SystemRole, TokenField},
    request::Target,
};

const SERVERS: &str = r#"
[defaults]
text = ["local", "sandbox"]

[providers.local]
kind = "openai_compatible"
base_url = "http://localhost:11434/v1/"

[[providers.local.models]]
id = "llama:8b"
type = "text"
prices = { input_per_million = 0, output_per_million = "0.5" }

[providers.keyed-1]
kind = "openai_compatible"
base_url = "https://a.test"
api_key_env = "KEYED_KEY"
timeout_seconds = 9

[[providers.keyed-1.models]]
id = "one"
type = "text"
default = true
retiring = 2027-03-04
prices = { input_per_million = "1", output_per_million = "2" }
limits = { max_prompt_chars = 99, max_tokens = 7, temperature = [0, 1.5] }
overhead_tokens = 500
wire = { token_field = "max_completion_tokens", reasoning_effort = "default", stream_usage = false }

[[providers.keyed-1.models]]
id = "two"
type = "text"
prices = { input_per_million = "1", output_per_million = "2" }
limits = { temperature = [] }

[[providers.keyed-1.models]]
id = "hidden"
enabled = false
default = true
"#;

#[test]
fn a_compatible_server_without_a_key() {
    let c = from_file(SERVERS, &[]).unwrap();
    let enabled = c.enabled_providers();
    let names: Vec<&str> = enabled.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["local", "sandbox"]);
    let local = &enabled[0];
    assert_eq!(
        local.base_url.as_ref().unwrap().as_str(),
        "http://localhost:11434/v1/"
    );
    assert!(local.api_key.is_none());
    assert_eq!(local.timeout.as_secs(), 300);
    let wire = settings_of::<OpenAiModel>(&local.models[0]).unwrap();
    assert_eq!(
        (wire.api, wire.token_field),
        (Api::Chat, TokenField::MaxTokens)
    );
    assert_eq!(wire.system_role, SystemRole::System);
    assert_eq!((&wire.reasoning_effort, &wire.service_tier), (&None, &None));
    assert!(wire.stream_usage && !wire.explicit_cache && !wire.no_obfuscation);
    let text = text_of(&local.models[0].kind);
    assert_eq!(text.limits.temperature, Some([0.0, 2.0]));
    assert_eq!(
        (text.limits.max_prompt_chars, text.limits.max_tokens),
        (10_000, 4096)
    );
    let catalogue = c.catalogue();
    assert_eq!(catalogue.default_provider(Modality::Text), Some("local"));
    let only = catalogue.default_model("local", Modality::Text).unwrap();
    assert_eq!(only.id, "llama:8b");
    // The other server needs a key; a warning says that it is not served.
    assert_eq!(
        c.warnings,
        [
            "providers.keyed-1 is not served: no key in KEYED_KEY; set it, or remove api_key_env \
          if the server needs no key"
        ]
    );
}

#[test]
fn a_compatible_server_with_a_key() {
    let c = from_file(SERVERS, &[("KEYED_KEY", "k")]).unwrap();
    assert!(c.warnings.is_empty());
    let keyed = c
        .enabled_providers()
        .into_iter()
        .find(|p| p.name == "keyed-1")
        .unwrap();
    assert_eq!(keyed.timeout.as_secs(), 9);
    let ids: Vec<&str> = keyed.models.iter().map(|m| m.id.as_str()).collect();
    assert_eq!(
        ids,
        ["one", "two"],
        "disabled models need no price and are gone"
    );
    let one = &keyed.models[0];
    assert!(one.default);
    assert_eq!(one.retiring.unwrap().to_string(), "2027-03-04");
    let wire = settings_of::<OpenAiModel>(one).unwrap();
    assert_eq!(wire.reasoning_effort.as_deref(), Some("default"));
    assert!(!wire.stream_usage);
    let text = text_of(&one.kind);
    assert_eq!(text.limits.temperature, Some([0.0, 1.5]));
    assert_eq!(
        (text.limits.max_prompt_chars, text.limits.max_tokens),
        (99, 7)
    );
    assert_eq!(text.overhead_tokens, 500);
    let two = text_of(&keyed.models[1].kind);
    assert_eq!(two.limits.temperature, None);
}

#[test]
fn a_servers_settings_from_variables() {
    let c = from_file(
        SERVERS,
        &[
            ("GENSVC__PROVIDERS__LOCAL__BASE_URL", "http://10.0.0.1:1/v1"),
            ("GENSVC__PROVIDERS__LOCAL__API_KEY_ENV", "A_KEY, B_KEY"),
            ("GENSVC__PROVIDERS__LOCAL__TIMEOUT_SECONDS", "1"),
            ("B_KEY", "b"),
        ],
    )
    .unwrap();
    let local = c.providers.iter().find(|p| p.name == "local").unwrap();
    assert_eq!(local.status, Status::Enabled);
    assert_eq!(
        local.base_url.as_ref().unwrap().as_str(),
        "http://10.0.0.1:1/v1"
    );
    assert_eq!(local.timeout.as_secs(), 1);
    assert!(local.api_key.is_some());
}

/// Returns the provider `openai` of a file.
fn openai(file: &str) -> (Config, Vec<String>) {
    let c = from_file(file, &[("OPENAI_API_KEY", "k")]).unwrap();
    let openai = c.providers.iter().find(|p| p.name == "openai").unwrap();
    let ids = openai.models.iter().map(|model| model.id.clone()).collect();
    (c, ids)
}

const OWN: &str = "[[providers.openai.models]]\nid = \"m\"\ntype = \"text\"\n\
                   prices = { input_per_million = \"1\", output_per_million = \"2\" }\n";

#[test]
fn models_of_a_file_extend_those_built_in() {
    let file = format!(
        "{OWN}default = true\n\
         [[providers.openai.models]]\nid = \"gpt-6-luna\"\nprices.input_per_million = \"11\"\n\
         [[providers.openai.models]]\nid = \"gpt-4o\"\nenabled = false\n"
    );
    let (built_in, before) = openai("");
    let (c, ids) = openai(&file);
    // Models of the file come first.
    let wanted = ["m", "gpt-6-luna"].into_iter().map(str::to_owned);
    let kept = before
        .into_iter()
        .filter(|id| id != "gpt-6-luna" && id != "gpt-4o");
    assert_eq!(ids, wanted.chain(kept).collect::<Vec<_>>());
    let default = |c: &Config| {
        let catalogue = c.catalogue();
        let model = catalogue.default_model("openai", Modality::Text);
        model.unwrap().id.clone()
    };
    assert_eq!((&*default(&built_in), &*default(&c)), ("gpt-6-luna", "m"));
    let prices = |c: &Config| {
        let catalogue = c.catalogue();
        let mut models = catalogue.models().iter();
        let luna = models.find(|model| model.id == "gpt-6-luna").unwrap();
        serde_json::to_value(luna.prices()).unwrap()
    };
    let mut expected = prices(&built_in);
    expected["input_per_million"] = "11".into();
    assert_eq!(prices(&c), expected);
    let summary = serde_json::to_value(c.summary()).unwrap();
    let changed = |key: &str| {
        let changes = summary["changes"].as_array().unwrap();
        changes.iter().find(|change| change["key"] == key).cloned()
    };
    let price = changed("providers.openai.models.gpt-6-luna.prices.input_per_million").unwrap();
    assert_eq!(
        (&price["value"], &price["built_in"]),
        (&"11".into(), &"10".into())
    );
    assert_eq!(
        changed("providers.openai.models.gpt-6-luna.prices.output_per_million"),
        None
    );
}

#[test]
fn a_provider_with_replace_or_of_another_kind_has_only_the_models_of_the_file() {
    for provider in [
        "replace = true",
        "kind = \"openai_compatible\"\nbase_url = \"https://a.test\"",
    ] {
        let (c, ids) = openai(&format!("[providers.openai]\n{provider}\n{OWN}"));
        assert_eq!(ids, ["m"]);
        let catalogue = c.catalogue();
        let model = catalogue.default_model("openai", Modality::Text).unwrap();
        let ModelKind::Text(text) = &model.kind else {
            panic!()
        };
        // Models of a vendor do not accept temperature unless their settings allow it.
        assert_eq!(
            text.limits.temperature.is_none(),
            provider == "replace = true"
        );
    }
    let error = from_file("[providers.openai]\nreplace = 1\n", &[]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "providers.openai.replace is 1: must be true or false"
    );
}

#[test]
fn a_provider_without_an_enabled_model() {
    let file = "[providers.openai]\nreplace = true\n\
                [[providers.openai.models]]\nid = \"m\"\nenabled = false\n";
    let c = from_file(file, &[("OPENAI_API_KEY", "k")]).unwrap();
    let openai = c.providers.iter().find(|p| p.name == "openai").unwrap();
    assert_eq!(openai.status, Status::NoModels);
    assert!(c.enabled_providers().iter().all(|p| p.name != "openai"));
}

#[test]
fn secrets_are_never_shown() {
    let c = from_file(
        SERVERS,
        &[
            ("DATABASE_URL", "postgres://u:hunter2@h/db"),
            ("OPENAI_API_KEY", "sk-hunter2"),
            ("KEYED_KEY", "hunter2"),
        ],
    )
    .unwrap();
    let summary = c.summary();
    for text in [
        format!("{c:?}"),
        format!("{:#?}", c.enabled_providers()),
        format!("{summary:?}"),
        summary.to_string(),
        serde_json::to_string(&summary).unwrap(),
    ] {
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[test]
fn the_summary_for_people() {
    let file = "[providers.elevenlabs]\nenabled = false\n";
    let variables = [
        ("STABILITY_API_KEY", "k"),
        ("GENSVC__PRICING__MARKUP", "1.5"),
        ("GENSVC__SERVER__MEMORY_MIB", "512"),
        ("GENSVC__SERVER__CORS_ORIGINS", "https://a.test"),
        ("GENSVC__METRICS__TOKEN", "a-token-of-sixteen-or-more"),
        ("GENSVC__RETENTION__DAYS", "0"),
    ];
    let c = from_file(file, &variables).unwrap();
    let want = "\
The configuration is valid.
This is the configuration of this command's environment, not of a running server.
listens on    127.0.0.1:8080
public URL    http://127.0.0.1:8080
database      a private Postgres under data
data          data
media         local
retention     no limit
limits        4096 connections, 2048 requests, 100 jobs per account, bodies of 256 KiB, on \
SDK routes 32 MiB, 512 MiB of memory for requests
text default  sandbox
image default stability
video default sandbox
audio default sandbox
providers
  off anthropic: no key in ANTHROPIC_API_KEY
  off elevenlabs: switched off by enabled = false
  off gemini: no key in GEMINI_API_KEY or GOOGLE_API_KEY
  off openai: no key in OPENAI_API_KEY
  off runway: no key in RUNWAYML_API_SECRET
  on  sandbox: needs no key
      text sandbox-text-1 (default): input_per_million 15, cached_input_per_million 1.5, \
output_per_million 75
      image sandbox-image-1 (default): per_image.1024x1024.standard 1.5, per_image.1024x1024.hd \
3, per_image.1024x1792.standard 1.5, per_image.1024x1792.hd 3, per_image.1792x1024.standard 1.5, \
per_image.1792x1024.hd 3, per_image.256x256.standard 1.5, per_image.256x256.hd 3, \
per_image.512x512.standard 1.5, per_image.512x512.hd 3, per_input_image 0.75
      image sandbox-outpaint-1: per_image.any.standard 1.5, per_image.any.hd 3, per_input_image \
0.75
      video sandbox-video-1 (default): per_second 7.5, per_input_image 0.75
      audio sandbox-speech-1 (default): per_1000_characters 1.5
  on  stability: key in STABILITY_API_KEY
      image core (default): per_image.1024x1024.standard 4.5, per_image.256x256.standard 4.5, \
per_image.512x512.standard 4.5
      image ultra: per_image.1024x1024.standard 12, per_image.256x256.standard 12, \
per_image.512x512.standard 12, per_input_image 0
      image sd3.5-large: per_image.1024x1024.standard 9.75, per_image.256x256.standard 9.75, \
per_image.512x512.standard 9.75, per_input_image 0
      image sd3.5-large-turbo: per_image.1024x1024.standard 6, per_image.256x256.standard 6, \
per_image.512x512.standard 6, per_input_image 0
      image sd3.5-medium: per_image.1024x1024.standard 5.25, per_image.256x256.standard 5.25, \
per_image.512x512.standard 5.25, per_input_image 0
      image inpaint: per_image.1024x1024.standard 7.5, per_image.256x256.standard 7.5, \
per_image.512x512.standard 7.5, per_input_image 0
      image outpaint: per_image.any.standard 6, per_input_image 0
differs from the built-in settings
  metrics.token = (set) (by GENSVC__METRICS__TOKEN)
  pricing.markup = 1.5 (by GENSVC__PRICING__MARKUP; built-in: 1)
  providers.elevenlabs.enabled = false (by the file; built-in: true)
  server.cors_origins = https://a.test (by GENSVC__SERVER__CORS_ORIGINS)
  server.memory_mib = 512 (by GENSVC__SERVER__MEMORY_MIB; built-in: 0)
";
    assert_eq!(c.summary().to_string(), want);
}

#[test]
fn the_summary_for_scripts() {
    let c = from_file(SERVERS, &[("GENSVC__PROVIDERS__SANDBOX__ENABLED", "false")]).unwrap();
    let json = serde_json::to_value(c.summary()).unwrap();
    assert_eq!(json["servable"], true);
    assert_eq!(json["database"], "private");
    assert_eq!(json["media"], "local");
    assert_eq!(
        json["default_providers"],
        serde_json::json!({"text": "local", "image": null, "video": null, "audio": null})
    );
    let provider = |name: &str| {
        let all = json["providers"].as_array().unwrap();
        all.iter().find(|p| p["name"] == name).unwrap().clone()
    };
    assert_eq!(
        provider("local"),
        serde_json::json!({
            "name": "local", "kind": "openai_compatible", "enabled": true,
            "reason": "needs no key", "api_key_env": [],
            "base_url": "http://localhost:11434/v1/",
            "default_models": {"text": "llama:8b"},
            "models": [{"id": "llama:8b", "type": "text", "prices": {
                "input_per_million": "0", "output_per_million": "0.5",
            }}]
        })
    );
    assert_eq!(
        provider("sandbox")["reason"],
        "switched off by enabled = false"
    );
    assert_eq!(
        provider("openai")["api_key_env"],
        serde_json::json!(["OPENAI_API_KEY"])
    );
    assert_eq!(json["warnings"].as_array().unwrap().len(), 1);
    let changes = json["changes"].as_array().unwrap();
    let change = |key: &str| changes.iter().find(|c| c["key"] == key).unwrap();
    assert_eq!(
        change("providers.sandbox.enabled"),
        &serde_json::json!({
            "key": "providers.sandbox.enabled", "value": "false", "built_in": "true",
            "variable": "GENSVC__PROVIDERS__SANDBOX__ENABLED"
        })
    );
    assert_eq!(
        change("providers.local.models")["variable"],
        serde_json::Value::Null
    );
}

#[test]
fn a_bare_name_is_that_of_one_model_or_of_the_first_of_the_defaults() {
    let server = |name: &str| {
        format!(
            "[providers.{name}]\nkind = \"openai_compatible\"\nbase_url = \"https://{name}.test\"\n\
             [[providers.{name}.models]]\nid = \"llama\"\ntype = \"text\"\n\
             prices = {{ input_per_million = \"1\", output_per_million = \"1\" }}\n"
        )
    };
    let named = |file: &str, provider: Option<&str>| {
        let account = Target {
            provider: provider.map(str::to_owned),
            model: None,
            fallbacks: Vec::new(),
        };
        let catalogue = from_file(file, &[]).unwrap().catalogue();
        let found = catalogue.named(Modality::Text, "llama", &account, Surface::Generate);
        found.map(|model| model.provider.clone())
    };
    assert_eq!(named(&server("a"), None).unwrap(), "a");
    let both = server("a") + &server("b");
    let error = named(&both, None).unwrap_err();
    assert_eq!(
        (error.param.as_str(), error.code),
        ("model", FieldCode::InvalidFormat)
    );
    assert!(
        error.message.ends_with("one of a/llama, b/llama"),
        "{error:?}"
    );
    assert_eq!(named(&both, Some("b")).unwrap(), "b");
    let preferred = format!("[defaults]\ntext = [\"b\", \"sandbox\"]\n{both}");
    assert_eq!(named(&preferred, None).unwrap(), "b");
}
