//! What the log is told of a request of an SDK, once, when it has ended.

use tracing::Instrument as _;

use crate::{
    api::error::ApiError,
    domain::{generation::Surface, ids::GenerationId},
};

/// A request whose end is told.
#[derive(Debug, Clone)]
pub(super) struct Told {
    pub surface: Surface,
    /// As it was asked for.
    pub model: String,
}

impl Told {
    /// Tells how it ended.
    pub(super) fn end<T>(
        &self,
        generation: Option<GenerationId>,
        result: Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let outcome = match &result {
            Ok(_) => "completed",
            Err(error) => error.code().as_str(),
        };
        tracing::info!(
            surface = self.surface.as_str(),
            model = self.model,
            generation = generation.map(tracing::field::display),
            outcome,
            "a request of an SDK has ended"
        );
        result
    }

    /// The same where it failed.
    pub(super) fn failed<T>(&self, result: Result<T, ApiError>) -> Result<T, ApiError> {
        if result.is_err() {
            self.end(None, result)
        } else {
            result
        }
    }

    /// Tells how a stream ends, whose request is answered before.
    pub(super) fn at_end<T>(
        self,
        generation: GenerationId,
        end: impl Future<Output = Result<T, ApiError>>,
    ) -> impl Future<Output = Result<T, ApiError>> {
        let ended = async move { self.end(Some(generation), end.await) };
        ended.in_current_span()
    }
}
