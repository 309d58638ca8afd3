//! Repeats background work.

use std::{error::Error, time::Duration};

use tokio::time::Instant;

/// Minimum pause between two steps.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// Repeats a step at the interval `every`. If a step returns that there is more work, the next one
/// follows after a pause as long as the step, so that background work takes at most half of the
/// time.
pub(super) async fn repeat<T: Clone, E: Error + 'static, F: Future<Output = Result<bool, E>>>(
    name: &'static str,
    every: Duration,
    parts: T,
    mut step: impl FnMut(T) -> F,
) {
    loop {
        let begun = Instant::now();
        let pause = match step(parts.clone()).await {
            Ok(true) => begun.elapsed().max(SHORTEST_PAUSE),
            Ok(false) => every,
            Err(error) => {
                let error = &error as &dyn Error;
                tracing::warn!(error, "{name} failed");
                every
            }
        };
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn unfinished_work_continues_after_a_pause() {
        let (begins, mut begun) = mpsc::unbounded_channel();
        let mut left = 4;
        let step = move |()| {
            begins.send(Instant::now()).unwrap();
            left -= 1;
            std::future::ready(Ok::<_, Infallible>(left > 0))
        };
        let steps = tokio::spawn(repeat("a step", Duration::from_hours(1), (), step));
        let mut last = begun.recv().await.unwrap();
        for _ in 0..3 {
            let next = begun.recv().await.unwrap();
            assert!(next - last >= SHORTEST_PAUSE);
            last = next;
        }
        // No work is left; the next step is in an hour.
        let next = tokio::time::timeout(3 * SHORTEST_PAUSE, begun.recv());
        assert!(next.await.is_err());
        steps.abort();
    }
}
