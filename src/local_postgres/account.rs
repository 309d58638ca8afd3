//! Which user Postgres runs as. Postgres refuses to be root, so root becomes
//! `postgres` (else `nobody`) for every program started here; anyone else stays
//! who they are. `/etc/passwd` is parsed by hand: the libc calls for it would be
//! unsafe code.

use std::{
    ffi::OsStr,
    fs::{self, Permissions},
    io,
    os::unix::fs::{MetadataExt, PermissionsExt, lchown},
    path::Path,
    process::Stdio,
};

use tokio::process::Command;

use super::error::{At, LocalPostgresError, Result};

/// A user that programs run as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) name: String,
    pub(super) uid: u32,
    gid: u32,
    /// Whether we have to change into it, which only root can.
    switch: bool,
}

impl Account {
    /// The user for a new cluster.
    pub(super) async fn for_new() -> Result<Self> {
        let uid = effective_uid().await;
        let passwd = passwd();
        if uid != 0 {
            return Ok(Self::myself(uid, &passwd));
        }
        ["postgres", "nobody"]
            .iter()
            .find_map(|name| by_name(&passwd, name))
            .ok_or(LocalPostgresError::NoAccount)
    }

    /// The user for an existing cluster: its owner, because Postgres insists on
    /// that. Files that belong to root (a restored copy) are given away first.
    pub(super) async fn for_existing(cluster: &Path) -> Result<Self> {
        let uid = effective_uid().await;
        let meta = fs::metadata(cluster).at("look at", cluster)?;
        let owner = meta.uid();
        let passwd = passwd();
        if uid == 0 && owner == 0 {
            let account = Self::for_new().await?;
            account.own_all(cluster)?;
            // Postgres refuses a folder that others may enter.
            fs::set_permissions(cluster, Permissions::from_mode(0o700)).at("close", cluster)?;
            return Ok(account);
        }
        let name = name_of(&passwd, owner);
        if uid == 0 {
            return Ok(Self {
                name,
                uid: owner,
                gid: meta.gid(),
                switch: true,
            });
        }
        if uid == owner {
            return Ok(Self::myself(uid, &passwd));
        }
        Err(LocalPostgresError::ForeignOwner {
            owner: name,
            cluster: cluster.to_owned(),
        })
    }

    fn myself(uid: u32, passwd: &str) -> Self {
        Self {
            name: name_of(passwd, uid),
            uid,
            gid: 0,
            switch: false,
        }
    }

    /// Whether root lends its programs to another user.
    pub(super) fn is_other(&self) -> bool {
        self.switch
    }

    /// A command that runs as this user: in its own process group, so that a
    /// Ctrl-C in the terminal does not reach it, in a folder it may enter, and
    /// with messages in English, because a log's tail is shown to people.
    /// std drops root's supplementary groups along with the uid.
    pub(super) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .current_dir("/")
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .process_group(0);
        if self.switch {
            command.uid(self.uid).gid(self.gid);
        }
        command
    }

    /// Runs a shell line as this user; `args` become `$0`, `$1`, and so on.
    /// Returns whether it succeeded, and what it printed.
    pub(super) async fn shell(&self, line: &str, args: &[&OsStr]) -> Result<(bool, String)> {
        let output = self
            .command("/bin/sh")
            .arg("-c")
            .arg(line)
            .args(args)
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|source| self.not_run("/bin/sh", &source))?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok((output.status.success(), printed))
    }

    /// Whether this user may enter `folder`. Tried rather than computed from mode
    /// bits, which say nothing of access lists or security modules.
    pub(super) async fn can_enter(&self, folder: &Path) -> Result<bool> {
        if !self.switch {
            return Ok(true);
        }
        Ok(self
            .shell("cd \"$0\" 2>/dev/null", &[folder.as_os_str()])
            .await?
            .0)
    }

    /// Gives one file or folder to this user.
    pub(super) fn own(&self, path: &Path) -> Result<()> {
        if self.switch {
            lchown(path, Some(self.uid), Some(self.gid)).at("change the owner of", path)?;
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

/// Who we are. `/proc/self` itself is not asked for its owner: that is root for
/// a program with file capabilities.
async fn effective_uid() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if let Some(uid) = uid_in_status(&status) {
        return uid;
    }
    // No /proc (macOS). An answer that cannot be read counts as "not root".
    let output = Command::new("id").arg("-u").output().await;
    output
        .ok()
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .and_then(|uid| uid.trim().parse().ok())
        .unwrap_or(u32::MAX)
}

fn uid_in_status(status: &str) -> Option<u32> {
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_whitespace().nth(1)?.parse().ok()
}

fn passwd() -> String {
    fs::read_to_string("/etc/passwd").unwrap_or_default()
}

fn by_name(passwd: &str, name: &str) -> Option<Account> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        (uid != 0).then(|| Account {
            name: name.to_owned(),
            uid,
            gid,
            switch: true,
        })
    })
}

fn name_of(passwd: &str, uid: u32) -> String {
    let number = uid.to_string();
    passwd
        .lines()
        .find(|line| line.split(':').nth(2) == Some(&number))
        .and_then(|line| line.split(':').next())
        .map_or(number.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::{by_name, name_of, uid_in_status};

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\n\
        # a comment\n\
        broken:x:abc\n\
        postgres2:x:7:7::/:/bin/sh\n\
        postgres:x:101:104:PostgreSQL administrator,,,:/var/lib/postgresql:/bin/bash\n\
        toor:x:0:0::/:/bin/sh\n";

    #[test]
    fn finds_a_user_by_its_whole_name() {
        let account = by_name(PASSWD, "postgres");
        assert_eq!(account.map(|a| (a.uid, a.gid)), Some((101, 104)));
        assert_eq!(by_name(PASSWD, "nobody"), None);
        assert_eq!(by_name(PASSWD, "broken"), None);
    }

    #[test]
    fn never_takes_a_second_root() {
        assert_eq!(by_name(PASSWD, "toor"), None);
    }

    #[test]
    fn names_an_unknown_owner_by_number() {
        assert_eq!(name_of(PASSWD, 101), "postgres");
        assert_eq!(name_of(PASSWD, 1234), "1234");
    }

    #[test]
    fn reads_the_effective_id() {
        let status = "Name:\tx\nUid:\t1000\t0\t1000\t1000\nGid:\t1\t1\t1\t1\n";
        assert_eq!(uid_in_status(status), Some(0));
        assert_eq!(uid_in_status("Name:\tx\n"), None);
    }
}
