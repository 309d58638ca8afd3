use std::{fs::Permissions, os::unix::fs::PermissionsExt as _, path::Path};

use futures_util::TryStreamExt;
use sha2::{Digest, Sha256};

use super::*;
use crate::media::{InvalidMedia, MediaKind};

/// A temporary folder, removed on drop.
pub(in crate::media) struct Folder(PathBuf);

impl Folder {
    pub(in crate::media) fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("gensvc-media-{}", uuid::Uuid::now_v7()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub(in crate::media) fn path(&self) -> PathBuf {
        self.0.join("media")
    }

    /// Returns the number of files in it, without hidden ones.
    pub(in crate::media) fn files(&self) -> usize {
        fn count(folder: &Path) -> usize {
            let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
            entries
                .map(|entry| {
                    if entry.file_type().unwrap().is_dir() {
                        count(&entry.path())
                    } else {
                        usize::from(!entry.file_name().to_string_lossy().starts_with('.'))
                    }
                })
                .sum()
        }
        count(&self.0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn key(index: u16) -> MediaKey {
    let generation = "01970000-0000-7000-8000-000000000001".parse().unwrap();
    MediaKey::new(GenerationId(generation), index, MediaKind::Png)
}

async fn read(store: &MediaStore, key: &MediaKey, range: Option<Range<u64>>) -> Vec<u8> {
    let file = store.get(key, range).await.unwrap().unwrap();
    let pieces: Vec<Bytes> = file.body.try_collect().await.unwrap();
    assert_eq!(
        file.range.end - file.range.start,
        pieces.concat().len() as u64
    );
    pieces.concat()
}

#[tokio::test]
async fn stored_read_and_removed() {
    let folder = Folder::new();
    let store = MediaStore::open(folder.path()).await.unwrap();
    let bytes: Vec<u8> = (0..700_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    assert!(store.head(&key(0)).await.unwrap().is_none());
    assert!(store.get(&key(0), None).await.unwrap().is_none());
    assert!(store.get(&key(0), Some(0..1)).await.unwrap().is_none());
    store
        .put(&key(0), b"older".as_slice().into())
        .await
        .unwrap();
    let older = store.head(&key(0)).await.unwrap().unwrap();
    store.put(&key(0), bytes.clone().into()).await.unwrap();
    let head = store.head(&key(0)).await.unwrap().unwrap();
    assert_eq!(head.bytes, 700_000);
    assert_ne!(head.e_tag, older.e_tag);
    assert!(
        head.e_tag
            .is_some_and(|tag| tag.starts_with('"') && tag.ends_with('"'))
    );
    assert_eq!(read(&store, &key(0), None).await, bytes);
    assert_eq!(
        read(&store, &key(0), Some(5..300_000)).await,
        &bytes[5..300_000]
    );
    assert_eq!(
        read(&store, &key(0), Some(699_999..700_000)).await,
        &bytes[699_999..]
    );
    for range in [5..5, 0..700_001, 700_000..700_001] {
        let error = store.get(&key(0), Some(range)).await.err();
        assert!(matches!(
            error,
            Some(MediaStoreError::Range { bytes: 700_000 })
        ));
    }
    assert_eq!(
        store.link(&key(0), Duration::from_secs(5)).await.unwrap(),
        None
    );
    let generation = key(0).generation;
    store.delete_generation(generation).await.unwrap();
    store.delete_generation(generation).await.unwrap();
    assert!(store.head(&key(0)).await.unwrap().is_none());
    assert_eq!(folder.files(), 0);
}

#[tokio::test]
async fn a_file_is_moved_in() {
    let folder = Folder::new();
    let store = MediaStore::open(folder.path()).await.unwrap();
    let mut spool = store.spool().await.unwrap();
    for _ in 0..1_000 {
        spool.write(&[9; 1_000]).await.unwrap();
    }
    let file = spool.finish().await.unwrap();
    assert_eq!(file.bytes(), 1_000_000);
    let unknown = file.inspect(MediaKind::ALL).await.unwrap();
    assert_eq!(unknown, Err(InvalidMedia::Unknown));
    store.put_file(&key(3), file).await.unwrap();
    assert_eq!(read(&store, &key(3), None).await, vec![9; 1_000_000]);
    assert_eq!(folder.files(), 1, "moved, not copied");
    // An abandoned file leaves nothing.
    let mut spool = store.spool().await.unwrap();
    spool.write(b"half").await.unwrap();
    drop(spool);
    drop(store.spool().await.unwrap().finish().await.unwrap());
    assert_eq!(folder.files(), 1);
}

#[tokio::test]
async fn a_spool_knows_what_it_holds() {
    let folder = Folder::new();
    let store = MediaStore::open(folder.path()).await.unwrap();
    let bytes = crate::media::probe::tests::mp4();
    let mut spool = store.spool().await.unwrap();
    spool.write(&bytes[..7]).await.unwrap();
    spool.write(&bytes[7..]).await.unwrap();
    let file = spool.finish().await.unwrap();
    let info = file.inspect(&[MediaKind::Mp4]).await.unwrap().unwrap();
    assert_eq!(
        info,
        crate::media::inspect(&bytes, &[MediaKind::Mp4]).unwrap()
    );
    assert_eq!(info.sha256, <[u8; 32]>::from(Sha256::digest(&bytes)));
    let other = file.inspect(&[MediaKind::Png]).await.unwrap();
    assert_eq!(
        other,
        Err(InvalidMedia::WrongType {
            found: MediaKind::Mp4
        })
    );
}

#[tokio::test]
async fn a_generation_goes_at_once() {
    let folder = Folder::new();
    let store = MediaStore::open(folder.path()).await.unwrap();
    let other = "01970000-0000-7000-8000-000000000002".parse().unwrap();
    let other = MediaKey::new(GenerationId(other), 0, MediaKind::Mp4);
    for key in [key(0), key(1), other] {
        store.put(&key, Bytes::from_static(b"x")).await.unwrap();
    }
    store.delete_generation(key(0).generation).await.unwrap();
    store.delete_generation(key(0).generation).await.unwrap();
    assert!(store.head(&key(0)).await.unwrap().is_none());
    assert_eq!(store.head(&other).await.unwrap().unwrap().bytes, 1);
    assert_eq!(folder.files(), 1);
}

#[tokio::test]
async fn what_others_could_read_is_closed() {
    let folder = Folder::new();
    let (root, generation) = (folder.path(), folder.path().join("a"));
    std::fs::create_dir_all(&generation).unwrap();
    std::fs::create_dir(root.join(INCOMING)).unwrap();
    std::fs::write(generation.join("0.png"), b"x").unwrap();
    let paths = [
        (root.clone(), 0o755, 0o700),
        (root.join(INCOMING), 0o755, 0o700),
        (generation.clone(), 0o755, 0o700),
        (generation.join("0.png"), 0o644, 0o600),
    ];
    for (path, before, _) in &paths {
        std::fs::set_permissions(path, Permissions::from_mode(*before)).unwrap();
    }
    MediaStore::open(root).await.unwrap();
    for (path, _, after) in &paths {
        let mode = std::fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, *after, "{path:?}");
    }
}

#[tokio::test]
async fn health() {
    let folder = Folder::new();
    let store = MediaStore::open(folder.path()).await.unwrap();
    store.probe().await.unwrap();
    assert_eq!(folder.files(), 0);
    std::fs::remove_dir_all(folder.path()).unwrap();
    assert!(matches!(
        store.probe().await,
        Err(MediaStoreError::Failed(_))
    ));
}

#[tokio::test]
async fn what_a_crash_left_goes_after_hours_at_the_start_and_at_each_sweep() {
    let folder = Folder::new();
    let incoming = folder.path().join(INCOMING);
    std::fs::create_dir_all(&incoming).unwrap();
    for (name, hours) in [("young", 2), ("old", 4)] {
        let file = std::fs::File::create(incoming.join(name)).unwrap();
        let now = file.metadata().unwrap().modified().unwrap();
        file.set_modified(now - Duration::from_hours(hours))
            .unwrap();
    }
    let store = MediaStore::open(folder.path()).await.unwrap();
    assert!(incoming.join("young").exists());
    assert!(!incoming.join("old").exists());
    let young = incoming.join("young");
    let file = std::fs::File::options().write(true).open(young).unwrap();
    let written = file.metadata().unwrap().modified().unwrap();
    file.set_modified(written - Duration::from_hours(2))
        .unwrap();
    store.sweep().await.unwrap();
    assert!(!incoming.join("young").exists());
}

#[tokio::test]
async fn a_bucket_signs_its_own_links() {
    let folder = Folder::new();
    let settings = S3Settings {
        bucket: "files".to_owned(),
        region: "eu-central-1".to_owned(),
        endpoint: Some("https://s3.example:9000/".parse().unwrap()),
        virtual_hosted: false,
        credentials: Some(("id".to_owned(), "very-secret".to_owned().into())),
        session_token: None,
        prefix: "some/prefix".to_owned(),
    };
    let store = MediaStore::open_s3(&settings, folder.path()).await.unwrap();
    for virtual_hosted in [false, true] {
        let aws = S3Settings {
            endpoint: None,
            virtual_hosted,
            ..settings.clone()
        };
        let aws = MediaStore::open_s3(&aws, folder.path()).await.unwrap();
        let link = aws.link(&key(2), Duration::from_mins(1)).await.unwrap();
        let origin = link.unwrap().parse::<url::Url>().unwrap().origin();
        assert_eq!(aws.origin(), Some(&origin));
    }
    let link = store
        .link(&key(2), Duration::from_mins(1))
        .await
        .unwrap()
        .unwrap();
    let path = "files/some/prefix/01970000-0000-7000-8000-000000000001/2.png";
    assert!(
        link.starts_with(&format!("https://s3.example:9000/{path}?")),
        "{link}"
    );
    let origin = store.origin().unwrap().ascii_serialization();
    assert_eq!(origin, "https://s3.example:9000");
    assert!(
        link.contains("X-Amz-Expires=60") && link.contains("X-Amz-Signature="),
        "{link}"
    );
    for text in [format!("{settings:?}"), format!("{store:?}"), link] {
        assert!(!text.contains("very-secret"), "{text}");
    }
}
