//! Stored files. So far only the place where they will lie, and whether it can be written.

use std::{io, path::PathBuf};

/// The folder of stored files.
#[derive(Debug, Clone)]
pub struct MediaStore {
    folder: PathBuf,
}

impl MediaStore {
    /// A store in `folder`, which is made when it is missing.
    pub async fn open(folder: PathBuf) -> io::Result<Self> {
        tokio::fs::create_dir_all(&folder).await?;
        Ok(Self { folder })
    }

    /// Whether a file can be written: writes one and removes it.
    pub async fn probe(&self) -> io::Result<()> {
        let file = self.folder.join(format!(".probe-{}", std::process::id()));
        tokio::fs::write(&file, b"").await?;
        match tokio::fs::remove_file(&file).await {
            // A probe of a parallel health check was first.
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
