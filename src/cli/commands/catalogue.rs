//! `gensvc catalogue`.

use std::{fs, path::Path};

use serde_json::{Map, Value, json};

use super::{checked, with_app};
use crate::{
    catalogue::Comparison,
    cli::{Outcome, args::CatalogueCommand, output::Output},
    config::Config,
    domain::clock::machine_time,
};

pub(super) async fn run(config: &Config, command: CatalogueCommand, output: Output) -> Outcome {
    match command {
        CatalogueCommand::Reload => {
            with_app(config, async |app| {
                Ok(app.service.store().request_catalogue_reload().await?)
            })
            .await?;
            let text = "Reload requested. Each server on this database rereads its configuration and logs the result.";
            output.result(text, &json!({"requested": true}))
        }
        CatalogueCommand::Check { file } => check(config, &file, output),
    }
}

/// Fails if there is a difference.
fn check(config: &Config, file: &Path, output: Output) -> Outcome {
    let place = file.display();
    let text = fs::read_to_string(file).map_err(|error| format!("cannot read {place}: {error}"))?;
    let list: Map<String, Value> = serde_json::from_str(&text).map_err(|error| {
        format!("{place} is not a price list of LiteLLM, a JSON object of models: {error}")
    })?;
    let catalogue = config.full_catalogue().at(machine_time());
    let comparison = Comparison::of(&catalogue, &list);
    if comparison.compared == 0 {
        let problem = "lists none of the configured text models: use LiteLLM's \
                       model_prices_and_context_window.json";
        return Err(format!("{place} {problem}").into());
    }
    let mut lines: Vec<String> = comparison
        .differences
        .iter()
        .map(|found| {
            let (model, setting) = (&found.model, &found.setting);
            format!(
                "{model} {setting}: {} here, {} in the list",
                found.here, found.published
            )
        })
        .collect();
    if !comparison.unlisted.is_empty() {
        lines.push(format!(
            "not in the list: {}",
            comparison.unlisted.join(", ")
        ));
    }
    let (compared, differences) = (comparison.compared, comparison.differences.len());
    lines.push(format!(
        "Compared {compared} models; {differences} settings differ."
    ));
    output.result(&lines.join("\n"), &comparison)?;
    Ok(checked(differences == 0))
}
