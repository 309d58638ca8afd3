//! POST /v1/generate/text with a template.

use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::TEMPLATES;
use crate::common::{CONFIG_FILE, TestApp, Upstream};

const ESTIMATE: &str = "/v1/credits/estimate";

#[sqlx::test]
async fn what_is_rendered_is_sent_held_for_and_recorded(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("100").await;
    let id = app
        .template(
            &account,
            "To {{ who }}: {{ prompt }}!",
            Some("Be {{ tone }}."),
        )
        .await;
    let body = json!({"prompt": "hé", "template_id": id, "template_variables": {"who": "Ada", "tone": "kind"},
        "parameters": {"max_tokens": 10}});
    // The sandbox has round prices.
    let mut sandbox = body.clone();
    sandbox["provider"] = json!("sandbox");
    let record = app.text(&account.key, sandbox.clone()).await.expect(200);
    assert_eq!(record["prompt"], "To Ada: hé!");
    assert_eq!(
        record["metadata"]["template"],
        json!({"id": id, "version": 1})
    );
    // 12 and 8 bytes rendered + 64 of overhead at 10, 10 tokens at 50.
    assert_eq!(record["credits"]["estimated"], "0.00134");
    let path = format!("/v1/generate/{}", record["uuid"].as_str().unwrap());
    assert_eq!(app.get(&account.key, &path).await.expect(200), record);
    sandbox["type"] = json!("text");
    let estimate = app.post(&account.key, ESTIMATE, &sandbox).await.expect(200);
    assert_eq!(estimate["hold"], "0.00134");
    // What is sent to the provider.
    let mut openai = body.clone();
    openai["provider"] = json!("openai");
    app.text(&account.key, openai.clone()).await.expect(200);
    let sent = |at: usize| upstream.requests()[at].body.to_string();
    assert!(
        sent(0).contains("To Ada: hé!") && sent(0).contains("Be kind."),
        "{}",
        sent(0)
    );
    // The request's own system prompt takes precedence, and then none of the template's variables
    // are required.
    openai["system_prompt"] = json!("Mine.");
    openai["template_variables"] = json!({"who": "Bob"});
    app.text(&account.key, openai).await.expect(200);
    assert!(
        sent(1).contains("Mine.") && !sent(1).contains("Be "),
        "{}",
        sent(1)
    );
    app.assert_settled().await;
}

#[sqlx::test]
async fn the_prompt_comes_in_one_way_or_the_other(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    for (template, rendered) in [
        ("Translate: {{ prompt }}", "Translate: hello"),
        ("Translate into French.", "Translate into French.\n\nhello"),
        ("{% if prompt %}yes{% endif %}", "yes"),
        ("{{ prompt|upper }}{{ prompt }}", "HELLOhello"),
        ("{# nothing but this #}", "hello"),
        (
            "{% for prompt in 'ab' %}{{ prompt }}{% endfor %}",
            "ab\n\nhello",
        ),
        ("<b>{{ prompt }}&", "<b>hello&"),
    ] {
        let id = app.template(&account, template, None).await;
        let body = json!({"prompt": "hello", "template_id": id});
        let record = app.text(&account.key, body).await.expect(200);
        assert_eq!(record["prompt"], rendered, "{template}");
    }
    // Template syntax in the prompt itself is plain text.
    let id = app.template(&account, "{{ prompt }}", None).await;
    let body = json!({"prompt": "{{ 1 + 1 }}{% x %}", "template_id": id});
    let record = app.text(&account.key, body).await.expect(200);
    assert_eq!(record["prompt"], "{{ 1 + 1 }}{% x %}");
    app.assert_settled().await;
}

