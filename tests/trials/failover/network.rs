//! How a host falls silent: in a separate network namespace, where the kernel drops the packets of
//! the database; where that is not possible, the proxies stop forwarding instead. The kernel then
//! still acknowledges what reaches them, unlike with a lost host.

use std::{
    env,
    os::unix::process::CommandExt as _,
    process::{Command, Stdio},
};

use crate::proxy::{Proxy, Target};

/// Set within the namespace.
const INSIDE: &str = "FAILOVER_INSIDE";
/// Sets up the namespace, and fails where packets cannot be dropped in it.
const PREPARE: &str =
    "ip link set lo up && nft add table inet probe && nft delete table inet probe";

/// The network of the run.
pub enum Network {
    /// Packets can be dropped.
    Own,
    /// They cannot, and why.
    Shared(String),
}

impl Network {
    /// Restarts the program in a separate namespace, if that is possible. The namespace ends with
    /// its last process.
    pub fn enter(stall: bool) -> Self {
        if stall {
            return Self::Shared("as asked".to_owned());
        }
        if env::var_os(INSIDE).is_some() {
            return Self::Own;
        }
        let id = Command::new("id").arg("-u").output();
        let is_root = id.is_ok_and(|id| id.stdout.trim_ascii() == b"0");
        // Root needs no user namespace, and could not become Postgres' user in one.
        let users = ["--user", "--map-current-user", "--keep-caps"];
        let users = if is_root { &[] } else { &users[..] };
        // Administrative tools are not on everybody's path.
        let path = env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        let unshare = || {
            let mut command = Command::new("unshare");
            command.arg("--net").args(users).env("PATH", &path);
            command.args(["sh", "-c"]);
            command
        };
        let said = match unshare().arg(PREPARE).output() {
            Ok(output) if output.status.success() => {
                let mut again = unshare();
                again.arg(format!("{PREPARE} && exec \"$0\" \"$@\""));
                again.args(env::args_os()).env(INSIDE, "1");
                again.exec().to_string()
            }
            Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        let gist = said.lines().next().unwrap_or_default();
        Self::Shared(format!("no network of our own: {gist}"))
    }

    /// From now on nothing passes through these, on existing or new connections.
    pub fn silence(&self, proxies: &[&Proxy]) {
        for proxy in proxies {
            proxy.freeze();
            proxy.lead_to(Target::Silence);
        }
        let ports: Vec<String> = proxies
            .iter()
            .map(|proxy| proxy.address().port().to_string())
            .collect();
        self.nft(&format!(
            "table inet failover {{
                set silent {{ type inet_service; elements = {{ {} }}; }}
                set newcomers {{ type inet_service; flags dynamic; size 65535; }}
                chain arriving {{
                    type filter hook input priority 0;
                    tcp dport @silent tcp sport != @newcomers drop
                    tcp sport @silent tcp dport != @newcomers drop
                }}
            }}",
            ports.join(", ")
        ));
    }

    /// Lets new connections through. Existing ones stay silent.
    pub fn admit_newcomers(&self) {
        self.nft(
            "insert rule inet failover arriving \
             tcp dport @silent tcp flags & (syn | ack) == syn add @newcomers { tcp sport }",
        );
    }

    /// Lets everything through.
    pub fn restore(&self) {
        self.nft("table inet failover; delete table inet failover");
    }

    fn nft(&self, script: &str) {
        if matches!(self, Self::Own) {
            let mut nft = Command::new("nft");
            let done = nft.arg(script).stdin(Stdio::null()).status();
            assert!(done.unwrap().success(), "nft refuses {script}");
        }
    }
}
