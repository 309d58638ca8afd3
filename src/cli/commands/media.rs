//! `gensvc media`

use serde_json::json;

use super::{checked, verdict};
use crate::{
    app::{
        App,
        database::{Database, Schema},
    },
    cli::{Failure, Outcome, output::Output},
    config::Config,
    jobs::FilesAudit,
    local_postgres::Role,
};

pub(super) async fn verify(config: &Config, output: Output) -> Outcome {
    let database = Database::open(config, Role::Command, Schema::Expect).await?;
    let compared = compare(config, &database).await;
    database.close().await?;
    let audit = compared?;
    let FilesAudit {
        files,
        missing,
        damaged,
        unknown,
    } = &audit;
    let clean = missing.is_empty() && damaged.is_empty() && unknown.is_empty();
    let mut lines = vec![format!("{files} files were looked for: {}", verdict(clean))];
    let lists = [
        ("missing", missing),
        ("of the wrong size", damaged),
        ("unknown", unknown),
    ];
    for (what, names) in lists {
        for name in names {
            // A stranger's file may have any name.
            let name = name.replace(char::is_control, "\u{fffd}");
            lines.push(format!("{what}: {name}"));
        }
    }
    output.result(
        &lines.join("\n"),
        &json!({"ok": clean, "files": files, "missing": missing, "damaged": damaged,
            "unknown": unknown}),
    )?;
    Ok(checked(clean))
}

async fn compare(config: &Config, database: &Database) -> Result<FilesAudit, Failure> {
    let app = App::with_files(config, database).await?;
    Ok(app.runner.verify_files().await?)
}
