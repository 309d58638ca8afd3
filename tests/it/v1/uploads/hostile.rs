//! Files crafted to break a decoder.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use image::{ImageFormat, RgbImage};

use super::{super::inputs::edit, *};

const FILES: usize = 1_000;

fn encoded(format: ImageFormat, width: u32, height: u32) -> Vec<u8> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    let image = RgbImage::from_fn(width, height, |x, y| {
        image::Rgb([(x * y).to_le_bytes()[0], 7, y.to_le_bytes()[0]])
    });
    image.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// One of: changed bytes, a changed header, a cut, two formats in one, giant dimensions, noise.
fn hostile(random: &mut fastrand::Rng) -> Vec<u8> {
    let formats = [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::WebP];
    let mut bytes = encoded(random.choice(formats).unwrap(), random.u32(1..90), 33);
    match random.u8(..6) {
        0 => {
            for _ in 0..random.usize(1..20) {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
        }
        1 => {
            let end = bytes.len().min(64);
            for byte in &mut bytes[random.usize(..end)..end] {
                *byte = random.u8(..);
            }
        }
        2 => bytes.truncate(random.usize(..bytes.len())),
        3 => {
            let other = encoded(random.choice(formats).unwrap(), 5, 5);
            let at = random.usize(..bytes.len());
            bytes.splice(at..at, other);
        }
        4 => {
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

#[sqlx::test]
async fn a_thousand_hostile_files_are_answered_clearly(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("1000").await;
    let mut random = fastrand::Rng::with_seed(34);
    let mut stored = 0;
    for n in 0..FILES {
        let bytes = hostile(&mut random);
        let media_type = match bytes.first() {
            Some(0xff) => "image/jpeg",
            Some(b'R') => "image/webp",
            _ => "image/png",
        };
        if n % 10 == 0 {
            let data = BASE64_STANDARD.encode(&bytes);
            let input = json!([{"role": "source", "data": data}]);
            let edited = edit(&app, &account, input).await;
            let is_clear = edited.status == 200 || edited.status.is_client_error();
            assert!(is_clear || edited.status == 502, "{n}: {}", edited.text);
        }
        let answer = post(&app, &account.key, media_type, bytes).await;
        match answer.status.as_u16() {
            201 => stored += 1,
            422 => {
                let error = answer.error(422, "validation_failed");
                let message = error["message"].as_str().unwrap();
                assert!(message.starts_with("body is"), "{n}: {message}");
            }
            // A panic of a decoder is a 500.
            other => panic!("{n}: {other} {}", answer.text),
        }
    }
    // A file with changed pixels may still be valid.
    assert!((1..FILES).contains(&stored), "{stored}");
    app.assert_settled().await;
}
