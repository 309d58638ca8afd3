//! Enums with one name per variant, the same in API, code, database and docs.

/// An enum with a name for each variant.
pub trait Named: Copy + 'static {
    /// The enum's own name in the OpenAPI document.
    const NAME: &'static str;
    /// All variants, in order.
    const ALL: &'static [Self];

    fn as_str(self) -> &'static str;

    fn parse(name: &str) -> Option<Self>;
}

/// Defines an enum with a name per variant, used by serde, the OpenAPI schema, `as_str` and
/// `parse`.
macro_rules! named_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash,
            serde::Serialize, serde::Deserialize,
        )]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $text)] $variant,)+
        }

        impl $name {
            /// In order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name in API, code, database and docs.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            pub fn parse(name: &str) -> Option<Self> {
                match name { $($text => Some(Self::$variant),)+ _ => None }
            }
        }

        impl crate::domain::named::Named for $name {
            const NAME: &'static str = stringify!($name);
            const ALL: &'static [Self] = Self::ALL;

            fn as_str(self) -> &'static str {
                self.as_str()
            }

            fn parse(name: &str) -> Option<Self> {
                Self::parse(name)
            }
        }

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                utoipa::openapi::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::schema::Type::String)
                    .enum_values(Some([$($text,)+]))
                    .into()
            }
        }

        impl utoipa::ToSchema for $name {
            fn name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

pub(crate) use named_enum;
