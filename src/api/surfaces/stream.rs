//! A streamed answer. Its 200 is sent with the first piece or the first keep-alive, because SDKs do
//! not retry once they have the headers of a stream.

use std::{io, time::Duration};

use futures_util::Stream;
use tokio::time::sleep;

use crate::{
    api::{
        context::{RequestId, Sdk},
        error::ApiError,
        stream::{Events, events},
    },
    dialect::{Answer, Writer},
    domain::conversation::Delta,
    providers::Deltas,
};

/// Silence after which a keep-alive is sent.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Streams a running generation. Also returns whether a piece or the end has arrived. Fails if the
/// generation fails before its first piece. Pieces that `end` sends precede its answer.
pub async fn live<W: Writer>(
    sdk: Sdk,
    request: RequestId,
    end: impl Future<Output = Result<Answer, ApiError>> + Send + 'static,
    mut pieces: Deltas,
    mut writer: W,
    keep_alive: Duration,
) -> Result<
    (
        impl Stream<Item = io::Result<String>> + Send + 'static,
        bool,
    ),
    ApiError,
> {
    let mut end = Box::pin(end);
    let (mut first, mut ended) = (None, None);
    tokio::select! {
        biased;
        Some(piece) = pieces.recv() => first = Some(piece),
        result = &mut end => ended = Some(result?),
        () = sleep(keep_alive) => {}
    }
    let has_begun = first.is_some() || ended.is_some();
    if let Some(counts) = pieces.counts() {
        writer.set_counts(counts);
    }
    let end = async move {
        match ended {
            Some(answer) => Ok(answer),
            None => end.await,
        }
    };
    let writer = WriterEvents {
        writer,
        sdk,
        request,
    };
    let events = events(writer, first, pieces, end, keep_alive);
    Ok((events, has_begun))
}

struct WriterEvents<W> {
    writer: W,
    sdk: Sdk,
    request: RequestId,
}

impl<W: Writer> Events for WriterEvents<W> {
    type End = Result<Answer, ApiError>;

    fn begin(&mut self) -> String {
        self.writer.begin()
    }

    fn piece(&mut self, piece: &Delta) -> String {
        self.writer.piece(piece)
    }

    fn keep_alive(&mut self) -> String {
        self.writer.keep_alive()
    }

    fn end(&mut self, end: Self::End, pieces: &Deltas) -> io::Result<String> {
        // The answer, its events and a summary may be in memory at once.
        let end = end.and_then(|answer| {
            let has_memory = pieces.reserve(3 * answer.bytes());
            has_memory
                .then_some(answer)
                .ok_or_else(ApiError::overloaded)
        });
        Ok(match end {
            Ok(answer) => {
                let rest = pieces.rest(&answer.parts);
                let rest: String = rest.iter().map(|piece| self.writer.piece(piece)).collect();
                rest + &self.writer.end(&answer)
            }
            Err(error) => {
                let (_, body) = error.for_sdk(self.sdk, &self.request.0);
                self.writer.failed(&body, error.usage().as_ref())
            }
        })
    }
}

#[cfg(test)]
mod tests;
