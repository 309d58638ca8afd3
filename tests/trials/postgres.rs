//! A Postgres for this run, started by the program's `database` commands, which also work as root,
//! and killed with -9 by us.

use std::{
    path::{Path, PathBuf},
    str::FromStr as _,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use serde_json::Value;
use sqlx::{ConnectOptions as _, PgConnection, postgres::PgConnectOptions};

use crate::{cluster::Cluster, process, signal::signal};

/// How long it may take to restart.
const PATIENCE: Duration = Duration::from_mins(1);

/// Roles of the servers, so that the database can record which did what.
pub const ROLES: [&str; 3] = ["chaos_a", "chaos_b", "chaos_c"];

/// Records when a generation is created, who ends it, and which server each instance is.
const WATCH: &str = "
    create role chaos_a superuser login;
    create role chaos_b superuser login;
    create role chaos_c superuser login;
    create schema chaos;
    create table chaos.owners (instance uuid primary key, owner name not null);
    create table chaos.ends (
        generation uuid not null, lease uuid, ender name not null, status text not null,
        at timestamptz not null default clock_timestamp());
    create index on chaos.ends (generation);
    create table chaos.begins (
        generation uuid not null, account bigint not null,
        at timestamptz not null default clock_timestamp());
    create function chaos.note_begin() returns trigger language plpgsql as $$
    begin
        insert into chaos.begins values (new.id, new.account_id);
        return null;
    end $$;
    create function chaos.note_owner() returns trigger language plpgsql as $$
    begin
        insert into chaos.owners values (new.id, session_user) on conflict do nothing;
        return null;
    end $$;
    create function chaos.note_end() returns trigger language plpgsql as $$
    begin
        insert into chaos.ends
        select old.id, old.lease_token, session_user,
               case when failed then 'failed' else 'completed' end
        from finished_generations where account_id = old.account_id and id = old.id;
        -- Whatever is removed has ended.
        if not found then
            raise exception 'generation % is gone', old.id;
        end if;
        return null;
    end $$;
    create trigger chaos_begin after insert on running_generations
        for each row execute function chaos.note_begin();
    create trigger chaos_owner after insert on instances
        for each row execute function chaos.note_owner();
    create trigger chaos_end after delete on running_generations
        for each row execute function chaos.note_end();
";

/// The Postgres server, which is stopped when this is dropped.
pub struct Postgres {
    /// The version of gensvc that starts it.
    program: PathBuf,
    folder: PathBuf,
    url: String,
    pub cluster: Cluster,
}

impl Postgres {
    /// Starts the one in a folder; creates it first if there is none.
    pub async fn open(folder: PathBuf, program: &Path) -> Self {
        let mut postgres = Self {
            program: program.to_owned(),
            cluster: Cluster::new(&folder),
            folder,
            url: String::new(),
        };
        postgres.url = postgres.up().await.unwrap();
        postgres
    }

    /// Creates and starts one in an empty folder, with the schema and our triggers.
    pub async fn start(folder: PathBuf, program: &Path) -> Self {
        let postgres = Self::open(folder, program).await;
        postgres.gensvc(&postgres.url, &["migrate"]).await.unwrap();
        sqlx::raw_sql(WATCH)
            .execute(&mut postgres.connect().await)
            .await
            .unwrap();
        postgres
    }

    async fn up(&self) -> Result<String, String> {
        let printed = self.gensvc("", &["database", "start"]).await?;
        let printed: Value = serde_json::from_str(&printed).map_err(|e| e.to_string())?;
        self.admit_servers();
        Ok(printed["url"].as_str().unwrap_or_default().to_owned())
    }

    /// A command of the program that starts it, on that database.
    pub async fn gensvc(&self, database: &str, args: &[&str]) -> Result<String, String> {
        process::gensvc(&self.program, &self.folder, database, &[], args).await
    }

    /// Lets root log in with the servers' roles too. If root runs the cluster, its user map allows only
    /// `gensvc`.
    fn admit_servers(&self) {
        // The previous release keeps the map next to the cluster.
        let map = self.cluster.path.with_file_name("pg_ident.conf");
        let map = if map.exists() {
            map
        } else {
            self.cluster.path.join("pg_ident.conf")
        };
        let mut names = std::fs::read_to_string(&map).unwrap();
        names.extend(ROLES.map(|role| format!("root root {role}\n")));
        std::fs::write(&map, names).unwrap();
        if let Some(pid) = self.cluster.pid() {
            signal(pid, Signal::SIGHUP);
        }
    }

    /// The URL for commands.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        let options = PgConnectOptions::from_str(&self.url).unwrap();
        let folder = options.get_socket().unwrap();
        folder.join(format!(".s.PGSQL.{}", options.get_port()))
    }

    /// A connection for looking behind the API.
    pub async fn connect(&self) -> PgConnection {
        let options = PgConnectOptions::from_str(&self.url).unwrap();
        let begun = Instant::now();
        loop {
            match options.connect().await {
                Ok(connection) => return connection,
                Err(error) if begun.elapsed() > PATIENCE => panic!("no connection: {error}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// Kills it with -9, leaves it dead for a while, and starts it again.
    pub async fn kill(&self, down: Duration) {
        if let Some(pid) = self.cluster.pid() {
            signal(pid, Signal::SIGKILL);
        }
        tokio::time::sleep(down).await;
        self.revive().await;
    }

    /// Starts it unless it runs.
    pub async fn revive(&self) {
        let begun = Instant::now();
        while let Err(said) = self.up().await {
            assert!(begun.elapsed() < PATIENCE, "Postgres stays away: {said}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}
