//! Makes a cluster by `initdb`: in a folder aside, renamed into place when complete, so that
//! `cluster/` is either whole or absent however the making ends.

use std::{
    fs::{self, DirBuilder, File},
    io::Write as _,
    os::unix::fs::DirBuilderExt,
    path::Path,
    process::{Output, Stdio},
};

use tokio::{io::AsyncWriteExt as _, process::Command};
use uuid::Uuid;

use super::{
    error::{At, Result},
    home::{Home, sync_folder},
    log,
    programs::Programs,
};

/// Behind Postgres' own defaults, where people may change it. What must hold in any case is
/// given on the command line instead.
const SETTINGS: &str = "
# gensvc: the private Postgres. Change what you like; it is written once.
max_connections = 200
shared_buffers = 128MB
timezone = 'UTC'
# Refused statements reach gensvc, which logs them; here they would put
# customers' data into a second log.
log_min_messages = log
log_checkpoints = off
";

/// Makes the cluster of `home` and the database `gensvc` in it.
pub(super) async fn create(home: &Home, programs: &Programs) -> Result<()> {
    remove_leftovers(&home.dir)?;
    tracing::info!("making a private Postgres, which takes some seconds");
    let aside = home.dir.join(format!("new-{}", Uuid::now_v7()));
    DirBuilder::new()
        .mode(0o700)
        .create(&aside)
        .at("make", &aside)?;
    home.account.own(&aside)?;
    fill(home, programs, &aside).await.inspect_err(|_| {
        // The error of the making is the one to tell; leftovers go next time.
        let _ = fs::remove_dir_all(&aside);
    })?;
    fs::rename(&aside, home.cluster()).at("rename", &aside)?;
    sync_folder(&home.dir)?;
    sync_folder(&home.data)?;
    tracing::info!(
        version = programs.major,
        cluster = %home.cluster().display(),
        "made a private Postgres",
    );
    Ok(())
}

async fn fill(home: &Home, programs: &Programs, aside: &Path) -> Result<()> {
    let mut initdb = home.account.command(programs.bin.join("initdb"));
    initdb.arg("-D").arg(aside).args([
        "--username=gensvc",
        "--encoding=UTF8",
        "--locale=C",
        "--data-checksums",
        // Each start says who may connect: see `access`.
        "--auth=trust",
    ]);
    run(home, "initdb", &mut initdb, "").await?;

    // Appending keeps the owner that initdb gave the file.
    let conf = aside.join("postgresql.conf");
    File::options()
        .append(true)
        .open(&conf)
        .and_then(|mut file| {
            file.write_all(SETTINGS.as_bytes())?;
            file.sync_all()
        })
        .at("write", &conf)?;

    // A server just for this one statement, without a socket; without `exit_on_error` it would
    // end well even when the statement failed.
    let mut single = home.account.command(programs.bin.join("postgres"));
    single.args(["--single", "-c", "exit_on_error=on", "-D"]);
    single.arg(aside).arg("postgres");
    let statement = "CREATE DATABASE gensvc TEMPLATE template0\n";
    run(home, "postgres --single", &mut single, statement).await
}

/// Runs a program to its end; with its last words if that was a bad one.
async fn run(home: &Home, name: &str, command: &mut Command, input: &str) -> Result<()> {
    let ended = async {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that ended before reading tells why by itself.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    match ended.await {
        Ok(Output { status, .. }) if status.success() => Ok(()),
        Ok(Output { status, stderr, .. }) => {
            let said = log::last_lines(&String::from_utf8_lossy(&stderr));
            let ended = status.to_string();
            let reason = if said.is_empty() { ended } else { said };
            Err(home.account.failed(name, &reason))
        }
        Err(source) => Err(home.account.not_run(name, &source)),
    }
}

fn remove_leftovers(home: &Path) -> Result<()> {
    for entry in fs::read_dir(home).at("read", home)? {
        let path = entry.at("read", home)?.path();
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        if name.starts_with(b"new-") {
            tracing::info!(folder = %path.display(), "removing a half-made database");
            // An initdb that outlived its gensvc may still write there; it gives up by itself,
            // and its last files go next time.
            let _ = fs::remove_dir_all(&path);
        }
    }
    Ok(())
}
