//! The folder of the Unix socket, which has mode 0700, and the URL of the database.

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

/// Part of the socket's name only. It is always given, so that `PGPORT` cannot change it.
pub(super) const PORT: &str = "5432";

/// `sockaddr_un` has 108 bytes on Linux and 104 on macOS, one of them a zero.
const MAX_PATH_BYTES: usize = 103;

pub(super) fn file(folder: &Path) -> PathBuf {
    folder.join(format!(".s.PGSQL.{PORT}"))
}

pub(super) fn lock_file(folder: &Path) -> PathBuf {
    folder.join(format!(".s.PGSQL.{PORT}.lock"))
}

/// Returns the folder: in `home`, or in /tmp if that path is unusable for a socket.
pub(super) fn folder(home: &Path) -> PathBuf {
    let inside = home.join("run");
    if is_usable(&inside) {
        return inside;
    }
    let digest = Sha256::digest(home.as_os_str().as_encoded_bytes());
    let digits = digest[..8].iter().map(|byte| format!("{byte:02x}"));
    format!("/tmp/gensvc-{}", digits.collect::<String>()).into()
}

/// Creates the folder unless it exists.
pub(super) fn create(folder: &Path, home: &Path, account: &Account) -> Result<()> {
    let created = DirBuilder::new().mode(0o700).create(folder);
    if let Err(error) = created {
        let meta = fs::symlink_metadata(folder);
        // Any user may have created it in /tmp.
        let is_ours = meta.is_ok_and(|meta| {
            let uid = account.uid.as_raw();
            let is_closed = meta.uid() == uid && meta.mode() & 0o777 == 0o700;
            meta.is_dir() && (is_closed || folder.starts_with(home))
        });
        if error.kind() != ErrorKind::AlreadyExists || !is_ours {
            return Err(error).at("create", folder);
        }
    }
    // The umask may have removed the owner's rights.
    fs::set_permissions(folder, Permissions::from_mode(0o700)).at("change the mode of", folder)?;
    account.own(folder)
}

/// Returns a URL for sqlx and psql. It disables TLS, whose negotiation would take a round trip.
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

/// Whether the path is short enough, without characters that libpq, Postgres or a shell interpret.
fn is_usable(folder: &Path) -> bool {
    let special = |c: char| c.is_control() || matches!(c, ',' | '"' | '\'' | '\\');
    file(folder).as_os_str().len() <= MAX_PATH_BYTES
        && folder.to_str().is_some_and(|name| !name.contains(special))
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
