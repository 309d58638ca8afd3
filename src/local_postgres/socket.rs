//! Where the unix socket lies and how it is spelled in a URL. The folder is private (0700): only
//! who may enter can connect, and not all of those (see `access`).

use std::{
    fmt::Write as _,
    fs::{self, DirBuilder, Permissions},
    io::ErrorKind,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use super::{
    account::Account,
    error::{At, Result},
};

/// The port is only a part of the socket's name. It is given everywhere, so that a `PGPORT` in
/// somebody's environment cannot change it.
pub(super) const PORT: &str = "5432";

/// `sockaddr_un` has 108 bytes on Linux and 104 on macOS, one of them a zero.
const LONGEST: usize = 103;

pub(super) fn file(folder: &Path) -> PathBuf {
    folder.join(format!(".s.PGSQL.{PORT}"))
}

/// The folder: inside `home` when its name can be a socket's, else a short one in /tmp, which
/// is the same at every start.
pub(super) fn folder(home: &Path) -> PathBuf {
    let inside = home.join("run");
    if is_usable(&inside) {
        return inside;
    }
    let digest = Sha256::digest(home.as_os_str().as_encoded_bytes());
    let mut name = "/tmp/gensvc-".to_owned();
    for byte in &digest[..8] {
        // Writing into a String cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    name.into()
}

/// Makes the folder if need be, private and owned by `account`.
pub(super) fn ensure(folder: &Path, home: &Path, account: &Account) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => {}
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e).at("make", folder),
        Err(e) => {
            let meta = fs::symlink_metadata(folder).at("look at", folder)?;
            let ours = meta.uid() == account.uid.as_raw() && meta.mode() & 0o777 == 0o700;
            // In our home it may come from a restored copy. In /tmp it is an intruder's.
            if !meta.is_dir() || (!ours && !folder.starts_with(home)) {
                return Err(e).at("make", folder);
            }
        }
    }
    // Also of a new one, since a strange umask may have taken more than others' rights.
    fs::set_permissions(folder, Permissions::from_mode(0o700)).at("close", folder)?;
    account.own(folder)
}

/// Removes the lock beside the socket, if a server that is dead left it.
pub(super) fn unlock(folder: &Path) -> Result<()> {
    let lock = folder.join(format!(".s.PGSQL.{PORT}.lock"));
    match fs::remove_file(&lock) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e).at("remove", &lock),
        _ => Ok(()),
    }
}

/// The URL for sqlx and psql alike. No TLS: it is a socket, and the question would cost each
/// connection a round trip.
pub(super) fn url(folder: &Path) -> String {
    let mut host = String::new();
    for &byte in folder.as_os_str().as_encoded_bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            host.push(char::from(byte));
        } else {
            let _ = write!(host, "%{byte:02X}");
        }
    }
    format!("postgres:///gensvc?host={host}&port={PORT}&user=gensvc&sslmode=disable")
}

/// Short enough, and without what libpq, Postgres' own lists or a shell take apart.
fn is_usable(folder: &Path) -> bool {
    let Some(name) = folder.to_str() else {
        return false;
    };
    file(folder).as_os_str().len() <= LONGEST
        && !name
            .chars()
            .any(|c| c.is_control() || matches!(c, ',' | '"' | '\'' | '\\'))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{file, folder, is_usable, url};

    #[test]
    fn the_url_keeps_the_folder_whole() {
        assert_eq!(
            url(Path::new("/tmp/a b/ä&%")),
            "postgres:///gensvc?host=%2Ftmp%2Fa%20b%2F%C3%A4%26%25&port=5432&user=gensvc\
             &sslmode=disable"
        );
    }

    #[test]
    fn long_or_odd_names_go_elsewhere() {
        assert!(is_usable(Path::new("/srv/gensvc data/postgres/run")));
        assert!(!is_usable(Path::new("/srv/a,b/run")));
        let stem = "/".to_owned() + &"x".repeat(88);
        assert!(is_usable(Path::new(&stem)));
        assert!(!is_usable(Path::new(&(stem + "x"))));
        let elsewhere = folder(Path::new("/srv/a,b"));
        assert!(is_usable(&elsewhere), "{elsewhere:?}");
        assert!(file(&elsewhere).starts_with("/tmp"));
        assert_ne!(elsewhere, folder(Path::new("/srv/a,c")));
    }
}
