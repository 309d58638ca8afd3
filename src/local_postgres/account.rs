//! Which user Postgres runs as. Postgres refuses to be root, so root becomes `postgres` (else
//! `nobody`) for every program started here; anyone else stays who they are.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::{MetadataExt, PermissionsExt, lchown},
    path::Path,
    process::Stdio,
};

use nix::unistd::{Gid, Uid, User, geteuid};
use tokio::process::Command;

use super::error::{At, LocalPostgresError, Result};

/// A user that programs run as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) name: String,
    pub(super) uid: Uid,
    gid: Gid,
    /// Whether we have to change into it, which only root can.
    switch: bool,
}

impl Account {
    /// The user for a new cluster.
    pub(super) fn for_new() -> Result<Self> {
        let uid = geteuid();
        if !uid.is_root() {
            return Ok(Self::of(uid, Gid::from_raw(0), false));
        }
        ["postgres", "nobody"]
            .iter()
            .find_map(|name| User::from_name(name).ok().flatten())
            .filter(|user| !user.uid.is_root())
            .map(|user| Self {
                name: user.name,
                uid: user.uid,
                gid: user.gid,
                switch: true,
            })
            .ok_or(LocalPostgresError::NoAccount)
    }

    /// The user for an existing cluster: its owner, because Postgres insists on that. Files
    /// that belong to root (a restored copy) are given away first.
    pub(super) fn for_existing(cluster: &Path) -> Result<Self> {
        let uid = geteuid();
        let meta = fs::metadata(cluster).at("look at", cluster)?;
        let owner = Uid::from_raw(meta.uid());
        if uid.is_root() && owner.is_root() {
            let account = Self::for_new()?;
            account.own_all(cluster)?;
            // Postgres refuses a folder that others may enter.
            fs::set_permissions(cluster, Permissions::from_mode(0o700)).at("close", cluster)?;
            return Ok(account);
        }
        let account = Self::of(owner, Gid::from_raw(meta.gid()), uid.is_root());
        if uid.is_root() || uid == owner {
            return Ok(account);
        }
        Err(LocalPostgresError::ForeignOwner {
            owner: account.name,
            cluster: cluster.to_owned(),
        })
    }

    fn of(uid: Uid, gid: Gid, switch: bool) -> Self {
        let user = User::from_uid(uid).ok().flatten();
        Self {
            name: user.map_or_else(|| uid.to_string(), |user| user.name),
            uid,
            gid,
            switch,
        }
    }

    /// Whether root lends its programs to another user.
    pub(super) fn is_other(&self) -> bool {
        self.switch
    }

    /// Whether it is the system user that root makes its own clusters for.
    pub(super) fn is_lent(&self) -> bool {
        self.switch && Self::for_new().is_ok_and(|lent| lent.uid == self.uid)
    }

    /// A command that runs as this user: in its own process group, so that a Ctrl-C in the
    /// terminal does not reach it, in a folder it may enter, and with messages in English,
    /// because a log's tail is shown to people.
    /// std drops root's supplementary groups along with the uid.
    pub(super) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .current_dir("/")
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .process_group(0);
        if self.switch {
            command.uid(self.uid.as_raw()).gid(self.gid.as_raw());
        }
        command
    }

    /// Whether this user may enter `folder`. Tried rather than computed from mode bits, which
    /// say nothing of access lists or security modules.
    pub(super) async fn can_enter(&self, folder: &Path) -> Result<bool> {
        if !self.switch {
            return Ok(true);
        }
        let mut shell = self.command("/bin/sh");
        shell.args(["-c", "cd \"$0\" 2>/dev/null"]).arg(folder);
        let status = shell.status().await;
        Ok(status.map_err(|e| self.not_run("/bin/sh", &e))?.success())
    }

    /// Gives one file or folder to this user.
    pub(super) fn own(&self, path: &Path) -> Result<()> {
        if self.switch {
            let (uid, gid) = (self.uid.as_raw(), self.gid.as_raw());
            lchown(path, Some(uid), Some(gid)).at("change the owner of", path)?;
        }
        Ok(())
    }

    /// Gives a whole tree to this user, following no link.
    fn own_all(&self, path: &Path) -> Result<()> {
        if fs::symlink_metadata(path).at("look at", path)?.is_dir() {
            for entry in fs::read_dir(path).at("read", path)? {
                self.own_all(&entry.at("read", path)?.path())?;
            }
        }
        // The folder last: its owner is what tells a finished tree.
        self.own(path)
    }

    /// The error of a program that could not be run as this user.
    pub(super) fn not_run(&self, program: &str, source: &io::Error) -> LocalPostgresError {
        // EPERM is the refused change of user; a program out of reach is EACCES.
        if self.switch && source.raw_os_error() == Some(1) {
            return LocalPostgresError::NoSwitch {
                account: self.name.clone(),
            };
        }
        self.failed(program, &source.to_string())
    }

    /// The error of a program that ran as this user.
    pub(super) fn failed(&self, program: &str, reason: &str) -> LocalPostgresError {
        LocalPostgresError::Program {
            program: program.to_owned(),
            account: self.name.clone(),
            reason: reason.to_owned(),
        }
    }
}
