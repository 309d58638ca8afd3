//! Properties of random runs: sequential steps that must match the model exactly, and concurrent
//! workers on several servers, whose total must match the model's for their outcomes.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use chrono::{DateTime, TimeDelta, Utc};
use futures_util::future::join_all;
use gensvc::domain::ids::GenerationId;
use proptest::{collection::vec, strategy::Strategy as _};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{
    cast::Cast,
    model::{Model, Verdict, What},
    steps::{ACCOUNTS, KEYS, Step, part_of, step, timed_step},
    world::{Opening, World},
};
use crate::fuzz::{Size, check};

/// Unfinished generations that an account may have.
const MOST: i32 = 7;

fn start() -> DateTime<Utc> {
    // Close to the end of a month.
    "2027-01-30T20:00:00Z".parse().unwrap()
}

#[sqlx::test]
async fn each_step_does_as_the_model_says(_: PgPoolOptions, options: PgConnectOptions) {
    let world = Arc::new(World::new(&options));
    let size = Size {
        small: 24,
        cost: 100,
    };
    check(size, vec(timed_step(), 1..80), move |steps| {
        let world = Arc::clone(&world);
        async move {
            let mut now = start();
            let cast = world.cast(now).await;
            let mut model = cast.model.clone();
            let mut openings: Vec<Opening> = Vec::new();
            for step in &steps {
                if let Step::Wait { hours } = step {
                    now += TimeDelta::hours(*hours);
                }
                let picked = match step {
                    Step::Settle { which, .. } | Step::Refund { which, .. } => {
                        model.pick(*which).map(|n| openings[n])
                    }
                    _ => None,
                };
                let expected = model.apply(step, MOST, now);
                let (found, opened) = world.run(&cast, step, picked, MOST, now).await;
                assert_eq!(found, expected, "{step:?}");
                openings.extend(opened);
                world.assert_agrees(&cast, &model, now).await;
            }
            world.assert_verified().await;
        }
    })
    .await;
}

/// State shared by the workers of a run.
struct Run {
    world: Arc<World>,
    cast: Cast,
    openings: Mutex<Vec<Opening>>,
    /// Keys that were revoked and accounts that were suspended before now.
    revoked: Vec<AtomicBool>,
    suspended: Vec<AtomicBool>,
    done: Mutex<Vec<Done>>,
}

/// A completed step.
struct Done {
    step: Step,
    about: Option<GenerationId>,
    verdict: Verdict,
    at: DateTime<Utc>,
}

impl Run {
    async fn work(&self, steps: &[(Step, bool)]) {
        for (step, late) in steps {
            // Work of two days at once, as clocks of servers may differ.
            let at = start() + TimeDelta::hours(if *late { 6 } else { 0 });
            let picked = match step {
                Step::Settle { which, .. } | Step::Refund { which, .. } => self.pick(*which),
                _ => None,
            };
            let closed = match step {
                Step::Open { key, .. } => {
                    let account = self.cast.model.keys[*key].account;
                    let set = |flag: &AtomicBool| flag.load(Ordering::SeqCst);
                    set(&self.revoked[*key]) || set(&self.suspended[account])
                }
                _ => false,
            };
            let running = self.world.run(&self.cast, step, picked, i32::MAX, at);
            let (verdict, opened) = running.await;
            match step {
                Step::Revoke { key, .. } => self.revoked[*key].store(true, Ordering::SeqCst),
                Step::Suspend { account, .. } => {
                    self.suspended[*account].store(true, Ordering::SeqCst);
                }
                _ => {}
            }
            assert!(
                !closed || [Verdict::Ended, Verdict::Suspended].contains(&verdict),
                "{verdict:?} after the key was revoked or the account suspended"
            );
            assert_reason(step, verdict);
            self.openings.lock().unwrap().extend(opened);
            self.done.lock().unwrap().push(Done {
                step: step.clone(),
                about: picked.or(opened).map(|opening| opening.id),
                verdict,
                at,
            });
        }
    }

    /// One of the latest, so that the workers compete for the same ones.
    fn pick(&self, which: u16) -> Option<Opening> {
        let openings = self.openings.lock().unwrap();
        let few = openings.len().min(6);
        (few > 0).then(|| openings[openings.len() - 1 - usize::from(which) % few])
    }
}

/// A refusal reports a balance and unfinished count that explain it.
fn assert_reason(step: &Step, verdict: Verdict) {
    let amount = match step {
        Step::Open { amount, .. } => *amount,
        Step::Move { amount, .. } => -amount,
        _ => return,
    };
    match verdict {
        Verdict::Short(balance, held) => assert!(balance - held < amount, "{step:?} {verdict:?}"),
        Verdict::Capped(limit, spent) => assert!(limit - spent < amount, "{step:?} {verdict:?}"),
        _ => {}
    }
}

