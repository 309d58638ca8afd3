//! Requests of operators.

use secrecy::SecretString;

use crate::domain::{
    credits::Credits,
    ids::GenerationId,
    named::named_enum,
    validate::{
        FieldCode, FieldError, Fields, Object, Parsed, Refusal, SchemaName, Text, credits,
        generation_id, parsed, signed_credits, text, words,
    },
};

pub const EMAIL_CHARS: usize = 254;
pub const PASSWORD_CHARS: usize = 1_024;

/// An account to create, with its first user.
#[derive(Debug, Clone)]
pub struct AccountRequest {
    pub email: String,
    pub password: SecretString,
    /// The account's name; if absent, the email's local part.
    pub name: Option<String>,
    /// Credits granted at creation.
    pub credits: Credits,
}

/// Returns an email as it is stored and looked up. SQL compares emails with `lower`, which knows only
/// ASCII letters if the locale of the database is C, so emails with other letters are lower-cased here.
pub fn normalized_email(email: &str) -> String {
    if email.is_ascii() {
        email.to_owned()
    } else {
        email.to_lowercase()
    }
}

const EMAIL: Parsed<String> = parsed(
    || text(EMAIL_CHARS).min(3).with_pattern(r"^[^\s@]+@[^\s@]+$"),
    |email| {
        text(EMAIL_CHARS).not_blank().check(email)?;
        let halves = email.split_once('@');
        let sound = |part: &str| {
            !part.is_empty()
                && !part.contains(|c: char| c.is_whitespace() || c.is_control() || c == '@')
        };
        if halves.is_some_and(|(name, host)| sound(name) && sound(host)) {
            return Ok(normalized_email(email));
        }
        let message = "must be an address with one @";
        Err((FieldCode::InvalidFormat, message.into()))
    },
);
/// Logins accept no blank password.
pub(super) const PASSWORD: Text = text(PASSWORD_CHARS)
    .min(8)
    .not_blank_by(FieldCode::NotAllowed);
const NAME: Text = text(100).not_blank_by(FieldCode::OutOfRange);
/// The reference that deduplicates a movement of credits.
const REFERENCE: Text = text(255).not_blank();

/// Validates a password that was not read from a body.
pub fn password_violations(password: &str) -> Vec<FieldError> {
    violations([("password", PASSWORD.check(password))])
}

fn violations<const N: usize>(fields: [(&str, Result<(), Refusal>); N]) -> Vec<FieldError> {
    let refused = fields.into_iter().filter_map(|(param, result)| {
        let (code, message) = result.err()?;
        Some(FieldError::new(param, code, message))
    });
    refused.collect()
}

impl Object for AccountRequest {
    const SCHEMA: SchemaName = (
        "AccountCreationRequest",
        "The account to create, with its first user.",
    );
    const EXAMPLE: &'static str = r#"{"email": "ann@example.com", "password": "correct horse",
        "name": "Ann's shop", "credits": "500"}"#;

    fn read(fields: &Fields<'_>) -> Option<Self> {
        let email = "The first user's: one `@`; unique without case; stored in lower case if it is \
                     not ASCII.";
        let email = fields.required("email", email, EMAIL);
        let password = fields.required("password", "The first user's.", PASSWORD);
        let name = "The account's. Default: the email's first part.";
        let name = fields.optional("name", name, NAME);
        let granted = "Credits granted at once. Default 0.";
        let granted = fields.optional("credits", granted, credits());
        Some(Self {
            email: email?,
            password: password?.into(),
            name,
            credits: granted.unwrap_or(Credits::ZERO),
        })
    }
}

/// An operator's change of an account.
#[derive(Debug, Clone)]
pub struct AccountUpdate {
    /// The email of the first user.
    pub email: Option<String>,
    pub name: Option<String>,
}

impl Object for AccountUpdate {
    const SCHEMA: SchemaName = ("AccountUpdateRequest", "The change of an account.");
    const EXAMPLE: &'static str = r#"{"name": "Ann's other shop"}"#;

    fn read(fields: &Fields<'_>) -> Option<Self> {
        let email = "The first user's: one `@`; unique without case; stored in lower case if it is \
                     not ASCII. Default: unchanged.";
        let name = "The account's. Default: unchanged.";
        Some(Self {
            email: fields.optional("email", email, EMAIL),
            name: fields.optional("name", name, NAME),
        })
    }
}

named_enum!(
    /// How the operator moves credits.
    CreditMovementKind {
        Grant = "grant",
        Adjustment = "adjustment",
        Refund = "refund",
    }
);

