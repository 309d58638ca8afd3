//! Where files are kept: a local folder, or an S3-compatible store.

use std::{fmt, io, ops::Range, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures_util::{StreamExt, TryStreamExt, stream::BoxStream};
use object_store::{
    GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions,
    WriteMultipart, aws::AmazonS3, local::LocalFileSystem, path::Path as ObjectPath,
    signer::Signer,
};

use super::{MediaKey, S3Settings, Spool, Spooled, s3};
use crate::domain::ids::GenerationId;

mod error;
mod local;

pub use error::MediaStoreError;

/// The folder of files on their way in, beside those of the generations.
const INCOMING: &str = "incoming";

/// The longest time that S3 signs a link for.
const LONGEST_LINK: Duration = Duration::from_hours(7 * 24);

/// Stored files, each written once under its key, whole or not at all. Cheap to clone.
#[derive(Clone)]
pub struct MediaStore {
    place: Place,
    /// Where [`Spool`]s are made; of a local store on the same file system as the files.
    incoming: PathBuf,
}

#[derive(Clone)]
enum Place {
    Local {
        files: Arc<dyn ObjectStore>,
        folder: PathBuf,
    },
    S3 {
        bucket: Arc<AmazonS3>,
        prefix: ObjectPath,
    },
}

impl fmt::Debug for MediaStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the client: it holds credentials.
        match &self.place {
            Place::Local { folder, .. } => f.debug_tuple("MediaStore").field(folder).finish(),
            Place::S3 { bucket, .. } => {
                let name = bucket.to_string();
                f.debug_tuple("MediaStore").field(&name).finish()
            }
        }
    }
}

/// What is known of a stored file without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaHead {
    /// Its length in bytes.
    pub bytes: u64,
    /// Changes when the file does; for the header `ETag`, with its quotes.
    pub e_tag: Option<String>,
    /// When it was stored.
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

/// A stored file, or a range of it, to be read once.
pub struct MediaFile {
    /// What is known of the whole file.
    pub head: MediaHead,
    /// Which bytes `body` brings.
    pub range: Range<u64>,
    /// The bytes, in pieces of at most 256 KiB of a local file. Ends with an error when not
    /// all of them can be read.
    pub body: BoxStream<'static, Result<Bytes, MediaStoreError>>,
}

impl fmt::Debug for MediaFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MediaFile")
            .field("head", &self.head)
            .field("range", &self.range)
            .finish_non_exhaustive()
    }
}

impl MediaStore {
    /// A store in `folder`, which is made when it is missing. What a crash left on its way in
    /// hours ago is removed.
    pub async fn open(folder: PathBuf) -> io::Result<Self> {
        tokio::fs::create_dir_all(&folder).await?;
        let files = LocalFileSystem::new_with_prefix(&folder)
            .map_err(io::Error::other)?
            .with_fsync(true)
            .with_automatic_cleanup(true);
        Self::over(Arc::new(files), folder).await
    }

    /// A store in `folder`, as [`Self::open`], that is reached through `files`: a test's way to
    /// let the disk fail.
    pub async fn over(files: Arc<dyn ObjectStore>, folder: PathBuf) -> io::Result<Self> {
        let incoming = folder.join(INCOMING);
        tokio::fs::create_dir_all(&incoming).await?;
        local::sweep_at_start(&incoming).await?;
        let place = Place::Local { files, folder };
        Ok(Self { place, incoming })
    }

    /// A store in a bucket; `incoming` is a local folder for files on their way in, which is
    /// made when it is missing. Nothing is sent yet: see [`Self::probe`].
    pub async fn open_s3(
        settings: &S3Settings,
        incoming: PathBuf,
    ) -> Result<Self, MediaStoreError> {
        tokio::fs::create_dir_all(&incoming).await?;
        local::sweep_at_start(&incoming).await?;
        let prefix = ObjectPath::parse(&settings.prefix)
            .map_err(|source| MediaStoreError::from(object_store::Error::from(source)))?;
        let place = Place::S3 {
            bucket: Arc::new(s3::connect(settings)?),
            prefix,
        };
        Ok(Self { place, incoming })
    }

    /// Removes what was left on its way in: by a crash, or by a file system that refused the
    /// removal. What anybody may still be writing stays.
    pub async fn sweep(&self) -> Result<(), MediaStoreError> {
        Ok(local::sweep(&self.incoming).await?)
    }

