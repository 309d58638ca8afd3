//! Every error of providers and models: one sentence with the key, the bad value and how to
//! fix it.

use super::*;

/// A file with a compatible server whose model has these lines.
fn model(lines: &str) -> String {
    format!(
        "[providers.x]\nkind = \"openai_compatible\"\nbase_url = \"http://a.test\"\n\
         [[providers.x.models]]\n{lines}\n"
    )
}

const PRICES: &str = "prices = { input_per_million = \"1\", output_per_million = \"2\" }";

const MARKUP: &str =
    "must be a factor from 0.000001 to 1000 with at most six digits after the point, such as 1.2";

#[test]
fn of_providers() {
    for (file, want) in [
        (
            "[providers.Open]\nkind = \"openai\"",
            "providers.Open is not a usable name: must be 1 to 40 of a-z, 0-9, _ and -, beginning with a letter or digit",
        ),
        (
            "[providers.x]\n",
            "providers.x.kind is missing: write one of sandbox, openai, openai_compatible, anthropic, gemini, stability, runway, elevenlabs",
        ),
        (
            "[providers.x]\nkind = \"ollama\"",
            r#"providers.x.kind is "ollama": must be one of sandbox, openai, openai_compatible, anthropic, gemini, stability, runway, elevenlabs"#,
        ),
        (
            "[providers.x]\nkind = \"openai_compatible\"",
            r#"providers.x.base_url is missing: add the server's URL, such as "http://localhost:11434/v1""#,
        ),
        (
            "[providers.x]\nkind = \"openai\"\nbase_url = \"http://a\"",
            "providers.x.api_key_env is missing: name the environment variable that holds the key",
        ),
        (
            "[providers.x]\nkind = \"openai_compatible\"\nbase_url = \"http://a\"",
            "providers.x.models is missing: add at least one [[providers.x.models]]",
        ),
        (
            "[providers.sandbox]\nbase_url = \"http://a\"",
            "providers.sandbox.base_url is not used by the sandbox: remove it",
        ),
        (
            "[providers.openai]\napi_key_env = \"sk-hunter2\"",
            r#"providers.openai.api_key_env is not the name of a variable (its value is not shown): must be letters, digits and _, such as "OPENAI_API_KEY""#,
        ),
        (
            "[providers.openai]\nbase_url_env = \"http://a\"",
            r#"providers.openai.base_url_env is not the name of a variable (its value is not shown): must be letters, digits and _, such as "OPENAI_API_KEY""#,
        ),
        (
            "[providers.openai]\ntimeout_seconds = 0",
            "providers.openai.timeout_seconds is 0: must be a whole number from 1 to 3600",
        ),
        (
            "[providers.openai]\nenabled = 1",
            "providers.openai.enabled is 1: must be true or false",
        ),
        (
            "[providers.openai]\napi_key = \"sk-hunter2\"",
            "providers.openai.api_key is not a known key: remove it or use one of kind, enabled, api_key_env, base_url, base_url_env, timeout_seconds, max_concurrent, markup, replace, models",
        ),
        (
            "[providers.openai]\nmarkup = 1000.1",
            "providers.openai.markup is 1000.1: must be a factor from 0.000001 to 1000 with at most six digits after the point, such as 1.2",
        ),
        (
            "[pricing]\nmarkup = 0",
            "pricing.markup is 0: must be a factor from 0.000001 to 1000 with at most six digits after the point, such as 1.2",
        ),
        (
            "[pricing]\nmarkup = true",
            "pricing.markup is true: must be a factor from 0.000001 to 1000 with at most six digits after the point, such as 1.2",
        ),
        (
            "[providers]\nx = 1",
            "providers.x is 1: must be a table with keys",
        ),
    ] {
        check(file, &[], want);
    }
}

