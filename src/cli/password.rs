//! A password from stdin, where neither the shell's history nor the list of processes shows it.

use std::io::{self, IsTerminal as _, Read as _, Write as _};

use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};
use secrecy::SecretString;

/// Far more than a password may have.
const MAX_BYTES: u64 = 1 << 16;

/// Reads all of stdin without its last line break; from a terminal a line, which is not shown.
pub(super) fn read(email: &str) -> io::Result<SecretString> {
    read_secret(&format!("New password of {email}: "))
}

/// The same of any secret, which a person is asked for with `question`.
pub(super) fn read_secret(question: &str) -> io::Result<SecretString> {
    let stdin = io::stdin();
    let mut text = String::new();
    if stdin.is_terminal() {
        let mut err = io::stderr();
        write!(err, "{question}")?;
        let shown = tcgetattr(&stdin)?;
        let mut hidden = shown.clone();
        hidden.local_flags.remove(LocalFlags::ECHO);
        tcsetattr(&stdin, SetArg::TCSAFLUSH, &hidden)?;
        let read = stdin.read_line(&mut text);
        tcsetattr(&stdin, SetArg::TCSAFLUSH, &shown)?;
        writeln!(err)?;
        read?;
    } else {
        stdin.take(MAX_BYTES).read_to_string(&mut text)?;
    }
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.contains(['\n', '\r']) {
        return Err(io::Error::other("what is on stdin must be a single line"));
    }
    Ok(text.into())
}
