//! `gensvc media`

use serde_json::json;

use super::{checked, verdict, with_database};
use crate::{
    app::App,
    cli::{Outcome, output::Output},
    config::Config,
    jobs::FilesAudit,
};

pub(super) async fn verify(config: &Config, output: Output) -> Outcome {
    let FilesAudit {
        files,
        missing,
        damaged,
        unknown,
    } = with_database(config, async |database| {
        let app = App::with_files(config, database).await?;
        Ok(app.runner.verify_files().await?)
    })
    .await?;
    let clean = missing.is_empty() && damaged.is_empty() && unknown.is_empty();
    let mut lines = vec![format!("{files} files were looked for: {}", verdict(clean))];
    let lists = [
        ("missing", &missing),
        ("of the wrong size", &damaged),
        ("unknown", &unknown),
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