#[test]
fn of_models() {
    let ok = format!("id = \"m\"\ntype = \"text\"\n{PRICES}\n");
    let unpriced = "a model without a complete price is not served";
    for (lines, want) in [
        ("type = \"text\"".to_owned(), "providers.x.models[0].id is missing: give the provider's own name of the model".to_owned()),
        ("id = \"a\\nb\"".to_owned(), r#"providers.x.models[0].id is "a\nb": must have 1 to 200 characters, none of them a control character"#.to_owned()),
        ("id = \"m\"".to_owned(), r#"providers.x.models[0].type is missing: write type = "text" or "image""#.to_owned()),
        ("id = \"m\"\ntype = \"video\"".to_owned(), r#"providers.x.models[0].type is "video": must be "text" or "image" for a provider of kind "openai_compatible""#.to_owned()),
        ("id = \"m\"\ntype = \"speech\"".to_owned(), r#"providers.x.models[0].type is "speech": must be one of text, image, video, audio"#.to_owned()),
        ("id = \"m\"\ntype = \"text\"".to_owned(), format!("providers.x.models[0].prices.input_per_million is missing: {unpriced}; add it or set enabled = false")),
        ("id = \"m\"\ntype = \"text\"\nprices = {output_per_million = \"1\"}".to_owned(), format!("providers.x.models[0].prices.input_per_million is missing: {unpriced}; add it or set enabled = false")),
        ("id = \"m\"\ntype = \"text\"\nprices = {input_per_million = \"1\"}".to_owned(), format!("providers.x.models[0].prices.output_per_million is missing: {unpriced}; add it or set enabled = false")),
        ("id = \"m\"\ntype = \"text\"\nprices = {input_per_million = 0.1}".to_owned(), r#"providers.x.models[0].prices.input_per_million is 0.1: write credits in quotes, such as "10.5", so that no digit is lost"#.to_owned()),
        ("id = \"m\"\ntype = \"text\"\nprices = {input_per_million = \"-1\"}".to_owned(), r#"providers.x.models[0].prices.input_per_million is "-1": must not be negative"#.to_owned()),
        ("id = \"m\"\ntype = \"text\"\nprices = {input_per_million = \"1e3\"}".to_owned(), r#"providers.x.models[0].prices.input_per_million is "1e3": must be a decimal number such as "12.5""#.to_owned()),
        ("id = \"m\"\ntype = \"text\"\nprices = {input = \"1\"}".to_owned(), "providers.x.models[0].prices.input is not a known key: remove it or use one of input_per_million, cached_input_per_million, cache_write_per_million, cache_write_long_per_million, output_per_million, per_search, tiers".to_owned()),
        (format!("{ok}limits = {{ searches = 1, search_tokens = 9 }}\nwire = {{ api = \"responses\", no_obfuscation = true }}"), "providers.x.models[0].prices.per_search is missing: add it, or remove limits.searches".to_owned()),
        ("id = \"m\"\ntype = \"text\"\nprices = {input_per_million = \"1\", output_per_million = \"1\", per_search = \"1\"}\nlimits = { searches = 1 }\nwire = { api = \"responses\", no_obfuscation = true }".to_owned(), "providers.x.models[0].limits.search_tokens is missing: add it, or remove limits.searches".to_owned()),
        ("id = \"m\"\ntype = \"text\"\nprices = {input_per_million = \"1\", output_per_million = \"1\", per_search = \"1\"}\nlimits = { searches = 2, search_tokens = 9 }".to_owned(), "providers.x.models[0].limits.searches is 2: this model's API has no web search at the provider; remove it".to_owned()),
        (format!("{ok}limits = {{ searches = 1001 }}"), "providers.x.models[0].limits.searches is 1001: must be a whole number from 0 to 1000".to_owned()),
        (format!("{ok}markup = \"-1\""), format!("providers.x.models[0].markup is \"-1\": {MARKUP}")),
        (format!("{ok}limits = {{ max_tokens = 4097 }}"), "providers.x.models[0].limits.max_tokens is 4097: must be a whole number from 1 to 4096".to_owned()),
        (format!("{ok}limits = {{ max_prompt_chars = 0 }}"), "providers.x.models[0].limits.max_prompt_chars is 0: must be a whole number from 1 to 10000".to_owned()),
        (format!("{ok}overhead_tokens = 100001"), "providers.x.models[0].overhead_tokens is 100001: must be a whole number from 0 to 100000".to_owned()),
        (format!("{ok}retiring = \"soon\""), r#"providers.x.models[0].retiring is "soon": must be a date, such as 2027-01-14"#.to_owned()),
        (format!("{ok}retiring = 2027"), "providers.x.models[0].retiring is 2027: must be a date, such as 2027-01-14".to_owned()),
        (format!("{ok}wire = {{ token_field = \"tokens\" }}"), r#"providers.x.models[0].wire.token_field is "tokens": must be one of max_tokens, max_completion_tokens"#.to_owned()),
        (format!("{ok}wire = {{ thinking_level = \"LOW\" }}"), "providers.x.models[0].wire.thinking_level is not a known key: remove it or use one of api, token_field, system_role, reasoning_effort, explicit_cache, reasoning, service_tier, stream_usage, no_obfuscation, thought_signatures".to_owned()),
        (format!("{ok}wire = 3"), "providers.x.models[0].wire is 3: must be a table with keys".to_owned()),
        (format!("{ok}[[providers.x.models]]\nid = \"m\"\n"), r#"providers.x.models[1].id is "m", as models[0] already is: keep one of them"#.to_owned()),
        (format!("{ok}[[providers.x.models]]\n{}", ok.replace("\"m\"", "\"n\"")), "providers.x.models has several enabled models for text and none is the default: set default = true at one of them".to_owned()),
        (format!("{ok}default = true\n[[providers.x.models]]\ndefault = true\n{}", ok.replace("\"m\"", "\"n\"")), "providers.x.models has more than one default for text, m, n: keep default = true at one of them".to_owned()),
    ] {
        check(&model(&lines), &[], &want);
    }
    for range in [
        "[0.0, 2.1]",
        "[-0.1, 1.0]",
        "[1.0, 0.5]",
        "[1.0]",
        "[nan, 1.0]",
        "[0.0, inf]",
        "[0, 5000000000]",
    ] {
        let error = error_of(
            &model(&format!("{ok}limits = {{ temperature = {range} }}")),
            &[],
        );
        assert!(
            error.starts_with("providers.x.models[0].limits.temperature is ["),
            "{error}"
        );
        assert!(error.ends_with("must be the lowest and the highest value within 0.0 to 2.0, such as [0.0, 2.0], or [] for none"), "{error}");
    }
}

#[test]
fn of_images() {
    let kinds = "one of patch32, patch28, tile512, flat";
    for (images, want) in [
        ("3", ".images is 3: must be a table with keys".to_owned()),
        (
            "{ tokens = 1 }",
            format!(".images.kind is missing: write {kinds}"),
        ),
        (
            "{ kind = \"patch\" }",
            format!(".images.kind is \"patch\": must be {kinds}"),
        ),
        (
            "{ kind = \"flat\" }",
            ".images.tokens is missing: add it".to_owned(),
        ),
        (
            "{ kind = \"flat\", tokens = 0 }",
            ".images.tokens is 0: must be a whole number from 1 to 1000000".to_owned(),
        ),
        (
            "{ kind = \"tile512\", base = 1, tile = 2, tiles = 3 }",
            ".images.tiles is not a known key: remove it or use one of base, tile".to_owned(),
        ),
        (
            "{ kind = \"patch28\", max_edge = 1.5, max_tokens = 9 }",
            ".images.max_edge is 1.5: must be a whole number from 1 to 1000000".to_owned(),
        ),
        (
            "{ kind = \"patch32\", factor = 0, max_edge = 1, max_patches = 9 }",
            ".images.factor is 0: must be a number above 0, at most 100".to_owned(),
        ),
    ] {
        let lines =
            format!("id = \"m\"\ntype = \"text\"\n{PRICES}\nlimits = {{ images = {images} }}");
        let want = format!("providers.x.models[0].limits{want}");
        check(&model(&lines), &[], &want);
    }
}

#[test]
fn of_tiers() {
    let base = "input_per_million = \"2\", output_per_million = \"3\"";
    let cached = "cached_input_per_million = \"1\"";
    let ascending = |tiers: usize| {
        let tier = |n: usize| format!("{{ above_input_tokens = {n}, {base} }}");
        (1..=tiers).map(tier).collect::<Vec<_>>().join(", ")
    };
    let most = format!("{base}, tiers = [{}]", ascending(8));
    let model = |prices: &str| {
        model(&format!(
            "id = \"m\"\ntype = \"text\"\nprices = {{ {prices} }}"
        ))
    };
    for (prices, want) in [
        (
            format!("{base}, tiers = [{{ {base} }}]"),
            "[0].above_input_tokens is missing: name the input tokens above which the tier applies",
        ),
        (
            format!("{base}, tiers = [{{ above_input_tokens = 0, {base} }}]"),
            "[0].above_input_tokens is 0: must be a whole number from 1 to 100000000",
        ),
        (
            format!("{base}, tiers = [{{ above_input_tokens = 9, output_per_million = \"1\" }}]"),
            "[0].input_per_million is missing: add it, as the model has it",
        ),
        (
            format!("{base}, {cached}, tiers = [{{ above_input_tokens = 9, {base} }}]"),
            "[0].cached_input_per_million is missing: add it, as the model has it",
        ),
        (
            format!("{base}, tiers = [{{ above_input_tokens = 9, {base}, {cached} }}]"),
            "[0].cached_input_per_million is a price that the model has not: add it there or remove it",
        ),
        (
            format!("{base}, tiers = [{{ above_input_tokens = 9, {base}, price = \"1\" }}]"),
            "[0].price is not a known key: remove it or use one of input_per_million, cached_input_per_million, cache_write_per_million, cache_write_long_per_million, output_per_million, above_input_tokens",
        ),
        (
            format!(
                "{base}, tiers = [{{ above_input_tokens = 9, {base} }}, {{ above_input_tokens = 9, {base} }}]"
            ),
            "[1].above_input_tokens is 9: must be above the 9 of the tier before it",
        ),
        (
            format!("{base}, tiers = [{}]", ascending(9)),
            " has 9 tiers: must have at most 8",
        ),
    ] {
        let want = format!("providers.x.models[0].prices.tiers{want}");
        check(&model(&prices), &[], &want);
    }
    from_file(&model(&most), &[]).unwrap();
}

#[test]
fn of_wire_settings() {
    let models = |provider: &str, lines: &str| {
        format!("[[providers.{provider}.models]]\nid = \"m\"\ntype = \"text\"\n{PRICES}\n{lines}\n")
    };
    for (provider, lines, want) in [
        (
            "openai",
            "wire = { reasoning_effort = \"lwo\" }",
            r#"wire.reasoning_effort is "lwo": must be one of none, minimal, low, medium, high, xhigh, max"#,
        ),
        (
            "openai",
            "wire = { service_tier = \"cheap\" }",
            r#"wire.service_tier is "cheap": must be one of auto, default, flex, scale, priority, fast"#,
        ),
        (
            "anthropic",
            "wire = { version = \"2024-01-01\" }",
            r#"wire.version is "2024-01-01": must be one of 2026-10-21, 2023-06-01"#,
        ),
        (
            "anthropic",
            "wire = { effort = \"none\" }",
            r#"wire.effort is "none": must be one of low, medium, high, xhigh, max"#,
        ),
        (
            "anthropic",
            "wire = { thinking = \"enabled\" }",
            r#"wire.thinking is "enabled": must be one of disabled, between_tools, adaptive, always"#,
        ),
        (
            "anthropic",
            "limits = { temperature = [0.0, 1.0] }",
            r#"limits.temperature is [0.0, 1.0]: Anthropic takes 0.0 to 1.0 and only with wire.version = "2023-06-01"; set both or leave it out"#,
        ),
        (
            "anthropic",
            "limits = { temperature = [0.0, 2.0] }\nwire = { version = \"2023-06-01\" }",
            r#"limits.temperature is [0.0, 2.0]: Anthropic takes 0.0 to 1.0 and only with wire.version = "2023-06-01"; set both or leave it out"#,
        ),
        (
            "gemini",
            "wire = { thinking_level = \"low\" }",
            r#"wire.thinking_level is "low": must be one of MINIMAL, LOW, MEDIUM, HIGH, XHIGH"#,
        ),
        (
            "gemini",
            "wire = { thinking_budget = -1 }",
            "wire.thinking_budget is -1: must be a whole number from 0 to 32768",
        ),
        (
            "gemini",
            "wire = { thinking_budget = 0, thinking_level = \"LOW\" }",
            "wire sets both thinking_level and thinking_budget: keep the one that the model takes",
        ),
        (
            "sandbox",
            "wire = { }",
            "wire is not used by the sandbox: remove it",
        ),
    ] {
        let want = format!("providers.{provider}.models[0].{want}");
        check(&models(provider, lines), &[], &want);
    }
}
