//! Postgres' log: bounded, and the end of it for an error's sentence.

use std::{
    fs::File,
    io::{ErrorKind, Read, Seek, SeekFrom},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use super::error::{At, Result};

/// Above this it is begun anew. Losing old lines of a private Postgres is better than filling
/// the disk that its data lie on.
const LARGEST: u64 = 10 * 1024 * 1024;
/// How much of an error's end is read.
const TAIL: u64 = 64 * 1024;

/// Opens it for a new server: the file, and where that server's lines begin.
pub(super) fn open(path: &Path) -> Result<(File, u64)> {
    trim(path)?;
    let file = File::options()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
        .at("open", path)?;
    let length = file.metadata().at("look at", path)?.len();
    Ok((file, length))
}

/// Begins it anew when it is too long. A running server goes on at the new end, because it
/// appends.
pub(super) fn trim(path: &Path) -> Result<()> {
    match path.metadata() {
        Ok(meta) if meta.len() > LARGEST => File::options()
            .write(true)
            .open(path)
            .and_then(|file| file.set_len(0))
            .at("shorten", path),
        Ok(_) => Ok(()),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e).at("look at", path),
    }
}

/// The end of what was written after `from`.
pub(super) fn tail(path: &Path, from: u64) -> String {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|mut file| {
        file.seek(SeekFrom::Start(from))?;
        file.take(TAIL).read_to_end(&mut bytes)
    });
    match read {
        Ok(_) => last_lines(&String::from_utf8_lossy(&bytes)),
        Err(e) => e.to_string(),
    }
}

/// The last few lines in one, without their time stamps and without what every server and
/// every `initdb` says.
pub(super) fn last_lines(text: &str) -> String {
    const ROUTINE: [&str; 6] = [
        "starting PostgreSQL",
        "listening on",
        "database system is shut down",
        "database system was shut down",
        "initdb: removing",
        "Examine the log output",
    ];
    let lines = text.lines().map(|line| match line.split_once("] ") {
        Some((stamp, rest)) if stamp.contains('[') => rest.trim(),
        _ => line.trim(),
    });
    let mut lines: Vec<&str> = lines
        .filter(|line| !line.is_empty() && !ROUTINE.iter().any(|said| line.contains(said)))
        .collect();
    lines.split_off(lines.len().saturating_sub(4)).join(" ")
}

#[cfg(test)]
mod tests {
    use super::last_lines;

    #[test]
    fn routine_and_the_beginning_are_left_out() {
        let log = "2026-01-01 10:00:00.000 UTC [12] LOG:  starting PostgreSQL\n\
            2026-01-01 10:00:00.001 UTC [12] FATAL:  could not map memory\n\
            2026-01-01 10:00:00.001 UTC [12] HINT:  Use less.\n\
            2026-01-01 10:00:00.002 UTC [12] LOG:  database system is shut down\n";
        assert_eq!(
            last_lines(log),
            "FATAL:  could not map memory HINT:  Use less."
        );
        assert_eq!(last_lines("a\nb\n\nc\nd\ne\n"), "b c d e");
    }
}
