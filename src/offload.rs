//! Runs CPU work of milliseconds or more on blocking threads: files in JSON and base64, images and
//! sound.

use std::sync::LazyLock;

use tokio::{task::spawn_blocking, task_local};

use crate::domain::{ids::AccountId, limiter::Limiter};

/// Limits concurrent work, since each may use much memory and some 100 ms of a core. Accounts are
/// served round robin. The queue is unbounded, because paid results must not be refused; an
/// account's concurrent generations limit its part of the queue.
static LIMITER: LazyLock<Limiter<Option<AccountId>>> =
    LazyLock::new(|| Limiter::with_queue((4, 2), (usize::MAX, usize::MAX)));

task_local! {
    static ACCOUNT: AccountId;
}

/// Runs a future in which all calls of [`offload`] count for `account`.
pub async fn for_account<T>(account: AccountId, future: impl Future<Output = T>) -> T {
    ACCOUNT.scope(account, future).await
}

/// Runs `work` on a blocking thread. Returns `None` if it panicked.
pub async fn offload<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let account = ACCOUNT.try_get().ok();
    let permit = LIMITER.acquire(account, 1).await?;
    let working = spawn_blocking(move || {
        let done = work();
        // Dropped here, because the thread stays busy if the caller disconnects.
        drop(permit);
        done
    });
    working.await.ok()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures_util::future::join_all;

    use super::*;

    #[tokio::test]
    async fn one_account_leaves_half_of_the_places_to_others() {
        let (finish, finished) = mpsc::channel::<()>();
        let finished = std::sync::Arc::new(std::sync::Mutex::new(finished));
        let busy = (0..8).map(|_| {
            let finished = std::sync::Arc::clone(&finished);
            let work = move || finished.lock().unwrap().recv().is_ok();
            tokio::spawn(for_account(AccountId(-1), offload(work)))
        });
        let busy: Vec<_> = busy.collect();
        while LIMITER.held_by(Some(AccountId(-1))) < 2 {
            tokio::task::yield_now().await;
        }
        let other = for_account(AccountId(-2), offload(|| 7));
        assert_eq!(other.await, Some(7));
        assert_eq!(LIMITER.held_by(Some(AccountId(-1))), 2);
        drop(finish);
        assert!(join_all(busy).await.into_iter().all(|done| done.is_ok()));
    }
}
