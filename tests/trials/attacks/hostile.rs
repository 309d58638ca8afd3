//! Pictures that are crafted to break a decoder or to take much memory in it: uploaded, and one in
//! ten sent as the source of an edit by the sandbox, which decodes it.

use std::io::Cursor;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures_util::{StreamExt as _, stream};
use image::{ImageFormat, RgbImage};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use super::{
    Answers,
    scene::{Attacker, status},
};

const PICTURES: u32 = 1_000;
const AT_ONCE: usize = 16;
/// Sides of a picture of almost 40 megapixels, the most that is accepted.
const UPLOAD_BOMB: (u32, u32) = (6_300, 6_300);
/// Sides of a picture of 12.6 megapixels, the most that the sandbox decodes.
const EDIT_BOMB: (u32, u32) = (4_096, 3_072);
const FORMATS: [ImageFormat; 3] = [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::WebP];

pub async fn run(attacker: &Attacker<'_>) -> Answers {
    // On its own thread: encoding takes seconds, and the other accounts' latency is measured meanwhile.
    let encoding = tokio::task::spawn_blocking(|| {
        let bombs = [UPLOAD_BOMB, EDIT_BOMB].map(|(w, h)| encoded(ImageFormat::Png, w, h));
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
    let media_type = match picture.first() {
        Some(0xff) => "image/jpeg",
        Some(b'R') => "image/webp",
        _ => "image/png",
    };
    let head = format!(
        "POST /v1/uploads HTTP/1.1\r\nhost: gensvc\r\nauthorization: Bearer {}\r\n\
         content-type: {media_type}\r\ncontent-length: {}\r\n\r\n",
        attacker.token(),
        picture.len()
    );
    let mut stream = attacker.connect().await;
    if let Some(stream) = &mut stream {
        let _refused = stream.write_all(&[head.as_bytes(), picture].concat()).await;
    }
    status(stream).await
}

fn encoded(format: ImageFormat, width: u32, height: u32) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    let image = RgbImage::new(width, height);
    image.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// One of: a valid picture of the most megapixels, changed bytes, a changed header, a cut, two formats in
/// one, giant dimensions, noise.
fn hostile(random: &mut fastrand::Rng, bomb: &[u8]) -> Vec<u8> {
    let (format, other) = (random.choice(FORMATS), random.choice(FORMATS));
    let mut bytes = encoded(format.unwrap(), random.u32(1..90), 33);
    match random.u8(..7) {
        0 => {
            bytes = bomb.to_vec();
            // After the end of the picture, so that each has another digest.
            bytes.extend(random.u64(..).to_be_bytes());
        }
        1 => {
            for _ in 0..random.usize(1..20) {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
        }
        2 => {
            let end = bytes.len().min(64);
            bytes[random.usize(..end)..end].fill_with(|| random.u8(..));
        }
        3 => bytes.truncate(random.usize(..bytes.len())),
        4 => {
            let at = random.usize(..bytes.len());
            bytes.splice(at..at, encoded(other.unwrap(), 5, 5));
        }
        5 => {
            let at = random.usize(..bytes.len().min(40));
            let end = (at + 4).min(bytes.len());
            bytes[at..end].fill(0xff);
        }
        _ => {
            let noise = std::iter::repeat_with(|| random.u8(..)).take(2_000);
            bytes.splice(12.., noise.collect::<Vec<_>>());
        }
    }
    bytes
}
