//! A client of a running server, over HTTP, with an account's commands.

mod connection;
mod files;
mod generate;
mod inputs;
mod read;

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal as _, Write as _},
    process::ExitCode,
};

use serde_json::{Value, json};

use self::connection::{Connection, Credentials, KeySource, NoKey, Refused};
use super::{
    Outcome,
    args::{
        Usage,
        client::{self as args, Command},
    },
    output::Output,
    password,
};

type Env = BTreeMap<String, String>;

pub(super) async fn run(command: Command, env: &Env, output: Output) -> Outcome {
    let done = match command {
        Command::Login { base_url } => log_in(base_url.as_deref(), env, output).await,
        Command::Generate(kind) => generate::run(&kind, env, output).await,
        Command::Upload { file } => inputs::upload(&file, env, output).await,
        Command::Estimate(kind) => generate::estimate(&kind, env, output).await,
        Command::History(history) => read::history(&history, env, output).await,
        Command::Show(shown) => read::show(shown, env, output).await,
        Command::Cancel(shown) => generate::cancel(shown, env, output).await,
        Command::Balance => read::balance(env, output).await,
    };
    reported(done, output)
}

/// Reports usage of the key's account. The command without a key is the operator's.
pub(super) async fn usage(asked: &Usage, env: &Env, output: Output) -> Outcome {
    reported(read::usage(asked, env, output).await, output)
}

/// Prints a refusal of the server, or a missing key, which have their own exit codes.
fn reported(done: Outcome, output: Output) -> Outcome {
    let error = match done {
        Err(error) if error.is::<NoKey>() => {
            output.refused(&error.to_string(), &Value::Null);
            return Ok(ExitCode::from(NoKey::EXIT_CODE));
        }
        Err(error) => error,
        done => return done,
    };
    let refused = error.downcast::<Refused>()?;
    output.refused(&refused.to_string(), &refused.body);
    Ok(ExitCode::from(refused.exit_code()))
}

/// Asks for a key, checks it with the server, and stores it.
async fn log_in(base_url: Option<&str>, env: &Env, output: Output) -> Outcome {
    let path = connection::file(env)?;
    let default = env.get("GENSVC_BASE_URL");
    let default = default.map_or(connection::DEFAULT_URL, String::as_str);
    let url = base_url.unwrap_or(default);
    let key = password::read_secret(&format!("API key for {url}: ")).await?;
    let key = secrecy::ExposeSecret::expose_secret(&key).trim().to_owned();
    let connection = Connection::new(url, key.clone(), KeySource::Typed)?;
    let me = connection.get("/v1/auth/me", &[]).await?;
    let credentials = Credentials {
        base_url: connection.base_url.clone(),
        api_key: key,
    };
    connection::keep(&path, &credentials)?;
    let account = me["account"]["name"].as_str().unwrap_or_default();
    output.result(
        &format!("Stored the API key of {account} in {}.", path.display()),
        &json!({"account": me["account"], "base_url": connection.base_url, "file": path}),
    )
}

/// Whether stderr is a terminal.
fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// Replaces the progress line.
fn passing(text: &str) {
    // If stderr is closed, an error cannot be reported.
    let _ = write!(io::stderr(), "\r\x1b[K{text}");
    let _ = io::stderr().flush();
}
