//! Limits the time of each step of a stop, from the signal to the end of the process.
//!
//! Runs on its own thread and runtime, since those that do the work may hang.

use std::{
    io, process,
    sync::{Arc, Mutex, OnceLock},
    thread,
    time::Duration,
};

use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
    sync::oneshot,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{config::sections::Server, domain::lock::lock};

/// Time from the end of the grace period to the forced exit. The docs say 5 s.
const FORCED_END: Duration = Duration::from_millis(4_500);
/// Maximum time of the last log line, since logging may hang.
const LAST_LINE: Duration = Duration::from_millis(200);

/// The state of a stop. The first signal announces it, the second ends the announcement, and the
/// third ends the grace period.
#[derive(Debug, Clone, Default)]
pub(super) struct Stop {
    /// Cancelled by the first signal.
    pub announced: CancellationToken,
    /// Cancelled when the stop begins.
    pub begun: CancellationToken,
    /// Cancelled when the grace period has ended.
    pub grace_over: CancellationToken,
    over_at: Arc<OnceLock<Instant>>,
    step: Arc<Mutex<&'static str>>,
}

impl Stop {
    /// Installs the handlers of SIGTERM and SIGINT.
    pub async fn on_signals(server: &Server) -> io::Result<Self> {
        let (drain, grace) = (*server.drain_seconds, *server.shutdown_seconds);
        let stop = Self::default();
        let (registered, ready) = oneshot::channel();
        let course = stop.clone();
        thread::Builder::new()
            .name("stop".to_owned())
            .spawn(move || course.run(drain, grace, registered))?;
        ready.await.map_err(io::Error::other)??;
        Ok(stop)
    }

    /// Waits for signals. `drain`: time between the first signal and the start of the stop. A
    /// further signal ends it early, and another one the grace period.
    fn run(self, drain: Duration, grace: Duration, registered: oneshot::Sender<io::Result<()>>) {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return drop(registered.send(Err(error))),
        };
        runtime.block_on(async {
            let signals = signal(SignalKind::terminate())
                .and_then(|term| Ok((term, signal(SignalKind::interrupt())?)));
            let (mut term, mut interrupt) = match signals {
                Ok(signals) => signals,
                Err(error) => return drop(registered.send(Err(error))),
            };
            let _ = registered.send(Ok(()));
            let mut next = async || {
                tokio::select! {
                    _ = term.recv() => {}
                    _ = interrupt.recv() => {}
                }
            };
            next().await;
            self.announced.cancel();
            let _ = timeout(drain, next()).await;
            self.begun.cancel();
            let _ = timeout(grace, next()).await;
            self.over_at.get_or_init(Instant::now);
            self.grace_over.cancel();
            sleep(FORCED_END).await;
            self.end_by_force();
        });
    }

    fn end_by_force(&self) {
        let step = *lock(&self.step);
        thread::spawn(move || {
            tracing::error!("{step} did not end in time; the process ends without it");
        });
        thread::sleep(LAST_LINE);
        process::exit(0);
    }

    /// Runs a step until `within` after the end of the grace period. `None` if it took longer.
    pub async fn step<T>(
        &self,
        name: &'static str,
        within: Duration,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        self.enter(name);
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.past_grace(within) => {
                tracing::error!("{name} did not end in time; the stop continues without it");
                None
            }
        }
    }

    /// Records the current step, for the log line of a forced exit.
    pub fn enter(&self, name: &'static str) {
        *lock(&self.step) = name;
    }

    async fn past_grace(&self, time: Duration) {
        self.grace_over.cancelled().await;
        sleep_until(*self.over_at.get_or_init(Instant::now) + time).await;
    }
}
