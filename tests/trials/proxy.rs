//! A TCP proxy that can cut and stall connections.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UnixStream},
    sync::watch,
    task::JoinHandle,
};

/// Where connections lead.
#[derive(Debug, Clone)]
pub enum Target {
    Nowhere,
    /// To a lost host: neither data nor a refusal comes back.
    Silence,
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// What a proxy forwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    Free,
    /// Nothing, for now.
    Stalled,
    /// Requests, but no responses, for now: the client cannot know what was done.
    AnswersStalled,
}

/// A listener with a fixed port, whose target may change.
pub struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
    accepting: JoinHandle<()>,
}

struct State {
    target: Mutex<Target>,
    cuts: watch::Sender<u64>,
    freezes: watch::Sender<u64>,
    flow: watch::Sender<Flow>,
    /// Delay of every response in milliseconds.
    delay: AtomicU64,
}

impl Proxy {
    pub async fn start(target: Target) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            target: Mutex::new(target),
            cuts: watch::Sender::new(0),
            freezes: watch::Sender::new(0),
            flow: watch::Sender::new(Flow::Free),
            delay: AtomicU64::new(0),
        });
        let shared = Arc::clone(&state);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, Arc::clone(&shared)));
            }
        });
        Self {
            address,
            state,
            accepting,
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it leads to, if that is a TCP address.
    pub fn target(&self) -> Option<SocketAddr> {
        match *self.state.target.lock().unwrap() {
            Target::Tcp(address) => Some(address),
            _ => None,
        }
    }

    /// Sets the target of new connections.
    pub fn lead_to(&self, target: Target) {
        *self.state.target.lock().unwrap() = target;
    }

    /// Cuts every connection.
    pub fn cut(&self) {
        self.state.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Leaves every connection open, but never reads from or writes to it again.
    pub fn freeze(&self) {
        self.state.freezes.send_modify(|freezes| *freezes += 1);
    }

    /// Sets what is forwarded. What is held back is forwarded later, unless it is cut.
    pub fn set(&self, flow: Flow) {
        self.state.flow.send_replace(flow);
    }

    /// Sets the delay of every response.
    pub fn slow(&self, delay: Duration) {
        let millis = u64::try_from(delay.as_millis()).unwrap();
        self.state.delay.store(millis, Ordering::Relaxed);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn carry(client: TcpStream, state: Arc<State>) {
    let mut cuts = state.cuts.subscribe();
    cuts.mark_unchanged();
    let mut freezes = state.freezes.subscribe();
    freezes.mark_unchanged();
    let target = state.target.lock().unwrap().clone();
    let _ = client.set_nodelay(true);
    let carried = async {
        match target {
            Target::Nowhere => {}
            Target::Silence => std::future::pending().await,
            Target::Tcp(address) => {
                if let Ok(server) = TcpStream::connect(address).await {
                    let _ = server.set_nodelay(true);
                    both_ways(client, server, &state).await;
                }
            }
            Target::Unix(path) => {
                if let Ok(server) = UnixStream::connect(path).await {
                    both_ways(client, server, &state).await;
                }
            }
        }
    };
    tokio::pin!(carried);
    tokio::select! {
        () = &mut carried => {}
        _ = cuts.changed() => {}
        _ = freezes.changed() => {
            // No longer polled, `carried` keeps its sockets.
            let _ = cuts.changed().await;
        }
    }
}

/// Until one side closes; that ends the other one too.
async fn both_ways(client: TcpStream, server: impl AsyncRead + AsyncWrite + Unpin, state: &State) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = tokio::io::split(server);
    tokio::select! {
        () = one_way(from_client, to_server, state, false) => {}
        () = one_way(from_server, to_client, state, true) => {}
    }
}

async fn one_way(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    state: &State,
    answers: bool,
) {
    let mut flow = state.flow.subscribe();
    let open = |flow: &Flow| match flow {
        Flow::Free => true,
        Flow::Stalled => false,
        Flow::AnswersStalled => !answers,
    };
    let mut piece = vec![0; 16 << 10];
    loop {
        let Ok(n @ 1..) = from.read(&mut piece).await else {
            return;
        };
        if answers {
            let delay = state.delay.load(Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        if flow.wait_for(open).await.is_err() || to.write_all(&piece[..n]).await.is_err() {
            return;
        }
    }
}
