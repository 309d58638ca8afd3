//! An example of each error for the OpenAPI document, created by the code for real errors.

use super::{ApiError, Code};
use crate::{
    domain::{
        ability::Ability,
        credits::Credits,
        generation::FailureCode,
        rate::RateState,
        share::ShareReached,
        validate::{FieldCode, FieldError},
    },
    media::LinkError,
    service::{CreditsShort, ServiceError, ShortOf, TokenRefusal},
    store::credits::{Balance, SpendLimit},
};

const ONE: i64 = 1_000_000;

impl ApiError {
    /// Creates a plausible error of a route that needs `ability`.
    #[expect(clippy::too_many_lines, reason = "one arm for each code")]
    pub fn example(code: Code, ability: Option<&str>) -> Self {
        let named = ability.and_then(Ability::parse);
        let named = named.unwrap_or(match ability {
            // The ability that errors name if any of several would do.
            Some("generate:*") => Ability::GenerateImage,
            _ => Ability::GenerateVideo,
        });
        // The error of a failed generation has the failure's code.
        let failed = |message: &str| match FailureCode::parse(code.as_str()) {
            Some(failure) => Self::failed(failure, message, None),
            None => Self::internal(),
        };
        let refused = match code {
            Code::MissingToken => return Self::token(TokenRefusal::Missing),
            Code::InvalidToken => return Self::token(TokenRefusal::Invalid),
            Code::RevokedKey => return Self::token(TokenRefusal::Revoked),
            Code::ExpiredKey => return Self::token(TokenRefusal::Expired),
            Code::MalformedJson => return Self::malformed_json("the body ended too early"),
            Code::InvalidHeader => {
                return Self::invalid_header(
                    "Idempotency-Key must be given once, as 1 to 255 visible ASCII characters",
                );
            }
            Code::LoopbackOnly => return Self::loopback_only(),
            Code::InvalidSignature => return Self::link(LinkError::InvalidSignature),
            Code::ExpiredSignature => return Self::link(LinkError::Expired),
            Code::MethodNotAllowed => return Self::method_not_allowed("POST"),
            Code::RequestTimeout
            | Code::PayloadTooLarge
            | Code::UnsupportedMediaType
            | Code::HeadersTooLarge => return Self::from_status(code.status()),
            Code::RangeNotSatisfiable => return Self::range(81_920),
            Code::InternalError => return Self::internal(),
            Code::Overloaded => return Self::overloaded(),
            Code::DatabaseUnavailable => return Self::database_unavailable(),
            Code::StorageUnavailable => return Self::storage_unavailable(),
            Code::ReferenceReused => {
                return Self::new(
                    code,
                    "the reference was used for another movement: grant 250 (ledger entry 17)",
                );
            }
            Code::ModelRetired => {
                let message = "is openai/gpt-4.1, which was retired on 2027-01-14: use \
                               openai/gpt-6-luna";
                return Self::invalid(vec![FieldError {
                    replacement: Some("openai/gpt-6-luna".to_owned()),
                    ..FieldError::new("model", FieldCode::ModelRetired, message)
                }]);
            }
            Code::Cancelled => return failed("the generation was cancelled"),
            Code::ProviderError => return failed("the provider failed"),
            Code::ProviderRejected => return failed("the provider rejected the request"),
            Code::ContextLengthExceeded => {
                return failed("prompt is too long: 210000 tokens > 200000 maximum");
            }
            Code::ContentPolicy => return failed("the provider refused the content by its policy"),
            Code::ProviderOverloaded => return failed("the provider is overloaded"),
            Code::ProviderTimeout => return failed("the provider did not answer in time"),
            Code::InvalidCredentials => ServiceError::InvalidCredentials,
            Code::InsufficientCredits => short(ShortOf::Balance, named),
            Code::MaxCostExceeded => short(ShortOf::MaxCost, named),
            Code::SpendLimitExceeded => {
                let limit = SpendLimit {
                    limit: Credits::from_micros(5 * ONE),
                    spent: Credits::from_micros(4 * ONE),
                    held: Credits::ZERO,
                };
                short(ShortOf::SpendLimit(limit), named)
            }
            Code::CreditsOnHold => short(ShortOf::Holds, named),
            Code::MissingAbility if ability == Some("admin") => ServiceError::AdminRequired,
            Code::MissingAbility => ServiceError::MissingAbility(match ability {
                Some("generate:*") => "generate:*",
                _ => named.as_str(),
            }),
            Code::SessionRequired => ServiceError::SessionRequired,
            Code::AccountSuspended => ServiceError::Suspended,
            Code::NotFound => ServiceError::NotFound,
            Code::AlreadyFinished => ServiceError::AlreadyFinished,
            Code::NotFinished => ServiceError::NotFinished,
            Code::IdempotencyInProgress => ServiceError::IdempotencyInProgress,
            Code::IdempotencyKeyReused => ServiceError::IdempotencyKeyReused,
            Code::ValidationFailed => ServiceError::field(
                "prmpt",
                FieldCode::UnknownField,
                "is not a field of this request",
            ),
            Code::RateLimited => ServiceError::RateLimited(RateState {
                limit: 600,
                remaining: 0,
                reset_seconds: 60,
                retry_after_seconds: Some(1),
            }),
            Code::TooManyLogins => ServiceError::TooManyLogins(840),
            Code::TooManyJobs => ServiceError::TooManyJobs(10),
            Code::TooManyRequests => ServiceError::TooManyRequests(ShareReached {
                most: 32,
                provider: None,
            }),
            Code::ShuttingDown => ServiceError::ShuttingDown,
            Code::Paused => ServiceError::Paused,
        };
        refused.into()
    }
}

/// 10 credits, for which 7 are there, or 1 of a spend limit: of 4 images or seconds, or 4,000
/// tokens or characters.
fn short(of: ShortOf, ability: Ability) -> ServiceError {
    let (balance, held) = match of {
        ShortOf::Balance => (7 * ONE, 0),
        ShortOf::Holds => (12 * ONE, 5 * ONE),
        ShortOf::MaxCost | ShortOf::SpendLimit(_) | ShortOf::HoldsOfKey(_) => (250 * ONE, 0),
    };
    let (shortfall, affordable) = match (&of, ability) {
        (ShortOf::SpendLimit(_), _) => (9 * ONE, None),
        (_, Ability::GenerateText) => (3 * ONE, Some(("max_tokens", 2_790))),
        (_, Ability::GenerateImage) => (3 * ONE, Some(("n", 2))),
        (_, Ability::GenerateAudio) => (3 * ONE, Some(("characters", 2_800))),
        _ => (3 * ONE, Some(("duration", 2))),
    };
    ServiceError::CreditsShort(Box::new(CreditsShort {
        of,
        required: Credits::from_micros(10 * ONE),
        balance: Balance {
            balance: Credits::from_micros(balance),
            held: Credits::from_micros(held),
        },
        shortfall: Credits::from_micros(shortfall),
        affordable,
    }))
}
