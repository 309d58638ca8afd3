//! Answers by status.

use std::{collections::BTreeMap, fmt};

/// How many answers had each status; 0: none came in time.
#[derive(Debug, Default)]
pub struct Answers(BTreeMap<u16, usize>);

impl Answers {
    pub fn add(&mut self, status: u16) {
        *self.0.entry(status).or_default() += 1;
    }

    /// How many had this status.
    pub fn of(&self, status: u16) -> usize {
        self.0.get(&status).copied().unwrap_or_default()
    }

    pub fn total(&self) -> usize {
        self.0.values().sum()
    }

    pub fn extend(&mut self, other: Self) {
        for (status, count) in other.0 {
            *self.0.entry(status).or_default() += count;
        }
    }
}

impl FromIterator<u16> for Answers {
    fn from_iter<I: IntoIterator<Item = u16>>(statuses: I) -> Self {
        let mut answers = Self::default();
        statuses.into_iter().for_each(|status| answers.add(status));
        answers
    }
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.0.iter().map(|(status, count)| match status {
            0 => format!("{count} without answer"),
            status => format!("{count} x {status}"),
        });
        f.write_str(&counts.collect::<Vec<_>>().join(", "))
    }
}
