//! What a local folder needs beyond an object store's ways.

use std::{io, ops::Range, path::Path, time::Duration};

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream::BoxStream};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

use super::MediaStoreError;

/// The most that is read at once, in bytes.
const PIECE: usize = 256 << 10;

/// After this time without a write, a file on its way in belongs to nobody who still lives: a
/// download that stands still is given up within minutes, and what is whole is moved at once or
/// sent to a bucket within the hour.
const ABANDONED: Duration = Duration::from_hours(3);

/// The bytes of an open file in `range`, which lies within it.
pub(super) fn body(
    file: std::fs::File,
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
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let left = left - u64::try_from(read).unwrap_or(left);
        Ok(Some((piece.freeze(), (file, start, left))))
    })
    .boxed()
}

/// Removes a folder with all that is in it, lastingly.
pub(super) async fn remove(root: &Path, name: &str) -> io::Result<()> {
    match tokio::fs::remove_dir_all(root.join(name)).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(()) => tokio::fs::File::open(root).await?.sync_all().await,
    }
}

/// Writes a block, so that a full disk shows, and removes it.
pub(super) async fn probe(folder: &Path) -> io::Result<()> {
    let file = folder.join(format!(".probe-{}", std::process::id()));
    tokio::fs::write(&file, [0; 4_096]).await?;
    match tokio::fs::remove_file(&file).await {
        // A probe of a parallel health check was first.
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes what a crash left on its way in. What another replica is writing stays: only files
/// that were not written to for hours go, by the clock of the file system itself.
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
            // Moved to its place meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
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

/// As [`sweep`]; but a disk that is full does not keep the server from starting: the rest of it
/// needs no room there, and health tells.
pub(super) async fn sweep_at_start(folder: &Path) -> io::Result<()> {
    match sweep(folder).await {
        Err(error)
            if matches!(
                MediaStoreError::from(io::Error::from(error.kind())),
                MediaStoreError::NoSpace(_)
            ) =>
        {
            tracing::error!(%error, "the disk of stored files is full");
            Ok(())
        }
        done => done,
    }
}
