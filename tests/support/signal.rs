//! Signals to processes.

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Sends a signal. A process that has ended is not an error.
pub fn signal(pid: u32, signal: Signal) {
    let _ = kill(Pid::from_raw(pid.cast_signed()), signal);
}
