//! `gensvc catalogue`, and SIGHUP.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{PATIENCE, Site, line_with};
use crate::signal::signal;

fn model(price: &str) -> String {
    format!(
        "[[providers.sandbox.models]]\nid = \"m\"\ntype = \"text\"\n\
         prices = {{ input_per_million = \"{price}\", output_per_million = \"{price}\" }}\n"
    )
}

fn path(name: &str) -> &'static str {
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join(format!("{}-{name}", uuid::Uuid::now_v7()));
    file.display().to_string().leak()
}

#[tokio::test(flavor = "multi_thread")]
async fn catalogue_is_reloaded_by_command_and_by_signal() {
    let file = path("gensvc.toml");
    std::fs::write(file, model("1")).unwrap();
    let site = Site::new(&[("GENSVC_CONFIG", file)]);
    let mut server = site.serve().await;
    let price = async |server: &super::Server| {
        let model = server.get("", "/v1/models/sandbox/m").await;
        model["prices"]["input_per_million"].clone()
    };
    assert_eq!(price(&server).await, "1");

    // It may be read already: a server that begins to listen may have been asked to reload.
    std::fs::write(file, model("2")).unwrap();
    let reload = site.command().args(["catalogue", "reload"]).output().await;
    let reload = reload.unwrap();
    assert!(reload.status.success(), "{reload:?}");
    line_with(&mut server.stderr, "the catalogue was reloaded").await;
    assert_eq!(price(&server).await, "2");

    let pid = server.child.id().unwrap();
    std::fs::write(file, model("-3")).unwrap();
    signal(pid, Signal::SIGHUP);
    let line = line_with(&mut server.stderr, "the catalogue was not reloaded").await;
    let why =
        "providers.sandbox.models[0].prices.input_per_million is \"-3\": must not be negative";
    assert!(line.contains(why), "{line}");
    assert_eq!(price(&server).await, "2");
    // The command does not ask servers to read a file that it cannot read itself.
    let refused = site.command().args(["catalogue", "reload"]).output().await;
    let refused = refused.unwrap();
    let message = String::from_utf8(refused.stderr).unwrap();
    assert!(
        !refused.status.success() && message.contains(why),
        "{message}"
    );

    std::fs::write(file, model("4") + "[server]\nmax_requests = 99\n").unwrap();
    signal(pid, Signal::SIGHUP);
    line_with(
        &mut server.stderr,
        "restart the server to apply the changes to server.max_requests",
    )
    .await;
    assert_eq!(price(&server).await, "4");
    server.stop().await;
    std::fs::remove_file(file).unwrap();
}

#[tokio::test]
async fn sighup_during_the_start_does_not_end_it() {
    let database = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://x@{}/x", database.local_addr().unwrap());
    let site = Site::new(&[("DATABASE_URL", url.leak())]);
    let mut server = site.command().arg("serve").spawn().unwrap();
    let connection = database.accept().await.unwrap();
    signal(server.id().unwrap(), Signal::SIGHUP);
    drop((connection, database));
    let ended = tokio::time::timeout(PATIENCE, server.wait()).await;
    let ended = ended.unwrap().unwrap();
    assert!(ended.code().is_some(), "{ended}");
}

#[tokio::test]
async fn catalogue_is_compared_with_a_price_list() {
    let file = path("gensvc.toml");
    let prices = "input_per_million = \"250\", cached_input_per_million = \"125\", output_per_million = \"1000\"";
    std::fs::write(
        file,
        format!(
            "[pricing]\nmarkup = \"1.2\"\n[providers.openai]\nreplace = true\nmarkup = \"2\"\n\
             [[providers.openai.models]]\nid = \"m\"\ntype = \"text\"\nmarkup = \"3\"\n\
             limits = {{ max_input_tokens = 1000, max_output_tokens = 500 }}\n\
             prices = {{ {prices}, tiers = [{{ above_input_tokens = 200000, {prices} }}] }}\n"
        ),
    )
    .unwrap();
    let list = path("list.json");
    let write = |list_of: Value| std::fs::write(list, list_of.to_string()).unwrap();
    let entry = json!({"litellm_provider": "openai", "input_cost_per_token": 2.5e-06,
        "output_cost_per_token": 1e-05, "cache_read_input_token_cost": 1.25e-06,
        "input_cost_per_token_above_200k_tokens": 2.5e-06, "max_input_tokens": 1000,
        "max_output_tokens": 500, "mode": "chat"});
    let site = Site::new(&[("GENSVC_CONFIG", file)]);
    let check = async || {
        let checked = site
            .command()
            .args(["catalogue", "check", list, "--json"])
            .output();
        let checked = checked.await.unwrap();
        let found: Value = serde_json::from_slice(&checked.stdout).unwrap_or_default();
        (
            checked.status.success(),
            found,
            String::from_utf8(checked.stderr).unwrap(),
        )
    };
    // Cached input without a price costs as much as other input.
    let mut entry = entry;
    entry["cache_creation_input_token_cost"] = json!(2.5e-06);
    write(json!({"sample_spec": {}, "m": entry}));
    let (equal, found, _) = check().await;
    assert_eq!(
        (equal, &found["compared"], &found["differences"]),
        (true, &json!(1), &json!([]))
    );
    let unlisted = found["unlisted"].as_array().unwrap();
    assert!(unlisted.contains(&json!("anthropic/claude-haiku-5-5")));

    let mut other = entry.clone();
    other["input_cost_per_token"] = json!(2.4e-06);
    other["cache_creation_input_token_cost"] = json!(3e-06);
    other["output_cost_per_token_above_200k_tokens"] = json!(1.5e-05);
    other["output_cost_per_token_above_500k_tokens"] = json!(2e-05);
    other["input_cost_per_token_above_500k_tokens"] = json!(5e-06);
    other["max_input_tokens"] = json!(2000);
    // The provider's own entry wins.
    write(json!({"openai/m": other, "m": entry}));
    let (equal, found, _) = check().await;
    let difference = |setting: &str, here: &str, published: &str| json!({"model": "openai/m", "setting": setting, "here": here, "published": published});
    assert!(!equal);
    assert_eq!(
        found["differences"],
        json!([
            difference("prices.input_per_million", "250", "240"),
            difference("prices.cache_write_per_million", "250", "300"),
            difference(
                "prices.tiers.above_input_tokens=200000.output_per_million",
                "1000",
                "1500"
            ),
            difference(
                "prices.tiers.above_input_tokens=500000.input_per_million",
                "none",
                "500"
            ),
            difference(
                "prices.tiers.above_input_tokens=500000.output_per_million",
                "none",
                "2000"
            ),
            difference("limits.max_input_tokens", "1000", "2000"),
        ])
    );
    // Another vendor's model of the same name is another model.
    write(json!({"m": {"litellm_provider": "azure", "input_cost_per_token": 1.0}}));
    let (equal, _, message) = check().await;
    assert!(
        !equal && message.contains("lists none of the configured text models"),
        "{message}"
    );
    write(json!([]));
    let (equal, _, message) = check().await;
    assert!(
        !equal && message.contains("is not a price list of LiteLLM"),
        "{message}"
    );
    for file in [file, list] {
        std::fs::remove_file(file).unwrap();
    }
}
