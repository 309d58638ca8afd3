//! Roles of this program, each in a process of its own that ends with this one.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    net::SocketAddr,
    process::{Command, Stdio},
};

use tokio::net::TcpListener;

use crate::process::Guard;

/// Starts this program in another role; returns it and the address that it listens on.
pub fn start(args: &[&str]) -> (Guard, SocketAddr) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(args)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut printed = BufReader::new(child.stdout.take().unwrap());
    printed.read_line(&mut line).unwrap();
    (Guard::new(child), line.trim().parse().unwrap())
}

/// Ends this process when the one that started it is gone, which closes our input.
pub fn end_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
}

/// Listens on a free port of this machine, and prints it for the process that started this one.
pub async fn listen() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    listener
}
