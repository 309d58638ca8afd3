//! The media store: a local folder, or an S3-compatible store.

use std::{fmt, io, ops::Range, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures_util::{StreamExt, TryStreamExt, stream::BoxStream};
use object_store::{
    GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions,
    WriteMultipart, aws::AmazonS3, local::LocalFileSystem, memory::InMemory,
    path::Path as ObjectPath, signer::Signer,
};

use url::Origin;

use super::{MediaKey, S3Settings, Spool, Spooled, s3};
use crate::domain::ids::GenerationId;

mod error;
mod local;

pub use error::MediaStoreError;

/// The folder of incoming files, next to those of the generations.
const INCOMING: &str = "incoming";

/// The object that [`MediaStore::probe`] writes into a bucket.
const PROBE: &str = "probe";

/// Maximum validity of a link that S3 signs.
const LONGEST_LINK: Duration = Duration::from_hours(7 * 24);

/// Stored files, each written atomically under its key. Cheap to clone.
#[derive(Clone)]
pub struct MediaStore {
    files: Arc<dyn ObjectStore>,
    /// Prefix of all keys; empty for a local store.
    prefix: ObjectPath,
    place: Place,
    /// The folder of [`Spool`]s; in a local store on the same file system as the files.
    incoming: PathBuf,
}

#[derive(Clone)]
enum Place {
    Local(PathBuf),
    S3 {
        bucket: Arc<AmazonS3>,
        origin: Origin,
    },
}

impl fmt::Debug for MediaStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Only the name, since the client of a bucket holds credentials.
        let name = self.files.to_string();
        f.debug_tuple("MediaStore").field(&name).finish()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaHead {
    pub bytes: u64,
    /// The `ETag`, with its quotes.
    pub e_tag: Option<String>,
    pub modified: DateTime<Utc>,
}

impl From<ObjectMeta> for MediaHead {
    fn from(meta: ObjectMeta) -> Self {
        Self {
            bytes: meta.size,
            e_tag: meta.e_tag,
            modified: meta.last_modified,
        }
    }
}

/// A stored file, or a range of it, as a stream.
pub struct MediaFile {
    /// Metadata of the whole file.
    pub head: MediaHead,
    /// The range of the bytes in `body`.
    pub range: Range<u64>,
    /// Chunks of at most 256 KiB if the file is local. Ends with an error if the range cannot be
    /// read completely.
    pub body: BoxStream<'static, Result<Bytes, MediaStoreError>>,
}

impl MediaStore {
    /// Opens a store in `folder`, which is created if missing and made private to this user.
    /// Removes stale incoming files.
    pub async fn open(folder: PathBuf) -> io::Result<Self> {
        local::make_private(&folder, INCOMING).await?;
        let files = LocalFileSystem::new_with_prefix(&folder)
            .map_err(io::Error::other)?
            .with_fsync(true)
            .with_automatic_cleanup(true);
        Self::over(Arc::new(files), folder).await
    }

    /// Returns a store for a process that stores no files; it does not access the disk.
    pub fn nowhere() -> Self {
        Self {
            files: Arc::new(InMemory::new()),
            prefix: ObjectPath::default(),
            place: Place::Local(PathBuf::new()),
            incoming: PathBuf::new(),
        }
    }

    /// As [`Self::open`], with access through `files`, so that a test can simulate disk failures.
    pub async fn over(files: Arc<dyn ObjectStore>, folder: PathBuf) -> io::Result<Self> {
        let incoming = folder.join(INCOMING);
        tokio::fs::create_dir_all(&incoming).await?;
        local::sweep_at_start(&incoming).await?;
        Ok(Self {
            files,
            prefix: ObjectPath::default(),
            place: Place::Local(folder),
            incoming,
        })
    }

    /// Opens a store in a bucket. `incoming` is a local folder for incoming files, which is created
    /// if missing. Sends nothing, see [`Self::probe`].
    pub async fn open_s3(
        settings: &S3Settings,
        incoming: PathBuf,
    ) -> Result<Self, MediaStoreError> {
        local::make_private(&incoming, "").await?;
        local::sweep_at_start(&incoming).await?;
        let prefix = ObjectPath::parse(&settings.prefix)
            .map_err(|source| MediaStoreError::from(object_store::Error::from(source)))?;
        let bucket = Arc::new(s3::connect(settings)?);
        Ok(Self {
            files: bucket.clone(),
            prefix,
            place: Place::S3 {
                bucket,
                origin: settings.origin(),
            },
            incoming,
        })
    }

    /// Whether the files are in a folder, which other servers may not see.
    pub const fn is_local(&self) -> bool {
        matches!(self.place, Place::Local(_))
    }

    /// Returns the origin of the links of [`Self::link`].
    pub const fn origin(&self) -> Option<&Origin> {
        match &self.place {
            Place::Local(_) => None,
            Place::S3 { origin, .. } => Some(origin),
        }
    }

    /// Removes stale incoming files, left by a crash or a failed removal, but not those that may
    /// still be written.
    pub async fn sweep(&self) -> Result<(), MediaStoreError> {
        Ok(local::sweep(&self.incoming).await?)
    }

    /// Creates a temporary file to write, for [`Self::put_file`].
    pub async fn spool(&self) -> Result<Spool, MediaStoreError> {
        Ok(Spool::create(&self.incoming).await?)
    }

    /// Stores a file atomically, replacing an older file with this key. The file is durable once
    /// this returns.
    pub async fn put(&self, key: &MediaKey, bytes: Bytes) -> Result<(), MediaStoreError> {
        let mut options = PutOptions::default();
        if let Place::S3 { .. } = self.place {
            options.attributes = s3::attributes(key);
        }
        self.files
            .put_opts(&self.path(key), bytes.into(), options)
            .await?;
        Ok(())
    }

    /// As [`Self::put`], from a temporary file. A local store moves it; S3 gets parts of 8 MiB, at
    /// most three of them in memory.
    pub async fn put_file(&self, key: &MediaKey, file: Spooled) -> Result<(), MediaStoreError> {
        let to = self.path(key);
        match &self.place {
            Place::Local(_) => {
                let name = file.path().file_name().and_then(|name| name.to_str());
                let from = ObjectPath::from_iter([INCOMING, name.unwrap_or_default()]);
                // `finish` has synced the file's contents; this syncs the folders.
                self.files.rename(&from, &to).await?;
            }
            Place::S3 { .. } => {
                let options = PutMultipartOptions {
                    attributes: s3::attributes(key),
                    ..PutMultipartOptions::default()
                };
                let upload = self.files.put_multipart_opts(&to, options).await?;
                let mut upload = WriteMultipart::new_with_chunk_size(upload, s3::PART);
                if let Err(error) = s3::send(&mut upload, file.path()).await {
                    // Best effort: a lifecycle rule of the bucket removes leftovers.
                    let _aborted = upload.abort().await;
                    return Err(error);
                }
                upload.finish().await?;
            }
        }
        Ok(())
    }

    /// Returns metadata of a file; `None` if it does not exist.
    pub async fn head(&self, key: &MediaKey) -> Result<Option<MediaHead>, MediaStoreError> {
        match self.files.head(&self.path(key)).await {
            Ok(meta) => Ok(Some(meta.into())),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns a file, or a range of it; `None` if it does not exist. The range must lie within the
    /// file and not be empty, otherwise [`MediaStoreError::Range`].
    pub async fn get(
        &self,
        key: &MediaKey,
        range: Option<Range<u64>>,
    ) -> Result<Option<MediaFile>, MediaStoreError> {
        if let Some(range) = &range {
            let Some(head) = self.head(key).await? else {
                return Ok(None);
            };
            if range.is_empty() || range.end > head.bytes {
                return Err(MediaStoreError::Range { bytes: head.bytes });
            }
        }
        let options = GetOptions {
            range: range.map(GetRange::Bounded),
            ..GetOptions::default()
        };
        let found = match self.files.get_opts(&self.path(key), options).await {
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            found => found?,
        };
        Ok(Some(MediaFile {
            head: found.meta.clone().into(),
            range: found.range.clone(),
            body: match found.payload {
                object_store::GetResultPayload::File(file, _) => local::body(file, found.range),
                object_store::GetResultPayload::Stream(body) => body.map_err(Into::into).boxed(),
            },
        }))
    }

    /// Deletes all files of a generation, including files in no record.
    pub async fn delete_generation(&self, generation: GenerationId) -> Result<(), MediaStoreError> {
        match &self.place {
            Place::Local(folder) => Ok(local::remove(folder, &generation.0.to_string()).await?),
            Place::S3 { .. } => {
                let folder = self.prefix.clone().join(generation.0.to_string());
                let files = self.files.list(Some(&folder));
                let files = files.map_ok(|file| file.location);
                let removed = self.files.delete_stream(files.boxed());
                removed
                    .try_for_each(|_path| std::future::ready(Ok(())))
                    .await?;
                Ok(())
            }
        }
    }

    /// Lists names and sizes of all files except incoming ones. A name is a [`MediaKey`] unless
    /// another program stored the file.
    pub fn list(&self) -> BoxStream<'_, Result<(String, u64), MediaStoreError>> {
        let depth = self.prefix.parts().count();
        let files = self.files.list(Some(&self.prefix)).map_err(Into::into);
        let listed = files.try_filter_map(move |meta| {
            let name: ObjectPath = meta.location.parts().skip(depth).collect();
            let name = name.to_string();
            let ours = name == PROBE || name.starts_with(&format!("{INCOMING}/"));
            std::future::ready(Ok((!ours).then_some((name, meta.size))))
        });
        listed.boxed()
    }

    /// Checks that files can be stored: writes 4 KiB, which detects a full disk, and removes them.
    /// In a bucket an object named `probe` is overwritten and remains.
    pub async fn probe(&self) -> Result<(), MediaStoreError> {
        match &self.place {
            Place::Local(_) => Ok(local::probe(&self.incoming).await?),
            Place::S3 { .. } => {
                let probe = self.prefix.clone().join(PROBE);
                self.files.put(&probe, Bytes::new().into()).await?;
                Ok(())
            }
        }
    }

    /// Returns the bucket's presigned link to a file, valid for `valid_for` (at most seven days) by
    /// the system clock. Returns `None` for a local store, whose links [`super::MediaSigner`]
    /// makes. Does not check that the file exists.
    pub async fn link(
        &self,
        key: &MediaKey,
        valid_for: Duration,
    ) -> Result<Option<String>, MediaStoreError> {
        let Place::S3 { bucket, .. } = &self.place else {
            return Ok(None);
        };
        let path = self.path(key);
        let valid_for = valid_for.min(LONGEST_LINK);
        let link = bucket.signed_url(http::Method::GET, &path, valid_for);
        Ok(Some(link.await?.into()))
    }

    fn path(&self, key: &MediaKey) -> ObjectPath {
        let key = ObjectPath::from(key.to_string());
        self.prefix.parts().chain(key.parts()).collect()
    }
}

#[cfg(test)]
pub(super) mod tests;
