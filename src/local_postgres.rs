//! The private Postgres of a machine without `DATABASE_URL`: finds the programs,
//! makes the cluster, starts it, finds it again after a crash, revives it, stops
//! it. No pool and no query lives here: it ends at a URL.
//!
//! The server process is deliberately not tied to ours. It survives a `kill -9` of
//! gensvc and is adopted by the next one, which is faster than recovery and safe
//! for commands that use it at the same time.
//!
//! | file | what it knows |
//! |---|---|
//! | `programs` | where Postgres' programs are, and of which version |
//! | `account` | which user they run as, because Postgres refuses root |
//! | `home` | the folders, also where that user cannot enter the data directory |
//! | `create`, `cluster` | making, starting and stopping a cluster: `initdb` and `pg_ctl` |
//! | `socket` | the socket's folder and the URL |
//! | `access` | who may connect |
//! | `locks` | who uses it, who may start or stop it |
//! | `log`, `error` | Postgres' log; sentences for people |

mod access;
mod account;
mod cluster;
mod create;
mod error;
mod home;
mod locks;
mod log;
mod programs;
mod socket;
#[cfg(test)]
mod tests;

use std::{
    fs::{self, File},
    io::ErrorKind,
    path::{Path, PathBuf},
};

pub use self::error::LocalPostgresError;
use self::{
    cluster::Cluster,
    error::{At, Result},
    home::Home,
};

/// What a process wants the private Postgres for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The one server of a data directory; a second one is refused.
    Server,
    /// A command, next to a server or alone. It makes no database: in a wrong folder it would
    /// find an empty one.
    Command,
    /// The command that makes and starts it for others.
    Start,
}

/// A running private Postgres that this process takes part in. While it lives,
/// no other process stops the database. Dropped without [`close`](Self::close),
/// it leaves the database running, for the next process to adopt.
#[derive(Debug)]
pub struct LocalPostgres {
    data: PathBuf,
    url: String,
    cluster: Cluster,
    users_lock: File,
    server_lock: Option<File>,
}

impl LocalPostgres {
    /// Joins the database under `data_dir`, and starts it unless it runs. Makes the directory and
    /// the cluster if they are not there, except for a command. Ready when this returns.
    pub async fn open(data_dir: &Path, role: Role) -> Result<Self> {
        if role == Role::Command && !is_begun(data_dir) {
            return Err(none(data_dir));
        }
        fs::create_dir_all(data_dir).at("make", data_dir)?;
        let data = home::resolved(data_dir)?;
        let starting = locks::start(&data).await?;
        let server_lock = match role {
            Role::Server => Some(locks::server(&data)?),
            Role::Command | Role::Start => None,
        };
        let users_lock = locks::shared(&data)?;
        let home = match Home::existing(&data)? {
            Some(home) => home,
            None if role == Role::Command => return Err(none(&data)),
            None => {
                // Programs first: without them nothing is left behind.
                let programs = programs::newest().await?;
                let home = Home::new(&data).await?;
                create::create(&home, &programs).await?;
                home
            }
        };
        let cluster = Cluster::of(home);
        let started = cluster.ensure().await?;
        drop(starting);
        let url = socket::url(cluster.socket());
        tracing::info!(data = %data.display(), started, "the private Postgres is ready");
        Ok(Self {
            data,
            url,
            cluster,
            users_lock,
            server_lock,
        })
    }

    /// Fails with [`LocalPostgresError::ServerRunning`] while a server uses `data_dir`. Makes no
    /// file where there is no database.
    pub async fn refuse_second_server(data_dir: &Path) -> Result<()> {
        if !is_begun(data_dir) {
            return Ok(());
        }
        let data = home::resolved(data_dir)?;
        let _starting = locks::start(&data).await?;
        match locks::running_server(&data)? {
            Some(holder) => Err(LocalPostgresError::ServerRunning { data, holder }),
            None => Ok(()),
        }
    }

    /// Names the URL of this server to others that would use the same data directory.
    pub fn announce(&self, url: &str) -> Result<()> {
        let lock = self.server_lock.as_ref();
        lock.map_or(Ok(()), |lock| locks::announce(lock, &self.data, url))
    }

    /// The URL of the database under `data_dir`, and whether it runs. Starts nothing.
    pub fn find(data_dir: &Path) -> Result<(String, bool)> {
        let data = home::resolved(data_dir)?;
        let home = Home::existing(&data)?.ok_or_else(|| none(&data))?;
        let cluster = Cluster::of(home);
        Ok((socket::url(cluster.socket()), cluster.is_well()))
    }

    /// Where to connect, for sqlx and for psql. Stays the same for life, also
    /// across revivals.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether this process is the one server of the data directory.
    pub fn is_sole_server(&self) -> bool {
        self.server_lock.is_some()
    }

