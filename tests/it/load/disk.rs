//! A full disk: what cannot be stored fails, costs nothing, and leaves nothing behind.

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use gensvc::media::MediaStore;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
    local::LocalFileSystem, path::Path,
};
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::{
    Reply, TestApp, Upstream,
    vendors::{mp4, runway},
};

/// A folder on a disk with room for a number of files.
#[derive(Debug)]
struct Disk {
    files: LocalFileSystem,
    room: Arc<AtomicUsize>,
}

impl Disk {
    fn take_room(&self) -> Result<()> {
        let taking = self
            .room
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |room| {
                room.checked_sub(1)
            });
        match taking {
            Ok(_) => Ok(()),
            Err(_) => Err(object_store::Error::Generic {
                store: "disk",
                source: Box::new(io::Error::from(io::ErrorKind::StorageFull)),
            }),
        }
    }
}

impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.files.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Disk {
    async fn put_opts(&self, to: &Path, bytes: PutPayload, o: PutOptions) -> Result<PutResult> {
        self.take_room()?;
        self.files.put_opts(to, bytes, o).await
    }

    async fn put_multipart_opts(
        &self,
        to: &Path,
        o: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.take_room()?;
        self.files.put_multipart_opts(to, o).await
    }

    async fn get_opts(&self, from: &Path, o: GetOptions) -> Result<GetResult> {
        self.files.get_opts(from, o).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.files.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.files.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.files.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, o: CopyOptions) -> Result<()> {
        self.take_room()?;
        self.files.copy_opts(from, to, o).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, o: RenameOptions) -> Result<()> {
        self.take_room()?;
        self.files.rename_opts(from, to, o).await
    }
}

#[sqlx::test]
async fn what_a_full_disk_refuses_fails_and_is_released(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    runway(&upstream, 1, None, Reply::File("video/mp4", mp4(2).await));
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let folder = app.media_folder();
    let room = Arc::new(AtomicUsize::new(0));
    let disk = Disk {
        files: LocalFileSystem::new_with_prefix(&folder).unwrap(),
        room: Arc::clone(&room),
    };
    let storage = MediaStore::over(Arc::new(disk), folder).await.unwrap();
    let app = app.over(storage).await;
    let account = app.account("100").await;

    let image = json!({"prompt": "x", "provider": "sandbox"});
    let path = "/v1/generate/image";
    let answer = app.post(&account.key, path, &image).await;
    let error = answer.error(503, "storage_unavailable");
    assert_eq!(error["message"], "the file could not be stored");
    assert_eq!(answer.json()["generation"]["credits"]["charged"], "0");

    let sound = json!({"prompt": "x", "provider": "sandbox"});
    let video = json!({"prompt": "x", "provider": "runway", "parameters": {"duration": 2}});
    for (kind, body) in [("audio", &sound), ("video", &video)] {
        let uuid = app.queue(&account, kind, body).await;
        let record = app.until_finished(&account, &uuid).await;
        assert_eq!(record["status"], "failed", "{record}");
        assert_eq!(record["error"]["code"], "storage_unavailable");
        assert_eq!(record["error"]["message"], "the file could not be stored");
        assert_eq!(record["credits"]["charged"], "0");
    }
    // One of two images fits.
    room.store(1, Ordering::Release);
    let images = json!({"prompt": "x", "provider": "sandbox", "parameters": {"n": 2}});
    let answer = app.post(&account.key, path, &images).await;
    answer.error(503, "storage_unavailable");
    assert_eq!(app.balance(&account).await, ("100".into(), "0".into()));
    app.assert_nothing_kept().await;

    // Space is freed.
    room.store(usize::MAX, Ordering::Release);
    app.post(&account.key, path, &image).await.expect(200);
    let uuid = app.queue(&account, "video", &video).await;
    let record = app.until_finished(&account, &uuid).await;
    assert_eq!(record["status"], "completed", "{record}");
    app.assert_settled().await;
}
