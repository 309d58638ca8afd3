//! Randomly mutated input from clients and upstreams. Every run tries a few cases, always the same;
//! `make fuzz` tries many, from a seed that it prints.

mod answers;
mod bytes;
mod json;
mod links;
mod requests;
mod streams;
mod templates;
mod webhooks;

use std::fmt::Debug;

use proptest::{
    strategy::Strategy,
    test_runner::{Config, RngSeed, TestRunner},
};
use tokio::runtime::Handle;

/// How many cases a test runs.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// In every run.
    pub small: u32,
    /// With a large run's number of cases, this test runs one per `cost`.
    pub cost: u32,
}

impl Size {
    fn cases(self) -> u32 {
        let asked = number("FUZZ_CASES");
        asked.map_or(self.small, |n| {
            let large = n / u64::from(self.cost);
            u32::try_from(large).unwrap().max(self.small)
        })
    }
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

/// Runs `test` on cases of `strategy`, and reports the smallest one that fails.
pub async fn check<S, T, F>(size: Size, strategy: S, test: T)
where
    S: Strategy + Send + 'static,
    S::Value: Debug,
    T: Fn(S::Value) -> F + Send + 'static,
    F: Future<Output = ()>,
{
    let seed = number("PROPTEST_RNG_SEED").unwrap_or(1);
    let config = Config {
        cases: size.cases(),
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        // A case may take a while.
        max_shrink_iters: 300,
        ..Config::default()
    };
    let handle = Handle::current();
    // The runner is not asynchronous, and the tests' runtime has one thread.
    let running = tokio::task::spawn_blocking(move || {
        let run = TestRunner::new(config).run(&strategy, |case| {
            handle.block_on(test(case));
            Ok(())
        });
        run.map_err(|error| error.to_string())
    });
    if let Err(error) = running.await.unwrap() {
        panic!("{error}\nof the cases from PROPTEST_RNG_SEED={seed}");
    }
}
