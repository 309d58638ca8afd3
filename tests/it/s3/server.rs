//! An S3 server, and a proxy before it that injects its faults.

use std::{
    ffi::OsStr,
    path::PathBuf,
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    process::{Child, Command},
    task::JoinSet,
};
use uuid::Uuid;

const ID: &str = "s3-id";
const SECRET: &str = "s3-secret";
const BUCKET: &str = "files";

/// What the store does with each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// It takes that long to begin.
    Slow(Duration),
    /// It refuses, with a code.
    Refuses(u16, &'static str),
    /// It hangs up before it answers.
    Gone,
    /// It hangs up when it has half of the body.
    Cut,
}

/// The server, which ends with this, and its proxy.
pub struct S3 {
    url: String,
    folder: PathBuf,
    shared: Arc<Shared>,
    _proxy: JoinSet<()>,
    _server: Child,
}

struct Shared {
    fault: Mutex<Fault>,
    /// All connections of clients, which end where the fault changes.
    open: tokio::sync::Mutex<JoinSet<()>>,
}

impl S3 {
    pub async fn start(program: impl AsRef<OsStr>) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(Uuid::now_v7().to_string());
        std::fs::create_dir_all(folder.join(BUCKET)).unwrap();
        // Freed for the server, which chooses none itself.
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let server = Command::new(program)
            .args(["--host", "127.0.0.1", "--port", &port.to_string()])
            .args(["--access-key", ID, "--secret-key", SECRET])
            .arg(&folder)
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let waiting = async {
            while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let waiting = tokio::time::timeout(Duration::from_secs(30), waiting);
        waiting.await.unwrap();
        let shared = Arc::new(Shared {
            fault: Mutex::new(Fault::None),
            open: tokio::sync::Mutex::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut proxy = JoinSet::new();
        proxy.spawn(accept(listener, port, Arc::clone(&shared)));
        Self {
            url,
            folder,
            shared,
            _proxy: proxy,
            _server: server,
        }
    }

    /// The settings for a server of ours to store its files here.
    pub fn env(&self) -> [(&str, &str); 5] {
        [
            ("GENSVC__MEDIA__STORAGE", "s3"),
            ("GENSVC__MEDIA__S3__BUCKET", BUCKET),
            ("GENSVC__MEDIA__S3__ENDPOINT", &self.url),
            ("AWS_ACCESS_KEY_ID", ID),
            ("AWS_SECRET_ACCESS_KEY", SECRET),
        ]
    }

    /// From now on, on all connections.
    pub async fn set(&self, fault: Fault) {
        *self.shared.fault.lock().unwrap() = fault;
        self.shared.open.lock().await.shutdown().await;
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

async fn accept(listener: TcpListener, port: u16, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        let fault = *shared.fault.lock().unwrap();
        shared.open.lock().await.spawn(async move {
            // Errors are what the client is to see.
            let _ = serve(client, port, fault).await;
        });
    }
}

async fn serve(mut client: TcpStream, port: u16, fault: Fault) -> std::io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", port));
    match fault {
        Fault::None => {}
        Fault::Slow(delay) => tokio::time::sleep(delay).await,
        Fault::Gone => return Ok(()),
        Fault::Cut => {
            let (head, length) = head(&mut client).await?;
            let mut half = vec![0; length / 2];
            client.read_exact(&mut half).await?;
            let mut server = server.await?;
            server.write_all(&head).await?;
            return server.write_all(&half).await;
        }
        Fault::Refuses(status, code) => {
            let (_, length) = head(&mut client).await?;
            client.read_exact(&mut vec![0; length]).await?;
            let body = format!("<Error><Code>{code}</Code><Message>No.</Message></Error>");
            let answer = format!(
                "HTTP/1.1 {status} No\r\ncontent-type: application/xml\r\ncontent-length: {}\r\n\
                 connection: close\r\n\r\n{body}",
                body.len()
            );
            return client.write_all(answer.as_bytes()).await;
        }
    }
    copy_bidirectional(&mut client, &mut server.await?).await?;
    Ok(())
}

/// The head of a request, and the length of its body.
async fn head(client: &mut TcpStream) -> std::io::Result<(Vec<u8>, usize)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
    }
    let text = String::from_utf8_lossy(&head).to_lowercase();
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"));
    Ok((
        head,
        length.map_or(0, |length| length.trim().parse().unwrap()),
    ))
}
