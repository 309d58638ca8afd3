//! Large bodies that arrive slowly.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::{
    io::AsyncWriteExt as _,
    time::{Instant, sleep},
};

use super::{
    Answers,
    scene::{Attacker, status},
};

pub async fn run(attacker: &Attacker<'_>) -> Answers {
    let end = Instant::now() + Duration::from_secs(15);
    let uploads = (0..8).map(|_| async {
        let head = format!(
            "POST /openai/v1/chat/completions HTTP/1.1\r\nhost: gensvc\r\n\
             authorization: Bearer {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{{\"model\":\"openai/{}\",\"x\":\"",
            attacker.token(),
            29 << 20,
            attacker.model
        );
        let mut stream = attacker.connect().await?;
        stream.write_all(head.as_bytes()).await.ok()?;
        // Ends early if the server refuses.
        while Instant::now() < end && stream.write_all(&[b'a'; 8 << 10]).await.is_ok() {
            sleep(Duration::from_millis(125)).await;
        }
        Some(stream)
    });
    let sent = join_all(uploads).await;
    join_all(sent.into_iter().map(status))
        .await
        .into_iter()
        .collect()
}
