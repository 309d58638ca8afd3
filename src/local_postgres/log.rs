//! The log of Postgres: limits its size, and reads its last lines for errors.

use std::{
    fs::File,
    io::{ErrorKind, Read, Seek, SeekFrom},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use super::error::{At, Result};

/// Longer logs are truncated, so that they do not fill the database's disk.
const MAX_BYTES: u64 = 10 * 1024 * 1024;
/// Maximum bytes that are read for an error.
const TAIL_BYTES: u64 = 64 * 1024;

/// Opens the log for a new server. Also returns the position of that server's first line.
pub(super) fn open(path: &Path) -> Result<(File, u64)> {
    trim(path)?;
    let mut options = File::options();
    let file = options.append(true).create(true).mode(0o600).open(path);
    let file = file.at("open", path)?;
    let length = file.metadata().at("read", path)?.len();
    Ok((file, length))
}

/// Truncates a log that is too long. A running server appends, so it continues at the new end.
pub(super) fn trim(path: &Path) -> Result<()> {
    match path.metadata() {
        Ok(meta) if meta.len() > MAX_BYTES => File::options()
            .write(true)
            .open(path)
            .and_then(|file| file.set_len(0))
            .at("truncate", path),
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e).at("read", path),
        _ => Ok(()),
    }
}

/// Returns the last lines after position `from`.
pub(super) fn tail(path: &Path, from: u64) -> String {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|mut file| {
        file.seek(SeekFrom::Start(from))?;
        file.take(TAIL_BYTES).read_to_end(&mut bytes)
    });
    match read {
        Ok(_) => last_lines(&String::from_utf8_lossy(&bytes)),
        Err(e) => e.to_string(),
    }
}

/// Joins the last four lines, without time stamps and routine messages.
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
    let is_routine = |line: &str| ROUTINE.iter().any(|routine| line.contains(routine));
    let mut lines: Vec<&str> = lines
        .filter(|line| !line.is_empty() && !is_routine(line))
        .collect();
    lines.split_off(lines.len().saturating_sub(4)).join(" ")
}

#[cfg(test)]
mod tests {
    use super::last_lines;

    #[test]
    fn routine_and_early_lines_are_omitted() {
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
