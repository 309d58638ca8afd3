//! The sources of a configuration, kept for reloads.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use toml::Table;

use crate::domain::vendor::Vendor;

/// Where a configuration came from, and its settings.
#[derive(Clone, Default)]
pub(super) struct Origin {
    pub(super) file: Option<PathBuf>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) vendors: Vec<&'static Vendor>,
    /// The merged layers.
    pub(super) tree: Table,
}

/// Its members hold secrets.
impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origin")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}
