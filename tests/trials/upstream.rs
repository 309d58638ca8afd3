//! The fake upstreams: `OpenAI` (text, images), Anthropic (text), Runway (video) and ElevenLabs
//! (speech), in one listener. They fail in every planned way, and log what was submitted.

mod files;
mod mood;
mod text;
mod video;

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

use self::{files::Files, mood::Mood, video::Tasks};
use crate::{
    args::Args,
    tally::Tally,
    wire::{self, Reply, Request},
};

/// The submissions with one mark.
#[derive(Debug, Default, Clone)]
pub struct Submissions {
    /// How many arrived.
    pub all: u32,
    /// How many of them were started, or may have been.
    pub started: u32,
    /// How many arrived after one that was started.
    pub late: u32,
    /// The price of the response in micro-credits; `None` where it was not a valid one.
    pub due: Option<i64>,
}

/// The fake upstreams.
pub struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// Held while the port is closed.
    accepting: tokio::sync::Mutex<JoinHandle<()>>,
}

struct Shared {
    args: Args,
    tally: Arc<Tally>,
    address: String,
    files: Files,
    log: Mutex<HashMap<String, Submissions>>,
    /// How often the tokens of each mark were counted.
    counts: Mutex<HashMap<String, u32>>,
    tasks: Tasks,
    /// Set: no new faults.
    calm: AtomicBool,
    /// How often the port was closed.
    closings: watch::Sender<u32>,
}

