//! Operations on a local folder that an object store lacks.

use std::{
    fs::{self, DirBuilder, Metadata, Permissions},
    io::{self, ErrorKind},
    ops::Range,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::Path,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream::BoxStream};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

use super::MediaStoreError;

/// Bytes that are read at a time.
const PIECE: usize = 256 << 10;

/// After this time without a write, an incoming file is abandoned: a stalled download is given up
/// within minutes, and a complete file is moved at once or uploaded to a bucket within the hour.
const ABANDONED: Duration = Duration::from_hours(3);

/// Streams the bytes of an open file in `range`, which must lie within it.
pub(super) fn body(
    file: fs::File,
    range: Range<u64>,
) -> BoxStream<'static, Result<Bytes, MediaStoreError>> {
    let file = tokio::fs::File::from_std(file);
    let left = range.end.saturating_sub(range.start);
    let state = (file, Some(range.start), left);
    futures_util::stream::try_unfold(state, |(mut file, mut start, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        if let Some(start) = start.take() {
            file.seek(io::SeekFrom::Start(start)).await?;
        }
        let most = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
        let mut piece = BytesMut::with_capacity(most);
        let read = (&mut file).take(left).read_buf(&mut piece).await?;
        if read == 0 {
            return Err(io::Error::from(ErrorKind::UnexpectedEof).into());
        }
        let left = left - u64::try_from(read).unwrap_or(left);
        Ok(Some((piece.freeze(), (file, start, left))))
    })
    .boxed()
}

/// Removes a folder recursively and syncs its parent.
pub(super) async fn remove(root: &Path, name: &str) -> io::Result<()> {
    match tokio::fs::remove_dir_all(root.join(name)).await {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(()) => tokio::fs::File::open(root).await?.sync_all().await,
    }
}

/// Writes a block to the folder of incoming files, which detects a full disk, and removes it. After
/// a crash, [`sweep`] removes it.
pub(super) async fn probe(folder: &Path) -> io::Result<()> {
    let file = folder.join(format!(".probe-{}", std::process::id()));
    tokio::fs::write(&file, [0; 4_096]).await?;
    match tokio::fs::remove_file(&file).await {
        // A concurrent health check may have removed it.
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes incoming files that a crash left. Only files that were not written to for hours, by the
/// file system's own clock, so that those of other replicas remain.
pub(super) async fn sweep(folder: &Path) -> io::Result<()> {
    let clock = folder.join(".clock");
    let mut file = tokio::fs::File::create(&clock).await?;
    file.write_all(b"now").await?;
    file.sync_all().await?;
    let now = file.metadata().await?.modified()?;
    let mut entries = tokio::fs::read_dir(folder).await?;
    while let Some(entry) = entries.next_entry().await? {
        let written = match entry.metadata().await {
            Ok(metadata) => metadata.modified()?,
            // It was moved into the store meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let age = now.duration_since(written).unwrap_or_default();
        if age > ABANDONED {
            tracing::info!(path = %entry.path().display(), "removing an abandoned file");
            tokio::fs::remove_file(entry.path()).await?;
        }
    }
    Ok(())
}

/// As [`sweep`], but ignores a full disk, so that the server can start: the rest of it needs no
/// space there, and the health check reports it.
pub(super) async fn sweep_at_start(folder: &Path) -> io::Result<()> {
    match sweep(folder).await {
        Err(error)
            if matches!(
                MediaStoreError::from(io::Error::from(error.kind())),
                MediaStoreError::NoSpace(_)
            ) =>
        {
            tracing::error!(%error, "the disk of the media store is full");
            Ok(())
        }
        done => done,
    }
}

/// Makes `root` and everything in it private. An earlier version let others read its files; they
/// are changed only once, because the folder `last` is closed after all others.
pub(super) async fn make_private(root: &Path, last: &'static str) -> io::Result<()> {
    let root = root.to_owned();
    let ensured = tokio::task::spawn_blocking(move || {
        let last = root.join(last);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&last)?;
        // A volume may belong to another user, who controls its permissions.
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
    // Closed first, so that others lose access at once.
    close(root)?;
    if !is_open(&fs::metadata(last)?) {
        return Ok(());
    }
    tracing::info!(path = %root.display(), "making stored files private");
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(folder) {
            // A generation or an upload was removed meanwhile.
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
