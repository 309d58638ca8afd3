//! What the operator does with credits: grants, adjustments, refunds.

use serde_json::{Map, Value};

use super::{Service, ServiceError};
use crate::{
    domain::{
        credits::Credits,
        ids::{AccountId, GenerationId},
        validate::{Errors, FieldCode, FieldError, Fields, too_long},
    },
    store::{
        StoreError,
        credits::{LedgerEntry, MoveKind, Moved, NewMove},
        refunds::{NewRefund, REFUND_PREFIX, Refunded},
    },
};

/// Characters of a reference.
const REFERENCE_CHARS: usize = 255;
/// Characters of a refund's own note: the reference names the generation too.
const NOTE_CHARS: usize = 200;

/// A movement that is asked for, with the reference that makes it happen once.
#[derive(Debug, Clone)]
pub struct MoveRequest {
    /// Credits; negative only in an adjustment.
    pub amount: Credits,
    /// Grant or adjustment.
    pub kind: MoveKind,
    /// 1 to 255 characters.
    pub reference: String,
}

/// A movement, made now or before.
#[derive(Debug)]
pub struct Movement {
    /// Its entry in the ledger.
    pub entry: LedgerEntry,
    /// Whether it was made now.
    pub moved: bool,
}

impl MoveRequest {
    /// Reads and checks a body.
    pub fn read(body: &Map<String, Value>) -> Result<Self, ServiceError> {
        let errors = Errors::default();
        let fields = Fields::new(body, &errors);
        let amount = fields.signed_credits("amount");
        if amount.is_none() && !errors.has("amount") {
            fields.error("amount", FieldCode::Required, "is required");
        }
        let kind = fields.required_text("kind", REFERENCE_CHARS);
        let kind = kind.and_then(|name| {
            let kind = MoveKind::ALL.into_iter().find(|k| k.as_str() == name);
            if kind.is_none() {
                let message = "must be grant or adjustment";
                fields.error("kind", FieldCode::NotAllowed, message);
            }
            kind
        });
        let reference = fields.required_text("reference", REFERENCE_CHARS);
        fields.finish();
        check(amount, kind, reference, &errors);
        match (amount, kind, reference, errors.take()) {
            (Some(amount), Some(kind), Some(reference), errors) if errors.is_empty() => Ok(Self {
                amount,
                kind,
                reference: reference.to_owned(),
            }),
            (.., errors) => Err(ServiceError::Invalid(errors)),
        }
    }
}

/// What is wrong with the fields that are there.
fn check(
    amount: Option<Credits>,
    kind: Option<MoveKind>,
    reference: Option<&str>,
    errors: &Errors,
) {
    if amount == Some(Credits::ZERO) {
        errors.add("amount", FieldCode::OutOfRange, "must not be 0");
    } else if kind == Some(MoveKind::Grant) && amount.is_some_and(|a| a < Credits::ZERO) {
        let message = "must be positive; use an adjustment to take credits back";
        errors.add("amount", FieldCode::OutOfRange, message);
    }
    let Some(reference) = reference else { return };
    if reference.trim().is_empty() {
        errors.add("reference", FieldCode::Required, "must not be blank");
    } else if reference.chars().count() > REFERENCE_CHARS {
        errors.add("reference", FieldCode::TooLong, too_long(REFERENCE_CHARS));
    } else if reference.starts_with(REFUND_PREFIX) {
        let message = format!("must not begin with \"{REFUND_PREFIX}\": so begin refunds' own");
        errors.add("reference", FieldCode::NotAllowed, message);
    }
}

fn invalid(param: &str, code: FieldCode, message: impl Into<String>) -> ServiceError {
    ServiceError::invalid(FieldError::new(param, code, message))
}

impl Service {
    /// Grants or adjusts credits. The same reference moves credits of an account once for each
    /// kind: again, with whatever amount, it answers the first entry.
    pub async fn move_credits(
        &self,
        account: AccountId,
        kind: MoveKind,
        amount: Credits,
        reference: Option<&str>,
    ) -> Result<Movement, ServiceError> {
        let errors = Errors::default();
        check(Some(amount), Some(kind), reference, &errors);
        ServiceError::any(&errors)?;
        let new = NewMove {
            account,
            kind,
            amount,
            reference,
            now: self.0.clock.now(),
        };
        match self.0.store.move_credits(&new).await {
            Ok(Moved::Done(entry)) => Ok(Movement { entry, moved: true }),
            Ok(Moved::Repeated(entry)) => Ok(Movement {
                entry,
                moved: false,
            }),
            Ok(Moved::Short(balance)) => Err(invalid(
                "amount",
                FieldCode::OutOfRange,
                format!(
                    "takes more than the {} credits that are available",
                    balance.available()
                ),
            )),
            Ok(Moved::NoAccount) => Err(ServiceError::NotFound),
            Err(StoreError::OutOfRange(_)) => Err(invalid(
                "amount",
                FieldCode::OutOfRange,
                "makes the balance too large",
            )),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives back what a generation was charged, whole or in part, once. Answers whose credits
    /// they are.
    pub async fn refund(
        &self,
        generation: GenerationId,
        amount: Option<Credits>,
        note: &str,
    ) -> Result<(AccountId, Movement), ServiceError> {
        let errors = Errors::default();
        if amount.is_some_and(|amount| amount <= Credits::ZERO) {
            errors.add("amount", FieldCode::OutOfRange, "must be positive");
        }
        if note.trim().is_empty() {
            errors.add("reference", FieldCode::Required, "must not be blank");
        } else if note.chars().count() > NOTE_CHARS {
            errors.add("reference", FieldCode::TooLong, too_long(NOTE_CHARS));
        }
        ServiceError::any(&errors)?;
        let new = NewRefund {
            generation,
            amount,
            note,
            now: self.0.clock.now(),
        };
        match self.0.store.refund(&new).await {
            Ok(Refunded::Done(account, entry)) => Ok((account, Movement { entry, moved: true })),
            Ok(Refunded::Repeated(account, entry)) => Ok((
                account,
                Movement {
                    entry,
                    moved: false,
                },
            )),
            Ok(Refunded::Before(entry)) => Err(invalid(
                "generation",
                FieldCode::NotAllowed,
                format!(
                    "was refunded before, with {} credits (ledger entry {})",
                    entry.amount, entry.id
                ),
            )),
            Ok(Refunded::TooMuch(charged)) => Err(invalid(
                "amount",
                FieldCode::OutOfRange,
                format!("is more than the {charged} credits that were charged"),
            )),
            Ok(Refunded::NotCharged) => Err(invalid(
                "generation",
                FieldCode::NotAllowed,
                "has not been charged anything",
            )),
            Ok(Refunded::Unknown) => Err(ServiceError::NotFound),
            Err(StoreError::OutOfRange(_)) => Err(invalid(
                "amount",
                FieldCode::OutOfRange,
                "makes the balance too large",
            )),
            Err(error) => Err(error.into()),
        }
    }
}