#[sqlx::test]
async fn what_does_not_fit_is_named_before_any_hold(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (account, other) = (app.account("10").await, app.account("10").await);
    let theirs = app.template(&other, "x", None).await;
    let make =
        |prompt: &'static str, system: Option<&'static str>| app.template(&account, prompt, system);
    let two = make("{{ a }}{{ b.c }}\n{{ d|default('x') }}", Some("{{ s }}")).await;
    let lines = make("{{ a }}\n{{ user.name }}", None).await;
    let guarded = make(
        "{% if a is defined %}x{% endif %}\n{{ b|default('') }}{{ a }}",
        None,
    )
    .await;
    let bomb = make(
        "{% for i in a %}{% for j in a %}x{% endfor %}{% endfor %}",
        None,
    )
    .await;
    let grows = make("{{ a|replace('x', a)|replace('x', a)|length }}", None).await;
    let long = make(
        "{% for i in ten %}{{ a }}{% endfor %}{{ prompt }}",
        Some("{% for i in ten %}{% if loop.index < 7 %}{{ a }}{% endif %}{% endfor %}"),
    )
    .await;
    let blank = make("{% if prompt == 'x' %} {% endif %}", None).await;
    let number = make("{{ a|int }}", None).await;
    let nul = make("{{ '\\u0000' }}", None).await;
    for (id, variables, expected) in [
        (
            theirs,
            json!(null),
            vec![("template_id", "unknown_template")],
        ),
        (
            i64::MAX,
            json!({}),
            vec![("template_id", "unknown_template")],
        ),
        (
            two,
            json!(null),
            vec![
                ("template_variables.a", "missing_variable"),
                ("template_variables.b", "missing_variable"),
                ("template_variables.s", "missing_variable"),
            ],
        ),
        (
            two,
            json!({"a": null, "b": {}, "s": 1}),
            vec![("template_variables.a", "missing_variable")],
        ),
        (
            two,
            json!({"a": 1, "b": {}, "s": 1}),
            vec![
                ("template_variables.a", "missing_variable"),
                ("template_variables.b", "missing_variable"),
            ],
        ),
        (
            two,
            json!({"a": 1, "b": {"c": 1}, "s": 1, "prompt": "x", "z": 1}),
            vec![
                ("template_variables.prompt", "unknown_field"),
                ("template_variables.z", "unknown_field"),
            ],
        ),
        (
            lines,
            json!({"a": 1, "user": {}}),
            vec![("template_variables.user", "missing_variable")],
        ),
        (lines, json!({"a": 1, "user": {"name": null}}), vec![]),
        (
            guarded,
            json!({}),
            vec![
                ("template_variables.a", "missing_variable"),
                ("template_variables.b", "missing_variable"),
            ],
        ),
        (
            guarded,
            json!({"b": 1}),
            vec![("template_variables.a", "missing_variable")],
        ),
        (
            bomb,
            json!({"a": vec![0; 1_000]}),
            vec![("template_id", "too_long")],
        ),
        (
            grows,
            json!({"a": "x".repeat(1_000)}),
            vec![("template_id", "too_long")],
        ),
        (grows, json!({"a": "xx"}), vec![]),
        (
            long,
            json!({"a": "é".repeat(999), "ten": vec![1; 10]}),
            vec![("system_prompt", "too_long")],
        ),
        (
            long,
            json!({"a": "é".repeat(1_000), "ten": vec![1; 10]}),
            vec![("prompt", "too_long"), ("system_prompt", "too_long")],
        ),
        (blank, json!({}), vec![("prompt", "required")]),
        (
            number,
            json!({"a": "x"}),
            vec![("template_variables", "invalid_format")],
        ),
        (number, json!({"a": 2}), vec![]),
        (nul, json!({}), vec![("prompt", "invalid_format")]),
    ] {
        let body = json!({"prompt": "x", "template_id": id, "template_variables": variables});
        let answer = app.text(&account.key, body.clone()).await;
        if expected.is_empty() {
            answer.expect(200);
            continue;
        }
        let fields = answer.fields();
        let found: Vec<_> = fields
            .iter()
            .map(|(p, c)| (p.as_str(), c.as_str()))
            .collect();
        assert_eq!(found, expected, "{body}");
    }
    for (body, expected) in [
        (
            json!({"prompt": "x", "template_variables": {}}),
            "template_variables",
        ),
        (
            json!({"prompt": "x", "template_id": two, "template_variables": []}),
            "template_variables",
        ),
        (json!({"prompt": "x", "template_id": 0}), "template_id"),
        (json!({"prompt": "x", "template_id": "1"}), "template_id"),
    ] {
        let fields = app.text(&account.key, body).await.fields();
        assert_eq!(fields.keys().collect::<Vec<_>>(), [expected]);
    }
    // Other errors are reported in the same response.
    let body = json!({"prompt": "x", "template_id": theirs, "model": "nope"});
    let fields = app.text(&account.key, body).await.fields();
    assert_eq!(fields.keys().collect::<Vec<_>>(), ["model", "template_id"]);
    let holds: i64 = sqlx::query_scalar("select count(*) from ledger_entries where kind = 'hold'")
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(holds, 3, "of those three that fit");
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_template_that_exceeds_the_models_maximum_is_named(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let file = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let file = file.join(uuid::Uuid::now_v7().to_string());
    let small = "[[providers.sandbox.models]]\nid = \"small\"\ntype = \"text\"\n\
        limits.max_prompt_chars = 20\n\
        prices = { input_per_million = \"1\", output_per_million = \"1\" }\n";
    std::fs::write(&file, small).unwrap();
    let config = [(CONFIG_FILE, file.to_str().unwrap())];
    let app = TestApp::with(options, &config).await;
    std::fs::remove_file(&file).unwrap();
    let account = app.account("10").await;
    let template = app.template(&account, "Say it: {{ prompt }}", None).await;
    for (length, template, status, message) in [
        (20, None, 200, ""),
        (
            21,
            None,
            422,
            "must be at most 20 characters for this model",
        ),
        (12, Some(template), 200, ""),
        (
            13,
            Some(template),
            422,
            "must be at most 20 characters for this model, as the template renders it",
        ),
    ] {
        let body = json!({"prompt": "x".repeat(length), "template_id": template,
            "provider": "sandbox", "model": "small"});
        let answer = app.text(&account.key, body).await;
        let body = answer.expect(status);
        if status == 422 {
            assert_eq!(body["error"]["errors"][0]["param"], "prompt");
            assert_eq!(body["error"]["errors"][0]["message"], message);
        }
    }
    app.assert_settled().await;
}

/// One that was saved when the language was larger.
#[sqlx::test]
async fn a_template_that_is_no_longer_valid_is_named(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let id = app.template(&account, "{{ a }}", None).await;
    sqlx::query("update template_versions set prompt = $1 where template_id = $2")
        .bind("{% set b = a %}\n{{ b }}")
        .bind(id)
        .execute(&app.pool)
        .await
        .unwrap();
    let mut body = json!({"prompt": "x", "template_id": id, "template_variables": {"a": 1}});
    let answer = app.text(&account.key, body.clone()).await;
    assert_eq!(answer.fields()["template_id"], "invalid_format");
    assert!(answer.text.contains("`set` is not"), "{}", answer.text);
    body["type"] = json!("text");
    let estimate = app.post(&account.key, ESTIMATE, &body).await;
    assert_eq!(estimate.fields()["template_id"], "invalid_format");
    let path = format!("{TEMPLATES}/{id}");
    let kept = app.get(&account.key, &path).await.expect(200);
    assert_eq!(kept["prompt"], "{% set b = a %}\n{{ b }}");
    app.assert_settled().await;
}

#[sqlx::test]
async fn the_record_names_the_version_that_was_used(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let id = app.template(&account, "one {{ prompt }}", None).await;
    let path = format!("{TEMPLATES}/{id}");
    let body = json!({"prompt": "x", "template_id": id});
    let keyed = [("idempotency-key", "k")];
    let post = || app.post_with(&account.key, "/v1/generate/text", &keyed, &body);
    let first = post().await.expect(200);
    assert_eq!(first["metadata"]["template"]["version"], 1);
    let new = json!({"name": "t", "prompt": "two {{ prompt }}{{ needed }}"});
    app.put(&account.key, &path, &new).await.expect(200);
    // A replay does not render again.
    let again = post().await;
    assert_eq!(again.header("idempotent-replayed"), "true");
    assert_eq!(again.expect(200), first);
    let fresh = json!({"prompt": "x", "template_id": id, "template_variables": {"needed": 1}});
    let second = app.text(&account.key, fresh.clone()).await.expect(200);
    assert_eq!(second["prompt"], "two x1");
    assert_eq!(
        second["metadata"]["template"],
        json!({"id": id, "version": 2})
    );
    app.delete(&account.key, &path).await.expect(204);
    assert_eq!(post().await.expect(200), first);
    let gone = app.text(&account.key, fresh).await.fields();
    assert_eq!(gone["template_id"], "unknown_template");
    let record = format!("/v1/generate/{}", second["uuid"].as_str().unwrap());
    assert_eq!(app.get(&account.key, &record).await.expect(200), second);
    app.assert_settled().await;
}

/// While a template changes, every generation uses one version or the other as a whole.
#[sqlx::test]
async fn a_generation_is_of_one_version(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("100").await;
    let id = app.template(&account, "v1 {{ prompt }}", None).await;
    let path = format!("{TEMPLATES}/{id}");
    let puts = async {
        for version in 2..8 {
            let prompt = format!("v{version} {{{{ prompt }}}}");
            let body = json!({"name": "t", "prompt": prompt});
            app.put(&account.key, &path, &body).await.expect(200);
        }
    };
    let body = json!({"prompt": "x", "template_id": id, "parameters": {"max_tokens": 4}});
    let made = join_all((0..20).map(|_| app.text(&account.key, body.clone())));
    let ((), made) = tokio::join!(puts, made);
    for answer in made {
        let record: Value = answer.expect(200);
        let version = &record["metadata"]["template"]["version"];
        assert_eq!(record["prompt"], format!("v{version} x"));
    }
    app.assert_settled().await;
}
