//! The share of a resource that one account's generations may use at once.

/// Returns `percent` (1 to 100) of `total`, at least 1.
pub fn share(percent: usize, total: usize) -> usize {
    (total.saturating_mul(percent) / 100).max(1)
}

/// The error when an account has its maximum number of running generations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareReached {
    pub most: usize,
    /// `None`: the limit of synchronous generations with all providers together.
    pub provider: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_rounded_down_and_at_least_one() {
        for (percent, total, expected) in [
            (50, 7, 3),
            (50, 1, 1),
            (1, 10_000, 100),
            (1, 2, 1),
            (100, 7, 7),
            (100, usize::MAX, usize::MAX / 100),
        ] {
            assert_eq!(share(percent, total), expected, "{percent} % of {total}");
        }
    }
}
