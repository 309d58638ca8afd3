use tokio::net::TcpListener;

use super::*;
use crate::media::{MediaStore, store::tests::Folder};

mod host;

use host::Host;

fn downloader(allowed: &[&str]) -> Downloader {
    Downloader::new(&DownloadSettings {
        allowed_hosts: allowed.iter().map(|&host| host.to_owned()).collect(),
        ..DownloadSettings::default()
    })
    .unwrap()
}

#[tokio::test]
async fn a_file_comes() {
    let host = Host::start().await;
    let downloader = downloader(&["127.0.0.1"]);
    let get = async |path, most| {
        downloader
            .to_bytes(&host.url("127.0.0.1", path), None, most)
            .await
    };
    assert_eq!(get("/hello", 5).await.unwrap(), "hello");
    assert_eq!(get("/nothing", 5).await.unwrap(), "");
    assert_eq!(get("/to/hello", 5).await.unwrap(), "hello");
    assert_eq!(get("/to/3", 5).await.unwrap(), "hello");
    assert_eq!(get("/short", 5).await.unwrap(), "hel");
}

#[tokio::test]
async fn the_key_stays_with_its_host() {
    let host = Host::start().await;
    let key = (
        HeaderName::from_static("x-key"),
        HeaderValue::from_static("secret"),
    );
    let url = host.url("127.0.0.1", "/to/hello");
    downloader(&["127.0.0.1"])
        .to_bytes(&url, Some(key), 5)
        .await
        .unwrap();
    let requests = host.requests();
    assert_eq!(requests.len(), 2);
    assert!(requests[0].contains("x-key: secret"));
    assert!(!requests[1].contains("x-key"));
    assert!(requests.iter().all(|head| !head.contains("referer")));
}

#[tokio::test]
async fn lies_about_the_length() {
    let host = Host::start().await;
    let downloader = downloader(&["127.0.0.1"]);
    let get = async |path, most| {
        let url = host.url("127.0.0.1", path);
        downloader.to_bytes(&url, None, most).await.unwrap_err()
    };
    for (path, most) in [("/huge", 1_000), ("/hello", 4), ("/endless", 1 << 20)] {
        let error = get(path, most).await;
        assert!(
            matches!(error, DownloadError::TooLarge { .. }),
            "{path} {error:?}"
        );
        assert!(error.is_final());
    }
    for path in ["/cut", "/chunked-cut", "/nonsense"] {
        let error = get(path, 1_000).await;
        assert!(matches!(error, DownloadError::Cut(_)), "{path} {error:?}");
        assert!(!error.is_final());
    }
}

#[tokio::test]
async fn silence_ends() {
    let host = Host::start().await;
    let short = Duration::from_millis(40);
    let long = Duration::from_mins(1);
    for (path, idle_time, total_time) in [
        ("/silent", short, long),
        ("/silent", long, short),
        ("/mute", short, long),
        ("/mute", long, short),
    ] {
        let downloader = Downloader::new(&DownloadSettings {
            allowed_hosts: vec!["127.0.0.1".to_owned()],
            idle_time,
            total_time,
            ..DownloadSettings::default()
        })
        .unwrap();
        let error = downloader
            .to_bytes(&host.url("127.0.0.1", path), None, 100)
            .await
            .unwrap_err();
        assert!(matches!(error, DownloadError::Timeout), "{error:?}");
        assert!(!error.is_final());
    }
}

#[tokio::test]
async fn closed_addresses() {
    let host = Host::start().await;
    // Only the name is allowed; the target of a redirect is checked again.
    let open = downloader(&["localhost"]);
    let get = async |path| open.to_bytes(&host.url("localhost", path), None, 100).await;
    assert_eq!(get("/hello").await.unwrap(), "hello");
    for path in ["/to/there-https", "/to/mapped", "/to/metadata"] {
        let error = get(path).await.unwrap_err();
        assert!(
            matches!(error, DownloadError::Refused(_)),
            "{path} {error:?}"
        );
        assert!(error.is_final());
    }
    for path in ["/to/there", "/to/file"] {
        let error = get(path).await.unwrap_err();
        assert!(
            matches!(error, DownloadError::BadUrl(_)),
            "{path} {error:?}"
        );
    }
    for path in ["/to/itself", "/to/nowhere", "/to/no-location"] {
        let error = get(path).await.unwrap_err();
        assert!(
            matches!(error, DownloadError::Redirect(_)),
            "{path} {error:?}"
        );
    }
    let asked = host
        .requests()
        .iter()
        .filter(|head| head.contains("/to/itself"))
        .count();
    assert_eq!(asked, 4, "the first and three redirects");
}

#[tokio::test]
async fn names_are_judged_by_their_addresses() {
    let host = Host::start().await;
    let url = host
        .url("localhost", "/hello")
        .to_string()
        .replace("http:", "https:");
    let error = downloader(&["127.0.0.1"])
        .to_bytes(&Url::parse(&url).unwrap(), None, 100)
        .await
        .unwrap_err();
    assert!(
        matches!(error, DownloadError::Refused(address) if address.is_loopback()),
        "{error:?}"
    );
    let error = downloader(&["127.0.0.1"])
        .to_bytes(&host.url("127.0.0.1", "/to/name"), None, 100)
        .await
        .unwrap_err();
    assert!(
        matches!(error, DownloadError::Refused(address) if address.is_loopback()),
        "{error:?}"
    );
    assert_eq!(host.requests().len(), 1, "none but the redirect was asked");
}

#[tokio::test]
async fn answers_that_are_no_file() {
    let host = Host::start().await;
    let downloader = downloader(&["127.0.0.1"]);
    for (status, last) in [
        (204, true),
        (206, true),
        (400, true),
        (403, false),
        (404, false),
        (429, false),
        (451, true),
        (500, false),
        (503, false),
    ] {
        let url = host.url("127.0.0.1", &format!("/status/{status}"));
        let error = downloader.to_bytes(&url, None, 100).await.unwrap_err();
        assert!(
            matches!(error, DownloadError::Status(found) if found == status),
            "{error:?}"
        );
        assert_eq!(error.is_final(), last, "{status}");
    }
}

#[tokio::test]
async fn nobody_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let url = Url::parse(&format!("http://127.0.0.1:{port}/secret?signature=abc")).unwrap();
    let error = downloader(&["127.0.0.1"])
        .to_bytes(&url, None, 100)
        .await
        .unwrap_err();
    assert!(matches!(error, DownloadError::Unreachable(_)));
    assert!(!error.is_final());
    assert!(!format!("{error:?}").contains("signature"), "{error:?}");
}

#[tokio::test]
async fn to_disk() {
    let folder = Folder::new();
    let store = MediaStore::open(folder.path()).await.unwrap();
    let host = Host::start().await;
    let downloader = downloader(&["127.0.0.1"]);
    let get = async |path| {
        let spool = store.spool().await.unwrap();
        downloader
            .to_file(&host.url("127.0.0.1", path), None, 1 << 20, spool)
            .await
    };
    let file = get("/hello").await.unwrap();
    assert_eq!(file.bytes(), 5);
    assert_eq!(std::fs::read(file.path()).unwrap(), b"hello");
    drop(file);
    for path in ["/endless", "/cut", "/status/500"] {
        get(path).await.unwrap_err();
    }
    assert_eq!(folder.files(), 0, "nothing stays");
}
