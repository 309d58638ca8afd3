//! What can be typed.

pub(super) mod client;

use std::{num::NonZeroUsize, path::PathBuf};

use chrono::{DateTime, Utc};
use clap::{Args, Parser, Subcommand, value_parser};
use clap_complete::Shell;
use secrecy::SecretString;

use crate::{
    domain::{
        ability::{Abilities, AbilitiesError},
        credits::Credits,
        ids::GenerationId,
        rate::MAX_PER_MINUTE,
        report::UsageGroup,
        spend::SpendPeriod,
        validate::timestamp,
    },
    request::{GROUPS, LABEL},
};

/// One HTTP API for text, image, video and speech generation, paid from prepaid credits.
#[derive(Debug, Parser)]
#[command(name = "gensvc", version)]
pub(super) struct Arguments {
    /// Read this configuration file instead of that of `GENSVC_CONFIG`. It overrides the built-in
    /// defaults; environment variables override both.
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Print JSON, for scripts.
    #[arg(long, global = true)]
    pub(super) json: bool,
    #[command(subcommand)]
    pub(super) command: Option<Any>,
}

#[derive(Debug, Subcommand)]
pub(super) enum Any {
    #[command(flatten)]
    Server(Command),
    #[command(flatten)]
    Client(client::Command),
    /// Print completions for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print the manual page, or write those of all commands into a folder.
    Man {
        /// Write the pages into this folder.
        #[arg(long, value_name = "FOLDER")]
        folder: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Serve the API (the default).
    Serve(Serving),
    /// Update the database's schema.
    Migrate,
    /// Create, list, change, suspend and delete accounts.
    #[command(subcommand)]
    Account(AccountCommand),
    /// Give or remove the operator role.
    #[command(subcommand)]
    User(UserCommand),
    /// Grant, correct and refund credits.
    #[command(subcommand)]
    Credits(CreditsCommand),
    /// Create, list and revoke API keys.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Create, list and revoke admin tokens.
    #[command(subcommand)]
    Admin(AdminCommand),
    /// Report usage and charges.
    Usage(Usage),
    /// Show and audit the ledger.
    #[command(subcommand)]
    Ledger(LedgerCommand),
    /// Show a generation.
    #[command(subcommand)]
    Generation(GenerationCommand),
    /// Check the stored files.
    #[command(subcommand)]
    Media(MediaCommand),
    /// Check the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Reload the catalogue, or compare its prices with a published list.
    #[command(subcommand)]
    Catalogue(CatalogueCommand),
    /// Print the URL of the database; start, stop and delete the private Postgres.
    #[command(subcommand)]
    Database(DatabaseCommand),
}

#[derive(Debug, Subcommand)]
pub(super) enum CatalogueCommand {
    /// Apply changed models and prices of the configuration file on every server of the database,
    /// without a restart. Each server logs the result.
    Reload,
    /// Compare the prices and limits of text models, without markup, with a copy of `LiteLLM`'s file
    /// `model_prices_and_context_window.json`. Exits with 1 if they differ.
    Check {
        /// The copy of `LiteLLM`'s file.
        file: PathBuf,
    },
}

#[derive(Debug, Default, Args)]
pub(super) struct Serving {
    /// Answer requests, but run, end and delete no generations. Use it for a restored copy of a
    /// database, whose jobs another server may still run.
    #[arg(long)]
    pub(super) paused: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum AccountCommand {
    /// Create an account with its first user.
    Create(NewAccount),
    /// List all accounts, newest first.
    List {
        /// List only the account with a user of this email.
        #[arg(long)]
        email: Option<String>,
    },
    /// Show one account.
    Show(Who),
    /// Set a user's password, read from stdin, and end all of the user's sessions.
    Password {
        /// The email of a user of the account.
        #[arg(long)]
        email: String,
    },
    /// Refuse the account's keys and sessions from now on; its running generations finish.
    Suspend {
        #[command(flatten)]
        who: Who,
        /// The reason, for operators. The account does not see it.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Resume a suspended account.
    Resume(Who),
    /// Change an account's name, or the email of its first user.
    Change {
        #[command(flatten)]
        who: Who,
        /// The new email.
        #[arg(long, required_unless_present = "name")]
        new_email: Option<String>,
        /// The new name.
        #[arg(long)]
        name: Option<String>,
    },
    /// Delete an account permanently: its users, keys, templates, webhooks, prompts, results and
    /// files. The ledger is kept.
    Delete {
        #[command(flatten)]
        who: Who,
        /// Confirm the deletion, which cannot be undone.
        #[arg(long)]
        yes: bool,
    },
}

/// One account.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct Who {
    /// The email of a user of the account.
    #[arg(long)]
    pub(super) email: Option<String>,
    /// The account's id.
    #[arg(long)]
    pub(super) id: Option<i64>,
}

#[derive(Debug, Subcommand)]
pub(super) enum UserCommand {
    /// Give a user the operator role, which opens the operator's pages of the console.
    Operator {
        /// The user's email.
        #[arg(long)]
        email: String,
        /// Remove the role.
        #[arg(long)]
        revoke: bool,
    },
}

#[derive(Debug, Args)]
pub(super) struct NewAccount {
    /// The first user's email.
    #[arg(long)]
    pub(super) email: String,
    /// The first user's password, 8 to 1,024 characters. By default it is read from stdin, so that
    /// neither the shell's history nor the list of processes shows it.
    #[arg(long)]
    pub(super) password: Option<SecretString>,
    /// The account's name; by default the part of the email before `@`.
    #[arg(long)]
    pub(super) name: Option<String>,
    /// The number of credits to grant immediately.
    #[arg(long, default_value = "0", allow_negative_numbers = true)]
    pub(super) credits: Credits,
}

#[derive(Debug, Subcommand)]
pub(super) enum CreditsCommand {
    /// Add credits to an account.
    Grant(Movement),
    /// Correct a balance; a negative amount takes credits back.
    Adjust(Adjustment),
    /// Refund the charge of a generation, once.
    Refund(Refund),
}

#[derive(Debug, Args)]
pub(super) struct Movement {
    /// The email of a user of the account.
    #[arg(long)]
    pub(super) email: String,
    /// The number of credits.
    #[arg(long, allow_negative_numbers = true)]
    pub(super) amount: Credits,
    /// A note for the ledger. The account sees it.
    #[arg(long)]
    pub(super) reference: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct Adjustment {
    /// The email of a user of the account.
    #[arg(long)]
    pub(super) email: String,
    /// The number of credits, negative to take some back.
    #[arg(long, allow_negative_numbers = true)]
    pub(super) amount: Credits,
    /// The reason, for the ledger. The account sees it.
    #[arg(long)]
    pub(super) reference: String,
}

#[derive(Debug, Args)]
pub(super) struct Refund {
    /// The generation's UUID.
    #[arg(long, value_name = "UUID", value_parser = generation)]
    pub(super) generation: GenerationId,
    /// The number of credits; by default the whole charge.
    #[arg(long, allow_negative_numbers = true)]
    pub(super) amount: Option<Credits>,
    /// The reason, for the ledger. The account sees it.
    #[arg(long)]
    pub(super) reference: String,
}

pub(super) fn generation(text: &str) -> Result<GenerationId, &'static str> {
    GenerationId::parse(text).ok_or("must be a uuid")
}

#[derive(Debug, Subcommand)]
pub(super) enum KeyCommand {
    /// Create an API key and print it. It cannot be shown again.
    Create(NewKey),
    /// List the API keys of an account, newest first.
    List {
        /// The email of a user of the account.
        #[arg(long)]
        email: String,
    },
    /// Revoke an API key, immediately and permanently.
    Revoke {
        /// The email of a user of the account.
        #[arg(long)]
        email: String,
        /// The key's id.
        #[arg(long)]
        id: i64,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum AdminCommand {
    /// Create, list and revoke admin tokens, the credentials for /v1/admin.
    #[command(subcommand)]
    Token(TokenCommand),
}

#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Create an admin token and print it. It cannot be shown again.
    Create {
        /// The token's name.
        #[arg(long, value_parser = label)]
        name: String,
    },
    /// List all admin tokens, newest first.
    List,
    /// Revoke an admin token, immediately and permanently.
    Revoke {
        /// The token's id.
        #[arg(long)]
        id: i64,
    },
}

#[derive(Debug, Args)]
pub(super) struct NewKey {
    /// The email of a user of the account.
    #[arg(long)]
    pub(super) email: String,
    /// The key's name.
    #[arg(long, value_parser = label)]
    pub(super) name: String,
    /// The abilities of the key, separated by commas; all by default.
    #[arg(long, value_parser = abilities)]
    pub(super) abilities: Option<Abilities>,
    /// The maximum requests per minute; 600 by default.
    #[arg(long, allow_negative_numbers = true,
        value_parser = value_parser!(u32).range(1..=i64::from(MAX_PER_MINUTE)))]
    pub(super) rate_limit: Option<u32>,
    /// The time at which the key expires, such as 2030-01-31T12:00:00Z; never by default.
    #[arg(long, value_parser = time)]
    pub(super) expires_at: Option<DateTime<Utc>>,
    /// The maximum credits that the key may spend; the whole balance by default.
    #[arg(long, value_parser = spend_limit, allow_negative_numbers = true)]
    pub(super) spend_limit: Option<Credits>,
    /// Reset the spend limit every day or month, in UTC: `day` or `month`. Never by default.
    #[arg(long, value_parser = spend_period, requires = "spend_limit")]
    pub(super) spend_period: Option<SpendPeriod>,
}

fn label(text: &str) -> Result<String, String> {
    let refusal = LABEL.check(text).err();
    refusal.map_or(
        Ok(text.to_owned()),
        |(_, message)| Err(message.into_owned()),
    )
}

fn abilities(text: &str) -> Result<Abilities, String> {
    let names: Vec<&str> = text.split(',').collect();
    let sentence = |(at, message): AbilitiesError| match at {
        Some(at) => format!("{} {message}", names[at]),
        None => message.to_owned(),
    };
    Abilities::parse(&names).map_err(|errors| {
        let sentences: Vec<String> = errors.into_iter().map(sentence).collect();
        sentences.join("; ")
    })
}

fn time(text: &str) -> Result<DateTime<Utc>, String> {
    timestamp().parse(text)
}

fn spend_limit(text: &str) -> Result<Credits, String> {
    match text.parse::<Credits>() {
        Ok(credits) if credits < Credits::ZERO => Err("must not be negative".to_owned()),
        credits => credits.map_err(|error| error.to_string()),
    }
}

fn spend_period(text: &str) -> Result<SpendPeriod, &'static str> {
    SpendPeriod::parse(text).ok_or("must be day or month")
}

