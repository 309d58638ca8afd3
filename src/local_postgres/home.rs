//! The folders of one private Postgres.
//!
//! `data/postgres` is its home: `cluster/` (what Postgres calls its data
//! directory), `run/` (the socket), who may connect, and while one is made `new-…/`. Root's home
//! for another user may be a link to `/var/lib/gensvc/<id>`, because that user
//! cannot enter, say, `/root`. Its log is `data/postgres.log`: opened by us and
//! handed down, so it may lie where Postgres' user cannot go.

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
    access,
    account::Account,
    error::{At, LocalPostgresError, Result},
};

/// Where root puts clusters whose data directory Postgres' user cannot reach.
const OUTSIDE: &str = "/var/lib/gensvc";
/// In such a home: which data directory it serves.
const SERVES: &str = "data-folder";

/// The folders, and the user who owns the files.
#[derive(Debug, Clone)]
pub(super) struct Home {
    pub(super) data: PathBuf,
    pub(super) dir: PathBuf,
    pub(super) account: Account,
}

impl Home {
    /// The home of `data`, if a cluster is in it.
    pub(super) fn existing(data: &Path) -> Result<Option<Self>> {
        let Some(dir) = locate(data)? else {
            return Ok(None);
        };
        let home = Self::at(data, &dir)?;
        if home.is_some() {
            claim(data, &dir)?;
        }
        Ok(home)
    }

    /// The home in a folder, if a cluster is in it.
    pub(super) fn at(data: &Path, dir: &Path) -> Result<Option<Self>> {
        let cluster = dir.join("cluster");
        if version(&cluster)?.is_none() {
            return Ok(None);
        }
        Ok(Some(Self {
            data: data.to_owned(),
            dir: dir.to_owned(),
            account: Account::for_existing(&cluster)?,
        }))
    }

    /// An empty home for `data`, reachable by the user Postgres will run as.
    pub(super) async fn new(data: &Path) -> Result<Self> {
        let account = Account::for_new()?;
        let link = data.join("postgres");
        let dir = match locate(data)? {
            Some(dir) => contents(&dir).map(|_| dir)?,
            None => {
                make(&link, &account)?;
                link.clone()
            }
        };
        // Not quietly replaced by an empty database: perhaps a restore was cut off.
        let cluster = dir.join("cluster");
        if cluster.exists() {
            return Err(LocalPostgresError::Gone { cluster });
        }
        let left_behind = left_behind(data);
        let dir = if account.can_enter(&dir).await? || let_pass(data, &dir, &account).await? {
            for dir in left_behind
                .iter()
                .filter(|dir| dir.join("cluster").exists())
            {
                tracing::warn!(
                    data = %data.display(),
                    "the database of an earlier data directory of this name is still in {}, and \
                     is not used: delete it if nobody needs it",
                    dir.display(),
                );
            }
            dir
        } else {
            if dir == link {
                fs::remove_dir_all(&dir).at("remove", &dir)?;
            } else {
                fs::remove_file(&link).at("remove", &link)?;
            }
            outside(data, &link, &account, left_behind)?
        };
        Ok(Self {
            data: data.to_owned(),
            dir,
            account,
        })
    }

    /// Postgres' own data directory.
    pub(super) fn cluster(&self) -> PathBuf {
        self.dir.join("cluster")
    }

    /// Postgres' own note of which process runs it.
    pub(super) fn pid_file(&self) -> PathBuf {
        self.dir.join("cluster/postmaster.pid")
    }

    pub(super) fn log(&self) -> PathBuf {
        log(&self.data)
    }

    /// The version that made the cluster; it is an error if there is none.
    pub(super) fn version(&self) -> Result<u32> {
        let cluster = self.cluster();
        version(&cluster)?.ok_or(LocalPostgresError::Gone { cluster })
    }
}

/// The path of a data directory without links, also of one that is gone.
pub(super) fn resolved(data: &Path) -> Result<PathBuf> {
    match fs::canonicalize(data) {
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        found => return found.at("find", data),
    }
    let path = absolute(data).at("find", data)?;
    Ok(
        match (path.parent().map(fs::canonicalize), path.file_name()) {
            (Some(Ok(parent)), Some(name)) => parent.join(name),
            _ => path,
        },
    )
}

/// Postgres' log.
pub(super) fn log(data: &Path) -> PathBuf {
    data.join("postgres.log")
}

/// Whether a database was made behind `data/postgres`, which may be a folder of somebody else.
pub(super) fn is_made(data: &Path) -> bool {
    match locate(data) {
        Ok(dir) => dir.is_some_and(|dir| dir.join("cluster").exists()),
        Err(_) => true,
    }
}

/// The homes of a data directory, whatever is in them: the one that it leads to, else those
/// outside that served a directory of this name, which was deleted or moved without them.
pub(super) fn all(data: &Path) -> Result<Vec<PathBuf>> {
    match locate(data) {
        Ok(Some(dir)) => claim(data, &dir).map(|()| vec![dir]),
        Err(LocalPostgresError::BrokenLink { target, .. }) if target.starts_with(OUTSIDE) => {
            Ok(left_behind(data))
        }
        found => found.map(|_| left_behind(data)),
    }
}

