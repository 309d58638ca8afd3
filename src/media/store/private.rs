//! Restricts stored files to the server's user.

use std::{
    fs::{self, DirBuilder, Metadata, Permissions},
    io::{self, ErrorKind},
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::Path,
};

/// Makes `root` and everything in it private. Files of a version that let others read them are
/// changed once: the folder `last` is closed after all others.
pub(super) async fn ensure(root: &Path, last: &'static str) -> io::Result<()> {
    let root = root.to_owned();
    let ensured = tokio::task::spawn_blocking(move || {
        let last = root.join(last);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&last)?;
        // A volume may belong to another user, who decides.
        if let Err(error) = close_all(&root, &last) {
            let error: &dyn std::error::Error = &error;
            let path = root.display();
            tracing::warn!(error, %path, "other users of this machine may read stored files");
        }
        Ok(())
    });
    ensured.await.map_err(io::Error::other)?
}

fn close_all(root: &Path, last: &Path) -> io::Result<()> {
    // First, so that others lose access at once.
    close(root)?;
    if !is_open(&fs::metadata(last)?) {
        return Ok(());
    }
    tracing::info!(path = %root.display(), "making stored files private");
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(folder) {
            // A generation or an upload that was removed meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            if path != last && !kind.is_symlink() {
                close(&path)?;
            }
            if kind.is_dir() {
                folders.push(path);
            }
        }
    }
    close(last)
}

fn close(path: &Path) -> io::Result<()> {
    let closed = fs::metadata(path).and_then(|meta| {
        if is_open(&meta) {
            let mode = meta.permissions().mode() & 0o700;
            fs::set_permissions(path, Permissions::from_mode(mode))?;
        }
        Ok(())
    });
    match closed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        closed => closed,
    }
}

/// Whether other users have access.
fn is_open(meta: &Metadata) -> bool {
    meta.permissions().mode() & 0o077 != 0
}
