//! Failures of the media store.

use std::{error::Error, io, iter::successors};

/// A failure of the store, not of the file itself.
#[derive(Debug, thiserror::Error)]
pub enum MediaStoreError {
    /// The disk or its quota is full.
    #[error("no space is left in the media store")]
    NoSpace(#[source] Box<dyn Error + Send + Sync>),
    /// Permissions of the folder or the bucket, which the operator must fix.
    #[error("access to the media store is denied")]
    Denied(#[source] Box<dyn Error + Send + Sync>),
    /// The requested range is empty or extends beyond the file.
    #[error("the range does not lie within the {bytes} bytes of the file")]
    Range { bytes: u64 },
    /// Any other failure, with its cause; can be retried.
    #[error("the media store failed")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
}

impl From<io::Error> for MediaStoreError {
    fn from(error: io::Error) -> Self {
        classify(error.kind())(Box::new(error))
    }
}

impl From<object_store::Error> for MediaStoreError {
    fn from(error: object_store::Error) -> Self {
        use object_store::Error::{PermissionDenied, Unauthenticated};
        if let PermissionDenied { .. } | Unauthenticated { .. } = error {
            return Self::Denied(Box::new(error));
        }
        // The deepest cause with a known kind decides.
        let causes = successors(error.source(), |&cause| cause.source());
        let kinds = causes.filter_map(|cause| Some(cause.downcast_ref::<io::Error>()?.kind()));
        let kind = kinds.last().unwrap_or(io::ErrorKind::Other);
        classify(kind)(Box::new(error))
    }
}

fn classify(kind: io::ErrorKind) -> fn(Box<dyn Error + Send + Sync>) -> MediaStoreError {
    match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => MediaStoreError::NoSpace,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            MediaStoreError::Denied
        }
        _ => MediaStoreError::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_apart() {
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
            assert!(matches!(
                MediaStoreError::from(io::Error::from(kind)),
                MediaStoreError::NoSpace(_)
            ));
            let wrapped = object_store::Error::Generic {
                store: "test",
                source: Box::new(io::Error::from(kind)),
            };
            assert!(matches!(
                MediaStoreError::from(wrapped),
                MediaStoreError::NoSpace(_)
            ));
        }
        let other = io::Error::from(io::ErrorKind::PermissionDenied);
        assert!(matches!(
            MediaStoreError::from(other),
            MediaStoreError::Denied(_)
        ));
        let other = io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(matches!(
            MediaStoreError::from(other),
            MediaStoreError::Failed(_)
        ));
    }
}
