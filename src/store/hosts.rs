//! Hosts of the database: one server, or several of which one is the primary.

use std::{
    io,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use sqlx::{ConnectOptions as _, PgConnection, postgres::PgConnectOptions};
use tokio::time::timeout;

use super::pool::{CONNECT_LIMIT, timed_out};

/// Values of `target_session_attrs`. All are treated alike, since gensvc writes.
const ATTRIBUTES: [&str; 3] = ["any", "read-write", "primary"];

/// The hosts in the order of the URL.
#[derive(Debug, Clone)]
pub struct Hosts {
    hosts: Vec<PgConnectOptions>,
    /// The last primary, tried first.
    last: Arc<AtomicUsize>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostsError {
    #[error("DATABASE_URL is no Postgres URL; its value is not shown")]
    Url,
    #[error(
        "target_session_attrs in DATABASE_URL must be one of {}: gensvc writes",
        ATTRIBUTES.join(", ")
    )]
    Attributes,
}

impl FromStr for Hosts {
    type Err = HostsError;

    /// Parses `postgres://user:password@host:port,host:port/name?options` as libpq does. URLs in
    /// other formats cannot have several hosts.
    fn from_str(url: &str) -> Result<Self, HostsError> {
        let (scheme, rest) = url.split_once("://").ok_or(HostsError::Url)?;
        let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let at = authority.rfind('@').map_or(0, |at| at + 1);
        let (user, hosts) = authority.split_at(at);
        let mut options = Vec::new();
        for option in query.split('&') {
            match option.strip_prefix("target_session_attrs=") {
                Some(value) if ATTRIBUTES.contains(&value) => {}
                Some(_) => return Err(HostsError::Attributes),
                None => options.push(option),
            }
        }
        let query = options.join("&");
        let hosts = hosts.split(',').map(|host| {
            let one = format!("{scheme}://{user}{host}{path}?{query}");
            PgConnectOptions::from_str(&one).map_err(|_| HostsError::Url)
        });
        Ok(Self::new(hosts.collect::<Result<_, _>>()?))
    }
}

impl From<PgConnectOptions> for Hosts {
    fn from(host: PgConnectOptions) -> Self {
        Self::new(vec![host])
    }
}

impl Hosts {
    fn new(hosts: Vec<PgConnectOptions>) -> Self {
        let of_ours = |host: PgConnectOptions| {
            host.application_name("gensvc")
                // The pool logs statements by name.
                .disable_statement_logging()
                // Poolers refuse this parameter, and since Postgres 12 it changes nothing.
                .extra_float_digits(None)
        };
        Self {
            hosts: hosts.into_iter().map(of_ours).collect(),
            last: Arc::default(),
        }
    }

    pub fn last(&self) -> &PgConnectOptions {
        &self.hosts[self.last.load(Ordering::Relaxed)]
    }

    /// Connects; with several hosts, to the primary.
    pub async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        if let [host] = &self.hosts[..] {
            return host.connect().await;
        }
        let limit = CONNECT_LIMIT / u32::try_from(self.hosts.len()).unwrap_or(u32::MAX);
        let mut failure: Option<sqlx::Error> = None;
        let first = self.last.load(Ordering::Relaxed);
        for n in 0..self.hosts.len() {
            let n = (first + n) % self.hosts.len();
            let connecting = timeout(limit, writable(&self.hosts[n]));
            match connecting
                .await
                .unwrap_or_else(|_elapsed| Err(timed_out("connect")))
            {
                Ok(connection) => {
                    self.last.store(n, Ordering::Relaxed);
                    return Ok(connection);
                }
                // A refusal explains more than another host's being a standby.
                Err(error) if failure.as_ref().is_none_or(is_standby) => failure = Some(error),
                Err(_) => {}
            }
        }
        Err(failure.unwrap_or(sqlx::Error::PoolTimedOut))
    }

    /// Returns hosts and ports, for display.
    pub fn places(&self) -> String {
        let place = |host: &PgConnectOptions| match host.get_socket() {
            Some(socket) => format!("{}:{}", socket.display(), host.get_port()),
            None => format!("{}:{}", host.get_host(), host.get_port()),
        };
        let places: Vec<String> = self.hosts.iter().map(place).collect();
        places.join(" or ")
    }
}

/// Whether a reachable host is a standby.
fn is_standby(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Io(error) if error.kind() == io::ErrorKind::NotConnected)
}

/// Opens a connection, and fails if the host is not a primary.
async fn writable(host: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    let mut connection = host.connect().await?;
    let asked = "select current_setting('transaction_read_only') = 'off'";
    if sqlx::query_scalar(asked).fetch_one(&mut connection).await? {
        return Ok(connection);
    }
    let standby = "every host that answers is read-only";
    Err(io::Error::new(io::ErrorKind::NotConnected, standby).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(url: &str) -> Result<Hosts, HostsError> {
        url.parse()
    }

    #[test]
    fn a_url_may_have_several_hosts() {
        let found = hosts(
            "postgres://ann:pa%40ss@a:1,b,[::1]:3/books?target_session_attrs=read-write&sslmode=disable",
        );
        let found = found.unwrap();
        assert_eq!(found.places(), "a:1 or b:5432 or [::1]:3");
        for host in &found.hosts {
            assert_eq!(host.get_username(), "ann");
            assert_eq!(host.get_database(), Some("books"));
        }
        assert_eq!(
            hosts("postgres:///books?host=/run").unwrap().places(),
            "/run:5432"
        );
        assert_eq!(hosts("postgres://a").unwrap().places(), "a:5432");
    }

    #[test]
    fn what_is_no_url_or_asks_for_a_standby_is_refused() {
        for url in ["nonsense", "postgres://a:x/b", "postgres://a,b:x/c"] {
            assert_eq!(hosts(url).unwrap_err(), HostsError::Url, "{url}");
        }
        let error = hosts("postgres://a,b/c?target_session_attrs=standby").unwrap_err();
        assert_eq!(error, HostsError::Attributes);
        assert!(error.to_string().contains("any, read-write, primary"));
    }
}
