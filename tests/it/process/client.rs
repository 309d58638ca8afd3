//! The client on the command line, against a running server.

use std::{fs, os::unix::fs::PermissionsExt as _, process::Output};

use nix::sys::signal::Signal;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    process::Command,
};

use super::{Server, Site};
use crate::signal::signal;

/// Commands of one user, with the key in the environment.
struct Client<'a> {
    site: &'a Site,
    url: String,
    key: String,
}

impl Client<'_> {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.site.command();
        command
            .env("GENSVC_BASE_URL", &self.url)
            .env("GENSVC_API_KEY", &self.key)
            .args(arguments);
        command
    }

    async fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().await.unwrap()
    }

    /// What a command prints that succeeds.
    async fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    async fn json(&self, arguments: &[&str]) -> Value {
        let text = self.text(&[arguments, &["--json"]].concat()).await;
        serde_json::from_str(&text).unwrap()
    }

    /// The exit code of a command that fails, and what it says.
    async fn refused(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.run(arguments).await;
        assert!(!output.status.success(), "{arguments:?}: {output:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        (output.status.code().unwrap(), text)
    }
}

/// Feeds a command's stdin.
async fn fed(mut command: Command, text: &str) -> Output {
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).await.unwrap();
    drop(stdin);
    child.wait_with_output().await.unwrap()
}

async fn started(site: &Site) -> (Server, Client<'_>) {
    let (server, key) = site.first().await;
    let url = server.url.clone();
    (server, Client { site, url, key })
}

#[tokio::test]
async fn it_generates_and_shows_what_was_made() {
    let site = Site::new(&[]);
    let (server, client) = started(&site).await;
    let text = client
        .text(&["generate", "text", "Name three rivers"])
        .await;
    let made = client.json(&["history", "--limit", "1"]).await["data"][0].clone();
    assert_eq!(made["prompt"], "Name three rivers");
    assert!(text.starts_with(made["result"].as_str().unwrap()), "{text}");
    let output = fed(
        client.command(&["generate", "text", "--json"]),
        "from stdin",
    )
    .await;
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(record["prompt"], "from stdin");

    let picture = site.folder.join("picture.png");
    let path = picture.to_str().unwrap();
    let image = [
        "generate", "image", "x", "--size", "256x256", "-n", "2", "-o", path,
    ];
    let written = client.text(&image).await;
    for name in ["picture-1.png", "picture-2.png"] {
        assert!(written.contains(name), "{written}");
        let bytes = fs::read(site.folder.join(name)).unwrap();
        assert!(bytes.starts_with(b"\x89PNG"), "{name}");
    }
    let film = site.folder.join("film.mp4");
    client
        .text(&[
            "generate",
            "video",
            "x",
            "--duration",
            "1",
            "-o",
            film.to_str().unwrap(),
        ])
        .await;
    assert_eq!(&fs::read(film).unwrap()[4..8], b"ftyp");
    let uuid = made["uuid"].as_str().unwrap();
    let shown = client.json(&["show", uuid]).await;
    assert_eq!(shown["uuid"], uuid);
    let balance = client.json(&["balance"]).await;
    let usage = client.json(&["usage", "--own"]).await;
    let sum: f64 = [&balance["balance"], &usage["total"]["charged"]]
        .map(|credits| credits.as_str().unwrap().parse::<f64>().unwrap())
        .iter()
        .sum();
    assert!((sum - 1000.0).abs() < 1e-9, "{balance} {usage}");
    let estimate = client.text(&["estimate", "image", "x"]).await;
    assert!(estimate.contains("sandbox-image-1"), "{estimate}");
    server.stop().await;
}