/// What is in a home. An error if any of it is not ours.
pub(super) fn contents(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).at("read", dir)? {
        let path = entry.at("read", dir)?.path();
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let ours = ["cluster", "run", SERVES]
            .iter()
            .chain(&access::FILES)
            .any(|n| n.as_bytes() == name);
        if !ours && !name.starts_with(b"new-") {
            return Err(LocalPostgresError::NotOurs { path });
        }
        paths.push(path);
    }
    Ok(paths)
}

/// Deletes a home and what is ours in it, which is all.
pub(super) fn delete(dir: &Path) -> Result<()> {
    let mut paths = contents(dir)?;
    // Last what it is found by, should this be cut off.
    paths.sort_by_key(|path| path.ends_with(SERVES));
    for path in paths {
        if path.is_dir() {
            fs::remove_dir_all(&path).at("remove", &path)?;
        } else {
            fs::remove_file(&path).at("remove", &path)?;
        }
    }
    fs::remove_dir(dir).at("remove", dir)
}

/// Homes outside that served a data directory of this name.
fn left_behind(data: &Path) -> Vec<PathBuf> {
    let serves = |dir: &PathBuf| {
        fs::read(dir.join(SERVES)).is_ok_and(|noted| noted == data.as_os_str().as_encoded_bytes())
    };
    let homes = fs::read_dir(OUTSIDE).into_iter().flatten().flatten();
    homes.map(|home| home.path()).filter(serves).collect()
}

/// Makes what is renamed or linked survive a power cut.
pub(super) fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .at("write", folder)
}

fn version(cluster: &Path) -> Result<Option<u32>> {
    let path = cluster.join("PG_VERSION");
    match fs::read_to_string(&path) {
        Ok(text) => Ok(text.trim().parse().ok()),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e).at("read", &path),
    }
}

/// The real folder behind `data/postgres`, if there is one.
fn locate(data: &Path) -> Result<Option<PathBuf>> {
    let link = data.join("postgres");
    match fs::symlink_metadata(&link) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e).at("look at", &link),
        Ok(meta) if !meta.is_symlink() => return Ok(Some(link)),
        Ok(_) => {}
    }
    match fs::canonicalize(&link) {
        Ok(dir) => Ok(Some(dir)),
        // Not quietly replaced by an empty database: perhaps a disk is not mounted.
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let target = fs::read_link(&link).at("read", &link)?;
            Err(LocalPostgresError::BrokenLink { link, target })
        }
        Err(e) => Err(e).at("follow", &link),
    }
}

/// Makes sure that a home behind a link serves this data directory alone: the
/// locks that keep two servers apart lie in the data directory.
fn claim(data: &Path, dir: &Path) -> Result<()> {
    let link = data.join("postgres");
    let serves = dir.join(SERVES);
    let data_bytes = data.as_os_str().as_encoded_bytes();
    let Ok(noted) = fs::read(&serves) else {
        return Ok(());
    };
    if dir == link || noted == data_bytes {
        return Ok(());
    }
    let other = PathBuf::from(OsString::from_vec(noted));
    if fs::canonicalize(other.join("postgres")).is_ok_and(|target| target == dir) {
        return Err(LocalPostgresError::Borrowed { link, other });
    }
    // The data directory was moved.
    fs::write(&serves, data_bytes).at("write", &serves)
}

/// A folder that the other user may pass but only root may change, or that is
/// altogether private when there is no other user.
fn make(folder: &Path, account: &Account) -> Result<()> {
    let mode = if account.is_other() { 0o755 } else { 0o700 };
    DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(folder)
        .at("make", folder)?;
    fs::set_permissions(folder, Permissions::from_mode(mode)).at("open up", folder)
}

/// Lets the other user pass a data directory that is closed where its parent is not; what lies in
/// it is closed by itself. Returns whether that was enough to enter `dir`.
async fn let_pass(data: &Path, dir: &Path, account: &Account) -> Result<bool> {
    if !account.can_enter(data.parent().unwrap_or(data)).await? {
        return Ok(false);
    }
    let before = fs::metadata(data).at("look at", data)?.permissions();
    let passable = Permissions::from_mode(before.mode() | 0o011);
    // Not on every file system may root do that.
    if fs::set_permissions(data, passable).is_err() {
        return Ok(false);
    }
    if account.can_enter(dir).await? {
        tracing::info!(data = %data.display(), "others may pass the data directory from now on, \
            so that user {} can enter its database", account.name);
        return Ok(true);
    }
    fs::set_permissions(data, before).at("close", data)?;
    Ok(false)
}

/// A home of a random name, so that a new data directory of an old name never
/// finds an old database. Nor is that one forgotten.
fn outside(
    data: &Path,
    link: &Path,
    account: &Account,
    mut left_behind: Vec<PathBuf>,
) -> Result<PathBuf> {
    let parent = Path::new(OUTSIDE);
    make(parent, account)?;
    let dir = match left_behind.pop() {
        Some(dir) if dir.join("cluster").exists() => {
            let data = data.to_owned();
            return Err(LocalPostgresError::LeftBehind { data, dir });
        }
        Some(dir) => dir,
        None => parent.join(Uuid::now_v7().to_string()),
    };
    make(&dir, account)?;
    let serves = dir.join(SERVES);
    fs::write(&serves, data.as_os_str().as_encoded_bytes()).at("write", &serves)?;
    symlink(&dir, link).at("make", link)?;
    sync_folder(parent)?;
    tracing::info!(
        folder = %dir.display(),
        link = %link.display(),
        "user {} cannot enter the data directory, so the database lies elsewhere behind a link",
        account.name,
    );
    Ok(dir)
}
