//! Creates, starts, supervises and stops the private Postgres of a machine without `DATABASE_URL`.
//!
//! The database survives a `kill -9` of gensvc, and the next gensvc uses it. That is faster than
//! crash recovery, and safe for commands that are using it.

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
};

/// Why a process opens the private Postgres.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The only server of a data directory.
    Server,
    /// A command. It does not create a database: in a wrong directory it would use an empty one.
    Command,
    /// `gensvc database start`.
    Start,
}

/// A running private Postgres. While this exists, no other process stops the database. Dropping it
/// without [`close`](Self::close) leaves the database running.
#[derive(Debug)]
pub struct LocalPostgres {
    data: PathBuf,
    url: String,
    cluster: Cluster,
    users_lock: File,
    server_lock: Option<File>,
}

impl LocalPostgres {
    /// Starts the database under `data_dir` unless it is running, and waits until it is ready.
    /// Creates it if it does not exist, except for a command.
    pub async fn open(data_dir: &Path, role: Role) -> Result<Self> {
        if role == Role::Command && !home::exists(data_dir) {
            return Err(none(data_dir));
        }
        fs::create_dir_all(data_dir).at("create", data_dir)?;
        let data = home::resolve(data_dir)?;
        let starting = locks::start(&data).await?;
        let server_lock = match role {
            Role::Server => Some(locks::server(&data)?),
            Role::Command | Role::Start => None,
        };
        let users_lock = locks::shared(&data)?;
        let cluster = match Cluster::find(&data)? {
            Some(cluster) => cluster,
            None if role == Role::Command => return Err(none(&data)),
            None => create::create(&data).await?,
        };
        let started = cluster.start().await?;
        drop(starting);
        tracing::info!(data = %data.display(), started, "the private Postgres is ready");
        Ok(Self {
            url: socket::url(cluster.socket()),
            data,
            cluster,
            users_lock,
            server_lock,
        })
    }

    /// Fails with [`LocalPostgresError::ServerRunning`] while a server uses `data_dir`.
    pub async fn refuse_second_server(data_dir: &Path) -> Result<()> {
        if !home::exists(data_dir) {
            return Ok(());
        }
        let data = home::resolve(data_dir)?;
        let _starting = locks::start(&data).await?;
        match locks::running_server(&data)? {
            Some(holder) => Err(LocalPostgresError::ServerRunning { data, holder }),
            None => Ok(()),
        }
    }

    /// Stores the URL of this server, for the error message of a second one.
    pub fn announce(&self, url: &str) -> Result<()> {
        let lock = self.server_lock.as_ref();
        lock.map_or(Ok(()), |lock| locks::announce(lock, &self.data, url))
    }

    /// Returns the URL of the database under `data_dir`, and whether it is running.
    pub fn find(data_dir: &Path) -> Result<(String, bool)> {
        let cluster = Cluster::find(&home::resolve(data_dir)?)?;
        let cluster = cluster.ok_or_else(|| none(data_dir))?;
        Ok((socket::url(cluster.socket()), cluster.is_well()))
    }

    /// Returns the URL for sqlx and psql. It never changes.
    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn is_sole_server(&self) -> bool {
        self.server_lock.is_some()
    }

    /// Restarts the database if it has died, and returns whether it had. Call it in a loop.
    pub async fn supervise_step(&self) -> Result<bool> {
        if let Err(error) = log::trim(&self.cluster.log()) {
            tracing::warn!(%error, "truncating the log of Postgres failed");
        }
        if self.cluster.is_well() {
            return Ok(false);
        }
        let _starting = locks::start(&self.data).await?;
        self.cluster.start().await
    }

    /// Keeps the database running after its last user, until [`stop_kept`](Self::stop_kept).
    pub fn keep(&self) -> Result<()> {
        let marker = marker(&self.data);
        File::create(&marker).at("write", &marker).map(drop)
    }

    /// Stops the database if this was its last user and it is not [kept](Self::keep).
    pub async fn close(self) -> Result<()> {
        // A deleted directory has no other users.
        let _starting = if self.data.exists() {
            Some(locks::start(&self.data).await?)
        } else {
            None
        };
        if marker(&self.data).exists() || !locks::is_last(&self.users_lock, &self.data)? {
            return Ok(());
        }
        self.cluster.stop().await?;
        tracing::info!(data = %self.data.display(), "the private Postgres is stopped");
        Ok(())
    }

    /// Stops a [kept](Self::keep) database, and returns whether it ran. Fails while it is used.
    pub async fn stop_kept(data_dir: &Path) -> Result<bool> {
        if !home::exists(data_dir) {
            return Ok(false);
        }
        let data = home::resolve(data_dir)?;
        let _locks = lock_alone(&data).await?;
        match Cluster::find(&data)? {
            Some(cluster) => cluster.stop().await,
            None => Ok(false),
        }
    }

    /// Returns the folder that [`remove`](Self::remove) would delete.
    pub fn removable(data_dir: &Path) -> Result<Option<PathBuf>> {
        if !home::exists(data_dir) {
            return Ok(None);
        }
        let home = home::find(&home::resolve(data_dir)?)?;
        home.as_deref().map_or(Ok(()), home::check_is_ours)?;
        Ok(home)
    }

    /// Stops and deletes the database, and returns its folder. Fails while it is used.
    pub async fn remove(data_dir: &Path) -> Result<Option<PathBuf>> {
        let Some(home) = Self::removable(data_dir)? else {
            return Ok(None);
        };
        let data = home::resolve(data_dir)?;
        let _locks = lock_alone(&data).await?;
        if let Some(cluster) = Cluster::find(&data)? {
            cluster.stop().await?;
        }
        let link = data.join("postgres");
        if home != link {
            remove_file(&link)?;
        }
        fs::remove_dir_all(&home).at("delete", &home)?;
        remove_file(&home::log(&data))?;
        Ok(Some(home))
    }
}

/// Takes the locks that exclude all other users of the database, and stops keeping it.
async fn lock_alone(data: &Path) -> Result<(File, File)> {
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
    remove_file(&marker(data))?;
    Ok((starting, users))
}

fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e).at("delete", path),
        _ => Ok(()),
    }
}

fn none(data: &Path) -> LocalPostgresError {
    let data = home::resolve(data).unwrap_or_else(|_| data.to_owned());
    LocalPostgresError::None { data }
}

fn marker(data: &Path) -> PathBuf {
    data.join("postgres.keep")
}
