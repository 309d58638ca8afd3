//! What can be typed.

pub(super) mod client;

use std::{num::NonZeroUsize, path::PathBuf};

use chrono::{DateTime, Utc};
use clap::{Args, Parser, Subcommand, value_parser};
use clap_complete::Shell;
use secrecy::SecretString;

use crate::domain::{
    ability::{Abilities, AbilitiesError},
    credits::Credits,
    ids::GenerationId,
    rate::MAX_PER_MINUTE,
    report::UsageGroup,
    request::{GROUPS, LABEL},
    spend::SpendPeriod,
    validate::timestamp,
};

/// One HTTP API for text, image, video and speech generation, paid from prepaid credits.
#[derive(Debug, Parser)]
#[command(name = "gensvc", version)]
pub(super) struct Arguments {
    /// A configuration file over the built-in defaults, else that of `GENSVC_CONFIG`; variables
    /// override both.
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Output for scripts.
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
        /// Which shell.
        shell: Shell,
    },
    /// Print the manual page, or write those of all commands into a folder.
    Man {
        /// The folder.
        #[arg(long, value_name = "FOLDER")]
        folder: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Serve the API (the default).
    Serve(Serving),
    /// Bring the database's schema up to date.
    Migrate,
    /// Make, list and suspend accounts.
    #[command(subcommand)]
    Account(AccountCommand),
    /// Make a person an operator.
    #[command(subcommand)]
    User(UserCommand),
    /// Grant, correct and refund credits.
    #[command(subcommand)]
    Credits(CreditsCommand),
    /// Make, list and revoke API keys.
    #[command(subcommand)]
    Key(KeyCommand),
    /// What the operator's own systems call with.
    #[command(subcommand)]
    Admin(AdminCommand),
    /// Report what was made and used.
    Usage(Usage),
    /// Show and audit the ledger.
    #[command(subcommand)]
    Ledger(LedgerCommand),
    /// Look at generations.
    #[command(subcommand)]
    Generation(GenerationCommand),
    /// Look at stored files.
    #[command(subcommand)]
    Media(MediaCommand),
    /// Look at the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Reload the catalogue, or compare its prices with a published list.
    #[command(subcommand)]
    Catalogue(CatalogueCommand),
    /// Find the database; start, stop and delete the private Postgres.
    #[command(subcommand)]
    Database(DatabaseCommand),
}

#[derive(Debug, Subcommand)]
pub(super) enum CatalogueCommand {
    /// Apply the models and prices of the changed configuration file on every server of the
    /// database, without a restart. Each server logs the outcome.
    Reload,
    /// Compare the prices and limits of text models, without markup, with a copy of the file
    /// `model_prices_and_context_window.json` of litellm. Fails if they differ.
    Check {
        /// The copy.
        file: PathBuf,
    },
}

#[derive(Debug, Default, Args)]
pub(super) struct Serving {
    /// Run, end and remove nothing: for a restored copy, whose jobs another server may still run.
    #[arg(long)]
    pub(super) paused: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum AccountCommand {
    /// Make an account with its first user.
    Create(NewAccount),
    /// List all accounts, newest first.
    List {
        /// Only the account that has a user of this email.
        #[arg(long)]
        email: Option<String>,
    },
    /// Show one account.
    Show(Who),
    /// Set a user's password, read from stdin; ends all sessions of the user.
    Password {
        /// The email of a user of the account.
        #[arg(long)]
        email: String,
    },
    /// Refuse the account's tokens from now on; its running work finishes.
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
    /// Let a person see and do in the console what the operator may.
    Operator {
        /// The person's email.
        #[arg(long)]
        email: String,
        /// Take it back.
        #[arg(long)]
        revoke: bool,
    },
}

#[derive(Debug, Args)]
pub(super) struct NewAccount {
    /// The first user's email.
    #[arg(long)]
    pub(super) email: String,
    /// The first user's password, 8 to 1,024 characters. Left out, it is read from stdin, where
    /// neither the shell's history nor the list of processes shows it.
    #[arg(long)]
    pub(super) password: Option<SecretString>,
    /// The account's name; the email's first part by default.
    #[arg(long)]
    pub(super) name: Option<String>,
    /// Credits to grant at once.
    #[arg(long, default_value = "0", allow_negative_numbers = true)]
    pub(super) credits: Credits,
}

#[derive(Debug, Subcommand)]
pub(super) enum CreditsCommand {
    /// Add credits to an account.
    Grant(Movement),
    /// Correct a balance; a negative amount takes credits back.
    Adjust(Adjustment),
    /// Give back what a generation was charged, once.
    Refund(Refund),
}

#[derive(Debug, Args)]
pub(super) struct Movement {
    /// The email of a user of the account.
    #[arg(long)]
    pub(super) email: String,
    /// Credits.
    #[arg(long, allow_negative_numbers = true)]
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
    #[arg(long, allow_negative_numbers = true)]
    pub(super) amount: Credits,
    /// A note for the ledger: why.
    #[arg(long)]
    pub(super) reference: String,
}

#[derive(Debug, Args)]
pub(super) struct Refund {
    /// The generation's uuid.
    #[arg(long, value_name = "UUID", value_parser = generation)]
    pub(super) generation: GenerationId,
    /// Credits; all that it was charged by default.
    #[arg(long, allow_negative_numbers = true)]
    pub(super) amount: Option<Credits>,
    /// A note for the ledger: why.
    #[arg(long)]
    pub(super) reference: String,
}

pub(super) fn generation(text: &str) -> Result<GenerationId, &'static str> {
    GenerationId::parse(text).ok_or("must be a uuid")
}

