//! /openapi.json and /docs

use std::fs;

/// The committed document is the one that the server serves. Regenerate it with
/// `make openapi`.
#[test]
fn the_committed_document_is_up_to_date() {
    let now = format!("{:#}\n", gensvc::api::openapi().unwrap());
    if std::env::var_os("GENSVC_UPDATE_OPENAPI").is_some() {
        fs::write("openapi.json", &now).unwrap();
    }
    let committed = fs::read_to_string("openapi.json").unwrap_or_default();
    assert!(
        committed == now,
        "openapi.json is out of date: run make openapi"
    );
}
