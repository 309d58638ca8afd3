//! One server, the attackers' requests, and what other accounts notice.

use std::{
    future::Future,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::{sleep, timeout},
};

use super::{
    ATTACKS, Answers, MEMORY_MIB,
    upstream::{Mode, Provider},
};
use crate::{
    account,
    args::Args,
    quantile::quantile,
    server::{self, Server},
    stage::{Plan, Stage},
};

/// The model of the other accounts' calls of the provider. No attack uses it.
const WORK_MODEL: &str = "gpt-4o-mini";
/// How long an attack may take, and a request wait.
const LIMIT: Duration = Duration::from_mins(1);
/// Between two requests of the other account.
const PAUSE: Duration = Duration::from_millis(50);

/// The accounts of the stage: one for each of [`ATTACKS`], then those that work.
pub struct Scene {
    stage: Arc<Stage>,
    provider: Provider,
}

/// The sender of an attack's requests.
pub struct Attacker<'a> {
    scene: &'a Scene,
    account: usize,
    pub model: &'static str,
}

/// What the accounts that work noticed, and the server's memory.
#[derive(Debug, Default)]
pub struct Measured {
    /// Before the attack.
    pub idle_mib: u64,
    pub peak_mib: u64,
    /// In milliseconds.
    pub waits: Vec<f64>,
    pub refused: usize,
}

impl Measured {
    pub fn add(&mut self, other: Self) {
        self.peak_mib = self.peak_mib.max(other.peak_mib);
        self.waits.extend(other.waits);
        self.refused += other.refused;
    }

    /// In milliseconds.
    pub fn p99(&self) -> f64 {
        quantile(&self.waits, 0.99)
    }
}

impl Scene {
    /// `working`: how many accounts work.
    pub async fn set(args: &Args, working: usize) -> Self {
        let provider = Provider::start();
        provider.set(WORK_MODEL, Mode::Text(100));
        let (memory, url) = (MEMORY_MIB.to_string(), provider.url());
        let plan = Plan {
            name: "attacks",
            programs: vec![server::current()],
            settings: &[
                ("GENSVC__SERVER__MEMORY_MIB", &memory),
                // The default; other trials have several servers on one Postgres.
                ("GENSVC__DATABASE__MAX_CONNECTIONS", "24"),
                ("GENSVC__PROVIDERS__OPENAI__TIMEOUT_SECONDS", "60"),
                ("GENSVC__PROVIDERS__OPENAI__MAX_CONCURRENT", "1000"),
                ("OPENAI_BASE_URL", &url),
            ],
            standby: false,
            credits: &vec!["10000000"; ATTACKS.len() + working],
        };
        let stage = Stage::set(args, &plan).await;
        // Not through the proxy of this program, which is busy with the attack.
        let database = stage.postgres.current().url().to_owned();
        stage.servers[0].set("DATABASE_URL", &database).await;
        stage.servers[0].restart().await;
        Self {
            stage: Arc::new(stage),
            provider,
        }
    }

    fn server(&self) -> &Server {
        &self.stage.servers[0]
    }

    pub async fn memory(&self) -> u64 {
        self.server().memory().await.unwrap_or_default()
    }

    /// Runs an attack on a fresh process.
    pub async fn measure(&self, attack: usize) -> (Measured, Answers) {
        self.server().restart().await;
        let idle_mib = self.memory().await;
        let is_over = AtomicBool::new(false);
        let attacking = async {
            let answers = self.attack(attack).await;
            is_over.store(true, Ordering::Relaxed);
            answers
        };
        let watching = async {
            let mut peak = 0;
            while !is_over.load(Ordering::Relaxed) {
                peak = peak.max(self.memory().await);
                sleep(PAUSE / 2).await;
            }
            peak
        };
        let working = self.work(0, &is_over, || sleep(PAUSE));
        let (answers, peak_mib, mut measured) = tokio::join!(attacking, watching, working);
        measured.idle_mib = idle_mib;
        measured.peak_mib = peak_mib;
        (measured, answers)
    }

    /// Runs an attack once.
    pub async fn attack(&self, attack: usize) -> Answers {
        let attacker = Attacker {
            scene: self,
            account: attack,
            model: ATTACKS[attack].model,
        };
        let attacking = (ATTACKS[attack].run)(&attacker);
        timeout(LIMIT, attacking).await.unwrap_or_default()
    }

