//! What can go wrong with the private Postgres, each as one sentence that says
//! what to mend. Nothing here decides; callers print these as they are.

use std::{io, path::Path, path::PathBuf};

/// Why the private Postgres could not be made, started, joined or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocalPostgresError {
    /// A command was started where no server has been.
    #[error(
        "there is no database in {}, and DATABASE_URL is not set: set DATABASE_URL, or \
         GENSVC_DATA_DIR to the data folder of the server (`gensvc serve` makes a new one)",
        data.display()
    )]
    None { data: PathBuf },
    /// No usable server programs anywhere on the machine.
    #[error(
        "DATABASE_URL is not set, and no Postgres {oldest} or newer is on this machine for a \
         private database: set DATABASE_URL, or install it (`apt-get install postgresql`)"
    )]
    NoPrograms {
        /// The oldest major version that would do.
        oldest: u32,
    },
    /// A cluster of one major version needs the programs of that version.
    #[error(
        "the database in {} was made by Postgres {wanted}, whose programs are not on this \
         machine: install them (`apt-get install postgresql-{wanted}`)", cluster.display()
    )]
    MissingVersion {
        /// The major version that made the files.
        wanted: u32,
        /// Where the files lie.
        cluster: PathBuf,
    },
    /// Another process holds the server lock of this data directory.
    #[error(
        "another gensvc server already uses {} ({holder}): use that one, or stop it first",
        data.display()
    )]
    ServerRunning {
        data: PathBuf,
        /// `pid N, URL`, as the holder wrote them.
        holder: String,
    },
    /// Somebody uses the database that was asked to stop.
    #[error("{user} still uses the database in {}: stop that first", data.display())]
    InUse {
        data: PathBuf,
        /// Who, as far as it is known.
        user: String,
    },
    /// Somebody has been starting or stopping it for too long.
    #[error(
        "another gensvc has held {} for {seconds} s while it starts or stops the database: \
         end that process or try again", path.display()
    )]
    Busy {
        path: PathBuf,
        /// For how long we waited.
        seconds: u64,
    },
    /// We are root, Postgres refuses to be root, and there is nobody else to be.
    #[error(
        "Postgres refuses to run as root and /etc/passwd has neither `postgres` nor `nobody`: \
         make such a user (`useradd --system postgres`) or run gensvc as another user"
    )]
    NoAccount,
    /// The files belong to another user, and we are not root.
    #[error(
        "the database in {} belongs to user {owner}: run gensvc as that user, or as root",
        cluster.display()
    )]
    ForeignOwner {
        /// Name or number of the owner.
        owner: String,
        /// Where the files lie.
        cluster: PathBuf,
    },
    /// `data/postgres` is a link to a folder that is not there.
    #[error(
        "{} points to {}, which is gone: bring it back, or remove the link to begin with an \
         empty database", link.display(), target.display()
    )]
    BrokenLink {
        /// The link in the data directory.
        link: PathBuf,
        target: PathBuf,
    },
    /// The files vanished while the database was in use.
    #[error("the database files in {} are incomplete or gone: restore them", cluster.display())]
    Gone {
        /// Where the files were.
        cluster: PathBuf,
    },
    /// A copied data directory whose link leads to the database of the original.
    #[error(
        "{} points to the database of {}: use that directory, or remove the link to begin with \
         an empty database", link.display(), other.display()
    )]
    Borrowed {
        /// The link in the data directory.
        link: PathBuf,
        /// The data directory that the database belongs to.
        other: PathBuf,
    },
    /// The data directory was deleted or moved, and its database elsewhere was not used since.
    #[error(
        "{data} was deleted or moved, and its database is still in {dir}: if {data} was deleted, \
         use the database again with `ln -s {dir} {data}/postgres`; if it was moved, run any \
         command with GENSVC_DATA_DIR set to where it is now, then this again; to delete the \
         database in both cases, `GENSVC_DATA_DIR={data} gensvc database remove`",
        data = data.display(), dir = dir.display()
    )]
    LeftBehind { data: PathBuf, dir: PathBuf },
    /// As above, and its server runs.
    #[error(
        "the database in {} runs, and its data folder was deleted or moved: stop the gensvc that \
         uses it, or `kill {pid}` if there is none", dir.display()
    )]
    StillRuns { dir: PathBuf, pid: i32 },
    /// `data/postgres` is somebody else's folder.
    #[error(
        "{} is not gensvc's, which keeps its private Postgres in that folder: move it away, or \
         set GENSVC_DATA_DIR to another data folder", path.display()
    )]
    NotOurs {
        /// What is in it.
        path: PathBuf,
    },
    /// Root without the right to become another user, as in some containers.
    #[error(
        "root may not run Postgres as user {account} here: run gensvc as another user than root, \
         or set DATABASE_URL"
    )]
    NoSwitch {
        /// The user it tried to become.
        account: String,
    },
    /// A program could not be run at all, or ended badly.
    #[error("{program} failed as user {account}: {reason}")]
    Program {
        program: String,
        /// The user it ran as.
        account: String,
        /// The system's or the program's own words.
        reason: String,
    },
    /// The server ended while starting.
    #[error("Postgres does not start, its log {} says: {tail}", log.display())]
    StartFailed {
        log: PathBuf,
        /// The end of it.
        tail: String,
    },
    /// The server lives but does not become ready.
    #[error(
        "Postgres in {} is not ready after {seconds} s, perhaps it still recovers from a crash: \
         read {} and try again", cluster.display(), log.display()
    )]
    Slow {
        /// Where the files lie.
        cluster: PathBuf,
        log: PathBuf,
        /// For how long we waited.
        seconds: u64,
    },
    /// It answers on the socket, but its process cannot be seen from here.
    #[error(
        "Postgres in {} runs where this process cannot see it (another container?): stop it there",
        cluster.display()
    )]
    Elsewhere {
        /// Where the files lie.
        cluster: PathBuf,
    },
    /// A file or folder could not be read, made or changed.
    #[error("cannot {action} {}: {source}{}", path.display(), advice(source))]
    File {
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        source: io::Error,
    },
}

/// The usual cure of the usual failure; the others say enough themselves.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => ", so run gensvc as the user who owns it, or as root",
        _ => "",
    }
}

/// Shorthand of this folder.
pub(super) type Result<T> = std::result::Result<T, LocalPostgresError>;

/// Turns an io error into a sentence with the file's name, which std leaves out.
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