    /// One step of supervision, to be called in a loop: revives a dead database and
    /// returns whether it had to. Costs a few small reads when all is well; an error
    /// is worth a log line and another step.
    pub async fn supervise_step(&self) -> Result<bool> {
        if let Err(error) = log::trim(&self.cluster.log()) {
            // Not a reason to leave the database dead.
            tracing::warn!(%error, "could not shorten the database's log");
        }
        if self.cluster.is_well() {
            return Ok(false);
        }
        let _starting = locks::start(&self.data).await?;
        self.cluster.ensure().await
    }

    /// Has the database kept running when its users end, until
    /// [`stop_kept`](Self::stop_kept).
    pub fn keep(&self) -> Result<()> {
        let marker = marker(&self.data);
        File::create(&marker).at("write", &marker)?;
        Ok(())
    }

    /// Gives the database back, and stops it if this was its last user and nobody
    /// asked to [`keep`](Self::keep) it. Close all connections first: what they do
    /// is rolled back.
    pub async fn close(self) -> Result<()> {
        // Without its directory the database is of no use to anybody, and there is
        // nobody to share a lock with.
        let _starting = if self.data.exists() {
            Some(locks::start(&self.data).await?)
        } else {
            None
        };
        if marker(&self.data).exists() || !locks::is_last(&self.users_lock, &self.data)? {
            tracing::debug!(data = %self.data.display(), "the private Postgres keeps running");
            return Ok(());
        }
        self.cluster.stop().await?;
        tracing::info!(data = %self.data.display(), "the private Postgres is stopped");
        Ok(())
    }

    /// Ends what [`keep`](Self::keep) began and stops the database; returns whether
    /// it ran. Refused, and nothing changed, while somebody uses it.
    pub async fn stop_kept(data_dir: &Path) -> Result<bool> {
        if !is_begun(data_dir) {
            return Ok(false);
        }
        let data = home::resolved(data_dir)?;
        let _alone = alone(&data).await?;
        match Home::existing(&data)? {
            Some(home) => Cluster::of(home).stop().await,
            None => Ok(false),
        }
    }

    /// The folders that [`remove`](Self::remove) would delete.
    pub fn removable(data_dir: &Path) -> Result<Vec<PathBuf>> {
        let data = home::resolved(data_dir)?;
        if data.join("postgres").exists() && !is_begun(&data) {
            return Ok(Vec::new());
        }
        let folders = home::all(&data)?;
        for dir in &folders {
            home::contents(dir)?;
        }
        Ok(folders)
    }

    /// Stops and deletes the database, or what a data directory that was deleted left of it
    /// elsewhere. Returns the folders that it was in. Refused, and nothing changed, while
    /// somebody uses it.
    pub async fn remove(data_dir: &Path) -> Result<Vec<PathBuf>> {
        let data = home::resolved(data_dir)?;
        let begun = is_begun(&data);
        let _alone = if begun {
            Some(alone(&data).await?)
        } else {
            None
        };
        let folders = Self::removable(&data)?;
        let left_behind = !data.join("postgres").exists();
        for dir in &folders {
            let Some(home) = Home::at(&data, dir)? else {
                continue;
            };
            let cluster = Cluster::of(home);
            // The locks of its users went with the data directory that it was made for.
            if let Some(pid) = cluster.pid()
                && left_behind
            {
                let dir = dir.clone();
                return Err(LocalPostgresError::StillRuns { dir, pid });
            }
            cluster.stop().await?;
        }
        for dir in &folders {
            home::delete(dir)?;
        }
        if begun {
            gone(&data.join("postgres"))?;
            gone(&home::log(&data))?;
        }
        Ok(folders)
    }
}

/// Makes sure that nobody uses the database, nor wants it kept, until these locks are dropped.
async fn alone(data: &Path) -> Result<(File, File)> {
    let starting = locks::start(data).await?;
    let users = locks::unlocked(data)?;
    if !locks::is_last(&users, data)? {
        let user = locks::running_server(data)?.map_or_else(
            || "a gensvc command".to_owned(),
            |holder| format!("the gensvc server ({holder})"),
        );
        let data = data.to_owned();
        return Err(LocalPostgresError::InUse { data, user });
    }
    gone(&marker(data))?;
    Ok((starting, users))
}

/// Removes a file or a link, if it is there.
fn gone(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e).at("remove", path),
        _ => Ok(()),
    }
}

/// Whether somebody has made, or makes, a database there. Nothing is written to find out: it may
/// be a folder of somebody else.
fn is_begun(data: &Path) -> bool {
    data.join(locks::START).exists() || home::is_made(data)
}

fn none(data: &Path) -> LocalPostgresError {
    let data = home::resolved(data).unwrap_or_else(|_| data.to_owned());
    LocalPostgresError::None { data }
}

fn marker(data: &Path) -> PathBuf {
    data.join("postgres.keep")
}
