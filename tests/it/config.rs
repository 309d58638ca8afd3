//! Loading the configuration: defaults, files, the environment, and each error.

mod defaults;
mod environment;
mod errors;
mod lifecycle;
mod media_catalogue;
mod media_errors;
mod media_models;
mod model_errors;
mod observe;
mod prices;
mod providers;
mod routes;
mod storage;

use std::{
    any::Any,
    collections::BTreeMap,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
};

use gensvc::{
    app::config::load,
    catalogue::{ModelKind, TextModel},
    config::{Config, ConfigError, ModelConfig},
};

fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn from_env(pairs: &[(&str, &str)]) -> Result<Config, ConfigError> {
    load(None, &env(pairs))
}

/// A file that is gone when the test is.
struct TempFile(PathBuf);

impl TempFile {
    fn new(text: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("gensvc-config-{}-{count}.toml", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn from_file(text: &str, pairs: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let file = TempFile::new(text);
    load(Some(&file.0), &env(pairs))
}

/// The error's sentence, with the file's name made the same everywhere.
fn error_of(text: &str, pairs: &[(&str, &str)]) -> String {
    let file = TempFile::new(text);
    let error = load(Some(&file.0), &env(pairs)).unwrap_err();
    error.to_string().replace(file.0.to_str().unwrap(), "FILE")
}

/// Loading fails with this sentence.
fn check(file: &str, pairs: &[(&str, &str)], want: &str) {
    let error = error_of(file, pairs);
    assert_eq!(error, want, "{file} {pairs:?}");
    assert!(!error.contains('\n'), "{error}");
}

/// A model of text.
fn text_of(kind: &ModelKind) -> &TextModel {
    let ModelKind::Text(text) = kind else {
        panic!("{kind:?}")
    };
    text
}

/// A model's settings, if they are those of this adapter.
fn settings_of<S: Any>(model: &ModelConfig) -> Option<&S> {
    let settings: &dyn Any = &*model.settings;
    settings.downcast_ref()
}