    /// Sends requests of one of the accounts that work until the end: short texts of two providers,
    /// a larger body, and now and then a login.
    pub async fn work<F: Future>(
        &self,
        account: usize,
        is_over: &AtomicBool,
        pause: impl Fn() -> F,
    ) -> Measured {
        // An address each: the server bounds what one may do at once.
        let address = [127, 0, 2, u8::try_from(account).unwrap() + 1];
        let account = ATTACKS.len() + account;
        let token = self.stage.token(account);
        let login = format!(
            r#"{{"email": "{}", "password": "{}"}}"#,
            self.stage.accounts[account].email,
            account::PASSWORD
        );
        let text = r#"{"prompt": "A haiku", "provider": "sandbox"}"#;
        let called =
            format!(r#"{{"prompt": "A haiku", "provider": "openai", "model": "{WORK_MODEL}"}}"#);
        let larger = format!(
            r#"{{"model": "openai/{WORK_MODEL}", "max_tokens": 10,
                "messages": [{{"role": "user", "content": "{}"}}]}}"#,
            "word ".repeat(60_000)
        );
        let requests = [
            ("/v1/generate/text", text),
            ("/v1/generate/text", &called),
            ("/openai/v1/chat/completions", &larger),
        ];
        let mut measured = Measured::default();
        for n in fastrand::usize(..20).. {
            let (path, body) = match n % 20 {
                0 => ("/v1/auth/login", &*login),
                n => requests[n % requests.len()],
            };
            let begun = Instant::now();
            let mut sent = self.send(address, &token, path, "", body.as_bytes()).await;
            let status = status_of(&mut sent).await;
            let waited = begun.elapsed().as_secs_f64() * 1_000.0;
            measured.waits.push(waited);
            if status != 200 {
                measured.refused += 1;
                let why = message(sent).await.unwrap_or_default();
                println!("    {status} to {path} after {waited:.0} ms: {why}");
            }
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            pause().await;
        }
        measured
    }

    /// Sends a request from an address, and reads nothing. `headers`: further lines.
    async fn send(
        &self,
        from: [u8; 4],
        token: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> Option<TcpStream> {
        let mut stream = self.connect(from).await?;
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: gensvc\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n{headers}\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.ok()?;
        // A server that refuses may close before it has read all.
        let _refused = stream.write_all(body).await;
        Some(stream)
    }

    async fn connect(&self, from: [u8; 4]) -> Option<TcpStream> {
        let socket = TcpSocket::new_v4().ok()?;
        socket.bind(SocketAddr::from((from, 0))).ok()?;
        socket.connect(self.server().address()?).await.ok()
    }
}

impl Attacker<'_> {
    /// Sets how the provider answers calls of the attack's model.
    pub fn set_provider(&self, mode: Mode) {
        self.scene.provider.set(self.model, mode);
    }

    /// An address for each attack.
    fn address(&self) -> [u8; 4] {
        [127, 0, 1, u8::try_from(self.account).unwrap() + 1]
    }

    pub async fn connect(&self) -> Option<TcpStream> {
        self.scene.connect(self.address()).await
    }

    /// Sends a request and reads nothing. `headers`: further lines.
    pub async fn send(&self, path: &str, headers: &str, body: &[u8]) -> Option<TcpStream> {
        let token = self.token();
        let sent = self.scene.send(self.address(), &token, path, headers, body);
        sent.await
    }

    pub fn token(&self) -> String {
        self.scene.stage.token(self.account)
    }

    /// Sends a request and reads the body of its answer.
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

/// The message of an error whose status was read.
async fn message(stream: Option<TcpStream>) -> Option<String> {
    let mut answer = [0; 2_048];
    let read = timeout(LIMIT, stream?.read(&mut answer)).await.ok()?.ok()?;
    let answer = String::from_utf8_lossy(&answer[..read]);
    let (_, message) = answer.split_once(r#""message":""#)?;
    Some(message.split('"').next()?.to_owned())
}

fn code(answer: &str) -> u16 {
    let status = answer.split(' ').nth(1);
    status.and_then(|status| status.parse().ok()).unwrap_or(0)
}
