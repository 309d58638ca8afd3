//! /openapi.json and /docs

use std::{fs, io::Read as _};

use flate2::read::GzDecoder;
use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::TestApp;

const COMMITTED: &str = "docs/openapi.json";

/// The committed document is the one that the server serves. Regenerate it with
/// `make openapi`.
#[test]
fn the_committed_document_is_up_to_date() {
    let now = formatted(&gensvc::api::openapi().unwrap(), 0) + "\n";
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        fs::write(COMMITTED, &now).unwrap();
    }
    let committed = fs::read_to_string(COMMITTED).unwrap_or_default();
    assert!(
        committed == now,
        "{COMMITTED} is out of date: run make openapi"
    );
}

/// JSON with what is short on one line, so that a diff is readable.
fn formatted(value: &Value, indent: usize) -> String {
    let short = value.to_string();
    if 2 * indent + short.len() <= 100 {
        return short;
    }
    let (ends, lines): (_, Vec<String>) = match value {
        Value::Object(members) => {
            let line = |(name, value)| format!("{}: {}", json!(name), formatted(value, indent + 1));
            (["{", "}"], members.iter().map(line).collect())
        }
        Value::Array(items) => {
            let lines = items.iter().map(|item| formatted(item, indent + 1));
            (["[", "]"], lines.collect())
        }
        _ => return short,
    };
    let outer = format!("\n{}", "  ".repeat(indent));
    let inner = format!("{outer}  ");
    let lines = lines.join(&format!(",{inner}"));
    format!("{}{inner}{lines}{outer}{}", ends[0], ends[1])
}

/// The page names no other host, and every file that it names exists.
#[sqlx::test]
async fn the_page_is_whole(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let page = app.get("", "/docs").await;
    assert_eq!(page.status, 200);
    assert!(!page.text.contains("//"), "{}", page.text);
    let script = app.get("", "/docs/start.js").await;
    let named = page.text + &script.text;
    let files: Vec<&str> = named
        .split(['"', '\''])
        .filter(|part| part.starts_with('/'))
        .collect();
    assert!(
        files.contains(&"/openapi.json") && files.len() > 3,
        "{files:?}"
    );
    for file in files {
        let (status, length) = app.size(file).await;
        assert!(status == 200 && length > 0, "{file}: {status}");
    }
    app.get("", "/docs/none.js").await.error(404, "not_found");
}

/// Only the document and the scripts are compressed, and only for clients that accept it.
#[sqlx::test]
async fn large_files_are_compressed(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let get = async |path: &str, encoding: &str| {
        let headers = [("accept-encoding", encoding)];
        app.call(Method::GET, "", path, &headers, None).await
    };
    for path in ["/openapi.json", "/docs/swagger-ui-bundle.js"] {
        let plain = get(path, "br, gzip;q=0").await;
        assert_eq!(plain.header("content-encoding"), "", "{path}");
        let gzip = get(path, "deflate, GZIP, br").await;
        assert_eq!(gzip.header("content-encoding"), "gzip", "{path}");
        assert!(gzip.bytes.len() * 3 < plain.bytes.len(), "{path}");
        let mut unpacked = Vec::new();
        GzDecoder::new(&gzip.bytes[..])
            .read_to_end(&mut unpacked)
            .unwrap();
        assert!(unpacked == plain.bytes, "{path}");
        // Each is decompressed once, and one copy serves all.
        let again = get(path, "").await;
        assert_eq!(again.bytes.as_ptr(), plain.bytes.as_ptr(), "{path}");
        for answer in [plain, gzip] {
            assert_eq!(answer.header("vary"), "accept-encoding", "{path}");
        }
    }
    let models = get("/v1/models", "gzip").await;
    assert_eq!(models.header("content-encoding"), "");
}
