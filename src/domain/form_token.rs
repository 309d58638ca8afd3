//! The token of a form that creates something.

use std::{convert::Infallible, fmt};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};

use super::{
    ids::AccountId,
    token::{KEY_PREFIX, NewToken, RandomError, new_checked, random},
};

/// 256 random bits in a console form. The server stores only values derived from them, so only the
/// browser can derive the secret that the form created.
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

/// Derives the API key that a console form creates: the same one each time.
pub fn api_key_of_form(form: &FormToken, account: AccountId) -> NewToken {
    let mut blocks = 0_u32..;
    let bytes = || {
        let purpose = format!("api key {}", blocks.next().unwrap_or_default());
        Ok::<_, Infallible>(form.derive(account, &purpose))
    };
    let Ok(token) = new_checked(KEY_PREFIX, bytes);
    token
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;
    use crate::domain::token::BearerToken;

    #[test]
    fn form_derives_one_valid_key_per_account() {
        let form = FormToken::new().unwrap();
        let key = api_key_of_form(&form, AccountId(1));
        let again = api_key_of_form(&form, AccountId(1));
        assert_eq!((key.digest, &key.hint), (again.digest, &again.hint));
        assert_ne!(key.digest, api_key_of_form(&form, AccountId(2)).digest);
        let parsed = BearerToken::parse(key.secret.expose_secret());
        assert!(matches!(parsed, Some(BearerToken::ApiKey(d)) if d == key.digest));
    }

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
