//! `data/postgres` holds one private Postgres: `cluster/` (its data directory), `run/` (its
//! socket), and `new-*/` while a cluster is created. `data/postgres.log` is its log.
//!
//! If root runs gensvc and the user of Postgres cannot enter the data directory, `data/postgres` is
//! a link to a folder in `/var/lib/gensvc`.

use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File, Permissions},
    io::ErrorKind,
    os::unix::{
        ffi::OsStringExt,
        fs::{DirBuilderExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf, absolute},
};

use uuid::Uuid;

use super::{
    account::Account,
    error::{At, LocalPostgresError, Result},
    locks,
};

const OUTSIDE: &str = "/var/lib/gensvc";
/// A file in such a folder with the path of its data directory.
const ORIGINAL: &str = "data-folder";

/// Whether a database exists under `data` or is being created. Another program's `data/postgres`
/// does not count.
pub(super) fn exists(data: &Path) -> bool {
    let home = data.join("postgres");
    data.join(locks::START).exists() || home.is_symlink() || home.join("cluster").exists()
}

/// Returns the absolute path of a data directory without links, even if it does not exist.
pub(super) fn resolve(data: &Path) -> Result<PathBuf> {
    match fs::canonicalize(data) {
        Err(e) if e.kind() == ErrorKind::NotFound => absolute(data).at("find", data),
        found => found.at("find", data),
    }
}

pub(super) fn log(data: &Path) -> PathBuf {
    data.join("postgres.log")
}

/// Returns the folder of the database, if there is one. Fails for a link to a missing folder, whose
/// disk may not be mounted, and for a link in a copied data directory, whose locks would not
/// protect the original.
pub(super) fn find(data: &Path) -> Result<Option<PathBuf>> {
    let link = data.join("postgres");
    if !link.is_symlink() {
        return Ok(link.exists().then_some(link));
    }
    let home = fs::canonicalize(&link).at("follow the link", &link)?;
    let Ok(original) = fs::read(home.join(ORIGINAL)) else {
        return Ok(Some(home));
    };
    let original = PathBuf::from(OsString::from_vec(original));
    if original != data {
        let is_elsewhere = fs::canonicalize(&original).is_ok_and(|of| of != data);
        if is_elsewhere && fs::canonicalize(original.join("postgres")).is_ok_and(|of| of == home) {
            return Err(LocalPostgresError::Copied { link, original });
        }
        // The data directory was moved. Record its new path, so that a copy is detected.
        let note = home.join(ORIGINAL);
        fs::write(&note, data.as_os_str().as_encoded_bytes()).at("write", &note)?;
    }
    Ok(Some(home))
}

/// Fails if a folder has entries that do not belong to a private Postgres.
pub(super) fn check_is_ours(home: &Path) -> Result<()> {
    // Earlier versions created the last two.
    let known = ["cluster", "run", ORIGINAL, "pg_hba.conf", "pg_ident.conf"];
    for entry in fs::read_dir(home).at("read", home)? {
        let path = entry.at("read", home)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !known.contains(&&*name) && !name.starts_with("new-") {
            return Err(LocalPostgresError::NotOurs { path });
        }
    }
    Ok(())
}

/// Creates the folder for a new database, and returns its path.
pub(super) async fn create(data: &Path, account: &Account) -> Result<PathBuf> {
    let link = data.join("postgres");
    let home = match find(data)? {
        Some(home) => check_is_ours(&home).map(|()| home)?,
        None => {
            create_folder(&link, account)?;
            link.clone()
        }
    };
    if account.can_enter(&home).await? {
        return Ok(home);
    }
    let outside = Path::new(OUTSIDE).join(Uuid::now_v7().to_string());
    create_folder(Path::new(OUTSIDE), account)?;
    create_folder(&outside, account)?;
    let original = outside.join(ORIGINAL);
    fs::write(&original, data.as_os_str().as_encoded_bytes()).at("write", &original)?;
    if link.is_symlink() {
        fs::remove_file(&link).at("delete", &link)?;
    } else {
        fs::remove_dir(&link).at("delete", &link)?;
    }
    symlink(&outside, &link).at("create", &link)?;
    sync_folder(Path::new(OUTSIDE))?;
    tracing::info!(
        folder = %outside.display(),
        link = %link.display(),
        "user {} cannot enter the data directory, so the database is elsewhere, behind a link",
        account.name,
    );
    Ok(outside)
}

/// Creates a folder that another user may enter but not change; without another user it is private.
fn create_folder(folder: &Path, account: &Account) -> Result<()> {
    let mode = if account.is_other() { 0o755 } else { 0o700 };
    DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(folder)
        .at("create", folder)?;
    fs::set_permissions(folder, Permissions::from_mode(mode)).at("change the mode of", folder)
}

/// Makes a rename or a new link durable.
pub(super) fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .at("write", folder)
}
