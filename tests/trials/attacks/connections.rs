//! Connections from one address on which nothing is sent.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;

use super::{Answers, scene::Attacker};

pub async fn run(attacker: &Attacker<'_>) -> Answers {
    let connections = join_all((0..4_500).map(|_| attacker.connect())).await;
    sleep(Duration::from_secs(5)).await;
    drop(connections);
    Answers::default()
}
