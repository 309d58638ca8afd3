//! Runs gensvc and the proxy alternately, so that other load on the machine affects both.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    children::children,
    load::Load,
    outcome::Outcome,
    perf::Count,
    quantile::quantile,
    slice::{self, Figures, Side, float},
    stage::Scene,
};

/// The slice before the first, in which both warm up and their system calls are counted.
const WARM_UP: Duration = Duration::from_secs(1);

/// The slices of both.
#[derive(Default)]
pub struct Comparison {
    pub gensvc: Slices,
    pub proxy: Slices,
}

/// The slices of one.
#[derive(Default)]
pub struct Slices {
    figures: Vec<Figures>,
    /// System calls of the server for each good answer, where they can be counted.
    pub calls: Option<f64>,
    /// And of Postgres.
    pub postgres_calls: Option<f64>,
    /// Answers that were not good, by what they were.
    pub failures: BTreeMap<String, u64>,
}

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    pub slices: u32,
    pub length: Duration,
}

impl Slices {
    /// The median of a figure.
    pub fn median(&self, figure: impl Fn(&Figures) -> f64) -> f64 {
        let values: Vec<f64> = self.figures.iter().map(figure).collect();
        quantile(&values, 0.5)
    }

    async fn add(&mut self, side: &Side<'_>, loads: &[Load], length: Duration) -> Vec<Outcome> {
        let (figures, outcomes) = slice::run(side, loads, length).await;
        self.figures.push(figures);
        self.note_failures(&outcomes);
        outcomes
    }

    fn note_failures(&mut self, outcomes: &[Outcome]) {
        for (what, times) in outcomes.iter().flat_map(|outcome| &outcome.failures) {
            *self.failures.entry(what.clone()).or_default() += times;
        }
    }

    async fn warm_up(&mut self, side: &Side<'_>, loads: &[Load]) {
        let (_, outcomes) = slice::run(side, loads, WARM_UP).await;
        self.note_failures(&outcomes);
        let mut pids = side.pids.clone();
        self.calls = count(&pids, side, loads).await;
        if let Some(postgres) = side.postgres {
            pids = children(postgres.cluster.pid().unwrap());
            self.postgres_calls = count(&pids, side, loads).await;
        }
    }
}

/// System calls of these processes for each answer.
async fn count(pids: &[u32], side: &Side<'_>, loads: &[Load]) -> Option<f64> {
    let count = Count::start(pids).await;
    let (_, outcomes) = slice::run(side, loads, WARM_UP).await;
    let answers: usize = outcomes.iter().map(Outcome::answered).sum();
    Some(count.end().await? / float(u64::try_from(answers).ok()?))
}

impl Comparison {
    /// Runs both alternately. The loads of gensvc run at the same time, and the first is compared
    /// with the proxy's. Also returns the outcome of each of gensvc's loads over all slices.
    pub async fn run(
        scene: &Scene<'_>,
        gensvc: &[Load],
        proxy: &Load,
        extent: Extent,
    ) -> (Self, Vec<Outcome>) {
        let stage = scene.stage;
        let upstream = stage.upstream.0.pid();
        let ours = Side {
            pids: scene.pids(),
            postgres: Some(&stage.postgres),
            upstream,
        };
        let theirs = Side {
            pids: vec![stage.proxy.0.pid()],
            postgres: None,
            upstream,
        };
        let proxy = std::slice::from_ref(proxy);
        let mut both = Self::default();
        let mut all: Vec<Outcome> = gensvc.iter().map(|_| Outcome::default()).collect();
        both.gensvc.warm_up(&ours, gensvc).await;
        both.proxy.warm_up(&theirs, proxy).await;
        for _ in 0..extent.slices {
            let outcomes = both.gensvc.add(&ours, gensvc, extent.length).await;
            for (all, outcome) in all.iter_mut().zip(outcomes) {
                all.merge(outcome);
            }
            both.proxy.add(&theirs, proxy, extent.length).await;
        }
        (both, all)
    }

    /// The median over the slices of the difference between gensvc and the proxy.
    pub fn added(&self, figure: impl Fn(&Figures) -> f64) -> f64 {
        let pairs = self.gensvc.figures.iter().zip(&self.proxy.figures);
        let added: Vec<f64> = pairs
            .map(|(ours, theirs)| figure(ours) - figure(theirs))
            .collect();
        quantile(&added, 0.5)
    }

    pub fn ratio(&self, figure: impl Fn(&Figures) -> f64) -> f64 {
        self.gensvc.median(&figure) / self.proxy.median(&figure)
    }

    pub fn failed(&self) -> bool {
        !(self.gensvc.failures.is_empty() && self.proxy.failures.is_empty())
    }
}

/// CPU of all that serves: the server and, of gensvc, Postgres.
pub fn cpu(figures: &Figures) -> f64 {
    figures.server_cpu + figures.postgres_cpu
}