/// A movement of credits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// Adds bought or given credits. Must be positive.
    Grant(Credits),
    /// Corrects the balance. A negative amount takes credits back, at most those not on hold.
    Adjustment(Credits),
    /// Refunds the charge of one completed generation, or a part of it, once.
    Refund {
        generation: GenerationId,
        /// Amount of the refund; if absent, the whole charge. Must be positive.
        amount: Option<Credits>,
    },
}

/// A requested movement, with the reference that prevents its repetition.
#[derive(Debug, Clone)]
pub struct MoveRequest {
    pub what: Move,
    pub reference: String,
}

impl Move {
    /// Builds the movement of a kind, if all its values are present.
    fn new(
        fields: &Fields<'_>,
        kind: CreditMovementKind,
        amount: Option<Credits>,
        generation: Option<GenerationId>,
    ) -> Option<Self> {
        let required = |name| {
            if !fields.failed(name) {
                fields.error(name, FieldCode::Required, "is required");
            }
        };
        if kind == CreditMovementKind::Refund {
            if generation.is_none() {
                required("generation");
            }
            return generation.map(|generation| Self::Refund { generation, amount });
        }
        if generation.is_some() {
            fields.error(
                "generation",
                FieldCode::NotAllowed,
                "is allowed only in a refund",
            );
        }
        if amount.is_none() {
            required("amount");
        }
        amount.map(match kind {
            CreditMovementKind::Grant => Self::Grant,
            _ => Self::Adjustment,
        })
    }

    /// Returns the requested amount; `None` for the whole charge of a generation.
    pub const fn amount(self) -> Option<Credits> {
        match self {
            Self::Grant(amount) | Self::Adjustment(amount) => Some(amount),
            Self::Refund { amount, .. } => amount,
        }
    }

    fn check(self) -> Result<(), Refusal> {
        let refuse = |message: &'static str| Err((FieldCode::OutOfRange, message.into()));
        match self {
            Self::Grant(Credits::ZERO) | Self::Adjustment(Credits::ZERO) => refuse("must not be 0"),
            Self::Grant(amount) if amount < Credits::ZERO => refuse(
                "must be positive; to take credits back, use an adjustment (`gensvc credits adjust`)",
            ),
            Self::Refund {
                amount: Some(amount),
                ..
            } if amount <= Credits::ZERO => refuse("must be positive"),
            _ => Ok(()),
        }
    }

    /// Validates a value that was not read from a body.
    pub fn violations(self, reference: Option<&str>) -> Vec<FieldError> {
        let reference = reference.map_or(Ok(()), |reference| REFERENCE.check(reference));
        violations([("amount", self.check()), ("reference", reference)])
    }
}

impl Object for MoveRequest {
    const SCHEMA: SchemaName = ("CreditMovementRequest", "Credits to be moved.");
    const EXAMPLE: &'static str =
        r#"{"amount": "250", "kind": "grant", "reference": "invoice-17"}"#;

    fn read(fields: &Fields<'_>) -> Option<Self> {
        let about = "Credits, not 0; negative only in an adjustment. Required but in a refund, \
                     which gives all of the charge back by default.";
        let amount = fields.optional("amount", about, signed_credits());
        let kinds = words().or_say("must be grant, adjustment or refund");
        let kind = fields.required("kind", "What the movement is.", kinds);
        let about = "Of which generation a refund is. Required in a refund, and only allowed \
                     there.";
        let generation = fields.optional("generation", about, generation_id());
        let what = kind.and_then(|kind| Move::new(fields, kind, amount, generation));
        if let Some(Err((code, message))) = what.map(Move::check) {
            fields.error("amount", code, message);
        }
        let about = "What makes the movement happen once; the customer sees it in the ledger.";
        let reference = fields.required("reference", about, REFERENCE);
        Some(Self {
            what: what?,
            reference: reference?,
        })
    }
}

/// Why an account is suspended.
#[derive(Debug, Clone)]
pub struct SuspensionRequest {
    pub reason: Option<String>,
}

impl Object for SuspensionRequest {
    const SCHEMA: SchemaName = ("SuspensionRequest", "An account to be suspended.");
    const EXAMPLE: &'static str = r#"{"reason": "invoice 17 is unpaid"}"#;

    fn read(fields: &Fields<'_>) -> Option<Self> {
        let reason = "The reason, which only the operator can see.";
        Some(Self {
            reason: fields.optional("reason", reason, REFERENCE),
        })
    }
}