impl Upstream {
    pub async fn start(args: &Args, tally: &Arc<Tally>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            args: args.clone(),
            tally: Arc::clone(tally),
            address: format!("http://{address}"),
            files: Files::make().await,
            log: Mutex::default(),
            counts: Mutex::default(),
            tasks: Tasks::default(),
            calm: AtomicBool::new(false),
            closings: watch::Sender::new(0),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self {
            address,
            shared,
            accepting: tokio::sync::Mutex::new(accepting),
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Disables or enables new faults.
    pub fn calm(&self, calm: bool) {
        self.shared.calm.store(calm, Ordering::Relaxed);
    }

    /// Refuses connections for a while. Idle connections are closed, those with a response in
    /// progress get it.
    pub async fn refuse(&self, length: Duration) {
        let mut accepting = self.accepting.lock().await;
        accepting.abort();
        // Once ended, it has closed the port.
        let _ = (&mut *accepting).await;
        self.shared.closings.send_modify(|closings| *closings += 1);
        tokio::time::sleep(length).await;
        let begun = Instant::now();
        let listener = loop {
            match TcpListener::bind(self.address).await {
                Ok(listener) => break listener,
                // Another connection may have been given the port; it will close soon.
                Err(error) => assert!(begun.elapsed() < PATIENCE, "the port is taken: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        *accepting = tokio::spawn(accept(listener, Arc::clone(&self.shared)));
    }

    /// How often it has refused connections so far.
    pub fn refusals(&self) -> u32 {
        *self.shared.closings.borrow()
    }

    /// Submissions by mark.
    pub fn log(&self) -> HashMap<String, Submissions> {
        self.shared.log.lock().unwrap().clone()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.accepting.get_mut().abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(serve(stream, Arc::clone(&shared)));
    }
}

async fn serve(mut stream: TcpStream, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let mut closings = shared.closings.subscribe();
    loop {
        let request = tokio::select! {
            request = wire::read(&mut stream) => request,
            _ = closings.changed() => return,
        };
        let Some(request) = request else { return };
        let reply = shared.answer(&request);
        if !wire::write(&mut stream, reply).await {
            return;
        }
    }
}

/// The mark in a prompt.
pub fn mark(text: &str) -> Option<&str> {
    let rest = &text[text.find("mk-")?..];
    Some(&rest[..rest.find("-end")? + 4])
}

impl Shared {
    fn answer(&self, request: &Request) -> Reply {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        let path = request.path.as_str();
        if request.method != "POST" {
            return self.look(&request.method, path);
        }
        let Some(mark) = mark(&body) else {
            return Reply::json(400, &json!({"error": {"message": "no mark"}}));
        };
        if path.ends_with("/count_tokens") || path.ends_with("/input_tokens") {
            return self.count(mark, path);
        }
        let call: Value = serde_json::from_str(&body).unwrap_or(Value::Null);
        let mood = self.submitted(mark, path);
        if let Some(reply) = mood.spoilt(path) {
            return reply;
        }
        let (reply, due) = if path.contains("/images/edits") {
            self.images(&form(&body), mood)
        } else if path.contains("/images/") {
            self.images(&call, mood)
        } else if path.contains("_to_video") {
            self.video(&call, mark, mood)
        } else if path.contains("/text-to-speech/") {
            self.speech(&call, path, mood)
        } else {
            text::answer(path, &call, mark, mood)
        };
        if let Some(due) = due {
            self.log
                .lock()
                .unwrap()
                .entry(mark.to_owned())
                .or_default()
                .due = Some(due);
        }
        mood.dress(reply)
    }

    /// Counts the tokens of a request, which starts nothing.
    fn count(&self, mark: &str, path: &str) -> Reply {
        let attempt = {
            let mut counts = self.counts.lock().unwrap();
            let counts = counts.entry(mark.to_owned()).or_default();
            *counts += 1;
            *counts
        };
        let mood = self.mood(&format!("count {mark} {attempt}"), path);
        let tokens = match mood {
            Mood::Lie(0) => Value::Null,
            Mood::Lie(1) => json!(-5),
            Mood::Lie(2) => json!("12"),
            Mood::Lie(_) => json!(1_000_000_000),
            _ => json!(20),
        };
        let counted = Reply::json(200, &json!({"input_tokens": tokens}));
        mood.spoilt(path).unwrap_or_else(|| mood.dress(counted))
    }

    /// Draws a fault.
    fn mood(&self, seed: &str, path: &str) -> Mood {
        let mood = if self.calm.load(Ordering::Relaxed) {
            Mood::calm()
        } else {
            Mood::draw(&mut self.args.rng(seed), path)
        };
        mood.name().inspect(|name| self.tally.fault(name));
        mood
    }

    /// Records a submission, and draws its fault.
    fn submitted(&self, mark: &str, path: &str) -> Mood {
        let mut log = self.log.lock().unwrap();
        let entry = log.entry(mark.to_owned()).or_default();
        entry.all += 1;
        let mood = self.mood(&format!("{mark} {}", entry.all), path);
        if entry.started > 0 {
            entry.late += 1;
        }
        entry.started += u32::from(!mood.is_refusal());
        mood
    }

    fn images(&self, call: &Value, mood: Mood) -> (Reply, Option<i64>) {
        let n = call["n"].as_i64().unwrap_or(1);
        let made = if mood == Mood::TooFew {
            (n - 1).max(1)
        } else {
            n
        };
        let image = match mood {
            Mood::WrongFile => b"<html>no image</html>".to_vec(),
            Mood::CutFile => self.files.png[..self.files.png.len() / 2].to_vec(),
            _ => self.files.png.clone(),
        };
        let item = json!({"b64_json": BASE64_STANDARD.encode(image)});
        let data: Vec<Value> = (0..made).map(|_| item.clone()).collect();
        let reply = Reply::json(200, &json!({"created": 1, "data": data}));
        // Sends no token counts, so each input is charged at its ceiling.
        let inputs = call["inputs"].as_i64().unwrap_or_default();
        (reply, Some(made * 1_450_000 + inputs * 6_000_000))
    }

    fn speech(&self, call: &Value, path: &str, mood: Mood) -> (Reply, Option<i64>) {
        let sound = if path.contains("wav") {
            (&self.files.wav, "audio/wav")
        } else {
            (&self.files.mp3, "audio/mpeg")
        };
        let bytes = match mood {
            Mood::WrongFile => b"{\"detail\": \"no sound\"}",
            Mood::CutFile => &sound.0[..40],
            _ => &sound.0[..],
        };
        let characters = call["text"].as_str().unwrap_or_default().chars().count();
        let due = i64::try_from(characters).unwrap() * 8_000;
        (
            Reply::whole(200, &[("content-type", sound.1)], bytes),
            Some(due),
        )
    }

    fn video(&self, call: &Value, mark: &str, mood: Mood) -> (Reply, Option<i64>) {
        let seconds = call["duration"].as_i64().unwrap_or(2);
        let rng = self.args.rng(&format!("task {mark}"));
        let id = self.tasks.begin(mark, seconds, mood, rng);
        (
            Reply::json(200, &json!({"id": id})),
            Some(seconds * 12_000_000),
        )
    }

    /// Polls a task, downloads its file, or cancels it.
    fn look(&self, method: &str, path: &str) -> Reply {
        let calm = self.calm.load(Ordering::Relaxed);
        let name = path.rsplit('/').next().unwrap_or_default();
        if let Some(id) = path.contains("/files/").then_some(name) {
            let (reply, fault) = self.tasks.file(id, calm, &self.files);
            fault.inspect(|name| self.tally.fault(name));
            return reply;
        }
        if method == "DELETE" {
            self.tasks.cancel(name);
            return Reply::whole(204, &[], b"");
        }
        let (reply, fault) = self.tasks.look(name, calm, &self.address);
        fault.inspect(|name| self.tally.fault(name));
        reply
    }
}

/// The parts of an edit that determine its price.
fn form(body: &str) -> Value {
    let n = body.split("name=\"n\"\r\n\r\n").nth(1);
    let n = n.and_then(|rest| rest.split("\r\n").next()?.parse::<i64>().ok());
    json!({"n": n, "inputs": body.matches("name=\"image[]\"").count()})
}

/// How long the port may take to become free.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longer than the servers' timeout of 2 s.
const TOO_LONG: Duration = Duration::from_secs(5);
