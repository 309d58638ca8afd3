//! The cap that a key may have on what it spends.

use super::named::named_enum;

named_enum!(
    /// How often the sum begins anew, in UTC.
    SpendPeriod {
        Day = "day",
        /// At midnight of the first.
        Month = "month",
    }
);