    /// A temporary file to write into, for [`Self::put_file`].
    pub async fn spool(&self) -> Result<Spool, MediaStoreError> {
        Ok(Spool::create(&self.incoming).await?)
    }

    /// Stores a file, in place of an older one of this key. When this returns, it survives a
    /// loss of power; until then nobody sees a part of it.
    pub async fn put(&self, key: &MediaKey, bytes: Bytes) -> Result<(), MediaStoreError> {
        let mut options = PutOptions::default();
        if let Place::S3 { .. } = self.place {
            options.attributes = s3::attributes(key);
        }
        self.objects()
            .put_opts(&self.path(key), bytes.into(), options)
            .await?;
        Ok(())
    }

    /// As [`Self::put`], from a temporary file: a local store moves it, without a copy; S3 is
    /// sent parts of 8 MiB, at most three of them in memory.
    pub async fn put_file(&self, key: &MediaKey, file: Spooled) -> Result<(), MediaStoreError> {
        let to = self.path(key);
        match &self.place {
            Place::Local { files, .. } => {
                let name = file.path()?.file_name().and_then(|name| name.to_str());
                let from = ObjectPath::from_iter([INCOMING, name.unwrap_or_default()]);
                // Its bytes are on the disk since `finish`; this syncs the folders.
                files.rename(&from, &to).await?;
                file.forget();
            }
            Place::S3 { bucket, .. } => {
                let options = PutMultipartOptions {
                    attributes: s3::attributes(key),
                    ..PutMultipartOptions::default()
                };
                let upload = bucket.put_multipart_opts(&to, options).await?;
                let mut upload = WriteMultipart::new_with_chunk_size(upload, s3::PART);
                if let Err(error) = s3::send(&mut upload, file.path()?).await {
                    // Best effort: a bucket's lifecycle rule removes what is left.
                    let _aborted = upload.abort().await;
                    return Err(error);
                }
                upload.finish().await?;
            }
        }
        Ok(())
    }

    /// What is known of a file; none when there is none.
    pub async fn head(&self, key: &MediaKey) -> Result<Option<MediaHead>, MediaStoreError> {
        match self.objects().head(&self.path(key)).await {
            Ok(meta) => Ok(Some(meta.into())),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// A file, whole or a range of it; none when there is none. A range must lie within the
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
        let found = match self.objects().get_opts(&self.path(key), options).await {
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

    /// Removes a file for good; nothing happens when there is none.
    pub async fn delete(&self, key: &MediaKey) -> Result<(), MediaStoreError> {
        match self.objects().delete(&self.path(key)).await {
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            done => Ok(done?),
        }
    }

    /// Removes all files of a generation for good, also those that nobody knows of any more;
    /// nothing happens when there are none.
    pub async fn delete_generation(&self, generation: GenerationId) -> Result<(), MediaStoreError> {
        match &self.place {
            Place::Local { folder, .. } => {
                Ok(local::remove(folder, &generation.0.to_string()).await?)
            }
            Place::S3 { bucket, prefix } => {
                let folder = prefix.clone().join(generation.0.to_string());
                let files = bucket.list(Some(&folder)).map_ok(|file| file.location);
                let removed = bucket.delete_stream(files.boxed());
                removed
                    .try_for_each(|_path| std::future::ready(Ok(())))
                    .await?;
                Ok(())
            }
        }
    }

    /// Whether files can be stored: writes 4 KiB, so that a full disk shows, and removes them.
    /// In a bucket an object named `probe` is overwritten and stays.
    pub async fn probe(&self) -> Result<(), MediaStoreError> {
        match &self.place {
            Place::Local { folder, .. } => Ok(local::probe(folder).await?),
            Place::S3 { bucket, prefix } => {
                bucket
                    .put(&prefix.clone().join("probe"), Bytes::new().into())
                    .await?;
                Ok(())
            }
        }
    }

    /// The bucket's own link to a file, which opens for `valid_for` (at most seven days); none
    /// for a local store, whose links [`super::MediaSigner`] makes. Does not look whether the
    /// file exists. The store's own clock is read.
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
        match &self.place {
            Place::Local { .. } => key,
            Place::S3 { prefix, .. } => prefix.parts().chain(key.parts()).collect(),
        }
    }

    fn objects(&self) -> &dyn ObjectStore {
        match &self.place {
            Place::Local { files, .. } => files.as_ref(),
            Place::S3 { bucket, .. } => bucket.as_ref(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
