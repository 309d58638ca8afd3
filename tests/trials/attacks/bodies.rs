//! Requests in flight with large images that are billed as small ones.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures_util::future::join_all;
use serde_json::json;

use super::{
    Answers,
    scene::{Attacker, status},
    upstream::Mode,
};

pub async fn run(attacker: &Attacker<'_>) -> Answers {
    attacker.set_provider(Mode::Wait(Duration::from_secs(8)));
    let url = format!("data:image/png;base64,{}", image());
    let images = vec![json!({"type": "image_url", "image_url": {"url": url}}); 2];
    let body = json!({"model": format!("openai/{}", attacker.model), "max_tokens": 10,
        "messages": [{"role": "user", "content": images}]});
    let body = body.to_string();
    let requests = (0..27).map(|_| async {
        let sent = attacker.send("/openai/v1/chat/completions", "", body.as_bytes());
        status(sent.await).await
    });
    join_all(requests).await.into_iter().collect()
}

/// A PNG of 1 x 1 with a text chunk of 10.8 MiB.
fn image() -> String {
    let chunk = |kind: &[u8], data: &[u8]| {
        let length = u32::try_from(data.len()).unwrap().to_be_bytes();
        [&length, kind, data, &[0; 4]].concat()
    };
    let header = [
        &1_u32.to_be_bytes()[..],
        &1_u32.to_be_bytes(),
        &[8, 2, 0, 0, 0],
    ]
    .concat();
    let png = [
        b"\x89PNG\r\n\x1a\n".to_vec(),
        chunk(b"IHDR", &header),
        chunk(b"tEXt", &vec![b'a'; 10_800 << 10]),
        chunk(b"IDAT", b"x"),
    ];
    BASE64_STANDARD.encode(png.concat())
}
