//! `gensvc catalogue`.

use std::process::ExitCode;

use serde_json::json;

use super::with_app;
use crate::{
    cli::{Failure, args::CatalogueCommand, output::Output},
    config::Config,
};

pub(in crate::cli) async fn run(
    config: &Config,
    command: CatalogueCommand,
    output: Output,
) -> Result<ExitCode, Failure> {
    match command {
        CatalogueCommand::Reload => {
            with_app(config, async |app| {
                Ok(app.service.store().notify_catalogue().await?)
            })
            .await?;
            let text = "Every server of the database reads its configuration again and logs the \
                        outcome.";
            output.result(text, &json!({"requested": true}))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
