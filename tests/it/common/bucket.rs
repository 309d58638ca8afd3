//! An in-memory S3 with one bucket, which checks the signature of every request as S3 does: over
//! method, path and query.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    response::{IntoResponse as _, Response},
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, Method, StatusCode, Uri};
use sha2::{Digest as _, Sha256};
use tokio::sync::{Notify, RwLock, RwLockWriteGuard};

const ID: &str = "bucket-id";
const SECRET: &str = "bucket-secret";
const ETAG: &str = "\"an-etag\"";

#[derive(Clone)]
pub struct Bucket {
    pub url: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    files: Mutex<HashMap<String, Bytes>>,
    /// Methods of the requests that were served.
    served: Mutex<Vec<Method>>,
    away: AtomicBool,
    /// Locked while requests are held back.
    gate: RwLock<()>,
    has_arrived: Notify,
}

impl Bucket {
    pub async fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let router = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&shared));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, shared }
    }

    /// The settings for a server to store its files here.
    pub fn env(&self) -> [(&str, &str); 5] {
        [
            ("GENSVC__MEDIA__STORAGE", "s3"),
            ("GENSVC__MEDIA__S3__BUCKET", "files"),
            ("GENSVC__MEDIA__S3__ENDPOINT", &self.url),
            ("AWS_ACCESS_KEY_ID", ID),
            ("AWS_SECRET_ACCESS_KEY", SECRET),
        ]
    }

    /// Makes it refuse all further requests.
    pub fn set_away(&self, away: bool) {
        self.shared.away.store(away, Ordering::Release);
    }

    /// Holds requests back until the guard is dropped.
    pub async fn hold(&self) -> RwLockWriteGuard<'_, ()> {
        self.shared.gate.write().await
    }

    /// Waits for a request.
    pub async fn arrived(&self) {
        self.shared.has_arrived.notified().await;
    }

    /// Methods of the requests that were served since the last call.
    pub fn served(&self) -> Vec<Method> {
        std::mem::take(&mut self.shared.served.lock().unwrap())
    }
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    shared.has_arrived.notify_one();
    drop(shared.gate.read().await);
    if shared.away.load(Ordering::Acquire) {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    if !is_signed(&method, &uri, &headers) {
        return StatusCode::FORBIDDEN.into_response();
    }
    shared.served.lock().unwrap().push(method.clone());
    let mut files = shared.files.lock().unwrap();
    if method == Method::POST {
        // A multipart upload, being created or completed. It has one part here.
        return concat!(
            "<Result><UploadId>an-upload</UploadId>",
            "<ETag>&quot;an-etag&quot;</ETag></Result>"
        )
        .into_response();
    }
    if method == Method::PUT {
        files.insert(uri.path().to_owned(), body);
        return [("etag", ETAG)].into_response();
    }
    let Some(file) = files.get(uri.path()) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let about = [
        ("etag", ETAG),
        ("content-type", "image/png"),
        ("last-modified", "Fri, 15 Jan 2027 08:00:00 GMT"),
    ];
    (about, file.clone()).into_response()
}

/// Signature version 4, in the query or in a header.
fn is_signed(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    let mut query: BTreeMap<&str, &str> = uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .collect();
    let header = |name: &str| headers.get(name).map_or("", |v| v.to_str().unwrap());
    let (date, scope, signed, payload, signature) =
        if let Some(signature) = query.remove("X-Amz-Signature") {
            let scope = query["X-Amz-Credential"].replace("%2F", "/");
            let (date, signed) = (query["X-Amz-Date"], query["X-Amz-SignedHeaders"]);
            (date, scope, signed, "UNSIGNED-PAYLOAD", signature)
        } else {
            let field = |name: &str| {
                let fields = header("authorization").split([' ', ',']);
                let value = fields
                    .filter_map(|f| f.split_once('='))
                    .find(|f| f.0 == name);
                value.map_or("", |f| f.1)
            };
            let scope = field("Credential").to_owned();
            let payload = header("x-amz-content-sha256");
            (
                header("x-amz-date"),
                scope,
                field("SignedHeaders"),
                payload,
                field("Signature"),
            )
        };
    let Some((ID, scope)) = scope.split_once('/') else {
        return false;
    };
    let query: Vec<String> = query.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let lines: Vec<String> = signed
        .split(';')
        .map(|name| format!("{name}:{}\n", header(name)))
        .collect();
    let lines = lines.concat();
    let canonical = format!(
        "{method}\n{}\n{}\n{lines}\n{signed}\n{payload}",
        uri.path(),
        query.join("&")
    );
    let digest = hex(&Sha256::digest(canonical));
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{digest}");
    let key = scope
        .split('/')
        .fold(format!("AWS4{SECRET}").into_bytes(), |key, part| {
            mac(&key, part)
        });
    hex(&mac(&key, &text)) == signature
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    let pairs: Vec<_> = bytes.iter().map(|b| format!("{b:02x}")).collect();
    pairs.concat()
}
