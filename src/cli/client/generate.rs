//! Generates: prints a text as it arrives, and writes files when they are complete.

use std::{
    cell::OnceCell,
    io::{self, IsTerminal as _, Read as _, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use futures_util::StreamExt as _;
use reqwest::Method;
use serde_json::{Value, json};
use sse_stream::SseStream;
use tokio::signal::unix::{SignalKind, signal};
use uuid::Uuid;

use super::{
    Env,
    args::{Common, Kind, Shown},
    connection::{Connection, Refused},
    files::{Target, cost, extension, kept, write},
    inputs, is_watched, passing,
    read::named,
};
use crate::cli::{
    Failure, Interrupted, Outcome,
    output::{Output, credits, printable},
};

/// Exit code of a failed generation.
const FAILED: u8 = 6;

struct Request {
    kind: &'static str,
    body: Value,
    output: Option<PathBuf>,
    /// Whether existing files may be replaced.
    is_forced: bool,
}

impl Request {
    fn of(kind: &Kind) -> Result<Self, Failure> {
        let (name, common, files) = match kind {
            Kind::Text(text) => ("text", &text.common, None),
            Kind::Image(image) => ("image", &image.common, Some(&image.files)),
            Kind::Video(video) => ("video", &video.common, Some(&video.files)),
            Kind::Audio(audio) => ("audio", &audio.common, Some(&audio.files)),
        };
        let mut body = json!({
            "prompt": prompt(common)?,
            "provider": common.provider,
            "model": common.model,
            "max_cost": common.max_cost,
        });
        match kind {
            Kind::Text(text) => {
                body["system_prompt"] = json!(text.system);
                body["template_id"] = json!(text.template);
                if !text.variables.is_empty() {
                    let values = text.variables.iter().map(|(n, v)| (n.clone(), json!(v)));
                    body["template_variables"] = Value::Object(values.collect());
                }
            }
            Kind::Image(image) => body["negative_prompt"] = json!(image.negative_prompt),
            Kind::Video(_) | Kind::Audio(_) => {}
        }
        let parameters = given(parameters(kind));
        if parameters != json!({}) {
            body["parameters"] = parameters;
        }
        Ok(Self {
            kind: name,
            body: given(body),
            output: files.and_then(|files| files.output.clone()),
            is_forced: files.is_some_and(|files| files.force),
        })
    }

    /// Adds the input images, and uploads those given as files.
    async fn with_inputs(mut self, kind: &Kind, connection: &Connection) -> Result<Self, Failure> {
        let (given, role) = match kind {
            Kind::Image(image) => (&image.inputs, "source"),
            Kind::Video(video) => (&video.inputs, "first_frame"),
            Kind::Text(_) | Kind::Audio(_) => return Ok(self),
        };
        if !given.inputs.is_empty() {
            self.body["inputs"] = inputs::resolve(connection, given, role).await?;
        }
        Ok(self)
    }

    fn path(&self) -> String {
        format!("/v1/generate/{}", self.kind)
    }
}

fn parameters(kind: &Kind) -> Value {
    match kind {
        Kind::Text(text) => json!({"max_tokens": text.max_tokens, "temperature": text.temperature}),
        Kind::Image(image) => json!({
            "size": image.size,
            "quality": image.quality,
            "style": image.style,
            "n": image.n,
        }),
        Kind::Video(video) => json!({"duration": video.duration, "ratio": video.ratio}),
        Kind::Audio(audio) => {
            let named = audio.files.output.as_deref().and_then(extension);
            let named = named.filter(|name| matches!(name.as_str(), "mp3" | "wav"));
            let format = audio.format.clone().or(named);
            json!({"voice": audio.voice, "speed": audio.speed, "format": format})
        }
    }
}

/// Removes members without a value.
fn given(mut object: Value) -> Value {
    if let Some(members) = object.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
    object
}

fn prompt(common: &Common) -> Result<String, Failure> {
    match common.prompt.as_deref() {
        Some(prompt) if prompt != "-" => Ok(prompt.to_owned()),
        _ => {
            if io::stdin().is_terminal() && common.prompt.is_none() {
                return Err("give a prompt, or pipe one in".into());
            }
            let mut text = String::new();
            io::stdin().read_to_string(&mut text)?;
            Ok(text)
        }
    }
}

pub(super) async fn estimate(kind: &Kind, env: &Env, output: Output) -> Outcome {
    let request = Request::of(kind)?;
    let connection = Connection::open(env)?;
    let request = request.with_inputs(kind, &connection).await?;
    let mut body = request.body;
    body["type"] = json!(request.kind);
    let answer = connection
        .send(Method::POST, "/v1/credits/estimate", &[], Some(&body))
        .await?;
    let found: Value = answer.json().await?;
    let text = |name: &str| found[name].as_str().unwrap_or_default();
    let most = if request.kind == "text" {
        "at most "
    } else {
        ""
    };
    let enough = if found["sufficient"] == true {
        ""
    } else {
        "; not enough credits are available"
    };
    let people = format!(
        "{most}{} with {} {}{enough}",
        credits(text("estimated")),
        text("provider"),
        text("model")
    );
    output.result(&people, &found)
}

pub(super) async fn run(kind: &Kind, env: &Env, output: Output) -> Outcome {
    let request = Request::of(kind)?;
    let connection = Connection::open(env)?;
    let request = request.with_inputs(kind, &connection).await?;
    if request.kind == "text" {
        return text(&connection, request, output).await;
    }
    let target = request.output.as_deref();
    let count = request.body["parameters"]["n"].as_u64().unwrap_or(1);
    let count = usize::try_from(count)?;
    let target = Target::of(request.kind, target, count, request.is_forced, output)?;
    let record = made(&connection, &request, output).await?;
    if record["status"] == "failed" {
        return Ok(failed(&record, output));
    }
    let fetched = tokio::select! {
        fetched = write(&connection, &record, target, output) => fetched,
        _ = tokio::signal::ctrl_c() => Err(Interrupted.into()),
    };
    if fetched.is_err() {
        output.note(&kept(&record));
    }
    fetched?;
    Ok(ExitCode::SUCCESS)
}

fn failed(record: &Value, output: Output) -> ExitCode {
    let message = record["error"]["message"]
        .as_str()
        .unwrap_or("the generation failed");
    output.refused(
        &format!("{message}; it cost nothing"),
        &json!({"generation": record}),
    );
    ExitCode::from(FAILED)
}

/// Writes a text to stdout as it arrives. The generation continues if the client ends.
async fn text(connection: &Connection, request: Request, output: Output) -> Outcome {
    let uuid = OnceCell::new();
    // Before the request, because the first poll of the stream may already write text.
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        done = streamed(connection, request, output, &uuid) => done,
        _ = interrupt.recv() => {
            output.note(&match uuid.get() {
                Some(uuid) => format!(
                    "\nThe text continues and is charged. To cancel it: gensvc cancel {uuid}"
                ),
                None => "\nIf the server has the request, the text continues and is charged: see \
                         gensvc history".to_owned(),
            });
            Err(Interrupted.into())
        }
    }
}

/// Streams a text. Sets `uuid` when the server has sent it.
async fn streamed(
    connection: &Connection,
    mut request: Request,
    output: Output,
    uuid: &OnceCell<String>,
) -> Outcome {
    request.body["stream"] = json!(true);
    // A repeated request generates only once.
    let key = Uuid::now_v7().to_string();
    let headers = [("idempotency-key", key.as_str())];
    let path = request.path();
    let response = connection.make(&path, &headers, &request.body).await?;
    let mut events = SseStream::from_bytes_stream(response.bytes_stream());
    let (mut out, mut last, mut written) = (io::stdout(), None, false);
    while let Some(event) = events.next().await {
        let event = event.map_err(|error| format!("the stream broke off: {error}"))?;
        let data: Value = serde_json::from_str(event.data.as_deref().unwrap_or_default())?;
        match event.event.as_deref() {
            Some("delta") if !output.json => {
                let piece = data["text"].as_str().unwrap_or_default();
                let piece = printable(piece, out.is_terminal());
                let shown = out.write_all(piece.as_bytes()).and_then(|()| out.flush());
                match shown {
                    // The reader has ended (`| head`).
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                        return Ok(ExitCode::SUCCESS);
                    }
                    shown => shown?,
                }
                written = true;
            }
            Some("generation") => {
                let sent = data["uuid"].as_str().unwrap_or_default();
                uuid.get_or_init(|| sent.to_owned());
            }
            Some("completed" | "failed") => last = Some(data),
            _ => {}
        }
    }
    let record = last.ok_or("the stream ended before the text did; see gensvc history")?;
    if record["status"] == "failed" {
        if written {
            writeln!(out)?;
        }
        return Ok(failed(&record, output));
    }
    if output.json {
        output.result("", &record)?;
    } else {
        writeln!(out)?;
        cost(&record, output);
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits for the finished record of an image, a video or speech, unless the user interrupts it.
async fn made(
    connection: &Connection,
    request: &Request,
    output: Output,
) -> Result<Value, Failure> {
    // A repeated request generates only once.
    let key = Uuid::now_v7().to_string();
    let mut headers = vec![("idempotency-key", key.as_str())];
    if request.kind == "image" {
        // Makes an image a job, so that it can be left or cancelled.
        headers.push(("prefer", "respond-async"));
    }
    let path = request.path();
    let response = connection.make(&path, &headers, &request.body).await?;
    let mut record: Value = response.json().await?;
    let path = format!(
        "/v1/generate/{}",
        record["uuid"].as_str().unwrap_or_default()
    );
    let mut shown = false;
    while matches!(record["status"].as_str(), Some("pending" | "processing")) {
        if is_watched() {
            passing(&bar(&record));
            shown = true;
        }
        // The progress bar follows the provider's reports; the server responds once it is done.
        let wait = [("prefer", "wait=3")];
        tokio::select! {
            looked = connection.look(&path, &wait) => match looked {
                Ok(found) => record = found,
                Err(error) => {
                    output.note(&kept(&record));
                    return Err(error);
                }
            },
            _ = tokio::signal::ctrl_c() => {
                if shown {
                    passing("");
                }
                if leave(connection, &path).await? {
                    return Err(Interrupted.into());
                }
            }
        }
    }
    if shown {
        passing("");
    }
    Ok(record)
}

fn bar(record: &Value) -> String {
    const WIDTH: usize = 30;
    let Some(percent) = record["progress"].as_u64() else {
        return format!("{}…", record["status"].as_str().unwrap_or_default());
    };
    let full = usize::try_from(percent).unwrap_or(100).min(100) * WIDTH / 100;
    format!(
        "[{}{}] {percent:>3} %",
        "#".repeat(full),
        "-".repeat(WIDTH - full)
    )
}

/// Asks the user whether to cancel or leave interrupted work. Returns whether to leave it.
async fn leave(connection: &Connection, path: &str) -> Result<bool, Failure> {
    let uuid = path.rsplit('/').next().unwrap_or_default();
    if !(io::stdin().is_terminal() && is_watched()) {
        writeln!(io::stderr(), "gensvc: left running: gensvc show {uuid}")?;
        return Ok(true);
    }
    write!(
        io::stderr(),
        "It still runs. Enter: keep waiting; c: cancel it, which releases its hold; l: leave it \
         running. [Enter] "
    )?;
    let answer = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        io::stdin().read_line(&mut line).map(|_| line)
    });
    let answer = tokio::select! {
        answer = answer => answer??,
        // A second Ctrl-C.
        _ = tokio::signal::ctrl_c() => "l".to_owned(),
    };
    match answer.trim().chars().next() {
        Some('c' | 'C') => {
            let cancelled = cancelled(connection, uuid).await;
            let refused = cancelled.as_ref().err();
            let refused = refused.and_then(|error| error.downcast_ref::<Refused>());
            if refused.is_some_and(|refused| refused.status == 409) {
                // It ended meanwhile; the next read shows it.
                return Ok(false);
            }
            cancelled?;
            writeln!(io::stderr(), "Cancelled; it cost nothing.")?;
            Ok(true)
        }
        Some('l' | 'L') => {
            writeln!(io::stderr(), "Left running: gensvc show {uuid}")?;
            Ok(true)
        }
        _ => Ok(false),
    }
}

async fn cancelled(connection: &Connection, uuid: &str) -> Result<Value, Failure> {
    let path = format!("/v1/generate/{uuid}/cancel");
    let answer = connection.send(Method::POST, &path, &[], None).await?;
    Ok(answer.json().await?)
}

pub(super) async fn cancel(shown: Shown, env: &Env, output: Output) -> Outcome {
    let connection = Connection::open(env)?;
    let answer = cancelled(&connection, &shown.id.to_string()).await;
    let record = named(shown, answer)?;
    let people = match record["credits"]["charged"].as_str() {
        Some(charged) => format!("Cancelled; it cost {}.", credits(charged)),
        None => "Cancelled; it ends soon.".to_owned(),
    };
    output.result(&people, &record)
}
