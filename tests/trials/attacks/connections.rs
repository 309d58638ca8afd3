//! Opens connections from one address and sends nothing. Connections that the server closes count
//! as refused with 503, open ones as 200.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::{io::AsyncReadExt as _, net::TcpStream, time::timeout};

use super::{Answers, scene::Attacker};

/// Time to keep a connection open.
const KEPT: Duration = Duration::from_secs(5);

pub async fn run(attacker: &Attacker<'_>) -> Answers {
    let connections = join_all((0..4_500).map(|_| attacker.connect())).await;
    let kept = connections.into_iter().map(|connection| async {
        match connection {
            None => 0,
            Some(connection) => {
                if is_kept(connection).await {
                    200
                } else {
                    503
                }
            }
        }
    });
    join_all(kept).await.into_iter().collect()
}

async fn is_kept(mut connection: TcpStream) -> bool {
    timeout(KEPT, connection.read_u8()).await.is_err()
}
