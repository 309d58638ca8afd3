//! How many synchronous generations one account may have at once in this process: a part of what
//! the server takes, and of what each provider takes.

use std::collections::BTreeMap;

use super::{
    ids::AccountId,
    limiter::{Limiter, Permit},
};

#[derive(Debug)]
pub struct Shares {
    server: Limiter<AccountId>,
    /// None of a provider whose own limit is no larger than an account's share.
    providers: BTreeMap<String, Limiter<AccountId>>,
}

/// One synchronous generation, while it runs.
#[derive(Debug)]
#[expect(dead_code, reason = "held, not read")]
pub struct SharePermit(Permit<AccountId>, Option<Permit<AccountId>>);

/// The account has as many as it may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareReached {
    pub most: usize,
    /// `None`: with all providers together.
    pub provider: Option<String>,
}

impl Shares {
    /// `percent`, 1 to 100, of what the `server` and the `providers` take at once, and at least
    /// one.
    pub fn new(
        percent: usize,
        server: usize,
        providers: impl IntoIterator<Item = (String, usize)>,
    ) -> Self {
        let share = |most: usize| (most.saturating_mul(percent) / 100).max(1);
        // Others bound the totals.
        let limiter = |most| Limiter::new(usize::MAX, share(most));
        Self {
            server: limiter(server),
            providers: providers
                .into_iter()
                .filter(|(_, most)| share(*most) < *most)
                .map(|(name, most)| (name, limiter(most)))
                .collect(),
        }
    }

    pub fn try_acquire(
        &self,
        account: AccountId,
        provider: &str,
    ) -> Result<SharePermit, ShareReached> {
        let permit = |limiter: &Limiter<AccountId>, provider: Option<&str>| {
            let permit = limiter.try_acquire(account);
            permit.ok_or_else(|| ShareReached {
                most: limiter.per_key(),
                provider: provider.map(str::to_owned),
            })
        };
        let server = permit(&self.server, None)?;
        let limiter = self.providers.get(provider);
        let of_provider = limiter.map(|limiter| permit(limiter, Some(provider)));
        Ok(SharePermit(server, of_provider.transpose()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of one account there are room for.
    fn room(percent: usize, server: usize, provider: usize) -> (usize, Option<ShareReached>) {
        let shares = Shares::new(percent, server, [("p".to_owned(), provider)]);
        let mut held = Vec::new();
        // As many as the provider takes.
        while held.len() < provider {
            match shares.try_acquire(AccountId(1), "p") {
                Ok(permit) => held.push(permit),
                Err(reached) => return (held.len(), Some(reached)),
            }
        }
        (held.len(), None)
    }

    fn reached(most: usize, provider: Option<&str>) -> (usize, Option<ShareReached>) {
        let provider = provider.map(str::to_owned);
        (most, Some(ShareReached { most, provider }))
    }

    #[test]
    fn a_share_is_rounded_down_and_at_least_one() {
        assert_eq!(room(50, 100, 7), reached(3, Some("p")));
        assert_eq!(room(1, 100_000, 10_000), reached(100, Some("p")));
        assert_eq!(room(1, 100_000, 2), reached(1, Some("p")));
        assert_eq!(room(50, 5, 100), reached(2, None));
        assert_eq!(room(1, 1, 100), reached(1, None));
    }

    #[test]
    fn a_share_of_the_whole_leaves_the_refusal_to_the_whole() {
        assert_eq!(room(100, 100, 7), (7, None));
        assert_eq!(room(50, 100, 1), (1, None));
    }

    #[test]
    fn a_refusal_by_the_provider_takes_nothing_of_the_server() {
        let shares = Shares::new(50, 4, [("p".to_owned(), 2)]);
        let account = AccountId(1);
        let _first = shares.try_acquire(account, "p").unwrap();
        for _ in 0..8 {
            shares.try_acquire(account, "p").unwrap_err();
        }
        shares.try_acquire(account, "unbounded").unwrap();
        shares.try_acquire(AccountId(2), "p").unwrap();
    }
}
