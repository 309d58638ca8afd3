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
        credits::LedgerEntry,
        movements::{Move, Moved, NewMove},
    },
};

/// Characters of a reference.
const REFERENCE_CHARS: usize = 255;

/// A movement that is asked for, with the reference that makes it happen once.
#[derive(Debug, Clone)]
pub struct MoveRequest {
    pub what: Move,
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
        let kind = fields.required_text("kind", REFERENCE_CHARS);
        let generation = fields.string("generation");
        let what = kind.and_then(|kind| read_move(kind, amount, generation, &fields, &errors));
        let reference = fields.required_text("reference", REFERENCE_CHARS);
        fields.finish();
        check(what, reference, &errors);
        match (what, reference, errors.take()) {
            (Some(what), Some(reference), errors) if errors.is_empty() => Ok(Self {
                what,
                reference: reference.to_owned(),
            }),
            (.., errors) => Err(ServiceError::Invalid(errors)),
        }
    }
}

/// The movement of a kind, where all that it needs is there.
fn read_move(
    kind: &str,
    amount: Option<Credits>,
    generation: Option<&str>,
    fields: &Fields<'_>,
    errors: &Errors,
) -> Option<Move> {
    if !["grant", "adjustment", "refund"].contains(&kind) {
        let message = "must be grant, adjustment or refund";
        fields.error("kind", FieldCode::NotAllowed, message);
        return None;
    }
    let required = |name| {
        if !errors.has(name) {
            fields.error(name, FieldCode::Required, "is required");
        }
    };
    if kind == "refund" {
        let Some(generation) = generation else {
            required("generation");
            return None;
        };
        let Some(generation) = GenerationId::parse(generation) else {
            fields.error("generation", FieldCode::InvalidFormat, "must be a uuid");
            return None;
        };
        return Some(Move::Refund { generation, amount });
    }
    if generation.is_some() {
        fields.error("generation", FieldCode::NotAllowed, "is for refunds only");
    }
    let Some(amount) = amount else {
        required("amount");
        return None;
    };
    Some(if kind == "grant" {
        Move::Grant(amount)
    } else {
        Move::Adjustment(amount)
    })
}

/// What is wrong with the fields that are there.
fn check(what: Option<Move>, reference: Option<&str>, errors: &Errors) {
    let wrong = match what {
        Some(Move::Grant(amount) | Move::Adjustment(amount)) if amount == Credits::ZERO => {
            Some("must not be 0")
        }
        Some(Move::Grant(amount)) if amount < Credits::ZERO => {
            Some("must be positive; use an adjustment to take credits back")
        }
        Some(Move::Refund {
            amount: Some(amount),
            ..
        }) if amount <= Credits::ZERO => Some("must be positive"),
        _ => None,
    };
    if let Some(message) = wrong {
        errors.add("amount", FieldCode::OutOfRange, message);
    }
    let Some(reference) = reference else { return };
    if reference.trim().is_empty() {
        errors.add("reference", FieldCode::Required, "must not be blank");
    } else if reference.chars().count() > REFERENCE_CHARS {
        errors.add("reference", FieldCode::TooLong, too_long(REFERENCE_CHARS));
    }
}

fn invalid(param: &str, code: FieldCode, message: impl Into<String>) -> ServiceError {
    ServiceError::invalid(FieldError::new(param, code, message))
}

impl Service {
    /// Moves credits by the operator's hand. One reference is one movement of an account: the
    /// same one again answers the first entry, another one is refused.
    pub async fn move_credits(
        &self,
        account: AccountId,
        what: Move,
        reference: Option<&str>,
    ) -> Result<Movement, ServiceError> {
        let errors = Errors::default();
        check(Some(what), reference, &errors);
        ServiceError::any(&errors)?;
        let new = NewMove {
            account,
            what,
            reference,
            now: self.0.clock.now(),
        };
        let moved = match self.0.store.move_credits(&new).await {
            Err(StoreError::OutOfRange(_)) => {
                let message = "makes the balance too large";
                return Err(invalid("amount", FieldCode::OutOfRange, message));
            }
            other => other?,
        };
        let out_of_range = |message| Err(invalid("amount", FieldCode::OutOfRange, message));
        let not_refundable =
            |message: String| Err(invalid("generation", FieldCode::NotAllowed, message));
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

    /// Whose a generation is.
    pub async fn account_of(&self, id: GenerationId) -> Result<AccountId, ServiceError> {
        let account = self.0.store.account_of(id).await?;
        account.ok_or(ServiceError::NotFound)
    }
}
