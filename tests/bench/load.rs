//! Callers: so many that each wait for their answer, or so many requests a second.

use std::{
    fmt,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    sync::{Mutex, mpsc},
    task::JoinSet,
};

use crate::{outcome::Outcome, wire::Connection, work::Work};

/// That part of a slice passes before answers are counted, as all callers begin at once.
const LEAD: u32 = 5;
/// Connections that are open before the first request of an open loop.
const READY: usize = 8;

/// How fast it is sent.
#[derive(Debug, Clone, Copy)]
pub enum Pace {
    /// By so many callers, each of whom sends the next request when it has its answer.
    Callers(u64),
    /// So many a second, whether others were answered or not.
    PerSecond(u64),
    /// In all, by so many callers.
    Times { times: u64, callers: u64 },
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Callers(callers) => write!(f, "{callers} callers"),
            Self::PerSecond(rate) => write!(f, "{rate} requests a second"),
            Self::Times { times, .. } => write!(f, "{times} requests"),
        }
    }
}

/// What is sent, and how fast.
#[derive(Clone)]
pub struct Load {
    pub work: Arc<Work>,
    pub pace: Pace,
}

impl Load {
    pub fn new(work: Work, pace: Pace) -> Self {
        let work = Arc::new(work);
        Self { work, pace }
    }

    /// The same at another pace.
    pub fn at(&self, pace: Pace) -> Self {
        let work = Arc::clone(&self.work);
        Self { work, pace }
    }

    /// How long answers are counted in a slice of that length.
    pub fn counted(length: Duration) -> Duration {
        length * (LEAD - 1) / LEAD
    }

    /// Sends for so long, and waits for the last answers.
    pub async fn run(self, length: Duration) -> Outcome {
        let begin = Instant::now();
        let counted = begin + length / LEAD..begin + length;
        match self.pace {
            Pace::Callers(callers) => self.closed(callers, u64::MAX, counted).await,
            Pace::Times { times, callers } => self.closed(callers, times, counted).await,
            Pace::PerSecond(rate) => self.open(rate, length).await,
        }
    }

    async fn closed(self, callers: u64, times: u64, counted: Range<Instant>) -> Outcome {
        let sent = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for caller in 0..callers {
            let (work, sent) = (Arc::clone(&self.work), Arc::clone(&sent));
            let (counted, caller) = (counted.clone(), usize::try_from(caller).unwrap());
            tasks.spawn(async move {
                let mut outcome = Outcome::default();
                let mut connection = None;
                while Instant::now() < counted.end && sent.fetch_add(1, Ordering::Relaxed) < times {
                    let due = Instant::now();
                    ask(&work, caller, &mut connection, due, &counted, &mut outcome).await;
                }
                outcome
            });
        }
        gather(tasks).await
    }

    async fn open(self, rate: u64, length: Duration) -> Outcome {
        let mut idle = Vec::new();
        for n in 0..READY {
            idle.push((n, Connection::open(self.work.server(n)).await.ok()));
        }
        let idle = Arc::new(Mutex::new(idle));
        let (sender, mut due) = mpsc::unbounded_channel();
        let begin = Instant::now();
        let counted = begin + length / LEAD..begin + length;
        let end = counted.end;
        // The runtime's clock knows milliseconds only.
        std::thread::spawn(move || {
            let step = Duration::from_secs(1) / u32::try_from(rate).unwrap();
            let mut next = begin;
            while next < end {
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
                if sender.send(next).is_err() {
                    return;
                }
                next += step;
            }
        });
        let mut tasks = JoinSet::new();
        while let Some(due) = due.recv().await {
            let (work, idle) = (Arc::clone(&self.work), Arc::clone(&idle));
            let (counted, other) = (counted.clone(), READY + tasks.len());
            tasks.spawn(async move {
                let mut outcome = Outcome::default();
                let taken = idle.lock().await.pop();
                let (n, mut connection) = taken.unwrap_or((other, None));
                ask(&work, n, &mut connection, due, &counted, &mut outcome).await;
                idle.lock().await.push((n, connection));
                outcome
            });
        }
        gather(tasks).await
    }
}

async fn gather(mut tasks: JoinSet<Outcome>) -> Outcome {
    let mut all = Outcome::default();
    while let Some(outcome) = tasks.join_next().await {
        all.merge(outcome.unwrap());
    }
    all
}

/// Sends the next request over the connection, which is reopened after an error.
async fn ask(
    work: &Work,
    caller: usize,
    connection: &mut Option<Connection>,
    due: Instant,
    counted: &Range<Instant>,
    outcome: &mut Outcome,
) {
    if connection.is_none() {
        *connection = Connection::open(work.server(caller)).await.ok();
    }
    let Some(open) = connection else {
        outcome.fail("no connection".to_owned());
        tokio::time::sleep(Duration::from_millis(100)).await;
        return;
    };
    let answer = open.ask(work.next()).await;
    let is_broken = answer.is_err();
    outcome.note(due, counted, answer);
    if is_broken {
        *connection = None;
    }
}
