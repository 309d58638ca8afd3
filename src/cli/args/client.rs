//! What can be typed to a client of a running server.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::domain::{credits::Credits, ids::GenerationId};

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum Command {
    /// Generate a text, images, a video or speech on a running server.
    #[command(subcommand)]
    Generate(Kind),
    /// Upload an image and print its id, for `--input` of later commands.
    Upload {
        /// A PNG, JPEG or WebP file of at most 20 MiB.
        file: PathBuf,
    },
    /// Estimate the cost of a generation.
    #[command(subcommand)]
    Estimate(Kind),
    /// List generations, newest first.
    History(History),
    /// Show one generation.
    Show(Shown),
    /// Cancel a running generation and release its hold.
    Cancel(Shown),
    /// Show the credits of the API key's account.
    Balance,
    /// Store an API key for the client; `GENSVC_API_KEY` and `GENSVC_BASE_URL` override it.
    Login {
        /// The server's URL.
        #[arg(long, value_name = "URL")]
        base_url: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum Kind {
    /// A text, printed as it arrives.
    Text(Text),
    /// One or more images.
    Image(Image),
    /// A video.
    Video(Video),
    /// Speech.
    Audio(Audio),
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Common {
    /// The prompt; read from stdin if it is `-` or left out.
    pub(in crate::cli) prompt: Option<String>,
    /// The provider; the account's default if left out.
    #[arg(long)]
    pub(in crate::cli) provider: Option<String>,
    /// The model; the provider's default if left out.
    #[arg(long)]
    pub(in crate::cli) model: Option<String>,
    /// Refuse the request if it may cost more than this many credits.
    #[arg(long, value_name = "CREDITS")]
    pub(in crate::cli) max_cost: Option<Credits>,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Text {
    #[command(flatten)]
    pub(in crate::cli) common: Common,
    /// The system prompt.
    #[arg(long)]
    pub(in crate::cli) system: Option<String>,
    /// The maximum tokens of the answer.
    #[arg(long)]
    pub(in crate::cli) max_tokens: Option<u32>,
    /// The sampling temperature, 0.0 to 2.0.
    #[arg(long)]
    pub(in crate::cli) temperature: Option<f64>,
    /// The id of a template.
    #[arg(long, value_name = "ID")]
    pub(in crate::cli) template: Option<i64>,
    /// A variable of the template. Repeatable.
    #[arg(long = "var", value_name = "NAME=VALUE", requires = "template", value_parser = pair)]
    pub(in crate::cli) variables: Vec<(String, String)>,
}

fn pair(text: &str) -> Result<(String, String), &'static str> {
    let pair = text.split_once('=').ok_or("must be NAME=VALUE")?;
    Ok((pair.0.to_owned(), pair.1.to_owned()))
}

/// Where files go.
#[derive(Debug, Args)]
pub(in crate::cli) struct Files {
    /// The file to write, `-` for stdout; several images get numbers. An image is converted to the
    /// format of its extension: png, jpg or webp. Without this option the links are printed.
    #[arg(short, long, value_name = "FILE")]
    pub(in crate::cli) output: Option<PathBuf>,
    /// Overwrite existing files.
    #[arg(long, requires = "output")]
    pub(in crate::cli) force: bool,
}

/// Input images.
#[derive(Debug, Args)]
pub(in crate::cli) struct Inputs {
    /// An input image: a file, an id of `gensvc upload`, or the UUID of an image generation, with
    /// `/1` for its second image. Repeatable.
    #[arg(long = "input", value_name = "FILE|UPLOAD|UUID")]
    pub(in crate::cli) inputs: Vec<String>,
    /// The role of the input at the same position: source, mask, reference, `first_frame` or
    /// `last_frame`. Default: source for images, `first_frame` for videos.
    #[arg(long = "role", value_name = "ROLE", requires = "inputs")]
    pub(in crate::cli) roles: Vec<String>,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Image {
    #[command(flatten)]
    pub(in crate::cli) common: Common,
    #[command(flatten)]
    pub(in crate::cli) inputs: Inputs,
    #[command(flatten)]
    pub(in crate::cli) files: Files,
    /// The size in pixels, such as 1024x1024.
    #[arg(long)]
    pub(in crate::cli) size: Option<String>,
    /// The quality: `standard` or `hd`.
    #[arg(long)]
    pub(in crate::cli) quality: Option<String>,
    /// The style: `vivid` or `natural`.
    #[arg(long)]
    pub(in crate::cli) style: Option<String>,
    /// The number of images. Each is charged.
    #[arg(short)]
    pub(in crate::cli) n: Option<u32>,
    /// What the images must not show.
    #[arg(long)]
    pub(in crate::cli) negative_prompt: Option<String>,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Video {
    #[command(flatten)]
    pub(in crate::cli) common: Common,
    #[command(flatten)]
    pub(in crate::cli) inputs: Inputs,
    #[command(flatten)]
    pub(in crate::cli) files: Files,
    /// The duration in seconds.
    #[arg(long)]
    pub(in crate::cli) duration: Option<u32>,
    /// The aspect ratio, such as 16:9.
    #[arg(long)]
    pub(in crate::cli) ratio: Option<String>,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Audio {
    #[command(flatten)]
    pub(in crate::cli) common: Common,
    #[command(flatten)]
    pub(in crate::cli) files: Files,
    /// A voice of the model.
    #[arg(long)]
    pub(in crate::cli) voice: Option<String>,
    /// The speed of the speech, 0.25 to 4.0.
    #[arg(long)]
    pub(in crate::cli) speed: Option<f64>,
    /// The format: `mp3` or `wav`; by default that of the output file's extension, otherwise mp3.
    #[arg(long)]
    pub(in crate::cli) format: Option<String>,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct History {
    /// List only this type: text, image, video or audio.
    #[arg(long = "type", value_name = "TYPE")]
    pub(in crate::cli) kind: Option<String>,
    /// List only this status: pending, processing, completed or failed.
    #[arg(long)]
    pub(in crate::cli) status: Option<String>,
    /// List only generations of this provider.
    #[arg(long)]
    pub(in crate::cli) provider: Option<String>,
    /// List only generations of this model.
    #[arg(long)]
    pub(in crate::cli) model: Option<String>,
    /// List only generations with this text in the prompt, ignoring case. Searches the newest
    /// 10,000.
    #[arg(long)]
    pub(in crate::cli) prompt: Option<String>,
    /// The maximum number of generations, 1 to 100.
    #[arg(long, default_value = "20")]
    pub(in crate::cli) limit: u32,
}

#[derive(Debug, Clone, Copy, Args)]
pub(in crate::cli) struct Shown {
    /// The generation's UUID.
    #[arg(value_name = "UUID", value_parser = super::generation)]
    pub(in crate::cli) id: GenerationId,
}
