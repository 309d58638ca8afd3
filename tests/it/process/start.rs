//! What a start, or a command, says of a database or a file storage that it cannot use.

use std::{net::TcpListener, os::unix::fs::PermissionsExt as _, path::PathBuf};

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{Site, line_with, lines, listening, operator::database_url};
use crate::database::set_default;

/// A port without a listener.
fn closed_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// What a command that fails says.
async fn failure(site: &Site, url: Option<&str>, arguments: &[&str]) -> String {
    let mut command = site.command();
    command
        .args(arguments)
        .envs(url.map(|url| ("DATABASE_URL", url)));
    let output = command.output().await.unwrap();
    assert!(
        !output.status.success() && output.stdout.is_empty(),
        "{output:?}"
    );
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test]
async fn a_command_where_no_server_was_says_where_it_looked() {
    let site = Site::new(&[]);
    let folder = site.folder.display();
    for arguments in [&["account", "list"][..], &["migrate"], &["database", "url"]] {
        let said = failure(&site, None, arguments).await;
        assert_eq!(
            said,
            format!(
                "gensvc: there is no database in {folder}, and DATABASE_URL is not set: set \
                 DATABASE_URL, or GENSVC_DATA_DIR to the data folder of the server (`gensvc \
                 serve` makes a new one)\n"
            )
        );
    }
    let said = failure(&site, None, &["usage"]).await;
    assert!(
        said.ends_with("run `gensvc usage --own`, which asks a server\n"),
        "{said}"
    );
    assert!(!site.folder.exists());
}

