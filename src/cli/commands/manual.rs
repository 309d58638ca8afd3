//! Completions of shells, and manual pages, made from the arguments.

use std::{path::Path, process::ExitCode};

use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::cli::{Failure, args::Arguments, output::Output};

pub(in crate::cli) fn completions(shell: Shell, output: Output) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "gensvc", &mut text);
    print(text, output)
}

/// The page of the program, or a file for each command.
pub(in crate::cli) fn pages(folder: Option<&Path>, output: Output) -> Result<ExitCode, Failure> {
    let command = Arguments::command();
    if let Some(folder) = folder {
        clap_mangen::generate_to(command, folder)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = Vec::new();
    Man::new(command).render(&mut text)?;
    print(text, output)
}

fn print(text: Vec<u8>, output: Output) -> Result<ExitCode, Failure> {
    let text = String::from_utf8(text)?;
    output.result(text.trim_end(), &text)?;
    Ok(ExitCode::SUCCESS)
}
