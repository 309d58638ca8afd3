//! How many requests are at work at once, and how long one may take.
//!
//! Here: a place for each request, refused at once when there is none. Not here: connections
//! (the accept loop's), and how much one caller may ask.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    extract::{FromRequestParts, MatchedPath, Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use http::request::Parts;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{ApiState, error::ApiError};

/// What whoever watches the server asks for, and must get when it is full.
const ALWAYS: [&str; 3] = ["/health", "/health/live", "/metrics"];

/// The places of this process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Admission {
    places: Arc<Semaphore>,
    timeout: Duration,
    unbounded: Arc<HashSet<String>>,
}

impl Admission {
    /// `most` requests at once, each within `timeout` but on the `unbounded` paths.
    pub fn new(most: usize, timeout: Duration, unbounded: HashSet<String>) -> Self {
        let places = Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        Self {
            places,
            timeout,
            unbounded: Arc::new(unbounded),
        }
    }
}

/// A request's place. It is left while its body arrives and while it waits for a generation to
/// end: slow senders and waits need nothing of what places stand for, and must not keep others
/// out.
#[derive(Debug, Clone)]
pub struct Place {
    places: Arc<Semaphore>,
    permit: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
}

impl Place {
    fn take(places: &Arc<Semaphore>) -> Result<Self, ApiError> {
        let place = Self {
            places: Arc::clone(places),
            permit: Arc::default(),
        };
        place.retake()?;
        Ok(place)
    }

    /// Lets others have it.
    pub fn leave(&self) {
        *self.permit.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Takes one again, at once or not at all.
    pub fn retake(&self) -> Result<(), ApiError> {
        let permit = Arc::clone(&self.places).try_acquire_owned();
        let permit = permit.map_err(|_| ApiError::overloaded())?;
        *self.permit.lock().unwrap_or_else(PoisonError::into_inner) = Some(permit);
        Ok(())
    }
}

impl FromRequestParts<ApiState> for Place {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &ApiState) -> Result<Self, ApiError> {
        let place = parts.extensions.get::<Self>();
        place.cloned().ok_or_else(ApiError::internal)
    }
}

/// Lets a request in while there is a place, and bounds its time.
pub async fn admit(
    State(admission): State<Admission>,
    mut request: Request,
    next: Next,
) -> Response {
    if ALWAYS.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let path = request.extensions().get::<MatchedPath>();
    let bounded = !path.is_some_and(|path| admission.unbounded.contains(path.as_str()));
    let place = match Place::take(&admission.places) {
        Ok(place) => place,
        Err(error) => return error.into_response(),
    };
    request.extensions_mut().insert(place.clone());
    let response = if bounded {
        let answer = tokio::time::timeout(admission.timeout, next.run(request)).await;
        answer.unwrap_or_else(|_elapsed| {
            tracing::warn!("a request took too long and was given up");
            ApiError::overloaded().into_response()
        })
    } else {
        next.run(request).await
    };
    // The answer's body is the connection's matter.
    place.leave();
    response
}
