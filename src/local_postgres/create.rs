//! Creates a cluster with `initdb`, in a folder that is renamed when it is complete, so that
//! `cluster/` is complete even after a `kill -9`.

use std::{
    fs::{self, DirBuilder, File},
    io::Write as _,
    os::unix::fs::DirBuilderExt,
    path::Path,
    process::Stdio,
};

use tokio::{io::AsyncWriteExt as _, process::Command};
use uuid::Uuid;

use super::{
    account::Account,
    cluster::Cluster,
    error::{At, LocalPostgresError, Result},
    home, log,
    programs::{self, Programs},
};

/// Defaults that the operator may change. Required settings are options of each start.
const SETTINGS: &str = "
# gensvc: the private Postgres. These settings are written once; you may change them.
max_connections = 200
shared_buffers = 128MB
timezone = 'UTC'
# gensvc logs refused statements. Here they would put customers' data into a second log.
log_min_messages = log
log_checkpoints = off
";

/// Creates the folders of `data`, a cluster, and the database `gensvc` in it. Creates nothing if
/// Postgres' programs are missing.
pub(super) async fn create(data: &Path) -> Result<Cluster> {
    let programs = programs::newest().await?;
    let account = Account::for_new()?;
    let home = home::create(data, &account).await?;
    remove_leftovers(&home)?;
    let cluster = home.join("cluster");
    // The disk may not be mounted, or a restore may be incomplete.
    if cluster.exists() {
        return Err(LocalPostgresError::Incomplete { cluster });
    }
    tracing::info!("creating a private Postgres, which takes some seconds");
    let aside = home.join(format!("new-{}", Uuid::now_v7()));
    DirBuilder::new()
        .mode(0o700)
        .create(&aside)
        .at("create", &aside)?;
    account.own(&aside)?;
    fill(&account, &programs, &aside)
        .await
        .inspect_err(|_| drop(fs::remove_dir_all(&aside)))?;
    fs::rename(&aside, &cluster).at("rename", &aside)?;
    home::sync_folder(&home)?;
    home::sync_folder(data)?;
    let (version, cluster) = (programs.major, cluster.display());
    tracing::info!(version, %cluster, "created a private Postgres");
    Ok(Cluster::new(data, &home, account))
}

async fn fill(account: &Account, programs: &Programs, aside: &Path) -> Result<()> {
    let mut initdb = account.command(programs.bin.join("initdb"));
    initdb.arg("-D").arg(aside).args([
        "--username=gensvc",
        "--encoding=UTF8",
        "--locale=C",
        "--data-checksums",
        // Each start writes pg_hba.conf.
        "--auth=trust",
    ]);
    run(account, "initdb", &mut initdb, "").await?;

    // Appending keeps the owner of the file.
    let conf = aside.join("postgresql.conf");
    File::options()
        .append(true)
        .open(&conf)
        .and_then(|mut file| {
            file.write_all(SETTINGS.as_bytes())?;
            file.sync_all()
        })
        .at("write", &conf)?;

    // Without `exit_on_error` it would report success after a failed statement.
    let mut single = account.command(programs.bin.join("postgres"));
    single.args(["--single", "-c", "exit_on_error=on", "-D"]);
    single.arg(aside).arg("postgres");
    let statement = "CREATE DATABASE gensvc TEMPLATE template0\n";
    run(account, "postgres --single", &mut single, statement).await
}

/// Runs a program until it ends. The error has the last lines of its output.
async fn run(account: &Account, name: &str, command: &mut Command, input: &str) -> Result<()> {
    let ended = async {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that ended before reading reports the reason itself.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    let output = ended
        .await
        .map_err(|source| account.failed(name, &source.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let output_end = log::last_lines(&String::from_utf8_lossy(&output.stderr));
    let reason = format!("{}: {output_end}", output.status);
    Err(account.failed(name, &reason))
}

fn remove_leftovers(home: &Path) -> Result<()> {
    for entry in fs::read_dir(home).at("read", home)? {
        let path = entry.at("read", home)?.path();
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        if name.starts_with(b"new-") {
            // An outlived initdb may still write there. The next creation removes the rest.
            let _ = fs::remove_dir_all(&path);
        }
    }
    Ok(())
}
