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

/// Creates something, unless `find` has the id of what the same form created, which is then read.
/// `create` fails on a unique constraint if the same form was sent at the same time.
pub async fn create_once<I, T, F, R, C>(
    find: impl Fn() -> F,
    read: impl Fn(I) -> R,
    create: impl FnOnce() -> C,
) -> Result<Created<T>>
where
    F: Future<Output = Result<Option<I>, StoreError>>,
    R: Future<Output = Result<T>>,
    C: Future<Output = Result<T>>,
{
    if let Some(id) = find().await? {
        return Ok(Created::Before(read(id).await?));
    }
    match create().await {
        Ok(created) => Ok(Created::Now(created)),
        Err(error @ ServiceError::Store(StoreError::Constraint(..))) => match find().await? {
            Some(id) => Ok(Created::Before(read(id).await?)),
            None => Err(error),
        },
        Err(error) => Err(error),
    }
}
