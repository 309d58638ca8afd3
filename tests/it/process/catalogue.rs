//! `gensvc catalogue`, and SIGHUP.

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use super::{Site, line_with};

fn model(price: &str) -> String {
    format!(
        "[[providers.sandbox.models]]\nid = \"m\"\ntype = \"text\"\n\
         prices = {{ input_per_million = \"{price}\", output_per_million = \"{price}\" }}\n"
    )
}

fn path(name: &str) -> &'static str {
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join(format!("{}-{name}", uuid::Uuid::now_v7()));
    file.display().to_string().leak()
}

#[tokio::test(flavor = "multi_thread")]
async fn catalogue_is_reloaded_by_command_and_by_signal() {
    let file = path("gensvc.toml");
    std::fs::write(file, model("1")).unwrap();
    let site = Site::new(&[("GENSVC_CONFIG", file)]);
    let mut server = site.serve().await;
    let price = async |server: &super::Server| {
        let model = server.get("", "/v1/models/sandbox/m").await;
        model["prices"]["input_per_million"].clone()
    };
    assert_eq!(price(&server).await, "1");

    std::fs::write(file, model("2")).unwrap();
    assert_eq!(price(&server).await, "1");
    let reload = site.command().args(["catalogue", "reload"]).output().await;
    let reload = reload.unwrap();
    assert!(reload.status.success(), "{reload:?}");
    line_with(&mut server.stderr, "the catalogue was reloaded").await;
    assert_eq!(price(&server).await, "2");

    let pid = Pid::from_raw(i32::try_from(server.child.id().unwrap()).unwrap());
    std::fs::write(file, model("-3")).unwrap();
    kill(pid, Signal::SIGHUP).unwrap();
    let line = line_with(&mut server.stderr, "the catalogue was not reloaded").await;
    let why =
        "providers.sandbox.models[0].prices.input_per_million is \"-3\": must not be negative";
    assert!(line.contains(why), "{line}");
    assert_eq!(price(&server).await, "2");
    // The command does not ask servers to read a file that it cannot read itself.
    let refused = site.command().args(["catalogue", "reload"]).output().await;
    let refused = refused.unwrap();
    let message = String::from_utf8(refused.stderr).unwrap();
    assert!(
        !refused.status.success() && message.contains(why),
        "{message}"
    );

    std::fs::write(file, model("4") + "[server]\nmax_requests = 99\n").unwrap();
    kill(pid, Signal::SIGHUP).unwrap();
    line_with(
        &mut server.stderr,
        "restart the server to apply the changes of server.max_requests",
    )
    .await;
    assert_eq!(price(&server).await, "4");
    server.stop().await;
    std::fs::remove_file(file).unwrap();
}
