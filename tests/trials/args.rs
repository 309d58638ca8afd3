//! Command line arguments.

use std::path::PathBuf;

/// What every trial has.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// How many rounds.
    #[arg(long, default_value_t = 20)]
    pub rounds: u32,
    /// Seed of all randomness; random when not given.
    #[arg(long, default_value_t = fastrand::u64(1..1_000_000))]
    pub seed: u64,
    /// Duration of the load of a round, in seconds.
    #[arg(long, default_value_t = 5)]
    pub seconds: u64,
    /// Stop after the first round with a violation.
    #[arg(long)]
    pub fail_fast: bool,
    /// Keep the folder of the run, with the servers' logs.
    #[arg(long)]
    pub keep: bool,
    /// Give the servers correct clocks, even if libfaketime is installed.
    #[arg(long)]
    pub true_clocks: bool,
    /// How many clients send requests.
    #[arg(long, default_value_t = 20)]
    pub clients: u32,
    /// The program of the previous release, for servers of two versions.
    #[arg(long)]
    pub previous: Option<PathBuf>,
    /// The program of an S3 server to store files on, instead of a folder.
    #[arg(long)]
    pub s3: Option<PathBuf>,
}

impl Args {
    /// A separate random generator for each part of a run, so that no part depends on how far
    /// another one got.
    pub fn rng(&self, part: &str) -> fastrand::Rng {
        // FNV-1a: any hash will do, as long as it is the same everywhere.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for byte in part.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        fastrand::Rng::with_seed(hash)
    }
}
