//! A provider that answers calls of a model in a configured way.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use image::{ImageFormat, Rgb, RgbImage};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
    time::sleep,
};

use crate::{picture::encoded, texts::chat};

/// The server opens a thousand connections at once. The kernel resets those that do not fit, and
/// the calls of other accounts with them.
const BACKLOG: u32 = 4_096;

/// What a call is answered with.
#[derive(Debug, Clone)]
pub enum Mode {
    /// Nothing for some seconds, then a short text.
    Wait(Duration),
    /// A text of so many bytes.
    Text(usize),
    /// One event with so many values of JSON.
    Event(usize),
    /// A stream of so many pieces of 1 KiB.
    Pieces(usize),
    /// So many images that do not compress.
    Images(usize),
}

pub struct Provider {
    address: SocketAddr,
    modes: Modes,
}

/// By model.
type Modes = Arc<Mutex<BTreeMap<&'static str, Mode>>>;

impl Provider {
    pub fn start() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let listener = socket.listen(BACKLOG).unwrap().into_std().unwrap();
        let address = listener.local_addr().unwrap();
        let modes = Modes::default();
        let shared = Arc::clone(&modes);
        let accepting = async move {
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let modes = Arc::clone(&shared);
                // A server that hangs up is part of an attack.
                tokio::spawn(async move { answer(stream, &modes).await });
            }
        };
        // A thread of its own: streams that are sent at full speed must not delay the other accounts'
        // requests on this side.
        std::thread::spawn(|| {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            let runtime = builder.enable_all().build().unwrap();
            runtime.block_on(accepting);
        });
        Self { address, modes }
    }

    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub fn set(&self, model: &'static str, mode: Mode) {
        self.modes.lock().unwrap().insert(model, mode);
    }
}

async fn answer(mut stream: TcpStream, modes: &Modes) -> Option<()> {
    let called = read_model(&mut stream).await?;
    let mode = modes.lock().unwrap().get(&*called)?.clone();
    let usage = json!({"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110});
    let completion = |text: &str| chat("gpt-5.2", text, &usage).to_string();
    let body = match mode {
        Mode::Wait(wait) => {
            sleep(wait).await;
            completion("done")
        }
        Mode::Text(bytes) => completion(&"a".repeat(bytes)),
        Mode::Images(count) => {
            let noise =
                RgbImage::from_fn(1024, 1024, |_, _| Rgb([0; 3].map(|_: u8| fastrand::u8(..))));
            let file = encoded(noise, ImageFormat::Png);
            let image = json!({"b64_json": BASE64_STANDARD.encode(file)});
            json!({"created": 1, "data": vec![image; count]}).to_string()
        }
        Mode::Event(values) => {
            open(&mut stream).await?;
            let zeros = "0,".repeat(values);
            let event = format!("data: {{\"id\":\"c\",\"x\":[{zeros}0],\"choices\":[]}}\n\n");
            return stream.write_all(event.as_bytes()).await.ok();
        }
        Mode::Pieces(count) => {
            open(&mut stream).await?;
            let piece = json!({"id": "c", "model": "gpt-5.2", "choices": [{"index": 0,
                "delta": {"content": "a".repeat(1 << 10)}}]});
            for _ in 0..count {
                stream
                    .write_all(format!("data: {piece}\n\n").as_bytes())
                    .await
                    .ok()?;
            }
            let last = json!({"id": "c", "usage": usage,
                "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
            let end = format!("data: {last}\n\ndata: [DONE]\n\n");
            return stream.write_all(end.as_bytes()).await.ok();
        }
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.ok()?;
    stream.write_all(body.as_bytes()).await.ok()
}

async fn open(stream: &mut TcpStream) -> Option<()> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await.ok()
}

/// Reads a request and keeps only the model, which its body begins with.
async fn read_model(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let end = loop {
        if let Some(at) = head.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut head).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8_lossy(&head[..end]).to_ascii_lowercase();
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length?.trim().parse().ok()?;
    while head.len() < end + length.min(256) {
        stream.read_buf(&mut head).await.ok()?;
    }
    let body = String::from_utf8_lossy(&head[end..]);
    let (_, model) = body.split_once("\"model\"")?;
    let model = model.split('"').nth(1)?.to_owned();
    let mut left = length.saturating_sub(head.len() - end);
    let mut space = vec![0; 64 << 10];
    while left > 0 {
        match stream.read(&mut space).await.ok()? {
            0 => return None,
            read => left = left.saturating_sub(read),
        }
    }
    Some(model)
}
