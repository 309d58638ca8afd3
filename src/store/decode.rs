//! Decodes columns into types of `domain`.
//!
//! Statements select `column as "column: _"`. Invalid values are [`super::StoreError::Corrupt`].

use sqlx::{
    Decode, Postgres, Type,
    error::BoxDynError,
    postgres::{PgHasArrayType, PgTypeInfo, PgValueRef},
};
use uuid::Uuid;

use crate::domain::{
    ability::Abilities,
    credits::Credits,
    generation::{FailureCode, FinishReason, Modality, Status, Surface},
    ids::{
        AccountId, AdminTokenId, ApiKeyId, GenerationId, InstanceId, LedgerEntryId, SessionId,
        TemplateId, UploadId, UserId, WebhookDeliveryId, WebhookId,
    },
    spend::SpendPeriod,
    webhook::{DeliveryStatus, WebhookEvent},
};

macro_rules! decode {
    ([$($type:ident),+] in $column:ty, |$value:ident| $read:expr) => {$(
        impl Type<Postgres> for $type {
            fn type_info() -> PgTypeInfo {
                <$column as Type<Postgres>>::type_info()
            }

            fn compatible(info: &PgTypeInfo) -> bool {
                <$column as Type<Postgres>>::compatible(info)
            }
        }

        impl<'r> Decode<'r, Postgres> for $type {
            fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
                let $value = <$column as Decode<'r, Postgres>>::decode(value)?;
                $read
            }
        }
    )+};
}

decode!([AccountId, AdminTokenId, ApiKeyId, LedgerEntryId, SessionId] in i64, |id| Ok(Self(id)));
decode!([TemplateId, UserId, WebhookDeliveryId, WebhookId] in i64, |id| Ok(Self(id)));
decode!([GenerationId, InstanceId, UploadId] in Uuid, |id| Ok(Self(id)));
decode!([Credits] in i64, |micros| Ok(Self::from_micros(micros)));
decode!([DeliveryStatus, FailureCode, FinishReason, Modality, SpendPeriod, Status, Surface, WebhookEvent] in String, |name| {
    Self::parse(&name).ok_or_else(|| format!("{name:?} is unknown").into())
});
decode!([Abilities] in Vec<String>, |names| {
    Self::parse(&names).map_err(|errors| format!("{names:?}: {errors:?}").into())
});

impl PgHasArrayType for WebhookEvent {
    fn array_type_info() -> PgTypeInfo {
        String::array_type_info()
    }
}