#[tokio::test]
async fn files_have_the_format_of_their_names_and_replace_none() {
    let site = Site::new(&[]);
    let (server, client) = started(&site).await;
    let path = |name: &str| site.folder.join(name).to_str().unwrap().to_owned();
    for (arguments, name, begin) in [
        (
            &["image", "x", "--size", "256x256"][..],
            "a.jpg",
            &b"\xff\xd8"[..],
        ),
        (&["image", "x", "--size", "256x256"], "a.webp", b"RIFF"),
        (&["audio", "x"], "a.wav", b"RIFF"),
    ] {
        let path = path(name);
        let generate = [&["generate"], arguments, &["-o", &path]].concat();
        client.text(&generate).await;
        let bytes = fs::read(&path).unwrap();
        assert!(bytes.starts_with(begin), "{name}");
        fs::write(&path, "mine").unwrap();
        let before = client.json(&["balance"]).await;
        let (code, said) = client.refused(&generate).await;
        assert!(code == 1 && said.contains("--force"), "{code} {said}");
        assert_eq!(client.json(&["balance"]).await, before, "it was paid");
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        client.text(&[&generate[..], &["--force"]].concat()).await;
        assert_ne!(fs::read(&path).unwrap(), b"mine");
    }
    fs::write(path("b-2.png"), "mine").unwrap();
    let b = path("b.png");
    for (arguments, sentence) in [
        (["image", "x", "-n", "2", "-o", &b], "b-2.png exists"),
        (
            ["image", "x", "-n", "1", "-o", "cat.gif"],
            "one of png, jpg, jpeg, webp",
        ),
        (
            ["video", "x", "--duration", "1", "-o", "cat.mov"],
            "one of mp4",
        ),
    ] {
        let (_, said) = client
            .refused(&[&["generate"][..], &arguments].concat())
            .await;
        assert!(said.contains(sentence), "{said}");
    }
    server.stop().await;
}

/// A server that begins a text and says no more.
async fn begun_text(uuid: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n\
         event: generation\ndata: {{\"uuid\":\"{uuid}\"}}\n\n\
         event: delta\ndata: {{\"text\":\"x\"}}\n\n"
    );
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        // A client takes no answer before its request.
        stream.read_u8().await.unwrap();
        stream.write_all(answer.as_bytes()).await.unwrap();
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    });
    url
}

#[tokio::test]
async fn ctrl_c_says_that_a_text_goes_on_and_how_to_cancel_it() {
    let site = Site::new(&[]);
    let uuid = "01a20567-e0ad-754d-8b7d-8cf19c420e2b";
    let client = Client {
        site: &site,
        url: begun_text(uuid).await,
        key: "svc_x".to_owned(),
    };
    let mut child = client.command(&["generate", "text", "x"]).spawn().unwrap();
    // The uuid comes before the first words.
    child.stdout.as_mut().unwrap().read_u8().await.unwrap();
    signal(child.id().unwrap(), Signal::SIGINT);
    let output = child.wait_with_output().await.unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    let want = format!("The text continues and is charged. To cancel it: gensvc cancel {uuid}\n");
    assert!(said.ends_with(&want), "{said}");
}

#[tokio::test]
async fn a_running_generation_is_cancelled() {
    let site = Site::new(&[]);
    let (server, client) = started(&site).await;
    let begun = server.stream(&client.key, "[[slow:600]]").await;
    let uuid = client.json(&["history"]).await["data"][0]["uuid"].clone();
    let uuid = uuid.as_str().unwrap();
    let said = client.text(&["cancel", uuid]).await;
    assert!(said.starts_with("Cancelled; it"), "{said}");
    drop(begun);
    let (code, said) = client.refused(&["cancel", uuid]).await;
    assert_eq!(code, 6, "{said}");
    server.stop().await;
}

#[tokio::test]
async fn manual_pages_name_the_program_and_its_version() {
    let site = Site::new(&[]);
    let folder = site.folder.join("man");
    let mut command = site.command();
    command.args(["man", "--folder", folder.to_str().unwrap()]);
    assert!(command.output().await.unwrap().status.success());
    for page in ["gensvc.1", "gensvc-account-create.1"] {
        let text = fs::read_to_string(folder.join(page)).unwrap();
        let title = text.lines().find(|line| line.starts_with(".TH ")).unwrap();
        let version = concat!("\"gensvc ", env!("CARGO_PKG_VERSION"), "\"");
        assert!(title.contains(version), "{title}");
    }
}