#[tokio::test]
async fn a_database_that_cannot_be_reached_is_named_with_the_cause_once() {
    let site = Site::new(&[("GENSVC__DATABASE__ACQUIRE_TIMEOUT_MS", "100")]);
    let port = closed_port();
    let url = format!("postgres://ann:hunter2@127.0.0.1:{port}/x");
    let want = format!(
        "cannot reach Postgres at 127.0.0.1:{port} (connection refused): check DATABASE_URL"
    );
    for arguments in [&["account", "list"][..], &["serve"]] {
        let said = failure(&site, Some(&url), arguments).await;
        assert_eq!(said.matches(&want).count(), 1, "{said}");
        assert!(said.ends_with(&format!("gensvc: {want}\n")), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
}

#[sqlx::test]
async fn of_several_hosts_the_one_that_takes_writes_is_used(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let socket = options.get_socket().unwrap().display().to_string();
    let (user, port) = (options.get_username(), options.get_port());
    let (host, name) = (socket.replace('/', "%2F"), options.get_database().unwrap());
    let closed = closed_port();
    let url = |more: &str| {
        format!(
            "postgres://{user}@127.0.0.1:{closed},{host}:{port}/{name}?sslmode=disable\
             &target_session_attrs={more}"
        )
    };
    let site = Site::new(&[("GENSVC__DATABASE__ACQUIRE_TIMEOUT_MS", "100")]);
    let migrate = async |url: &str| {
        let mut command = site.command();
        command.arg("migrate").env("DATABASE_URL", url);
        command.output().await.unwrap()
    };
    let output = migrate(&url("read-write")).await;
    assert!(output.status.success(), "{output:?}");

    let said = failure(&site, Some(&url("standby")), &["migrate"]).await;
    assert!(
        said.contains("must be one of any, read-write, primary"),
        "{said}"
    );

    set_default(&options, "default_transaction_read_only = on").await;
    let said = failure(&site, Some(&url("any")), &["migrate"]).await;
    let places = format!("127.0.0.1:{closed} or {socket}:{port}");
    let want = format!("cannot reach Postgres at {places} (connection refused)");
    assert!(said.contains(&want), "{said}");
}

#[sqlx::test]
async fn a_database_that_refuses_is_named_with_its_words(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let site = Site::new(&[]);
    let url = database_url(&options.database("nowhere"));
    let said = failure(&site, Some(&url), &["migrate"]).await;
    assert!(
        said.starts_with("gensvc: cannot use Postgres at "),
        "{said}"
    );
    let reason = "(database \"nowhere\" does not exist): check DATABASE_URL\n";
    assert!(said.ends_with(reason), "{said}");
}

#[sqlx::test]
async fn a_reason_that_lies_in_the_database_is_not_put_down_to_its_url(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    set_default(&options, "default_transaction_read_only = on").await;
    let url = database_url(&options);
    let said = failure(&Site::new(&[]), Some(&url), &["migrate"]).await;
    assert!(said.ends_with("in a read-only transaction)\n"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_says_where_requests_go_and_a_second_one_who_is_there() {
    let site = Site::new(&[("OPENAI_API_KEY", "k")]);
    let mut child = site.command().spawn().unwrap();
    let mut log = lines(child.stderr.take());
    let providers = line_with(&mut log, "providers: ").await;
    assert!(
        providers.ends_with("openai (key in OPENAI_API_KEY), sandbox (needs no key)"),
        "{providers}"
    );
    let routes = line_with(&mut log, "requests that name no provider: ").await;
    assert!(
        routes.contains("text -> openai/gpt-6-luna, image -> openai/")
            && routes.contains("video -> sandbox/sandbox-video-1"),
        "{routes}"
    );
    let url = listening(&mut log).await;
    let mut out = lines(child.stdout.take());
    for part in [
        &format!("console   {url}/") as &str,
        "openai/gpt-6-luna",
        "account password --email demo@example.com",
        "Ctrl-C",
        "\"provider\":\"sandbox\"",
    ] {
        line_with(&mut out, part).await;
    }
    let address = url.strip_prefix("http://").unwrap();
    let folder = site.folder.display();
    let want = format!(
        "gensvc: another gensvc server already uses {folder} (pid {}, {url}): use that one, or \
         stop it first\n",
        child.id().unwrap()
    );
    for bind in [address, "127.0.0.1:0"] {
        let second = site.command().env("GENSVC_BIND", bind).output().await;
        let said = String::from_utf8(second.unwrap().stderr).unwrap();
        assert!(said.ends_with(&want), "{said}");
    }
    // With another folder, only the port is in the way.
    let other = Site::new(&[]);
    let second = other.command().env("GENSVC_BIND", address).output().await;
    let said = String::from_utf8(second.unwrap().stderr).unwrap();
    assert!(said.contains("choose another with GENSVC_BIND"), "{said}");
    assert!(!other.folder.exists());
}

#[sqlx::test]
async fn an_empty_database_gets_a_hint_and_the_sandbox_a_warning(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let site = Site::new(&[]);
    let mut command = site.command();
    command.env("DATABASE_URL", database_url(&options));
    let mut child = command.spawn().unwrap();
    let mut log = lines(child.stderr.take());
    let warning = line_with(&mut log, "the sandbox is enabled").await;
    assert!(
        warning.contains("WARN") && warning.contains("GENSVC__PROVIDERS__SANDBOX__ENABLED=false"),
        "{warning}"
    );
    line_with(&mut log, "gensvc account create --email").await;
}

#[tokio::test]
async fn a_variable_names_the_configuration_file() {
    let site = Site::new(&[]);
    std::fs::create_dir_all(&site.folder).unwrap();
    let file = site.folder.join("gensvc.toml");
    std::fs::write(&file, "[retention]\ndays = 90\n").unwrap();
    let check = async |arguments: &[&str]| {
        let mut command = site.command();
        command.args(arguments).env("GENSVC_CONFIG", &file);
        command.output().await.unwrap()
    };
    let output = check(&["config", "check", "--json"]).await;
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["retention_days"], 90);
    // The option wins.
    let output = check(&["config", "check", "--config", "/nowhere"]).await;
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("/nowhere"), "{said}");
}

#[tokio::test]
async fn a_server_that_logs_json_ends_with_json() {
    let site = Site::new(&[
        ("GENSVC_LOG_FORMAT", "json"),
        ("GENSVC__DATABASE__ACQUIRE_TIMEOUT_MS", "100"),
        ("GENSVC_BIND", "0.0.0.0:0"),
    ]);
    let url = format!("postgres://127.0.0.1:{}/x", closed_port());
    let said = failure(&site, Some(&url), &["serve"]).await;
    let first: Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    assert_eq!(first["level"], "ERROR", "{said}");
    let message = first["message"].as_str().unwrap();
    assert!(message.starts_with("cannot reach Postgres at "), "{said}");

    let said = failure(&site, Some("nonsense"), &[]).await;
    let first: Value = serde_json::from_str(said.trim()).unwrap();
    let message = first["message"].as_str().unwrap();
    assert!(message.starts_with("DATABASE_URL (database.url)"), "{said}");
}

#[sqlx::test]
async fn a_bucket_that_does_not_answer_is_warned_of_and_degrades(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let site = Site::new(&[
        ("GENSVC__MEDIA__STORAGE", "s3"),
        ("GENSVC__MEDIA__S3__BUCKET", "files"),
        ("AWS_ACCESS_KEY_ID", "id"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ]);
    let endpoint = format!("http://127.0.0.1:{}", closed_port());
    let mut server = site
        .command()
        .env("DATABASE_URL", database_url(&options))
        .env("GENSVC__MEDIA__S3__ENDPOINT", &endpoint)
        .spawn()
        .unwrap();
    let mut log = lines(server.stderr.take());
    let (mut url, mut warned) = (None, false);
    while url.is_none() || !warned {
        // The check is not waited for: either may come first.
        let line = line_with(&mut log, "").await;
        if let Some((_, rest)) = line.split_once("listening on ") {
            url = rest.split_whitespace().next().map(str::to_owned);
        }
        if line.contains("files cannot be stored") {
            assert!(line.contains("WARN") && line.contains(&endpoint), "{line}");
            warned = true;
        }
    }
    let health = reqwest::get(format!("{}/health", url.unwrap()))
        .await
        .unwrap();
    assert_eq!(health.status(), 200);
    let health: Value = health.json().await.unwrap();
    assert_eq!(health["status"], "degraded");
    assert_eq!(health["checks"]["storage"], "unavailable");
}

#[sqlx::test]
async fn two_servers_with_local_files_warn_each_other(_: PgPoolOptions, options: PgConnectOptions) {
    let (one, other) = (Site::new(&[]), Site::new(&[]));
    let start = |site: &Site| {
        let mut command = site.command();
        command
            .env("DATABASE_URL", database_url(&options))
            .env("GENSVC__JOBS__LEASE_SECONDS", "2");
        let mut server = command.spawn().unwrap();
        let log = lines(server.stderr.take());
        (server, log)
    };
    let ((_one, mut ones), (_other, mut others)) = (start(&one), start(&other));
    for log in [&mut ones, &mut others] {
        let line = line_with(log, "another gensvc server uses this database").await;
        assert!(line.contains("WARN"), "{line}");
        assert!(line.contains("GENSVC__MEDIA__STORAGE=s3"), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_files_are_closed_to_other_users() {
    let site = Site::new(&[]);
    let (server, key) = site.first().await;
    let body = json!({"prompt": "x", "parameters": {"size": "256x256"}});
    let (status, made) = server.ask(&key, "POST", "/v1/generate/image", &body).await;
    assert_eq!(status, 200, "{made}");
    let mut folders = vec![site.folder.join("media")];
    let mut seen: Vec<(PathBuf, u32)> = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else {
                seen.push((entry.path(), 0o600));
            }
        }
        seen.push((folder, 0o700));
    }
    let png = |path: &PathBuf| path.extension().is_some_and(|e| e == "png");
    assert!(seen.iter().any(|(path, _)| png(path)), "{seen:?}");
    for (path, mode) in seen {
        let found = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(found & 0o777, mode, "{path:?}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_url_says_whose_it_is_and_the_database_is_removed() {
    let site = Site::new(&[]);
    let (server, key) = site.first().await;
    let run = async |arguments: &[&str]| {
        let output = site.command().args(arguments).output().await.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.success(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let folder = site.folder.display().to_string();
    let (_, url, note) = run(&["database", "url"]).await;
    assert!(url.starts_with("postgres:///gensvc?host="), "{url}");
    assert_eq!(note, format!("This is the private database in {folder}.\n"));
    let named = site
        .command()
        .args(["database", "url"])
        .env("DATABASE_URL", "postgres://db.example/gensvc")
        .output()
        .await
        .unwrap();
    assert_eq!(named.stdout, b"postgres://db.example/gensvc\n");
    assert_eq!(named.stderr, b"This is the database of DATABASE_URL.\n");

    let (removed, _, said) = run(&["database", "remove", "--yes"]).await;
    assert!(!removed && said.contains("stop that first"), "{said}");
    assert_eq!(server.get(&key, "/v1/credits/balance").await["held"], "0");
    server.stop().await;
    let (_, stopped_url, note) = run(&["database", "url"]).await;
    assert_eq!(stopped_url, url);
    assert!(note.contains("It is not running"), "{note}");

    let (removed, _, said) = run(&["database", "remove"]).await;
    let doomed = site.folder.join("postgres").display().to_string();
    assert!(!removed && said.contains(&doomed), "{said}");
    assert!(said.contains("--yes"), "{said}");
    let named = site
        .command()
        .args(["database", "remove", "--yes"])
        .env("DATABASE_URL", "postgres://db.example/gensvc")
        .output()
        .await
        .unwrap();
    let said = String::from_utf8(named.stderr).unwrap();
    assert!(!named.status.success(), "{said}");
    assert!(said.contains("unset DATABASE_URL"), "{said}");
    assert!(site.folder.join("postgres").exists());

    let (removed, out, note) = run(&["database", "remove", "--yes"]).await;
    assert!(removed && out.contains(&folder), "{out}");
    assert!(note.contains("media"), "{note}");
    assert!(!site.folder.join("postgres").exists());
    assert!(!site.folder.join("postgres.log").exists());
    // The next start creates a new database.
    let (server, other_key) = site.first().await;
    assert_ne!(other_key, key);
    server.stop().await;
}
