//! Reads a password from stdin, so that shell history and process lists do not show it.

use std::io::{self, IsTerminal as _, Read as _, Write as _};

use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use secrecy::SecretString;
use tokio::signal::unix::{SignalKind, signal};

use super::{Failure, Interrupted};

/// Maximum bytes of the input, much more than a password may have.
const MAX_BYTES: u64 = 1 << 16;

/// Reads stdin without its last line break; from a terminal, one hidden line.
pub(super) async fn read(email: &str) -> Result<SecretString, Failure> {
    read_secret(&format!("New password of {email}: ")).await
}

/// Reads any secret in the same way. `question`: the prompt on a terminal.
pub(super) async fn read_secret(question: &str) -> Result<SecretString, Failure> {
    let text = if io::stdin().is_terminal() {
        write!(io::stderr(), "{question}")?;
        // Before the terminal is hidden, so that no signal can leave it hidden.
        let mut interrupt = signal(SignalKind::interrupt())?;
        let hidden = Hidden::begin()?;
        let line = tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            io::stdin().read_line(&mut line).map(|_| line)
        });
        let line = tokio::select! {
            line = line => line?.map_err(Failure::from),
            _ = interrupt.recv() => Err(Interrupted.into()),
        };
        drop(hidden);
        writeln!(io::stderr())?;
        line?
    } else {
        let mut text = String::new();
        io::stdin().take(MAX_BYTES).read_to_string(&mut text)?;
        text
    };
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.contains(['\n', '\r']) {
        return Err("what is on stdin must be a single line".into());
    }
    Ok(text.into())
}

/// Hides what is typed on the terminal until it is dropped.
struct Hidden(Termios);

impl Hidden {
    fn begin() -> io::Result<Self> {
        let shown = tcgetattr(io::stdin())?;
        let mut hidden = shown.clone();
        hidden.local_flags.remove(LocalFlags::ECHO);
        tcsetattr(io::stdin(), SetArg::TCSAFLUSH, &hidden)?;
        Ok(Self(shown))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // A closed terminal shows nothing either.
        let _ = tcsetattr(io::stdin(), SetArg::TCSAFLUSH, &self.0);
    }
}
