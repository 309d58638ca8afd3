//! Machines with wrong clocks: libfaketime fakes a server's clock. The database and this program
//! use the real one.

use std::path::{Path, PathBuf};

use crate::args::Args;

/// Maximum clock skew in minutes.
const MOST: i64 = 40;
/// With an S3 server, which refuses what is signed 15 minutes from its own time.
const MOST_BY_S3: i64 = 10;

/// Where packages install libfaketime.
const FOLDERS: [&str; 6] = [
    "/usr/lib/x86_64-linux-gnu/faketime",
    "/usr/lib/aarch64-linux-gnu/faketime",
    "/usr/lib64/faketime",
    "/usr/lib/faketime",
    "/usr/local/lib/faketime",
    "/usr/lib",
];

/// libfaketime, if it is installed.
pub fn library() -> Option<PathBuf> {
    let files = FOLDERS.map(|folder| Path::new(folder).join("libfaketimeMT.so.1"));
    files.into_iter().find(|file| file.exists())
}

/// How many minutes clocks are wrong at the most.
pub const fn most(args: &Args) -> i64 {
    if args.s3.is_some() { MOST_BY_S3 } else { MOST }
}

/// The clock of a machine.
pub enum Clock {
    /// Right.
    True,
    /// Skewed by another amount after each start.
    Wrong {
        library: PathBuf,
        /// In minutes.
        most: i64,
        rng: fastrand::Rng,
    },
}

impl Clock {
    /// The clock of one of the servers.
    pub fn of(args: &Args, server: usize) -> Self {
        match library() {
            Some(library) if !args.true_clocks => Self::Wrong {
                library,
                most: most(args),
                rng: args.rng(&format!("clock {server}")),
            },
            _ => Self::True,
        }
    }

    /// The environment variables for a process that starts now.
    pub fn env(&mut self) -> Vec<(&'static str, String)> {
        let Self::Wrong { library, most, rng } = self else {
            return Vec::new();
        };
        vec![
            ("LD_PRELOAD", library.display().to_string()),
            (
                "FAKETIME",
                format!("{:+}", rng.i64(-*most * 60..=*most * 60)),
            ),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("NO_FAKE_STAT", "1".to_owned()),
        ]
    }
}
