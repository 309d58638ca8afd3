//! Errors of the private Postgres. Each is one sentence that includes the fix.

use std::{
    io,
    path::{Path, PathBuf},
};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocalPostgresError {
    #[error(
        "there is no database in {}, and DATABASE_URL is not set: set DATABASE_URL, or \
         GENSVC_DATA_DIR to the data folder of the server (`gensvc serve` makes a new one)",
        data.display()
    )]
    None { data: PathBuf },
    #[error(
        "DATABASE_URL is not set, and no Postgres {oldest} or newer is on this machine for a \
         private database: set DATABASE_URL, or install it (`apt-get install postgresql`)"
    )]
    NoPrograms { oldest: u32 },
    #[error(
        "the database in {} was created by Postgres {wanted}, whose programs are not on this \
         machine: install them (`apt-get install postgresql-{wanted}`)", cluster.display()
    )]
    MissingVersion { wanted: u32, cluster: PathBuf },
    /// `holder`: `pid N, URL`.
    #[error(
        "another gensvc server already uses {} ({holder}): use that one, or stop it first",
        data.display()
    )]
    ServerRunning { data: PathBuf, holder: String },
    #[error("{user} still uses the database in {}: stop that first", data.display())]
    InUse { data: PathBuf, user: String },
    #[error(
        "another gensvc has held {} for {seconds} s while it starts or stops the database: \
         end that process or try again", path.display()
    )]
    Busy { path: PathBuf, seconds: u64 },
    #[error(
        "Postgres refuses to run as root and /etc/passwd has neither `postgres` nor `nobody`: \
         create such a user (`useradd --system postgres`) or run gensvc as another user"
    )]
    NoAccount,
    #[error(
        "the database in {cluster} belongs to user {owner}: run gensvc as that user, or as root; \
         where that user is root, run `chown -R postgres: {cluster}` first",
        cluster = cluster.display()
    )]
    ForeignOwner { owner: String, cluster: PathBuf },
    #[error(
        "{} leads to the database of {}: use that directory, or delete the link to start with an \
         empty database", link.display(), original.display()
    )]
    Copied { link: PathBuf, original: PathBuf },
    #[error(
        "{} has no complete database: restore or mount it, or delete the folder to start with an \
         empty database", cluster.display()
    )]
    Incomplete { cluster: PathBuf },
    #[error(
        "{} is not gensvc's, which keeps its private Postgres in that folder: move it away, or \
         set GENSVC_DATA_DIR to another data folder", path.display()
    )]
    NotOurs { path: PathBuf },
    #[error(
        "{program} failed as user {account}: {reason}; if it cannot run here, set DATABASE_URL or \
         run gensvc as another user"
    )]
    Program {
        program: String,
        account: String,
        reason: String,
    },
    #[error("Postgres does not start, its log {} says: {tail}", log.display())]
    StartFailed { log: PathBuf, tail: String },
    #[error(
        "Postgres in {} is not ready after {seconds} s, perhaps it still recovers from a crash: \
         read {} and try again", cluster.display(), log.display()
    )]
    Slow {
        cluster: PathBuf,
        log: PathBuf,
        seconds: u64,
    },
    #[error("cannot {action} {}: {source}{}", path.display(), advice(source))]
    File {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => ", so run gensvc as the user who owns it, or as root",
        _ => "",
    }
}

pub(super) type Result<T> = std::result::Result<T, LocalPostgresError>;

/// Adds the path to an I/O error.
pub(super) trait At<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| LocalPostgresError::File {
            action,
            path: path.to_owned(),
            source,
        })
    }
}