/// The total of the successes, in any order; each may occur once only.
fn fold(mut model: Model, done: &[Done]) -> Model {
    let mut numbers = BTreeMap::new();
    for one in done.iter().filter(|one| one.verdict == Verdict::Held) {
        let Step::Open {
            key, amount, bind, ..
        } = one.step
        else {
            panic!("{:?} holds nothing", one.step);
        };
        let account = model.keys[key].account;
        assert!(!model.is_bound(account, bind), "{bind:?} is bound twice");
        numbers.insert(one.about.unwrap(), model.generations.len());
        model.hold(key, amount, bind, one.at);
    }
    for one in done
        .iter()
        .filter(|one| one.verdict == Verdict::Finished(true))
    {
        let Step::Settle { charge, .. } = one.step else {
            panic!("{:?} ends nothing", one.step);
        };
        let n = numbers[&one.about.unwrap()];
        let hold = model.generations[n].hold;
        model.settle(n, charge.map_or(0, |part| part_of(hold, part)));
    }
    for one in done.iter().filter(|one| one.verdict == Verdict::Moved) {
        match one.step {
            Step::Move {
                account,
                kind,
                amount,
                reference,
                ..
            } => model.note_move(account, What::Kind(kind), amount, reference),
            Step::Refund {
                amount, reference, ..
            } => {
                model.note_refund(numbers[&one.about.unwrap()], amount, reference);
            }
            _ => panic!("{:?} moves nothing", one.step),
        }
    }
    for one in done {
        match (&one.step, one.verdict) {
            (Step::Open { key, bind, .. }, Verdict::KeyBound) => {
                assert!(model.is_bound(model.keys[*key].account, *bind));
            }
            (Step::Open { .. }, Verdict::TooMany) => panic!("too many of no end"),
            (
                Step::Move {
                    account,
                    kind,
                    amount,
                    reference,
                    ..
                },
                Verdict::Repeated(before) | Verdict::ReferenceUsed(before),
            ) => {
                let (moved, what) = model.moved_by(*account, *reference).unwrap();
                let same = (moved, what) == (*amount, What::Kind(*kind));
                assert_eq!(same, one.verdict == Verdict::Repeated(before));
                assert_eq!(moved, before);
            }
            (
                Step::Refund { reference, .. },
                Verdict::Repeated(before) | Verdict::ReferenceUsed(before),
            ) => {
                let n = numbers[&one.about.unwrap()];
                let account = model.generations[n].account;
                let (moved, what) = model.moved_by(account, Some(*reference)).unwrap();
                assert_eq!(moved, before);
                let repeated = one.verdict == Verdict::Repeated(before);
                assert!(!repeated || what == What::Refund(n));
            }
            (Step::Refund { .. }, Verdict::Before(amount)) => {
                let n = numbers[&one.about.unwrap()];
                assert_eq!(model.refunded(n), Some(amount));
            }
            _ => {}
        }
    }
    model
}

#[sqlx::test]
async fn whatever_is_done_at_once_adds_up(_: PgPoolOptions, options: PgConnectOptions) {
    let world = Arc::new(World::new(&options));
    let size = Size {
        small: 16,
        cost: 100,
    };
    // A suspended account stays suspended: then the expected refusals are known.
    let lasting = step().prop_map(|mut step| {
        if let Step::Suspend { suspended, .. } = &mut step {
            *suspended = true;
        }
        step
    });
    let worker = vec((lasting, proptest::bool::ANY), 1..20);
    check(size, vec(worker, 2..8), move |workers| {
        let world = Arc::clone(&world);
        async move {
            let cast = world.cast(start()).await;
            let flags = |n: usize| (0..n).map(|_| AtomicBool::new(false)).collect();
            let run = Run {
                world: Arc::clone(&world),
                cast,
                openings: Mutex::default(),
                revoked: flags(ACCOUNTS * KEYS),
                suspended: flags(ACCOUNTS),
                done: Mutex::default(),
            };
            join_all(workers.iter().map(|steps| run.work(steps))).await;
            let done = run.done.into_inner().unwrap();
            let model = fold(run.cast.model.clone(), &done);
            for hours in [0, 6] {
                let at = start() + TimeDelta::hours(hours);
                world.assert_agrees(&run.cast, &model, at).await;
            }
            world.assert_verified().await;
        }
    })
    .await;
}
