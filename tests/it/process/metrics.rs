//! The port of the metrics.

use std::net::TcpListener;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::process::Child;

use super::{Log, Site, line_with, lines, operator::database_url};

/// Starts a server. Returns it, the log line with the metrics address, and the rest of its log.
async fn started(site: &Site, port: u16) -> (Child, String, Log) {
    let mut command = site.command();
    command.env("GENSVC__METRICS__PORT", port.to_string());
    let mut child = command.spawn().unwrap();
    let mut stderr = lines(child.stderr.take());
    let wanted = if port == 0 {
        "listening on "
    } else {
        "metrics"
    };
    let line = line_with(&mut stderr, wanted).await;
    if port != 0 {
        line_with(&mut stderr, "listening on ").await;
    }
    (child, line, stderr)
}

#[sqlx::test]
async fn the_metrics_are_at_their_own_port_only(_: PgPoolOptions, options: PgConnectOptions) {
    let site = Site::new(&[("DATABASE_URL", database_url(&options).leak())]);
    let (_child, line, _log) = started(&site, 0).await;
    let address = |before: &str| {
        let rest = line.split(before).nth(1).unwrap();
        rest.split([' ', '"']).next().unwrap().to_owned()
    };
    let (api, metrics) = (address("listening on "), address("metrics=\""));
    let answer = reqwest::get(&metrics).await.unwrap();
    assert_eq!(answer.status(), 200, "{metrics}");
    assert!(
        answer
            .text()
            .await
            .unwrap()
            .contains("\ngensvc_database_up 1")
    );
    for path in ["/health", "/v1/models", "/"] {
        let other = metrics.replace("/metrics", path);
        assert_eq!(reqwest::get(other).await.unwrap().status(), 404, "{path}");
    }
    let refused = reqwest::get(format!("{api}/metrics")).await.unwrap();
    assert_eq!(refused.status(), 403);
}

/// The second server of a machine starts all the same, and follows the first.
#[sqlx::test]
async fn a_taken_port_is_a_warning(_: PgPoolOptions, options: PgConnectOptions) {
    let site = Site::new(&[("DATABASE_URL", database_url(&options).leak())]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let (_child, line, mut log) = started(&site, port).await;
    assert!(
        line.contains("WARN") && line.contains(&format!("127.0.0.1:{port} is taken")),
        "{line}"
    );
    drop(taken);
    line_with(&mut log, "the metrics are served at").await;
    let metrics = format!("http://127.0.0.1:{port}/metrics");
    assert_eq!(reqwest::get(metrics).await.unwrap().status(), 200);
}
