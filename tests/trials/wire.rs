//! Hand-written HTTP/1.1, so that responses can violate it.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// The largest request that is read, in bytes.
const CAP: usize = 1 << 20;

/// A request.
pub struct Request {
    pub method: String,
    /// With the query.
    pub path: String,
    /// The valid ones.
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// A response, in pieces.
#[derive(Default)]
pub struct Reply {
    pub pieces: Vec<Piece>,
    pub end: End,
}

/// A piece of a response.
pub enum Piece {
    Wait(Duration),
    Bytes(Vec<u8>),
}

/// What happens to the connection afterwards.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It takes the next request.
    #[default]
    Keep,
    /// It is closed.
    Close,
    /// It is reset.
    Reset,
}

impl Reply {
    /// A whole answer.
    pub fn whole(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Self {
        let mut bytes = head(status, headers);
        bytes.extend(format!("content-length: {}\r\n\r\n", body.len()).bytes());
        bytes.extend(body);
        Self {
            pieces: vec![Piece::Bytes(bytes)],
            end: End::Keep,
        }
    }

    /// A JSON answer.
    pub fn json(status: u16, body: &serde_json::Value) -> Self {
        let headers = [
            ("content-type", "application/json"),
            ("x-request-id", "req_chaos"),
        ];
        Self::whole(status, &headers, body.to_string().as_bytes())
    }

    /// A stream of events with a pause before each. Without its last chunk it is cut.
    pub fn stream(events: &[String], pause: Duration, complete: bool) -> Self {
        let mut opening = head(200, &[("content-type", "text/event-stream")]);
        opening.extend(b"transfer-encoding: chunked\r\n\r\n");
        let mut pieces = vec![Piece::Bytes(opening)];
        for event in events {
            pieces.push(Piece::Wait(pause));
            let chunk = format!("{:x}\r\n{event}\r\n", event.len());
            pieces.push(Piece::Bytes(chunk.into_bytes()));
        }
        if complete {
            pieces.push(Piece::Bytes(b"0\r\n\r\n".to_vec()));
        }
        Self {
            pieces,
            end: if complete { End::Keep } else { End::Close },
        }
    }

    /// After a wait.
    pub fn after(mut self, wait: Duration) -> Self {
        self.pieces.insert(0, Piece::Wait(wait));
        self
    }

    /// With its last piece cut in the middle.
    pub fn cut(mut self) -> Self {
        if let Some(Piece::Bytes(bytes)) = self.pieces.last_mut() {
            bytes.truncate(bytes.len().saturating_sub(1 + bytes.len() / 3));
        }
        self.end = End::Close;
        self
    }

    /// The same bytes twice on one connection.
    pub fn twice(mut self) -> Self {
        for piece in &mut self.pieces {
            if let Piece::Bytes(bytes) = piece {
                bytes.extend_from_within(..);
            }
        }
        self
    }

    /// Nothing at all.
    pub fn reset() -> Self {
        Self {
            pieces: Vec::new(),
            end: End::Reset,
        }
    }
}

fn head(status: u16, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut lines = vec![format!("HTTP/1.1 {status} Chaos\r\n")];
    lines.extend(
        headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n")),
    );
    lines.concat().into_bytes()
}

/// The next request; `None` at the end of the connection, or of valid data.
pub async fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if bytes.len() > CAP || stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: HeaderMap = lines
        .filter_map(|line| line.split_once(':'))
        .filter_map(|(name, value)| {
            let name: HeaderName = name.parse().ok()?;
            Some((name, value.trim().parse::<HeaderValue>().ok()?))
        })
        .collect();
    let length = headers
        .get(http::header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse().ok())
        .unwrap_or(0);
    let mut body = bytes.split_off(head_end);
    while body.len() < length {
        if body.len() > CAP || stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some(Request {
        method,
        path,
        headers,
        body,
    })
}

/// Sends a response. `false`: the connection is unusable.
pub async fn write(stream: &mut TcpStream, reply: Reply) -> bool {
    for piece in reply.pieces {
        match piece {
            Piece::Wait(wait) => tokio::time::sleep(wait).await,
            Piece::Bytes(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return false;
                }
            }
        }
    }
    if reply.end == End::Reset {
        let _ = stream.set_zero_linger();
    }
    reply.end == End::Keep
}
