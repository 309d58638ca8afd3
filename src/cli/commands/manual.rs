//! Shell completions and manual pages, generated from the arguments.

use std::{fs, io, path::Path, process::ExitCode};

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::cli::{Outcome, args::Arguments, output::Output};

pub(in crate::cli) fn completions(shell: Shell, output: Output) -> Outcome {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "gensvc", &mut text);
    print(text, output)
}

/// Prints the program's page, or writes a file for each command.
pub(in crate::cli) fn pages(folder: Option<&Path>, output: Output) -> Outcome {
    let mut command = Arguments::command().disable_help_subcommand(true);
    if let Some(folder) = folder {
        fs::create_dir_all(folder)?;
        command.build();
        write(&command, folder)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = Vec::new();
    page(command).render(&mut text)?;
    print(text, output)
}

/// Builds a page. Its footer would otherwise name a version of the subcommand, which has none.
fn page(command: Command) -> Man {
    Man::new(command)
        .source(concat!("gensvc ", env!("CARGO_PKG_VERSION")))
        .manual("gensvc manual")
}

fn write(command: &Command, folder: &Path) -> io::Result<()> {
    for inner in command.get_subcommands() {
        write(inner, folder)?;
    }
    page(command.clone()).generate_to(folder)?;
    Ok(())
}

fn print(text: Vec<u8>, output: Output) -> Outcome {
    let text = String::from_utf8(text)?;
    output.result(text.trim_end(), &text)
}
