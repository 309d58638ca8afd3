//! Work that would hold up a thread of requests for milliseconds: files in JSON and base64, pictures
//! and sound.

use tokio::{sync::Semaphore, task::spawn_blocking};

/// Pieces of work at once: each may take much memory, and some 100 ms of a core.
static PLACES: Semaphore = Semaphore::const_new(3);

/// Does `work` on a thread for such. `None`: it panicked.
pub async fn offload<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let place = PLACES.acquire().await;
    let working = spawn_blocking(move || {
        let done = work();
        drop(place);
        done
    });
    working.await.ok()
}