#[derive(Debug, Args)]
pub(super) struct Usage {
    /// The email of a user of the account; all accounts by default.
    #[arg(long)]
    pub(super) email: Option<String>,
    /// Report the usage of the API key's account. Asks a running server.
    #[arg(long, conflicts_with = "email")]
    pub(super) own: bool,
    /// Start time, such as 2030-01-31T12:00:00Z; 30 days before the end time by default.
    #[arg(long, value_parser = time)]
    pub(super) from: Option<DateTime<Utc>>,
    /// End time, exclusive; now by default.
    #[arg(long, value_parser = time)]
    pub(super) to: Option<DateTime<Utc>>,
    /// Group by any of `day`, `type`, `provider`, `model` and `api_key`, separated by commas.
    #[arg(long, value_parser = groups)]
    pub(super) group_by: Option<Groups>,
}

/// One argument, of which clap must not make several.
type Groups = Vec<UsageGroup>;

fn groups(text: &str) -> Result<Groups, String> {
    GROUPS.parse(text)
}

#[derive(Debug, Subcommand)]
pub(super) enum LedgerCommand {
    /// List the ledger entries of an account, newest first.
    Show {
        /// The email of a user of the account.
        #[arg(long)]
        email: String,
        /// The maximum number of entries.
        #[arg(long, default_value = "100")]
        limit: NonZeroUsize,
    },
    /// Recompute every account and every generation from the ledger. Exits with 1 if they differ.
    Verify {
        /// Check only what was written since the last clean run with this option. The first run
        /// checks everything.
        #[arg(long)]
        since_last: bool,
    },
    /// Recompute and store the spending of keys and the sums of the usage report.
    Recount,
}

#[derive(Debug, Clone, Copy, Subcommand)]
pub(super) enum GenerationCommand {
    /// Show one generation, or what is left of a deleted one.
    Show {
        /// The generation's UUID.
        #[arg(value_name = "UUID", value_parser = generation)]
        id: GenerationId,
    },
}

#[derive(Debug, Clone, Copy, Subcommand)]
pub(super) enum MediaCommand {
    /// Compare the stored files with the database. Exits with 1 if they differ.
    Verify,
}

#[derive(Debug, Clone, Copy, Subcommand)]
pub(super) enum ConfigCommand {
    /// Check the configuration of this command's environment and print what it enables.
    Check,
}

#[derive(Debug, Clone, Copy, Subcommand)]
pub(super) enum DatabaseCommand {
    /// Print the URL of the database, for psql or `pg_dump`.
    Url,
    /// Start the private Postgres; create it if it does not exist.
    Start,
    /// Stop the private Postgres.
    Stop,
    /// Stop and delete the private Postgres with all accounts, credits and generations in it.
    Remove {
        /// Confirm the deletion. Without this option the command only prints what it would delete.
        #[arg(long)]
        yes: bool,
    },
}
