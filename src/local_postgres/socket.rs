//! Where the unix socket lies and how it is spelled in a URL. The folder is
//! private (0700), which is all the authentication there is: whoever may enter
//! may connect.

use std::{
    fs::{self, DirBuilder, Permissions},
    io::ErrorKind,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use uuid::Uuid;

use super::{
    account::Account,
    error::{At, Result},
};

/// The port is only a part of the socket's name. It is given everywhere, so that
/// a `PGPORT` in somebody's environment cannot change it.
pub(super) const PORT: &str = "5432";

/// `sockaddr_un` has 108 bytes on Linux and 104 on macOS, one of them a zero.
const LONGEST: usize = 103;

/// The socket itself.
pub(super) fn file(folder: &Path) -> PathBuf {
    folder.join(format!(".s.PGSQL.{PORT}"))
}

/// Decides on the folder: inside `home` when its name can be a socket's, else a
/// short one in /tmp that is written down in `home` for the next process.
pub(super) fn choose(home: &Path, account: &Account) -> Result<PathBuf> {
    let inside = home.join("run");
    if is_usable(&inside) {
        return Ok(inside);
    }
    let record = home.join("socket-folder");
    let mark = mark(home)?;
    if let Ok(line) = fs::read(&record)
        && let Some(folder) = line.strip_suffix(mark.as_slice())
    {
        let folder = PathBuf::from(String::from_utf8_lossy(folder).into_owned());
        // Gone is fine (a reboot cleans /tmp); somebody else's is not.
        if is_usable(&folder) && is_free_or_ours(&folder, account) {
            return Ok(folder);
        }
    }
    let id = Uuid::now_v7().simple().to_string();
    let folder = PathBuf::from(format!("/tmp/gensvc-{}", &id[id.len() - 12..]));
    // Written aside and renamed: a half-written name would send clients nowhere.
    let aside = home.join("socket-folder.new");
    let mut line = folder.as_os_str().as_encoded_bytes().to_vec();
    line.extend(mark);
    fs::write(&aside, line).at("write", &aside)?;
    fs::rename(&aside, &record).at("write", &record)?;
    Ok(folder)
}

/// Tells a record from its copy in a copied data directory, which would lead to
/// the original's database.
fn mark(home: &Path) -> Result<Vec<u8>> {
    let inode = fs::metadata(home).at("look at", home)?.ino();
    let mut mark = format!("\n{inode}\n").into_bytes();
    mark.extend(home.as_os_str().as_encoded_bytes());
    Ok(mark)
}

/// Makes the folder if need be, private and owned by `account`.
pub(super) fn ensure(folder: &Path, home: &Path, account: &Account) -> Result<()> {
    let close = |folder| {
        fs::set_permissions(folder, Permissions::from_mode(0o700)).at("close", folder)?;
        account.own(folder)
    };
    match DirBuilder::new().mode(0o700).create(folder) {
        // Again, since a strange umask may have taken more than others' rights.
        Ok(()) => close(folder),
        Err(e) if e.kind() != ErrorKind::AlreadyExists => Err(e).at("make", folder),
        Err(_) if is_free_or_ours(folder, account) => Ok(()),
        // In our home it comes from a restored copy. In /tmp it is an intruder's.
        Err(e) => match fs::symlink_metadata(folder) {
            Ok(meta) if meta.is_dir() && folder.starts_with(home) => close(folder),
            _ => Err(e).at("make", folder),
        },
    }
}

/// The URL for sqlx and psql alike. No TLS: it is a socket, and the question
/// would cost each connection a round trip.
pub(super) fn url(folder: &Path) -> String {
    let host = percent_encoded(folder.as_os_str().as_encoded_bytes());
    format!("postgres:///gensvc?host={host}&port={PORT}&user=gensvc&sslmode=disable")
}

fn is_free_or_ours(folder: &Path, account: &Account) -> bool {
    fs::symlink_metadata(folder).map_or_else(
        |e| e.kind() == ErrorKind::NotFound,
        |meta| meta.is_dir() && meta.uid() == account.uid && meta.mode() & 0o777 == 0o700,
    )
}

/// Short enough, and without what libpq or Postgres' own lists take apart.
fn is_usable(folder: &Path) -> bool {
    let Some(name) = folder.to_str() else {
        return false;
    };
    file(folder).as_os_str().len() <= LONGEST
        && !name
            .chars()
            .any(|c| c.is_control() || matches!(c, ',' | '"' | '\'' | '\\'))
}

fn percent_encoded(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(bytes.len() * 3);
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            // Writing into a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{is_usable, url};

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
    }
}
