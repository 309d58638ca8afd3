//! Forms of the console that create something: once, however often they are sent.

use super::{Result, ServiceError};
use crate::store::StoreError;

#[derive(Debug)]
pub enum Created<T> {
    Now(T),
    /// The same form created it in an earlier request.
    Before(T),
}

impl<T> Created<T> {
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Created<U> {
        match self {
            Self::Now(created) => Created::Now(change(created)),
            Self::Before(created) => Created::Before(change(created)),
        }
    }
}

/// Creates something unless `find` has it. `create` fails on a unique constraint if the same form
/// was sent at the same time.
pub async fn create_once<T, C, F>(
    create: impl FnOnce() -> C,
    find: impl Fn() -> F,
) -> Result<Created<T>>
where
    C: Future<Output = Result<T>>,
    F: Future<Output = Result<Option<T>>>,
{
    if let Some(found) = find().await? {
        return Ok(Created::Before(found));
    }
    match create().await {
        Ok(created) => Ok(Created::Now(created)),
        Err(error @ ServiceError::Store(StoreError::Constraint(..))) => {
            find().await?.map(Created::Before).ok_or(error)
        }
        Err(error) => Err(error),
    }
}
