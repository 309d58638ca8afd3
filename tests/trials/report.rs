//! Output that all trials have.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
};

/// Violations of one kind that are printed in full.
const SPELLED_OUT: usize = 5;

/// Violations by kind, each with its details.
pub type Violations = BTreeMap<&'static str, BTreeSet<String>>;

/// Prints them.
pub fn violations(found: &Violations) {
    for (name, details) in found {
        println!("{:>7} violations: {name}", details.len());
        for detail in details.iter().take(SPELLED_OUT) {
            println!("         {}", detail.trim());
        }
    }
}

/// The last line, how to repeat it, and the end of the program.
pub fn verdict(clean: bool, repeat: &str) -> ExitCode {
    let found = if clean {
        "No violation."
    } else {
        "There are violations."
    };
    println!("\n{found}\nTo repeat: make {repeat}");
    if clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
