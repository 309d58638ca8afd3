//! Pictures that are crafted to break a decoder or to take much memory in it: uploaded, and one in
//! ten sent as the source of an edit by the sandbox, which decodes it.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures_util::{StreamExt as _, stream};
use image::{ImageFormat, RgbImage};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use super::{
    Answers,
    scene::{Attacker, status},
};
use crate::{
    hostile::{broken, media_type},
    picture::encoded,
};

const PICTURES: u32 = 1_000;
const AT_ONCE: usize = 16;
/// Sides of a picture of almost 40 megapixels, the most that is accepted.
const UPLOAD_BOMB: (u32, u32) = (6_300, 6_300);
/// Sides of a picture of 12.6 megapixels, the most that the sandbox decodes.
const EDIT_BOMB: (u32, u32) = (4_096, 3_072);

pub async fn run(attacker: &Attacker<'_>) -> Answers {
    // On its own thread: encoding takes seconds, and the other accounts' latency is measured meanwhile.
    let encoding = tokio::task::spawn_blocking(|| {
        let bombs = [UPLOAD_BOMB, EDIT_BOMB];
        let bombs = bombs.map(|(w, h)| encoded(RgbImage::new(w, h), ImageFormat::Png));
        let mut random = fastrand::Rng::with_seed(34);
        let bomb = |n| &bombs[usize::from(is_edit(n))];
        let pictures = (0..PICTURES).map(|n| (n, hostile(&mut random, bomb(n))));
        pictures.collect::<Vec<_>>()
    });
    let sending = stream::iter(encoding.await.unwrap()).map(|(n, picture)| async move {
        if is_edit(n) {
            edit(attacker, &picture).await
        } else {
            upload(attacker, &picture).await
        }
    });
    let statuses: Vec<u16> = sending.buffer_unordered(AT_ONCE).collect().await;
    statuses.into_iter().collect()
}

const fn is_edit(n: u32) -> bool {
    n.is_multiple_of(10)
}

/// Whether each picture reached the server's checks: most are refused by them, some are accepted.
/// The sandbox answers 502 for broken pixels, as a provider's refusal.
pub fn has_attacked(answers: &Answers) -> bool {
    answers.total() == PICTURES as usize
        && answers.of(200) > 0
        && answers.of(201) > 0
        && answers.of(422) > 500
        && [0, 402, 403, 429]
            .iter()
            .all(|status| answers.of(*status) == 0)
}

async fn edit(attacker: &Attacker<'_>, picture: &[u8]) -> u16 {
    let source = json!({"role": "source", "data": BASE64_STANDARD.encode(picture)});
    let body = json!({"prompt": "At night", "provider": "sandbox", "inputs": [source],
        "parameters": {"size": "256x256"}});
    let body = body.to_string();
    let sent = attacker.send("/v1/generate/image", "", body.as_bytes());
    status(sent.await).await
}

async fn upload(attacker: &Attacker<'_>, picture: &[u8]) -> u16 {
    let head = format!(
        "POST /v1/uploads HTTP/1.1\r\nhost: gensvc\r\nauthorization: Bearer {}\r\n\
         content-type: {}\r\ncontent-length: {}\r\n\r\n",
        attacker.token(),
        media_type(picture),
        picture.len()
    );
    let mut stream = attacker.connect().await;
    if let Some(stream) = &mut stream {
        let _refused = stream.write_all(&[head.as_bytes(), picture].concat()).await;
    }
    status(stream).await
}

/// A valid picture of the most megapixels, or a broken one.
fn hostile(random: &mut fastrand::Rng, bomb: &[u8]) -> Vec<u8> {
    if random.u8(..7) > 0 {
        return broken(random, RgbImage::new);
    }
    // The bytes after the end of the picture give each another digest.
    [bomb, &random.u64(..).to_be_bytes()].concat()
}
