//! The operator's grants, adjustments and refunds.

use super::{Result, Service, ServiceError};
use crate::{
    domain::{
        ids::{AccountId, GenerationId},
        request::Move,
        validate::FieldCode,
    },
    store::{
        StoreError,
        credits::LedgerEntry,
        movements::{Moved, NewMove},
    },
};

/// A movement of credits.
#[derive(Debug)]
pub struct Movement {
    pub entry: LedgerEntry,
    /// Whether this request made it, rather than an earlier one.
    pub moved: bool,
}

impl Service {
    /// Moves credits. A reference stands for one movement of an account: repeating it returns the
    /// first entry, another movement with it is refused.
    pub async fn move_credits(
        &self,
        account: AccountId,
        what: Move,
        reference: Option<&str>,
    ) -> Result<Movement> {
        self.require_running()?;
        ServiceError::any(what.violations(reference))?;
        let new = NewMove {
            account,
            what,
            reference,
            now: self.0.clock.now(),
        };
        let moved = match self.0.store.move_credits(&new).await {
            Err(StoreError::OutOfRange(_)) => {
                let message = "makes the balance too large";
                return Err(ServiceError::field(
                    "amount",
                    FieldCode::OutOfRange,
                    message,
                ));
            }
            other => other?,
        };
        let out_of_range = |message| {
            Err(ServiceError::field(
                "amount",
                FieldCode::OutOfRange,
                message,
            ))
        };
        let not_refundable = |message: String| {
            Err(ServiceError::field(
                "generation",
                FieldCode::NotAllowed,
                message,
            ))
        };
        match moved {
            Moved::Done(entry) => Ok(Movement { entry, moved: true }),
            Moved::Repeated(entry) => Ok(Movement {
                entry,
                moved: false,
            }),
            Moved::ReferenceUsed(entry) => Err(ServiceError::ReferenceReused(Box::new(entry))),
            Moved::Short(balance) => out_of_range(format!(
                "takes more than the {} credits that are available",
                balance.available()
            )),
            Moved::NoAccount => Err(ServiceError::NotFound),
            Moved::NoGeneration => not_refundable("is not a generation of this account".to_owned()),
            Moved::NotCharged => not_refundable("has not been charged anything".to_owned()),
            Moved::AboveCharge(charged) => out_of_range(format!(
                "is more than the {charged} credits that were charged"
            )),
            Moved::Refunded(entry) => not_refundable(format!(
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
