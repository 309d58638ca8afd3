//! The system user that runs Postgres. Postgres refuses to run as root, so root starts its programs
//! as the user `postgres`, or as `nobody` if that user does not exist. Other users start them
//! directly.

use std::{
    fs,
    os::unix::fs::{MetadataExt, lchown},
    path::Path,
    process::Stdio,
};

use nix::unistd::{Gid, Uid, User, geteuid};
use tokio::process::Command;

use super::error::{At, LocalPostgresError, Result};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) name: String,
    pub(super) uid: Uid,
    /// The group to switch to together with the user. Only root switches.
    switch: Option<Gid>,
}

impl Account {
    /// Returns the user for a new cluster.
    pub(super) fn for_new() -> Result<Self> {
        let uid = geteuid();
        if !uid.is_root() {
            return Ok(Self::new(uid, None));
        }
        ["postgres", "nobody"]
            .iter()
            .find_map(|name| User::from_name(name).ok().flatten())
            .map(|user| Self::new(user.uid, Some(user.gid)))
            .ok_or(LocalPostgresError::NoAccount)
    }

    /// Returns the owner of an existing cluster, as which Postgres must run.
    pub(super) fn for_existing(cluster: &Path) -> Result<Self> {
        let uid = geteuid();
        let meta = fs::metadata(cluster).at("read", cluster)?;
        let owner = Uid::from_raw(meta.uid());
        let account = Self::new(owner, uid.is_root().then(|| Gid::from_raw(meta.gid())));
        if owner.is_root() || !(uid.is_root() || uid == owner) {
            return Err(LocalPostgresError::ForeignOwner {
                owner: account.name,
                cluster: cluster.to_owned(),
            });
        }
        Ok(account)
    }

    fn new(uid: Uid, switch: Option<Gid>) -> Self {
        let user = User::from_uid(uid).ok().flatten();
        Self {
            name: user.map_or_else(|| uid.to_string(), |user| user.name),
            uid,
            switch,
        }
    }

    /// Whether root runs Postgres as this other user.
    pub(super) fn is_other(&self) -> bool {
        self.switch.is_some()
    }

    /// Builds a command that runs as this user, in its own process group, which gets no Ctrl-C of
    /// the terminal. Its messages are in English, since errors contain them.
    pub(super) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .current_dir("/")
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .process_group(0);
        if let Some(gid) = self.switch {
            // std also drops root's supplementary groups.
            command.uid(self.uid.as_raw()).gid(gid.as_raw());
        }
        command
    }

    /// Whether this user may enter `folder`. Tried, since mode bits do not include access lists.
    pub(super) async fn can_enter(&self, folder: &Path) -> Result<bool> {
        let mut shell = self.command("/bin/sh");
        shell.args(["-c", "cd \"$0\" 2>/dev/null"]).arg(folder);
        let status = shell.status().await;
        status
            .map(|status| status.success())
            .map_err(|source| self.failed("/bin/sh", &source.to_string()))
    }

    /// Makes this user the owner of a file or folder.
    pub(super) fn own(&self, path: &Path) -> Result<()> {
        let Some(gid) = self.switch else {
            return Ok(());
        };
        lchown(path, Some(self.uid.as_raw()), Some(gid.as_raw())).at("change the owner of", path)
    }

    /// Creates the error of a program that failed, or could not be run, as this user.
    pub(super) fn failed(&self, program: &str, reason: &str) -> LocalPostgresError {
        LocalPostgresError::Program {
            program: program.to_owned(),
            account: self.name.clone(),
            reason: reason.to_owned(),
        }
    }
}
