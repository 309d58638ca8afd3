//! Signed, expiring links to stored files.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use url::Url;

use super::MediaKey;

/// Separates this use of the secret from other uses.
const PURPOSE: &str = "gensvc media v1";

/// Minimum length of a secret, in bytes.
const LEAST_SECRET: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a secret for signing links needs at least {LEAST_SECRET} bytes")]
pub struct WeakSecret;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// Signed with another secret, or modified.
    #[error("the signature is not ours")]
    InvalidSignature,
    #[error("the link has expired")]
    Expired,
}

/// Signs and verifies links by HMAC-SHA-256 over key and expiry. All replicas with the same secret
/// accept each other's links.
#[derive(Clone)]
pub struct MediaSigner {
    mac: Hmac<Sha256>,
}

impl fmt::Debug for MediaSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MediaSigner").finish_non_exhaustive()
    }
}

impl MediaSigner {
    /// Creates a signer with a secret of at least 32 random bytes.
    pub fn new(secret: &[u8]) -> Result<Self, WeakSecret> {
        if secret.len() < LEAST_SECRET {
            return Err(WeakSecret);
        }
        let mac = Hmac::new_from_slice(secret).map_err(|_| WeakSecret)?;
        Ok(Self { mac })
    }

    /// Returns the link `{base}/v1/media/{key}?expires=...&signature=...`. `base` is the server's
    /// public URL, with or without a path and a trailing slash. `expires_unix` is in seconds since
    /// the epoch, the first second in which the link is refused.
    pub fn url(&self, base: &Url, key: &MediaKey, expires_unix: i64) -> String {
        let mut base = base.clone();
        base.set_query(None);
        base.set_fragment(None);
        let base = base.as_str().trim_end_matches('/');
        let signature = hex(&self.sign(key, expires_unix).finalize().into_bytes());
        format!("{base}/v1/media/{key}?expires={expires_unix}&signature={signature}")
    }

    /// Verifies a link at `now_unix`, in constant time. A wrong signature is `InvalidSignature`
    /// even if the link has expired.
    pub fn verify(
        &self,
        key: &MediaKey,
        expires_unix: i64,
        signature: &str,
        now_unix: i64,
    ) -> Result<(), LinkError> {
        let given = unhex(signature).ok_or(LinkError::InvalidSignature)?;
        self.sign(key, expires_unix)
            .verify_slice(&given)
            .map_err(|_| LinkError::InvalidSignature)?;
        if now_unix < expires_unix {
            Ok(())
        } else {
            Err(LinkError::Expired)
        }
    }

    fn sign(&self, key: &MediaKey, expires_unix: i64) -> Hmac<Sha256> {
        self.mac
            .clone()
            .chain_update(format!("{PURPOSE}\n{key}\n{expires_unix}"))
    }
}

/// Formats bytes in lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

/// Parses exactly 32 bytes from lower-case hexadecimal; upper case is refused.
pub fn unhex(text: &str) -> Option<[u8; 32]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let text: &[u8; 64] = text.as_bytes().try_into().ok()?;
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        let [high, low] = *pair else { return None };
        *byte = digit(high)? << 4 | digit(low)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "01970000-0000-7000-8000-000000000001/0.png";

    fn signer(byte: u8) -> MediaSigner {
        MediaSigner::new(&[byte; 32]).unwrap()
    }

    fn parts(link: &str) -> (i64, String) {
        let link = Url::parse(link).unwrap();
        let mut pairs = link.query_pairs();
        let expires = pairs.next().unwrap().1.parse().unwrap();
        (expires, pairs.next().unwrap().1.into_owned())
    }

    #[test]
    fn opens_until_it_expires() {
        let key = KEY.parse().unwrap();
        for base in [
            "https://a.example",
            "https://a.example/",
            "https://a.example/x/?q#f",
        ] {
            let link = signer(1).url(&Url::parse(base).unwrap(), &key, 1_000);
            let path = if base.contains("/x") { "/x" } else { "" };
            assert!(link.starts_with(&format!("https://a.example{path}/v1/media/{KEY}?")));
            let (expires, signature) = parts(&link);
            let verify = |now| signer(1).verify(&key, expires, &signature, now);
            assert_eq!(verify(0), Ok(()));
            assert_eq!(verify(999), Ok(()));
            assert_eq!(verify(1_000), Err(LinkError::Expired));
        }
    }

    #[test]
    fn nothing_can_be_changed() {
        let key: MediaKey = KEY.parse().unwrap();
        let other = KEY.replace("0.png", "1.png").parse().unwrap();
        let link = signer(1).url(&Url::parse("http://h").unwrap(), &key, 1_000);
        let (_, good) = parts(&link);
        let wrong = Err(LinkError::InvalidSignature);
        assert_eq!(signer(2).verify(&key, 1_000, &good, 0), wrong);
        assert_eq!(signer(1).verify(&other, 1_000, &good, 0), wrong);
        assert_eq!(signer(1).verify(&key, 1_001, &good, 0), wrong);
        assert_eq!(signer(1).verify(&key, 1_001, &good, 5_000), wrong);
        for bad in [
            "",
            "00",
            &good.to_uppercase(),
            &good[1..],
            &format!("{good}0"),
            "é",
        ] {
            assert_eq!(signer(1).verify(&key, 1_000, bad, 0), wrong, "{bad}");
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            let digit = if &bad[at..=at] == "0" { "1" } else { "0" };
            bad.replace_range(at..=at, digit);
            assert_eq!(signer(1).verify(&key, 1_000, &bad, 0), wrong);
        }
    }

    /// Computed with Python's hmac module.
    #[test]
    fn a_known_signature() {
        let link = signer(7).url(
            &Url::parse("http://h").unwrap(),
            &KEY.parse().unwrap(),
            1_000,
        );
        assert_eq!(
            parts(&link).1,
            "5b5eedda610533bc6303a5eb126aea1cd3c4c36e0bf859b305874f65d582c965"
        );
    }

    #[test]
    fn a_short_secret() {
        assert_eq!(MediaSigner::new(&[1; 31]).unwrap_err(), WeakSecret);
    }

    #[test]
    fn debug_is_silent() {
        assert_eq!(format!("{:?}", signer(1)), "MediaSigner { .. }");
    }
}
