//! The binary. Everything is in the library.

use std::process::ExitCode;

/// Faster than the system allocator for many small allocations, and less prone to fragmentation.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    gensvc::cli::main()
}
