//! One server, the attacker's requests, and what another account notices.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{sleep, timeout},
};

use super::{Answers, Attack, MEMORY_MIB, upstream::Provider};
use crate::{
    args::Args,
    process,
    server::Server,
    stage::{Plan, Stage},
};

/// The accounts' places among those of the stage.
const ATTACKER: usize = 0;
const OTHER: usize = 1;
/// How long an attack may take.
const LIMIT: Duration = Duration::from_mins(1);
/// Between two requests of the other account, and two looks at the memory.
const PAUSE: Duration = Duration::from_millis(50);

pub struct Scene {
    stage: Arc<Stage>,
    pub provider: Provider,
}

pub struct Measured {
    pub peak_mib: u64,
    pub p99: Duration,
    pub refused: usize,
}

impl Scene {
    pub async fn set(args: &Args) -> Self {
        let provider = Provider::start().await;
        let (memory, url) = (MEMORY_MIB.to_string(), provider.url());
        let plan = Plan {
            name: "attacks",
            programs: vec![process::current()],
            settings: &[
                ("GENSVC__SERVER__MEMORY_MIB", &memory),
                ("GENSVC__PROVIDERS__OPENAI__TIMEOUT_SECONDS", "60"),
                ("GENSVC__PROVIDERS__OPENAI__MAX_CONCURRENT", "1000"),
                ("OPENAI_BASE_URL", &url),
            ],
            standby: false,
            credits: ["1000000"; 4],
        };
        Self {
            stage: Arc::new(Stage::set(args, &plan).await),
            provider,
        }
    }

    fn server(&self) -> &Server {
        &self.stage.servers[0]
    }

    /// Runs an attack on a fresh process.
    pub async fn measure(&self, attack: Attack) -> (Measured, Answers) {
        self.server().restart().await;
        let is_over = AtomicBool::new(false);
        let attacking = async {
            let answers = timeout(LIMIT, attack(self)).await.unwrap_or_default();
            is_over.store(true, Ordering::Relaxed);
            answers
        };
        let watching = async {
            let mut peak = 0;
            while !is_over.load(Ordering::Relaxed) {
                peak = peak.max(self.server().memory().await.unwrap_or_default());
                sleep(PAUSE / 2).await;
            }
            peak
        };
        let working = async {
            let (mut waits, mut refused) = (Vec::new(), 0);
            while !is_over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                let body = r#"{"prompt": "A haiku", "provider": "sandbox"}"#;
                let sent = self.send_as(OTHER, "/v1/generate/text", "", body.as_bytes());
                refused += usize::from(status(sent.await).await != 200);
                waits.push(begun.elapsed());
                sleep(PAUSE).await;
            }
            waits.sort_unstable();
            let p99 = waits.get(waits.len() * 99 / 100).copied();
            (p99.unwrap_or_default(), refused)
        };
        let (answers, peak_mib, (p99, refused)) = tokio::join!(attacking, watching, working);
        let measured = Measured {
            peak_mib,
            p99,
            refused,
        };
        (measured, answers)
    }

    /// Sends a request of the attacker, and reads nothing. `headers`: further lines.
    pub async fn send(&self, path: &str, headers: &str, body: &[u8]) -> Option<TcpStream> {
        self.send_as(ATTACKER, path, headers, body).await
    }

    async fn send_as(
        &self,
        account: usize,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> Option<TcpStream> {
        let url = self.server().url();
        let mut stream = TcpStream::connect(url.strip_prefix("http://")?)
            .await
            .ok()?;
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: gensvc\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n{headers}\r\n",
            self.stage.token(account),
            body.len()
        );
        stream.write_all(head.as_bytes()).await.ok()?;
        // A server that refuses may close before it has read all.
        let _refused = stream.write_all(body).await;
        Some(stream)
    }

    /// Sends a request of the attacker and reads the body of its answer.
    pub async fn answer(&self, path: &str, body: &[u8]) -> (u16, String) {
        let stream = self.send(path, "connection: close\r\n", body).await;
        let mut text = Vec::new();
        if let Some(mut stream) = stream {
            let _ = stream.read_to_end(&mut text).await;
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        (code(&text), body.to_owned())
    }
}

/// The status of an answer whose body is not read; 0 if none comes.
pub async fn status(mut stream: Option<TcpStream>) -> u16 {
    status_of(&mut stream).await
}

/// As [`status`], and keeps the connection.
pub async fn status_of(stream: &mut Option<TcpStream>) -> u16 {
    let mut head = [0; 16];
    match stream {
        Some(stream) => {
            let reading = timeout(LIMIT, stream.read_exact(&mut head));
            match reading.await {
                Ok(Ok(_)) => code(&String::from_utf8_lossy(&head)),
                _ => 0,
            }
        }
        None => 0,
    }
}

fn code(answer: &str) -> u16 {
    let status = answer.split(' ').nth(1);
    status.and_then(|status| status.parse().ok()).unwrap_or(0)
}
