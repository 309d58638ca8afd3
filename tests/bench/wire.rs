//! HTTP/1.1 by hand, for the load and the upstream: they are to cost a small part of what is
//! measured. Both ends are known, so names of headers are in lower case and bodies are whole.

use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// The longest that an answer may take.
const PATIENCE: Duration = Duration::from_mins(1);
/// What a piece of a streamed text is recognised by, of gensvc's as of the upstream's.
const DELTA: &[u8] = b"delta";

/// A connection of a caller, kept open.
pub struct Connection {
    stream: TcpStream,
    bytes: Vec<u8>,
}

/// An answer.
pub struct Answer<'a> {
    pub status: u16,
    pub body: &'a [u8],
    /// When the first piece of a stream was here.
    pub first: Option<Instant>,
}

impl Connection {
    pub async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            bytes: Vec::with_capacity(4096),
        })
    }

    pub async fn ask(&mut self, request: &[u8]) -> io::Result<Answer<'_>> {
        timeout(PATIENCE, self.exchange(request)).await?
    }

    async fn exchange(&mut self, request: &[u8]) -> io::Result<Answer<'_>> {
        self.stream.write_all(request).await?;
        self.bytes.clear();
        let head = read_head(&mut self.stream, &mut self.bytes).await?;
        let status = self
            .bytes
            .get(9..12)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let status = status.and_then(|digits| digits.parse().ok()).unwrap_or(0);
        let mut first = None;
        if let Some(length) = length(&self.bytes[..head]) {
            read_to(&mut self.stream, &mut self.bytes, head + length).await?;
        } else {
            // Nothing that is sent has these bytes inside, since JSON escapes its line breaks.
            while !self.bytes.ends_with(b"0\r\n\r\n") {
                note_delta(&mut first, &self.bytes[head..]);
                read_more(&mut self.stream, &mut self.bytes).await?;
            }
            note_delta(&mut first, &self.bytes[head..]);
        }
        Ok(Answer {
            status,
            body: &self.bytes[head..],
            first,
        })
    }
}

fn note_delta(first: &mut Option<Instant>, body: &[u8]) {
    if first.is_none() && contains(body, DELTA) {
        *first = Some(Instant::now());
    }
}

/// Reads a request; where its head ends, and its body.
pub async fn request(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> io::Result<(usize, usize)> {
    bytes.clear();
    let head = read_head(stream, bytes).await?;
    let end = head + length(&bytes[..head]).unwrap_or(0);
    read_to(stream, bytes, end).await?;
    Ok((head, end))
}

/// Returns where the head ends.
async fn read_head(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> io::Result<usize> {
    loop {
        if let Some(at) = find(bytes, b"\r\n\r\n") {
            return Ok(at + 4);
        }
        read_more(stream, bytes).await?;
    }
}

async fn read_to(stream: &mut TcpStream, bytes: &mut Vec<u8>, end: usize) -> io::Result<()> {
    while bytes.len() < end {
        read_more(stream, bytes).await?;
    }
    Ok(())
}

async fn read_more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> io::Result<()> {
    bytes.reserve(4096);
    match stream.read_buf(bytes).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

/// The length of the body, where the head says it.
fn length(head: &[u8]) -> Option<usize> {
    let rest = &head[find(head, b"content-length: ")? + 16..];
    let digits = rest.split(|byte| *byte == b'\r').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

pub fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    find(bytes, wanted).is_some()
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}
