//! Determines from which hosts and addresses files may be downloaded.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    net::{IpAddr, SocketAddr, ToSocketAddrs as _},
    sync::Arc,
    time::Duration,
};

use reqwest::{
    Client, ClientBuilder,
    dns::{Addrs, Name, Resolve, Resolving},
    redirect,
};
use url::{Host, Url};

use super::{DownloadError, NoPublicAddress};
use crate::{
    domain::limiter::{Limiter, half},
    media::is_public,
};

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Only https and public addresses, except for explicitly allowed hosts.
#[derive(Debug)]
pub struct AddressPolicy {
    /// Normalized: lower case, without brackets and trailing dot.
    allowed: HashSet<String>,
    all: bool,
    /// Limits concurrent DNS lookups, by the hash of the name. A lookup cannot be cancelled, and an
    /// unresponsive name server can block its thread for half a minute, while the rest of the
    /// process needs threads too.
    lookups: Limiter<u64>,
}

fn normal(host: &str) -> String {
    let host = host.strip_suffix('.').unwrap_or(host);
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    bare.unwrap_or(host).to_ascii_lowercase()
}

impl AddressPolicy {
    /// Allows public addresses, `allowed` hosts (names or addresses), or `all`. `lookups`: maximum
    /// concurrent DNS lookups. Callers limit their wait and their number.
    pub fn new(allowed: &[String], all: bool, lookups: usize) -> Self {
        Self {
            allowed: allowed.iter().map(|host| normal(host)).collect(),
            all,
            lookups: Limiter::with_queue((lookups, half(lookups)), (usize::MAX, usize::MAX)),
        }
    }

