//! What can be typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::domain::credits::Credits;

/// One HTTP API for text, image, video and speech generation, paid from prepaid credits.
#[derive(Debug, Parser)]
#[command(name = "gensvc", version)]
pub(super) struct Arguments {
    /// A configuration file over the built-in defaults; the environment overrides both.
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Output for scripts.
    #[arg(long, global = true)]
    pub(super) json: bool,
    #[command(subcommand)]
    pub(super) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Serve the API (the default).
    Serve,
    /// Bring the database's schema up to date.
    Migrate,
    /// Make and suspend accounts.
    #[command(subcommand)]
    Account(AccountCommand),
    /// Grant and correct credits.
    #[command(subcommand)]
    Credits(CreditsCommand),
    /// Make API keys.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Audit the ledger.
    #[command(subcommand)]
    Ledger(LedgerCommand),
    /// Look at the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// The private Postgres.
    #[command(subcommand)]
    Database(DatabaseCommand),
}

#[derive(Debug, Subcommand)]
pub(super) enum AccountCommand {
    /// Make an account with its first user.
    Create(NewAccount),
    /// Refuse the account's tokens from now on; its running work finishes.
    Suspend(Email),
    /// Let a suspended account go on.
    Resume(Email),
}

#[derive(Debug, Args)]
pub(super) struct NewAccount {
    /// The first user's email.
    #[arg(long)]
    pub(super) email: String,
    /// The first user's password, 8 to 1,024 characters.
    #[arg(long)]
    pub(super) password: String,
    /// The account's name; the email's first part by default.
    #[arg(long)]
    pub(super) name: Option<String>,
    /// Credits to grant at once.
    #[arg(long, default_value = "0")]
    pub(super) credits: Credits,
}

#[derive(Debug, Args)]
pub(super) struct Email {
    /// The email of a user of the account.
    #[arg(long)]
    pub(super) email: String,
}

#[derive(Debug, Subcommand)]
pub(super) enum CreditsCommand {
    /// Add credits to an account.
    Grant(Movement),
    /// Correct a balance; a negative amount takes credits back.
    Adjust(Adjustment),
}

#[derive(Debug, Args)]
pub(super) struct Movement {
    /// The email of a user of the account.
    #[arg(long)]
    pub(super) email: String,
    /// Credits.
    #[arg(long)]
    pub(super) amount: Credits,
    /// A note for the ledger.
    #[arg(long)]
    pub(super) reference: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct Adjustment {
    /// The email of a user of the account.
    #[arg(long)]
    pub(super) email: String,
    /// Credits; may be negative.
    #[arg(long, allow_hyphen_values = true)]
    pub(super) amount: Credits,
    /// A note for the ledger: why.
    #[arg(long)]
    pub(super) reference: String,
}

#[derive(Debug, Subcommand)]
pub(super) enum KeyCommand {
    /// Make an API key; it is shown once.
    Create(NewKey),
}

#[derive(Debug, Args)]
pub(super) struct NewKey {
    /// The email of a user of the account.
    #[arg(long)]
    pub(super) email: String,
    /// Its label.
    #[arg(long)]
    pub(super) name: String,
    /// What it may call, with commas between; everything by default.
    #[arg(long, value_delimiter = ',')]
    pub(super) abilities: Option<Vec<String>>,
    /// Requests per minute; 600 by default.
    #[arg(long)]
    pub(super) rate_limit: Option<i64>,
    /// When it ends, such as 2030-01-31T12:00:00Z; never by default.
    #[arg(long)]
    pub(super) expires_at: Option<String>,
}

#[derive(Debug, Clone, Copy, Subcommand)]
pub(super) enum LedgerCommand {
    /// Recompute every account and every generation from the ledger.
    Verify,
}

#[derive(Debug, Clone, Copy, Subcommand)]
pub(super) enum ConfigCommand {
    /// Check the configuration and say what it enables.
    Check,
}

#[derive(Debug, Clone, Copy, Subcommand)]
pub(super) enum DatabaseCommand {
    /// Print the URL of the private Postgres.
    Url,
    /// Start the private Postgres and keep it running.
    Start,
    /// Stop it.
    Stop,
}
