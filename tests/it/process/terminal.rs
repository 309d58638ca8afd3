//! Questions of the program to a person at a terminal.

use std::{
    io::{Read as _, Write as _},
    os::fd::{AsFd as _, OwnedFd},
    process::Stdio,
};

use nix::{
    pty::openpty,
    sys::{
        signal::Signal,
        termios::{LocalFlags, tcgetattr},
    },
};
use tokio::process::{Child, Command};

use super::{PATIENCE, Site};
use crate::signal::signal;

/// A terminal, and a program in front of it that asks for a secret.
struct Asking {
    terminal: OwnedFd,
    program: Child,
}

impl Asking {
    async fn start(mut command: Command) -> Self {
        let pair = openpty(None, None).unwrap();
        let program = command
            .stdin(Stdio::from(pair.slave))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let asking = Self {
            terminal: pair.master,
            program,
        };
        let hidden = async {
            while asking.shows() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, hidden).await.unwrap();
        asking
    }

    /// Whether what is typed is shown.
    fn shows(&self) -> bool {
        let flags = tcgetattr(self.terminal.as_fd()).unwrap().local_flags;
        flags.contains(LocalFlags::ECHO)
    }
}

#[tokio::test]
async fn ctrl_c_at_a_hidden_question_gives_the_terminal_back() {
    let site = Site::new(&[]);
    for arguments in [&["login"][..], &["account", "password", "--email", "a@b.c"]] {
        let mut command = site.command();
        command.env("HOME", &site.folder).args(arguments);
        let mut asking = Asking::start(command).await;
        signal(asking.program.id().unwrap(), Signal::SIGINT);
        let ended = asking.program.wait().await.unwrap();
        assert_eq!(ended.code(), Some(130), "{arguments:?}");
        assert!(asking.shows(), "{arguments:?}");
    }
}

#[tokio::test]
async fn a_secret_is_read_without_being_shown() {
    let site = Site::new(&[]);
    let mut command = site.command();
    command
        .env("HOME", &site.folder)
        .env("GENSVC_BASE_URL", "http://127.0.0.1:1")
        .arg("login");
    let asking = Asking::start(command).await;
    let mut terminal = std::fs::File::from(asking.terminal.try_clone().unwrap());
    terminal.write_all(b"svc_secret\n").unwrap();
    let output = asking.program.wait_with_output().await.unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("cannot reach http://127.0.0.1:1"),
        "{stderr}"
    );
    assert!(!stderr.contains("svc_secret"), "{stderr}");
    // The terminal shows the end of the line at most.
    let mut shown = [0; 64];
    let read = terminal.read(&mut shown).unwrap_or(0);
    let shown = String::from_utf8_lossy(&shown[..read]);
    assert!(!shown.contains("secret"), "{shown}");
}
