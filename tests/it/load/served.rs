//! A server on a port, and raw HTTP clients.

use std::{net::SocketAddr, time::Duration};

use axum::Router;
use gensvc::app::listener::{self, Limits};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// The longest any single wait may take on a slow machine.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// A timeout that never expires.
const NEVER: Duration = Duration::from_hours(1);

pub const ROOMY: Limits = Limits {
    max_connections: 10_000,
    trusted_proxies: Vec::new(),
    header_timeout: NEVER,
    keep_alive: NEVER,
    write_timeout: NEVER,
    max_header_bytes: 32 << 10,
};

/// A server on a port.
pub struct Served {
    pub address: SocketAddr,
    pub close: CancellationToken,
    pub ended: JoinHandle<()>,
}

impl Served {
    pub async fn new(router: Router, limits: Limits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let close = CancellationToken::new();
        let ended = tokio::spawn(listener::serve(listener, router, limits, close.clone()));
        Self {
            address,
            close,
            ended,
        }
    }

    pub async fn connect(&self) -> Peer {
        Peer(TcpStream::connect(self.address).await.unwrap())
    }

    /// One request on its own connection, until it is closed.
    pub async fn ask(&self, request: &str) -> String {
        let mut peer = self.connect().await;
        peer.send(request.as_bytes()).await;
        peer.read_out().await
    }
}

/// A client connection.
pub struct Peer(pub TcpStream);

impl Peer {
    /// Sends; a closed connection is not the test's concern.
    pub async fn send(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes).await;
    }

    /// All data until the end.
    pub async fn read_out(&mut self) -> String {
        let mut all = Vec::new();
        let read = tokio::time::timeout(PATIENCE, self.0.read_to_end(&mut all)).await;
        read.unwrap().unwrap();
        String::from_utf8(all).unwrap()
    }

    /// Head and body of one response with a Content-Length.
    pub async fn answer(&mut self) -> String {
        let mut all = Vec::new();
        let reading = async {
            loop {
                let text = String::from_utf8_lossy(&all).into_owned();
                if let Some((head, body)) = text.split_once("\r\n\r\n") {
                    let length = head.to_ascii_lowercase();
                    let length = length.split("content-length: ").nth(1).unwrap();
                    let length: usize = length.lines().next().unwrap().parse().unwrap();
                    if body.len() >= length {
                        return text;
                    }
                }
                assert_ne!(self.0.read_buf(&mut all).await.unwrap(), 0, "{text}");
            }
        };
        let answer = tokio::time::timeout(PATIENCE, reading).await;
        answer.unwrap()
    }
}

pub const LIVE: &str = "GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n";

/// The error of a raw response, whose head must match it.
pub fn envelope(answer: &str, status: u16, code: &str) -> Value {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["error"]["code"], code, "{answer}");
    let id = body["error"]["request_id"].as_str().unwrap();
    assert!(head.contains(&format!("x-request-id: {id}")), "{answer}");
    body["error"].clone()
}