    /// Returns a client that connects only to allowed addresses and follows no redirects.
    pub fn client(self: &Arc<Self>, connect_timeout: Duration) -> ClientBuilder {
        Client::builder()
            .user_agent(concat!("gensvc/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .referer(false)
            .no_proxy()
            .no_gzip()
            .connect_timeout(connect_timeout)
            .dns_resolver(Resolver(Arc::clone(self)))
    }

    fn is_allowed(&self, host: &str) -> bool {
        self.all || self.allowed.contains(&normal(host))
    }

    /// Checks a URL before its host is resolved.
    pub(super) fn check(&self, url: &Url) -> Result<(), DownloadError> {
        if url.host().is_none() {
            return Err(DownloadError::BadUrl("it has no host"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(DownloadError::BadUrl("it has credentials"));
        }
        let allowed = self.is_allowed(url.host_str().unwrap_or_default());
        match url.scheme() {
            "https" => {}
            "http" if allowed => {}
            _ => return Err(DownloadError::BadUrl("it is not https")),
        }
        self.check_literal(url)
            .map_err(|NoPublicAddress(address)| DownloadError::Refused(address))
    }

    /// Checks IP addresses, since they are not resolved; [`Url`] has normalized their notations
    /// (octal, hexadecimal, one number). Names are checked when they are resolved.
    pub fn check_literal(&self, url: &Url) -> Result<(), NoPublicAddress> {
        let address = match url.host() {
            None | Some(Host::Domain(_)) => return Ok(()),
            Some(Host::Ipv4(address)) => IpAddr::V4(address),
            Some(Host::Ipv6(address)) => IpAddr::V6(address),
        };
        if self.is_allowed(url.host_str().unwrap_or_default()) || is_public(address) {
            Ok(())
        } else {
            Err(NoPublicAddress(address))
        }
    }

    /// Resolves a name to addresses that may be connected to. `permit` is dropped when the thread
    /// is free again, even if the caller has given up.
    pub async fn resolve(
        &self,
        name: &str,
        permit: impl Send + 'static,
    ) -> Result<Vec<SocketAddr>, BoxError> {
        let host = name.to_owned();
        let found = tokio::task::spawn_blocking(move || {
            // The client sets the port.
            let found = (host.as_str(), 0).to_socket_addrs();
            drop(permit);
            found
        });
        Ok(self.pick(name, found.await??)?)
    }

    /// Returns the resolved addresses of a name that may be connected to.
    fn pick(
        &self,
        name: &str,
        found: impl IntoIterator<Item = SocketAddr>,
    ) -> Result<Vec<SocketAddr>, NoPublicAddress> {
        let allowed = self.is_allowed(name);
        let (open, closed): (Vec<_>, Vec<_>) = found
            .into_iter()
            .partition(|address| allowed || is_public(address.ip()));
        match closed.first() {
            Some(address) if open.is_empty() => Err(NoPublicAddress(address.ip())),
            _ => Ok(open),
        }
    }
}

/// The HTTP client's resolver: the client connects only to the addresses that it returns.
#[derive(Debug)]
struct Resolver(Arc<AddressPolicy>);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = Arc::clone(&self.0);
        Box::pin(async move {
            let mut key = DefaultHasher::new();
            name.as_str().hash(&mut key);
            let permit = policy.lookups.acquire(key.finish(), 1).await;
            let open = policy.resolve(name.as_str(), permit).await?;
            Ok(Box::new(open.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(allowed: &[&str]) -> AddressPolicy {
        let hosts: Vec<String> = allowed.iter().map(|&host| host.to_owned()).collect();
        AddressPolicy::new(&hosts, false, 1)
    }

    fn check(gate: &AddressPolicy, url: &str) -> Result<(), DownloadError> {
        gate.check(&Url::parse(url).unwrap())
    }

    #[test]
    fn public_https_only() {
        let gate = gate(&[]);
        for url in [
            "https://a.example/x",
            "https://8.8.8.8/",
            "https://[2606:4700::1]:8443/",
        ] {
            assert!(check(&gate, url).is_ok(), "{url}");
        }
        for url in [
            "http://a.example/",
            "ftp://a.example/",
            "file:///etc/passwd",
            "data:text/plain,x",
            "https://user@a.example/",
            "https://user:secret@a.example/",
            "https://:secret@a.example/",
        ] {
            let refused = check(&gate, url).unwrap_err();
            assert!(matches!(refused, DownloadError::BadUrl(_)), "{url}");
        }
        for url in [
            "https://127.0.0.1/",
            "https://127.1/",
            "https://2130706433/",
            "https://0x7f000001/",
            "https://0177.0.0.1/",
            "https://127.0.0.1./",
            "https://169.254.169.254/latest/meta-data",
            "https://[::1]/",
            "https://[::ffff:127.0.0.1]/",
            "https://[::ffff:7f00:1]/",
            "https://[64:ff9b::a9fe:a9fe]/",
            "https://[2002:7f00:1::]/",
            "https://[fd00:ec2::254]/",
            "https://\u{ff11}27.0.0.1/",
        ] {
            let refused = check(&gate, url).unwrap_err();
            assert!(matches!(refused, DownloadError::Refused(_)), "{url}");
        }
    }

    #[test]
    fn allowed_by_name() {
        let gate = gate(&["LocalHost.", "10.0.0.5", "[::1]", "fd00::1"]);
        for url in [
            "http://localhost:8080/",
            "http://LOCALHOST./",
            "https://localhost/",
            "http://10.0.0.5:1/",
            "http://[::1]:1/",
            "http://[fd00::1]/",
        ] {
            assert!(check(&gate, url).is_ok(), "{url}");
        }
        for url in [
            "http://localhost.example/",
            "http://10.0.0.6/",
            "https://10.0.0.6/",
            "http://x.localhost/",
            "ftp://localhost/",
            "http://user@localhost/",
        ] {
            assert!(check(&gate, url).is_err(), "{url}");
        }
    }

    #[test]
    fn resolved_addresses_are_sifted() {
        let public: SocketAddr = "8.8.8.8:0".parse().unwrap();
        let private: SocketAddr = "10.0.0.1:0".parse().unwrap();
        let gate = gate(&["inside.example"]);
        assert_eq!(gate.pick("a.example", [private, public]).unwrap(), [public]);
        let refused = gate.pick("a.example", [private]).unwrap_err();
        assert_eq!(refused.0, private.ip());
        assert_eq!(gate.pick("inside.example.", [private]).unwrap(), [private]);
        assert!(gate.pick("a.example", []).unwrap().is_empty());
    }
}
