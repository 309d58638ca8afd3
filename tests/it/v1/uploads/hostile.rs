//! Files crafted to break a decoder.

use base64::prelude::{BASE64_STANDARD, Engine as _};

use super::{super::inputs::edit, *};
use crate::hostile::{broken, media_type};

const FILES: usize = 1_000;

fn picture(width: u32, height: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| {
        Rgb([(x * y).to_le_bytes()[0], 7, y.to_le_bytes()[0]])
    })
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
        let bytes = broken(&mut random, picture);
        if n % 10 == 0 {
            let data = BASE64_STANDARD.encode(&bytes);
            let input = json!([{"role": "source", "data": data}]);
            let edited = edit(&app, &account, input).await;
            let is_clear = edited.status == 200 || edited.status.is_client_error();
            assert!(is_clear || edited.status == 502, "{n}: {}", edited.text);
        }
        let answer = post(&app, &account.key, media_type(&bytes), bytes).await;
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
