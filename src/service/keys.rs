//! API keys: making, listing, revoking.

use chrono::{DateTime, Utc};
use secrecy::SecretString;
use serde_json::{Map, Value};

use super::{Service, ServiceError, TokenRefusal, auth::Caller};
use crate::{
    domain::{
        ability::{Abilities, AbilitiesError},
        credits::Credits,
        ids::{AccountId, ApiKeyId},
        page::{Page, PageRequest},
        rate::{DEFAULT_PER_MINUTE, MAX_PER_MINUTE},
        spend::SpendPeriod,
        token,
        validate::{Errors, FieldCode, Fields},
    },
    store::{
        generations::Credential,
        keys::{ApiKeyRecord, NewApiKey},
    },
};

/// Characters of a key's name.
const NAME_CHARS: usize = 100;

/// A key that is asked for.
#[derive(Debug, Clone)]
pub struct KeyRequest {
    /// Its label, 1 to 100 characters.
    pub name: String,
    /// What it may call.
    pub abilities: Abilities,
    /// Requests per minute.
    pub rate_limit_per_minute: u32,
    /// When it ends; in the future.
    pub expires_at: Option<DateTime<Utc>>,
    /// What it may spend in each period.
    pub spend_limit: Option<Credits>,
    /// The period of the limit; `None`: for ever.
    pub spend_period: Option<SpendPeriod>,
}

impl KeyRequest {
    /// Reads and checks a body.
    pub fn read(body: &Map<String, Value>, now: DateTime<Utc>) -> Result<Self, ServiceError> {
        let errors = Errors::default();
        let fields = Fields::new(body, &errors);
        let name = fields.required_text("name", NAME_CHARS);
        let abilities = fields.strings("abilities").and_then(|names| {
            let abilities = Abilities::parse(&names);
            for error in abilities.as_ref().err().into_iter().flatten() {
                let param = match error {
                    AbilitiesError::Unknown(at) | AbilitiesError::Duplicate(at) => {
                        format!("abilities[{at}]")
                    }
                    AbilitiesError::Empty | AbilitiesError::StarNotAlone => "abilities".to_owned(),
                };
                fields.error(&param, FieldCode::NotAllowed, error.to_string());
            }
            abilities.ok()
        });
        let rate = fields.integer("rate_limit_per_minute", 1..=i64::from(MAX_PER_MINUTE));
        let expires_at = fields.string("expires_at").and_then(|text| {
            let time = parse_time(text);
            match time {
                None => fields.error(
                    "expires_at",
                    FieldCode::InvalidFormat,
                    "must be an ISO 8601 time with an offset, such as 2030-01-31T12:00:00Z",
                ),
                Some(at) if at <= now => {
                    fields.error(
                        "expires_at",
                        FieldCode::OutOfRange,
                        "must lie in the future",
                    );
                }
                Some(_) => {}
            }
            time
        });
        let spend_limit = fields.credits("spend_limit");
        let spend_period = fields.string("spend_period").and_then(|text| {
            let period = SpendPeriod::parse(text);
            if period.is_none() {
                let message = "must be day, month or null";
                fields.error("spend_period", FieldCode::NotAllowed, message);
            } else if spend_limit.is_none() && !errors.has("spend_limit") {
                let message = "is the period of a spend_limit, which is missing";
                fields.error("spend_period", FieldCode::NotAllowed, message);
            }
            period
        });
        fields.finish();
        match (name, errors.take()) {
            (Some(name), errors) if errors.is_empty() => Ok(Self {
                name: name.to_owned(),
                abilities: abilities.unwrap_or_else(Abilities::all),
                rate_limit_per_minute: rate
                    .and_then(|n| u32::try_from(n).ok())
                    .unwrap_or(DEFAULT_PER_MINUTE),
                expires_at,
                spend_limit,
                spend_period,
            }),
            (_, errors) => Err(ServiceError::Invalid(errors)),
        }
    }
}

/// An RFC 3339 time that Postgres can keep, in whole microseconds.
pub fn parse_time(text: &str) -> Option<DateTime<Utc>> {
    use chrono::{Datelike as _, SubsecRound as _};
    let time = DateTime::parse_from_rfc3339(text)
        .ok()?
        .to_utc()
        .trunc_subsecs(6);
    (1..=9999).contains(&time.year()).then_some(time)
}

/// Reads a time of a query.
pub fn time(fields: &Fields<'_>, name: &'static str) -> Option<DateTime<Utc>> {
    let text = fields.string(name)?;
    // A plus sign that was not encoded arrives as a blank.
    let time = parse_time(&text.replace(' ', "+"));
    if time.is_none() {
        let message = "must be an RFC 3339 time, such as 2030-01-31T12:00:00Z";
        fields.error(name, FieldCode::InvalidFormat, message);
    }
    time
}

impl Service {
    /// Makes a key; its plain text is in this answer only. `by` is who asks for it, and must
    /// still be a caller when the key is stored; `None`: the operator.
    pub async fn create_key(
        &self,
        account: AccountId,
        request: &KeyRequest,
        by: Option<&Caller>,
    ) -> Result<(ApiKeyRecord, SecretString), ServiceError> {
        // Its cap would be worth nothing: the new key would have another, or none.
        if by.is_some_and(Caller::is_capped) {
            return Err(ServiceError::CappedKey);
        }
        let token = token::new_api_key().map_err(|e| ServiceError::Internal(e.to_string()))?;
        let new = NewApiKey {
            account_id: account,
            name: &request.name,
            digest: token.digest,
            hint: &token.hint,
            abilities: &request.abilities,
            rate_limit_per_minute: request.rate_limit_per_minute,
            expires_at: request.expires_at,
            spend_limit: request.spend_limit,
            spend_period: request.spend_period,
            now: self.0.clock.now(),
        };
        match self
            .0
            .store
            .create_key(&new, by.map(|c| c.credential))
            .await?
        {
            Some(key) => Ok((key, token.secret)),
            None => Err(ServiceError::Token(match by.map(|c| c.credential) {
                Some(Credential::ApiKey(_)) => TokenRefusal::Revoked,
                _ => TokenRefusal::Invalid,
            })),
        }
    }

    /// The time by which requests are judged.
    pub fn now(&self) -> DateTime<Utc> {
        self.0.clock.now()
    }

    /// One key of the caller's account.
    pub async fn key(&self, caller: &Caller, id: ApiKeyId) -> Result<ApiKeyRecord, ServiceError> {
        let key = self.0.store.key(caller.account_id, id, self.now()).await?;
        key.ok_or(ServiceError::NotFound)
    }

    /// The keys of the caller's account.
    pub async fn keys(
        &self,
        caller: &Caller,
        page: &PageRequest,
    ) -> Result<Page<ApiKeyRecord>, ServiceError> {
        Ok(self
            .0
            .store
            .keys(caller.account_id, page, self.now())
            .await?)
    }

    /// Revokes a key of the caller's account, at once and for ever.
    pub async fn revoke_key(
        &self,
        caller: &Caller,
        id: ApiKeyId,
    ) -> Result<ApiKeyRecord, ServiceError> {
        let now = self.0.clock.now();
        let key = self.0.store.revoke_key(caller.account_id, id, now).await?;
        key.ok_or(ServiceError::NotFound)
    }
}
