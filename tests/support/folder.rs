//! The folder of a run.

use std::path::{Path, PathBuf};

/// A folder that is deleted with its contents, unless it is to be kept.
pub struct Folder {
    path: PathBuf,
    keep: bool,
}

impl Folder {
    /// Creates one whose name starts with `name`.
    pub fn make(name: &str, keep: bool) -> Self {
        let name = format!("{name}-{}", std::process::id());
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self { path, keep }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.keep {
            println!("The servers' logs are in {}.", self.path.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