#[derive(Debug, Subcommand)]
pub(super) enum KeyCommand {
    /// Make an API key; it is shown once.
    Create(NewKey),
    /// List the API keys of an account, newest first.
    List {
        /// The email of a user of the account.
        #[arg(long)]
        email: String,
    },
    /// Revoke an API key, at once and for ever.
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
    /// Tokens for /v1/admin.
    #[command(subcommand)]
    Token(TokenCommand),
}

#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Make an admin token; it is shown once.
    Create {
        /// Its label.
        #[arg(long, value_parser = label)]
        name: String,
    },
    /// List all admin tokens, newest first.
    List,
    /// Revoke an admin token, at once and for ever.
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
    /// Its label.
    #[arg(long, value_parser = label)]
    pub(super) name: String,
    /// What it may call, with commas between; everything by default.
    #[arg(long, value_parser = abilities)]
    pub(super) abilities: Option<Abilities>,
    /// Requests per minute; 600 by default.
    #[arg(long, allow_negative_numbers = true,
        value_parser = value_parser!(u32).range(1..=i64::from(MAX_PER_MINUTE)))]
    pub(super) rate_limit: Option<u32>,
    /// When it ends, such as 2030-01-31T12:00:00Z; never by default.
    #[arg(long, value_parser = time)]
    pub(super) expires_at: Option<DateTime<Utc>>,
    /// Credits that it may spend; the whole balance by default.
    #[arg(long, value_parser = spend_limit, allow_negative_numbers = true)]
    pub(super) spend_limit: Option<Credits>,
    /// The period after which the limit starts again, in UTC: day or month. Never by default.
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
    /// Of the API key's account, asked of a running server.
    #[arg(long, conflicts_with = "email")]
    pub(super) own: bool,
    /// From when on, such as 2030-01-31T12:00:00Z; 30 days before the end by default.
    #[arg(long, value_parser = time)]
    pub(super) from: Option<DateTime<Utc>>,
    /// Until when, exclusive; now by default.
    #[arg(long, value_parser = time)]
    pub(super) to: Option<DateTime<Utc>>,
    /// Any of `day`, `type`, `provider`, `model`, `api_key`, with commas between.
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
    /// List the movements of an account's credits, newest first.
    Show {
        /// The email of a user of the account.
        #[arg(long)]
        email: String,
        /// How many at most.
        #[arg(long, default_value = "100")]
        limit: NonZeroUsize,
    },
    /// Recompute every account and every generation from the ledger.
    Verify {
        /// Only what was written since the last time with this option that found no difference; the
        /// first time everything.
        #[arg(long)]
        since_last: bool,
    },
    /// Recompute the spending of keys and the sums of the usage report.
    Recount,
}

#[derive(Debug, Clone, Copy, Subcommand)]
pub(super) enum GenerationCommand {
    /// Show one generation, also what is left of a deleted one.
    Show {
        /// Its uuid.
        #[arg(value_name = "UUID", value_parser = generation)]
        id: GenerationId,
    },
}

#[derive(Debug, Clone, Copy, Subcommand)]
pub(super) enum MediaCommand {
    /// Compare the stored files with the records that name them.
    Verify,
}

#[derive(Debug, Clone, Copy, Subcommand)]
pub(super) enum ConfigCommand {
    /// Check the configuration and say what it enables.
    Check,
}

#[derive(Debug, Clone, Copy, Subcommand)]
pub(super) enum DatabaseCommand {
    /// Print the URL of the database, for psql or `pg_dump`.
    Url,
    /// Start the private Postgres, made if need be, and keep it running.
    Start,
    /// Stop it.
    Stop,
    /// Stop and delete it, with all accounts, credits and generations in it.
    Remove {
        /// Do it; without, only say what would be deleted.
        #[arg(long)]
        yes: bool,
    },
}
