//! The token of a form that creates something.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};

use super::{
    ids::AccountId,
    token::{RandomError, random},
};

/// 256 random bits in a form of the console. The server keeps only values that are derived from
/// them, so the browser alone can derive the secret of what the form created.
#[derive(Clone)]
pub struct FormToken([u8; 32]);

impl fmt::Debug for FormToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FormToken(..)")
    }
}

impl FormToken {
    pub fn new() -> Result<Self, RandomError> {
        random().map(Self)
    }

    /// Reads a token from a form or a cookie; `None` if it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        bytes.try_into().ok().map(Self)
    }

    /// Returns the token as base64url, for a form or a cookie.
    pub fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    /// Derives a value that differs by account and purpose and does not reveal the token.
    pub fn derive(&self, account: AccountId, purpose: &str) -> [u8; 32] {
        let hash = Sha256::new().chain_update(format!("{purpose}:{account}:"));
        hash.chain_update(self.0).finalize().into()
    }

    /// Derives the value that the database stores to recognise the form.
    pub fn digest(&self, account: AccountId) -> [u8; 32] {
        self.derive(account, "form")
    }

    /// Derives the secret of the webhook that the form creates.
    pub fn webhook_secret(&self, account: AccountId) -> [u8; 32] {
        self.derive(account, "webhook")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_read_back_and_derives_by_account_and_purpose() {
        let token = FormToken::new().unwrap();
        let same = FormToken::parse(&token.encode()).unwrap();
        let account = AccountId(1);
        assert_eq!(token.digest(account), same.digest(account));
        assert_ne!(token.digest(account), token.digest(AccountId(2)));
        assert_ne!(token.digest(account), token.webhook_secret(account));
        assert_ne!(
            token.digest(account),
            FormToken::new().unwrap().digest(account)
        );
        for malformed in ["", "x", "!", &token.encode()[1..]] {
            assert!(FormToken::parse(malformed).is_none(), "{malformed}");
        }
    }
}
