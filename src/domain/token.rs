//! Bearer tokens: API keys and admin tokens with a checksum, and opaque session tokens.
//!
//! The plain text appears only in the response that creates the token. Its SHA-256 is stored; a
//! slow hash is not needed, since tokens have too much entropy to be guessed.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest as _, Sha256};

pub const KEY_PREFIX: &str = "svc_";
/// Admin tokens are for the operator's own systems.
pub const ADMIN_PREFIX: &str = "adm_";
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const RANDOM_CHARS: usize = 34;
const CHECKSUM_CHARS: usize = 6;
const SESSION_BYTES: usize = 32;

/// SHA-256 of a token, as stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenDigest(pub [u8; 32]);

impl fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenDigest(..)")
    }
}

/// A bearer token whose format has been checked.
#[derive(Debug, Clone, Copy)]
pub enum BearerToken {
    /// `svc_` and a body with a valid checksum.
    ApiKey(TokenDigest),
    /// `adm_` and a body with a valid checksum.
    Admin(TokenDigest),
    /// Anything that could be a session token.
    Session(TokenDigest),
}

impl BearerToken {
    /// Checks a token's format without the database. Returns `None` if it cannot be a valid token.
    pub fn parse(text: &str) -> Option<Self> {
        let digest = digest(text);
        if let Some(body) = text.strip_prefix(KEY_PREFIX) {
            return is_body(body).then_some(Self::ApiKey(digest));
        }
        if let Some(body) = text.strip_prefix(ADMIN_PREFIX) {
            return is_body(body).then_some(Self::Admin(digest));
        }
        let right = text.len() == 43
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        right.then_some(Self::Session(digest))
    }
}

/// A new token: its plain text and its stored form.
#[derive(Debug)]
pub struct NewToken {
    pub secret: SecretString,
    pub digest: TokenDigest,
    /// Prefix, first and last characters, by which people recognise it.
    pub hint: String,
}

/// The operating system returned no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("the system's random source failed: {0}")]
pub struct RandomError(getrandom::Error);

/// Creates an API key: `svc_` + 34 random base62 characters + their CRC-32 in base62.
pub fn new_api_key() -> Result<NewToken, RandomError> {
    new_checked(KEY_PREFIX, random::<32>)
}

/// Creates an admin token: `adm_` and the same kind of body.
pub fn new_admin_token() -> Result<NewToken, RandomError> {
    new_checked(ADMIN_PREFIX, random::<32>)
}

pub(super) fn new_checked<E>(
    prefix: &str,
    mut bytes: impl FnMut() -> Result<[u8; 32], E>,
) -> Result<NewToken, E> {
    let mut body = Vec::with_capacity(RANDOM_CHARS + CHECKSUM_CHARS);
    while body.len() < RANDOM_CHARS {
        for byte in bytes()? {
            // 248 is the largest multiple of 62 in a byte; larger values would bias the remainder.
            if byte < 248 && body.len() < RANDOM_CHARS {
                body.push(ALPHABET[usize::from(byte % 62)]);
            }
        }
    }
    body.extend(checksum(&body));
    let text = format!("{prefix}{}", String::from_utf8_lossy(&body));
    let hint = format!("{}...{}", &text[..8], &text[text.len() - 4..]);
    Ok(NewToken {
        digest: digest(&text),
        secret: SecretString::from(text),
        hint,
    })
}

/// Creates a session token: 256 random bits, base64url, no prefix.
pub fn new_session_token() -> Result<NewToken, RandomError> {
    use base64::Engine as _;
    let secret = loop {
        let text =
            base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(random::<SESSION_BYTES>()?);
        // Such a token would be parsed as another kind. The chance is one in 8 million.
        if !text.starts_with(KEY_PREFIX) && !text.starts_with(ADMIN_PREFIX) {
            break SecretString::from(text);
        }
    };
    Ok(NewToken {
        digest: digest(secret.expose_secret()),
        secret,
        hint: String::new(),
    })
}

pub fn random<const N: usize>() -> Result<[u8; N], RandomError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(RandomError)?;
    Ok(bytes)
}

/// Whether a text is 34 base62 characters and their checksum.
fn is_body(text: &str) -> bool {
    let body = text.as_bytes();
    body.len() == RANDOM_CHARS + CHECKSUM_CHARS
        && body.iter().all(u8::is_ascii_alphanumeric)
        && checksum(&body[..RANDOM_CHARS]) == body[RANDOM_CHARS..]
}

fn digest(text: &str) -> TokenDigest {
    TokenDigest(Sha256::digest(text.as_bytes()).into())
}

/// Returns the CRC-32 (IEEE) in base62, most significant digit first, zero-padded to six.
fn checksum(body: &[u8]) -> [u8; CHECKSUM_CHARS] {
    let mut rest = crc32fast::hash(body);
    let mut out = [b'0'; CHECKSUM_CHARS];
    for slot in out.iter_mut().rev() {
        *slot = ALPHABET[(rest % 62) as usize];
        rest /= 62;
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_new_key_is_accepted_and_every_typing_error_is_not() {
        let key = new_api_key().unwrap();
        let text = key.secret.expose_secret().to_owned();
        assert_eq!(text.len(), 44);
        assert!(
            matches!(BearerToken::parse(&text), Some(BearerToken::ApiKey(d)) if d == key.digest)
        );
        for at in 4..text.len() {
            let mut wrong = text.clone().into_bytes();
            wrong[at] = if wrong[at] == b'a' { b'b' } else { b'a' };
            assert!(
                BearerToken::parse(&String::from_utf8(wrong).unwrap()).is_none(),
                "{at}"
            );
        }
    }

    #[test]
    fn an_admin_token_is_no_key() {
        let token = new_admin_token().unwrap();
        let text = token.secret.expose_secret();
        let parsed = BearerToken::parse(text);
        assert!(matches!(parsed, Some(BearerToken::Admin(d)) if d == token.digest));
        let body = text.strip_prefix(ADMIN_PREFIX).unwrap();
        assert_eq!(body.len(), 40);
        let swapped = body.chars().rev().collect::<String>();
        assert!(BearerToken::parse(&format!("{ADMIN_PREFIX}{swapped}")).is_none());
        assert!(BearerToken::parse(&text[..43]).is_none());
    }

    #[test]
    fn the_checksum_is_crc32_in_base62() {
        // CRC-32 of "123456789" is 0xCBF43926 = 3421780262.
        assert_eq!(&checksum(b"123456789"), b"3jZRME");
    }

    #[test]
    fn a_session_token_has_no_prefix() {
        let token = new_session_token().unwrap();
        let text = token.secret.expose_secret();
        assert!(matches!(
            BearerToken::parse(text),
            Some(BearerToken::Session(_))
        ));
        assert!(BearerToken::parse("short").is_none());
    }

    proptest! {
        /// One in 57 billion invented keys has a valid checksum.
        #[test]
        fn what_is_made_up_is_no_key(text in "(svc_|adm_)[0-9A-Za-z]{40}|(svc_|adm_).{0,44}") {
            prop_assert!(BearerToken::parse(&text).is_none());
        }

        #[test]
        fn any_text_is_a_session_or_nothing(text in ".{0,60}|[0-9A-Za-z_-]{42,44}") {
            let long = text.len() == 43 && text.is_ascii();
            match BearerToken::parse(&text) {
                None => {}
                Some(BearerToken::Session(_)) => prop_assert!(long),
                Some(other) => prop_assert!(false, "{other:?}"),
            }
        }
    }
}
