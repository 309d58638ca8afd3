//! Incoming files: written and digested as they arrive, moved into the store when complete.

use std::{
    io::{self, Read, Seek},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};
use tokio::io::{AsyncWriteExt, BufWriter};
use uuid::Uuid;

use super::{
    InvalidMedia, MediaInfo, MediaKind, MediaStoreError,
    probe::{self, mp4, sniff},
};

/// Bytes that are buffered before they are written.
const BUFFER: usize = 256 << 10;

/// Maximum bytes of a file that is read into memory for validation. Videos are not.
const LARGEST_IN_MEMORY: u64 = 128 << 20;

/// A temporary file that is being written; removed on drop.
#[derive(Debug)]
pub struct Spool {
    path: Temporary,
    file: BufWriter<tokio::fs::File>,
    bytes: u64,
    digest: Sha256,
}

impl Spool {
    /// Creates a file in `folder`.
    pub(super) async fn create(folder: &Path) -> io::Result<Self> {
        let path = folder.join(Uuid::now_v7().to_string());
        let file = tokio::fs::File::create_new(&path).await?;
        Ok(Self {
            path: Temporary(path),
            file: BufWriter::with_capacity(BUFFER, file),
            bytes: 0,
            digest: Sha256::new(),
        })
    }

    /// Appends bytes. [`MediaStoreError::NoSpace`] may only be reported by [`Self::finish`].
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), MediaStoreError> {
        self.digest.update(bytes);
        self.bytes += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        Ok(self.file.write_all(bytes).await?)
    }

    /// Returns the complete file, synced to disk.
    pub async fn finish(mut self) -> Result<Spooled, MediaStoreError> {
        self.file.flush().await?;
        self.file.get_ref().sync_all().await?;
        Ok(Spooled {
            path: self.path,
            bytes: self.bytes,
            sha256: self.digest.finalize().into(),
        })
    }
}

/// A complete temporary file; removed on drop.
#[derive(Debug)]
pub struct Spooled {
    path: Temporary,
    bytes: u64,
    sha256: [u8; 32],
}

impl Spooled {
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// As [`super::inspect`]. Only the headers of an MP4 are read; other formats are read
    /// completely, up to 128 MiB ([`InvalidMedia::TooLarge`]).
    ///
    /// The outer error means that the file could not be read, the inner one that it is invalid.
    pub async fn inspect(
        &self,
        expected: &[MediaKind],
    ) -> Result<Result<MediaInfo, InvalidMedia>, MediaStoreError> {
        let path = self.path().to_owned();
        let (bytes, sha256, expected) = (self.bytes, self.sha256, expected.to_vec());
        let checked = tokio::task::spawn_blocking(move || check(&path, bytes, sha256, &expected));
        match checked.await.map_err(io::Error::other)? {
            Ok(info) => Ok(Ok(info)),
            Err(mp4::ReadError::Bad(bad)) => Ok(Err(bad)),
            Err(mp4::ReadError::Io(error)) => Err(error.into()),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path.0
    }
}

fn check(
    path: &Path,
    length: u64,
    sha256: [u8; 32],
    expected: &[MediaKind],
) -> Result<MediaInfo, mp4::ReadError> {
    let mut file = std::fs::File::open(path)?;
    let mut start = Vec::new();
    file.by_ref().take(16).read_to_end(&mut start)?;
    let kind = sniff(&start)?;
    if !expected.contains(&kind) {
        return Err(InvalidMedia::WrongType { found: kind }.into());
    }
    if kind == MediaKind::Mp4 {
        let traits = mp4::read(&mut file)?;
        return Ok(MediaInfo::new(kind, (length, sha256), traits));
    }
    if length > LARGEST_IN_MEMORY {
        return Err(InvalidMedia::TooLarge.into());
    }
    file.rewind()?;
    let mut bytes = Vec::new();
    file.take(LARGEST_IN_MEMORY).read_to_end(&mut bytes)?;
    Ok(probe::inspect(&bytes, expected)?)
}

/// Removes the file on drop, unless it was moved.
#[derive(Debug)]
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0)
            && error.kind() != io::ErrorKind::NotFound
        {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(error, path = %self.0.display(), "a temporary file could not be removed");
        }
    }
}
