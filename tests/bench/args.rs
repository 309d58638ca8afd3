//! What the run is asked to do.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::cases::Case;

/// Drives gensvc and a bare proxy, and compares them.
#[derive(Debug, Parser)]
pub struct Args {
    /// Which cases, with commas between.
    #[arg(long, value_delimiter = ',', default_value = "accounts,hot,stream")]
    pub cases: Vec<Case>,
    /// How long one slice of the load lasts.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: u64,
    /// How many callers there are at saturation.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub connections: u64,
    /// The gensvc to measure.
    #[arg(long, default_value = env!("CARGO_BIN_EXE_gensvc"))]
    pub server: PathBuf,
    /// Keep the folder of the run, with the servers' logs.
    #[arg(long)]
    pub keep: bool,
    #[command(subcommand)]
    pub role: Option<Role>,
}

/// What a process that the run starts from its own program is for.
#[derive(Debug, Subcommand)]
#[command(hide = true)]
pub enum Role {
    Upstream,
    Proxy { upstream: String },
}
