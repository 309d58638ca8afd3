//! Request bodies of the operator's routes, as the document shows them (see
//! [`crate::api::schema`]).

#![expect(dead_code, reason = "they are documents, not readers")]

use utoipa::ToSchema;

use crate::{
    api::schema::{MAX_CREDITS, credits_given},
    domain::{credits::Credits, ids::GenerationId},
};

/// Credits that move: a string or a number that is exact in six digits; negative ones are taken
/// back.
fn credits_moved() -> utoipa::openapi::schema::Schema {
    use utoipa::openapi::{ObjectBuilder, OneOfBuilder, schema::Type};
    let text = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some(r"^[-+]?[0-9]+(\.[0-9]{1,6}0*)?$"));
    OneOfBuilder::new()
        .description(Some("Credits, not 0; negative only in an adjustment. Required but in a refund, which gives all of the charge back by default."))
        .item(text)
        .item(
            ObjectBuilder::new()
                .schema_type(Type::Number)
                .minimum(Some(-MAX_CREDITS))
                .maximum(Some(MAX_CREDITS)),
        )
        .build()
        .into()
}

/// Credits that an account begins with.
fn credits_begun_with() -> utoipa::openapi::schema::Schema {
    let mut schema = credits_given();
    if let utoipa::openapi::schema::Schema::OneOf(one) = &mut schema {
        one.description = Some("Credits granted at once. Default 0.".to_owned());
    }
    schema
}

/// An account to be made, with its first user.
#[derive(ToSchema)]
#[schema(example = json!({"email": "ann@example.com", "password": "correct horse", "name": "Ann's shop", "credits": "500"}))]
pub struct AccountCreationRequest {
    /// The first user's: one `@`; unique without case.
    #[schema(min_length = 3, max_length = 254, pattern = r"^[^\s@]+@[^\s@]+$")]
    pub email: String,
    /// The first user's.
    #[schema(min_length = 8, max_length = 1_024, pattern = r"\S")]
    pub password: String,
    /// The account's. Default: the email's first part.
    #[schema(nullable, min_length = 1, max_length = 100, pattern = r"\S")]
    pub name: Option<String>,
    #[schema(schema_with = credits_begun_with)]
    pub credits: Option<Credits>,
}

/// How the operator moves credits.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CreditMovementKind {
    /// Bought or given credits.
    Grant,
    /// A correction.
    Adjustment,
    /// What a generation was charged, or a part of it, once.
    Refund,
}

/// Credits to be moved.
#[derive(ToSchema)]
#[schema(example = json!({"amount": "250", "kind": "grant", "reference": "invoice-17"}))]
pub struct CreditMovementRequest {
    #[schema(schema_with = credits_moved)]
    pub amount: Option<Credits>,
    /// What the movement is.
    pub kind: CreditMovementKind,
    /// Of which generation a refund is. Required in a refund, and only allowed there.
    #[schema(nullable)]
    pub generation: Option<GenerationId>,
    /// What makes the movement happen once; the customer sees it in the ledger.
    #[schema(min_length = 1, max_length = 255, pattern = r"\S")]
    pub reference: String,
}
