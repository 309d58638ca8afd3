//! Looking at a cluster's server, however it was started and by whom.

use std::{fs, io::ErrorKind, path::Path};

use tokio::net::UnixStream;

use super::{home::Home, process, socket};

/// What a look at the server finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// No server.
    Down,
    /// A server of this cluster that does not listen: very young, or its socket
    /// was removed.
    Deaf(u32),
    /// A server that listens; `None` if its process cannot be seen from here.
    Up(Option<u32>, Status),
}

/// What the server says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Ready,
    Starting,
    Stopping,
}

/// Looks afresh. Whoever answers in our private folder is ours: only this cluster's
/// user can listen there, whatever number a stale note names.
pub(super) async fn look(home: &Home, folder: &Path) -> State {
    let noted = note(home);
    match UnixStream::connect(socket::file(folder)).await {
        Ok(stream) => {
            let pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
            let pid = pid.and_then(|pid| u32::try_from(pid).ok());
            let status = noted.map_or(Status::Starting, |(_, status)| status);
            // Zero stands for a process in a container that we cannot see into.
            State::Up(pid.filter(|&pid| pid != 0), status)
        }
        Err(error) => match noted {
            // So busy that its queue of connections is full: alive.
            Some((pid, status)) if error.kind() == ErrorKind::WouldBlock => {
                State::Up(Some(pid), status)
            }
            Some((pid, _)) if process::is_postmaster(pid, &home.cluster()).await => {
                State::Deaf(pid)
            }
            _ => State::Down,
        },
    }
}

/// The server's note: its process, and what it says of itself (line 8).
pub(super) fn note(home: &Home) -> Option<(u32, Status)> {
    let text = fs::read_to_string(home.pid_file()).ok()?;
    parse_note(&text)
}

fn parse_note(text: &str) -> Option<(u32, Status)> {
    let mut lines = text.lines();
    let pid = lines.next()?.trim().parse().ok()?;
    let status = match lines.nth(6).map(str::trim) {
        Some("ready" | "standby") => Status::Ready,
        Some("stopping") => Status::Stopping,
        _ => Status::Starting,
    };
    Some((pid, status))
}

#[cfg(test)]
mod tests {
    use super::{Status, parse_note};

    #[test]
    fn reads_the_note() {
        let note = "4711\n/d/cluster\n1700000000\n5432\n/d/run\n\n  1234 5\nready   \n";
        assert_eq!(parse_note(note), Some((4711, Status::Ready)));
        let young = "4711\n/d/cluster\n1700000000\n";
        assert_eq!(parse_note(young), Some((4711, Status::Starting)));
        assert_eq!(parse_note(""), None);
    }
}
