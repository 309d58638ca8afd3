//! Connections: one address leaves room for others, and silent ones make room.

use std::sync::Arc;

use axum::{Router, routing::get};
use gensvc::{api::Authenticated, app::listener::Limits, domain::party::Network};
use tokio::{
    net::TcpSocket,
    sync::{Semaphore, mpsc::unbounded_channel},
};

use super::served::{LIVE, PATIENCE, Peer, ROOMY, Served, envelope};

const PENDING: &[u8] = b"GET /pending HTTP/1.1\r\nhost: x\r\n\r\n";
const KNOWN: &[u8] = b"GET /known HTTP/1.1\r\nhost: x\r\n\r\n";

impl Served {
    /// A connection from another address of this machine.
    async fn connect_from(&self, host: u8) -> Peer {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, host], 0).into()).unwrap();
        Peer(socket.connect(self.address).await.unwrap())
    }

    /// The response to a request from another address.
    async fn live_from(&self, host: u8) -> (Peer, String) {
        let mut peer = self.connect_from(host).await;
        peer.send(LIVE.as_bytes()).await;
        let answer = peer.answer().await;
        (peer, answer)
    }
}

fn limits(max_connections: usize) -> Limits {
    Limits {
        max_connections,
        ..ROOMY
    }
}

/// Answers, answers as to an authenticated caller, or waits for the semaphore; `arrived` receives
/// each request that waits.
fn router(release: &Arc<Semaphore>, arrived: tokio::sync::mpsc::UnboundedSender<()>) -> Router {
    let release = Arc::clone(release);
    let pending = move || {
        let (release, arrived) = (Arc::clone(&release), arrived.clone());
        async move {
            arrived.send(()).unwrap();
            let _permit = release.acquire().await.unwrap();
            "done"
        }
    };
    Router::new()
        .route("/health/live", get(|| async { "ok" }))
        .route(
            "/known",
            get(|| async { (axum::Extension(Authenticated), "ok") }),
        )
        .route("/pending", get(pending))
}

#[tokio::test]
async fn silent_connections_of_one_address_do_not_refuse_others() {
    let (arrived, _requests) = unbounded_channel();
    let served = Served::new(router(&Arc::new(Semaphore::new(0)), arrived), limits(8)).await;
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(served.connect_from(2).await);
    }
    for host in [3, 4, 2] {
        let (_, answer) = served.live_from(host).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    // The oldest were closed, without a response.
    assert_eq!(silent[0].read_out().await, "");
}

#[tokio::test]
async fn silent_connections_of_many_addresses_make_room() {
    let (arrived, _requests) = unbounded_channel();
    let served = Served::new(router(&Arc::new(Semaphore::new(0)), arrived), limits(8)).await;
    let mut silent = Vec::new();
    for n in 0..40 {
        let mut peer = served.connect_from(2 + n % 10).await;
        // Half a head, or one request and then nothing, is silent too.
        match n % 3 {
            0 => peer.send(b"GET / HTTP/1.1\r\n").await,
            1 => {
                peer.send(LIVE.as_bytes()).await;
                peer.answer().await;
            }
            _ => {}
        }
        silent.push(peer);
    }
    for host in [20, 21] {
        let (_, answer) = served.live_from(host).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

#[tokio::test]
async fn requests_under_way_are_not_cut_and_a_reserve_is_kept() {
    let (arrived, mut requests) = unbounded_channel();
    let release = Arc::new(Semaphore::new(0));
    let served = Served::new(router(&release, arrived), limits(16)).await;
    // Its place is kept, and the reserve is open to its address.
    let mut known = served.connect_from(9).await;
    known.send(KNOWN).await;
    known.answer().await;
    let mut busy = Vec::new();
    for n in 0..13 {
        let mut peer = served.connect_from(2 + n / 6).await;
        peer.send(PENDING).await;
        requests.recv().await.unwrap();
        busy.push(peer);
    }
    // An address at its share, and one without an authenticated request.
    let (_, answer) = served.live_from(5).await;
    envelope(&answer, 503, "overloaded");
    assert!(answer.contains("\r\nretry-after: 1\r\n"), "{answer}");
    let (_, answer) = served.live_from(9).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    known.send(LIVE.as_bytes()).await;
    assert!(known.answer().await.starts_with("HTTP/1.1 200 "));
    release.add_permits(100);
    for mut peer in busy {
        assert!(peer.answer().await.starts_with("HTTP/1.1 200 "));
    }
}

#[tokio::test]
async fn an_address_at_its_share_is_refused_and_a_proxy_is_not() {
    for is_proxy in [false, true] {
        let (arrived, mut requests) = unbounded_channel();
        let release = Arc::new(Semaphore::new(0));
        let proxy = Network {
            base: [127, 0, 0, 2].into(),
            prefix: 32,
        };
        let limits = Limits {
            trusted_proxies: if is_proxy { vec![proxy] } else { Vec::new() },
            ..limits(8)
        };
        let served = Served::new(router(&release, arrived), limits).await;
        let mut busy = Vec::new();
        for _ in 0..4 {
            let mut peer = served.connect_from(2).await;
            peer.send(PENDING).await;
            requests.recv().await.unwrap();
            busy.push(peer);
        }
        let (_, answer) = served.live_from(2).await;
        if is_proxy {
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        } else {
            envelope(&answer, 503, "overloaded");
        }
        let (_, answer) = served.live_from(3).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        release.add_permits(100);
        let answering = async {
            for peer in &mut busy {
                peer.answer().await;
            }
        };
        tokio::time::timeout(PATIENCE, answering).await.unwrap();
    }
}