/// A script can tell from the exit code what to do.
#[tokio::test]
async fn refusals_have_exit_codes() {
    let site = Site::new(&[]);
    let (server, mut client) = started(&site).await;
    for (code, arguments, word) in [
        (
            2,
            &["generate", "text", "x", "--max-tokens", "0"][..],
            "max_tokens must be between",
        ),
        (
            2,
            &["show", "01a20567-e0ad-754d-8b7d-8cf19c420e2b"],
            "no generation 01a20567-e0ad-754d-8b7d-8cf19c420e2b",
        ),
        (
            2,
            &["cancel", "01a20567-e0ad-754d-8b7d-8cf19c420e2b"],
            "no generation 01a20567-e0ad-754d-8b7d-8cf19c420e2b",
        ),
        (2, &["generate", "nothing"], "unrecognized subcommand"),
        (2, &["generate", "imge"], "'image'"),
        (2, &["balance", "--jsn"], "'--json'"),
        (
            4,
            &["generate", "video", "x", "--max-cost", "1"],
            "above its max_cost",
        ),
        (6, &["generate", "text", "[[fail]]"], "it cost nothing"),
        (6, &["generate", "video", "[[fail]]"], "it cost nothing"),
    ] {
        let (found, text) = client.refused(arguments).await;
        assert_eq!(found, code, "{arguments:?}: {text}");
        assert!(text.contains(word), "{arguments:?}: {text}");
    }
    for arguments in [
        &["balance"][..],
        &["generate", "text", "x"],
        &["--json", "balance"],
    ] {
        let mut keyless = client.command(arguments);
        keyless
            .env_remove("GENSVC_API_KEY")
            .env("HOME", &site.folder);
        let output = keyless.output().await.unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {said}");
        assert!(said.contains("there is no API key"), "{said}");
    }
    let mut elsewhere = client.command(&["balance"]);
    let output = elsewhere.env("GENSVC_BASE_URL", "foo").output().await;
    let said = String::from_utf8(output.unwrap().stderr).unwrap();
    let want = "gensvc: the server's address is \"foo\" and must be a URL such as \
                http://127.0.0.1:8080: set GENSVC_BASE_URL\n";
    assert_eq!(said, want);
    client.key = "svc_x".to_owned();
    let (code, text) = client.refused(&["balance"]).await;
    assert_eq!(code, 3);
    assert_eq!(
        text,
        "gensvc: the server does not know the API key in GENSVC_API_KEY\n"
    );
    server.stop().await;
    let (code, text) = client.refused(&["balance"]).await;
    assert!(code == 1 && text.contains("start the server"), "{text}");
}

/// A key is kept for its user alone, and goes to the server that it was kept for only.
#[tokio::test]
async fn a_login_keeps_a_key() {
    let site = Site::new(&[]);
    let (server, client) = started(&site).await;
    let home = site.folder.join("home");
    let at_home = |arguments: &[&str]| {
        let mut command = site.command();
        command.env("HOME", &home).args(arguments);
        command
    };
    let wrong = fed(
        at_home(&["login", "--base-url", &client.url]),
        "svc_wrong\n",
    )
    .await;
    assert_eq!(wrong.status.code(), Some(3));
    let said = String::from_utf8(wrong.stderr).unwrap();
    let want = "the server does not know this key; nothing was saved\n";
    assert!(said.ends_with(want), "{said}");
    let file = home.join(".config/gensvc/credentials.json");
    assert!(!file.exists());
    let kept = fed(at_home(&["login", "--base-url", &client.url]), &client.key).await;
    assert!(kept.status.success(), "{kept:?}");
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let balance = at_home(&["balance"]).output().await.unwrap();
    assert!(balance.status.success(), "{balance:?}");
    let elsewhere = at_home(&["balance"])
        .env("GENSVC_BASE_URL", "http://127.0.0.1:9")
        .output();
    let elsewhere = elsewhere.await.unwrap();
    let said = String::from_utf8(elsewhere.stderr).unwrap();
    assert!(said.contains("there is no API key"), "{said}");
    server.stop().await;
}
