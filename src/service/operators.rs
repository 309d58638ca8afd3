//! Operators' functions: reports over all accounts, the list of operators, admin tokens, and
//! movements of credits.

use chrono::{DateTime, Utc};
use secrecy::SecretString;

use super::{Result, Service, ServiceError, TokenRefusal, auth::Caller};
use crate::{
    domain::{
        ids::{AccountId, AdminTokenId, GenerationId, UserId},
        limiter::Limiter,
        party::Party,
        rate::RateState,
        token::{self, BearerToken},
        validate::FieldCode,
    },
    jobs::Circuit,
    request::Move,
    store::{
        StoreError,
        credits::{LedgerEntry, Moved, NewMove},
        operators::{ModelHealth, ProviderErrors, Spending, SpendingBy, SpendingSums},
        sessions::AdminTokenRecord,
    },
};

/// Number of generations from which the health of models and providers is computed.
const RECENT: i64 = 5_000;
/// Maximum rows of a report.
pub const ROWS: i64 = 100;

/// Running calls of this server to a provider, and their maximum; `None` without a limit.
#[derive(Debug)]
pub struct ProviderCalls {
    pub provider: String,
    pub limit: Option<usize>,
    pub in_use: Option<usize>,
}

/// The token of a request to the operators' routes. The request was counted.
#[derive(Debug)]
pub enum Presented {
    /// An admin token, and its rate limit after the request.
    Operator(AdminTokenId, RateState),
    /// A customer's token. Only the session of an operator is permitted.
    Customer(Caller),
}

impl Service {
    /// Grants or revokes the operator role.
    pub async fn set_operator(&self, user: UserId, operator: bool) -> Result<()> {
        let now = self.0.clock.now();
        Ok(self.0.store.set_operator(user, operator, now).await?)
    }

    /// Returns the running calls of each provider, and the outcomes of the last generations of all
    /// servers by model and by error.
    pub async fn provider_health(
        &self,
    ) -> Result<(Vec<ProviderCalls>, Vec<ModelHealth>, Vec<ProviderErrors>)> {
        let _permit = self.report_permit(Party::Operator).await?;
        let health = self.0.store.model_health(RECENT, None).await?;
        let errors = self.0.store.provider_errors(RECENT).await?;
        let providers = self.catalogue().providers(None).into_iter();
        let calls = providers.map(|name| {
            let limiter = self.0.providers.limiters.get(name);
            let in_use =
                |limiter: &Limiter<AccountId>| limiter.total().saturating_sub(limiter.free());
            ProviderCalls {
                provider: name.to_owned(),
                limit: limiter.map(Limiter::total),
                in_use: limiter.map(in_use),
            }
        });
        Ok((calls.collect(), health, errors))
    }

    /// Returns the models that this server skips if a request has other candidates.
    pub fn open_circuits(&self) -> Vec<Circuit> {
        self.0.runner.open_circuits()
    }

    /// Returns the spending on the days from `from` until before `to`, and its sum.
    pub async fn spending(
        &self,
        by: SpendingBy,
        from: DateTime<Utc>,
        to: DateTime<Utc>,
    ) -> Result<(Vec<Spending>, SpendingSums)> {
        let _permit = self.report_permit(Party::Operator).await?;
        let most = (by == SpendingBy::Account).then_some(ROWS);
        Ok(self.0.store.spending(by, from, to, most).await?)
    }

    /// Checks the bearer token of a request to the operators' routes and counts the request, as
    /// [`Service::authenticate`] does.
    pub async fn authenticate_operator(&self, token: &str, counts: bool) -> Result<Presented> {
        let refused = |why| Err(ServiceError::Token(why));
        let Some(BearerToken::Admin(digest)) = BearerToken::parse(token) else {
            let caller = self.authenticate(token, counts, false).await?;
            return Ok(Presented::Customer(caller));
        };
        let now = self.0.clock.now();
        match self.0.store.present_admin(digest, now).await? {
            None => refused(TokenRefusal::Invalid),
            Some((_, None)) => refused(TokenRefusal::Revoked),
            Some((id, Some(rate))) => Ok(Presented::Operator(id, rate)),
        }
    }

    /// Creates an admin token. Only this call returns its plain text.
    pub async fn create_admin_token(&self, name: &str) -> Result<(AdminTokenRecord, SecretString)> {
        let token = token::new_admin_token().map_err(|e| ServiceError::Internal(e.to_string()))?;
        let (store, now) = (&self.0.store, self.0.clock.now());
        let record = store.create_admin_token(name, token.digest, now).await?;
        Ok((record, token.secret))
    }

    /// Returns all admin tokens, newest first.
    pub async fn admin_tokens(&self) -> Result<Vec<AdminTokenRecord>> {
        Ok(self.0.store.admin_tokens().await?)
    }

    /// Revokes an admin token, immediately and permanently.
    pub async fn revoke_admin_token(&self, id: AdminTokenId) -> Result<AdminTokenRecord> {
        let now = self.0.clock.now();
        let token = self.0.store.revoke_admin_token(id, now).await?;
        token.ok_or(ServiceError::NotFound)
    }

    /// Moves credits. A reference identifies one movement of an account: repeating the movement
    /// returns the first entry, and another movement with the reference is refused. Returns the
    /// entry, and whether this request created it.
    pub async fn move_credits(
        &self,
        account: AccountId,
        what: Move,
        reference: Option<&str>,
    ) -> Result<(LedgerEntry, bool)> {
        self.require_running()?;
        ServiceError::any(what.violations(reference))?;
        let new = NewMove {
            account,
            what,
            reference,
            now: self.0.clock.now(),
        };
        let out_of_range = |message: String| {
            let code = FieldCode::OutOfRange;
            Err(ServiceError::field("amount", code, message))
        };
        let not_refundable = |message: &str| {
            let message = match what {
                Move::Refund { generation, .. } => format!("{generation} {message}"),
                _ => message.to_owned(),
            };
            Err(ServiceError::not_allowed("generation", message))
        };
        let moved = match self.0.store.move_credits(&new).await {
            Err(StoreError::OutOfRange(_)) => {
                return out_of_range("would make the balance too large".to_owned());
            }
            other => other?,
        };
        match moved {
            Moved::Done(entry) => Ok((entry, true)),
            Moved::Repeated(entry) => Ok((entry, false)),
            Moved::ReferenceUsed(entry) => Err(ServiceError::ReferenceReused(Box::new(entry))),
            Moved::Short(balance) => out_of_range(format!(
                "is more than the {} available credits",
                balance.available()
            )),
            Moved::NoAccount => Err(ServiceError::NotFound),
            Moved::NoGeneration => not_refundable("does not belong to this account"),
            Moved::NotCharged => not_refundable("was not charged"),
            Moved::AboveCharge(charged) => out_of_range(format!(
                "is more than the {charged} credits that the generation was charged"
            )),
            Moved::Refunded(entry) => not_refundable(&format!(
                "was refunded before, with {} credits (ledger entry {})",
                entry.amount, entry.id
            )),
        }
    }

    pub async fn account_of(&self, id: GenerationId) -> Result<AccountId> {
        let account = self.0.store.account_of(id).await?;
        account.ok_or(ServiceError::NotFound)
    }
}
