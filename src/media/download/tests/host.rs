//! A file host on the loopback address.

use std::{
    io,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use url::Url;

/// A host that answers each path with a difficult response.
pub(super) struct Host {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Host {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, port, Arc::clone(&log)));
            }
        });
        Self { port, requests }
    }

    pub(super) fn url(&self, host: &str, path: &str) -> Url {
        Url::parse(&format!("http://{host}:{}{path}", self.port)).unwrap()
    }

    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

async fn answer(mut stream: TcpStream, port: u16, log: Arc<Mutex<Vec<String>>>) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    log.lock().unwrap().push(head);
    let to = |place: &str| {
        format!("HTTP/1.1 302 Found\r\nlocation: {place}\r\ncontent-length: 0\r\n\r\n")
    };
    let ok = |length: &str| format!("HTTP/1.1 200 OK\r\ncontent-type: video/mp4\r\n{length}\r\n");
    let text = match path.as_str() {
        "/hello" => ok("content-length: 5\r\n") + "hello",
        "/nothing" => ok("content-length: 0\r\n"),
        "/huge" => ok("content-length: 99999999999\r\n"),
        "/cut" => ok("content-length: 10\r\n") + "hello",
        "/short" => ok("content-length: 3\r\n") + "hello",
        "/chunked-cut" => ok("transfer-encoding: chunked\r\n") + "5\r\nhello\r\n",
        "/endless" | "/silent" => ok("") + "hello",
        "/mute" => String::new(),
        "/nonsense" => "220 mail.example ESMTP\r\n".to_owned(),
        "/to/hello" => to("/hello"),
        "/to/there" => to(&format!("http://127.0.0.1:{port}/hello")),
        "/to/there-https" => to(&format!("https://127.0.0.1:{port}/hello")),
        "/to/mapped" => to(&format!("//[::ffff:127.0.0.1]:{port}/hello").replace("//", "https://")),
        "/to/metadata" => to("https://169.254.169.254/latest/meta-data"),
        "/to/name" => to(&format!("https://localhost:{port}/hello")),
        "/to/file" => to("file:///etc/passwd"),
        "/to/itself" => to("/to/itself"),
        "/to/3" => to("/to/2"),
        "/to/2" => to("/to/hello"),
        "/to/nowhere" => to("http://["),
        "/to/no-location" => "HTTP/1.1 302 Found\r\ncontent-length: 0\r\n\r\n".to_owned(),
        path => {
            let status = path.strip_prefix("/status/").unwrap_or("500");
            format!("HTTP/1.1 {status} X\r\ncontent-length: 4\r\n\r\noops")
        }
    };
    stream.write_all(text.as_bytes()).await?;
    match path.as_str() {
        "/endless" => loop {
            stream.write_all(&[7; 10_000]).await?;
        },
        "/silent" | "/mute" => std::future::pending().await,
        _ => stream.shutdown().await,
    }
}
