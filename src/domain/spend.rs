//! The spend limit of a key.

use super::named::named_enum;

named_enum!(
    /// How often the spend limit resets, in UTC.
    SpendPeriod {
        Day = "day",
        /// At midnight on the first day of the month.
        Month = "month",
    }
);
