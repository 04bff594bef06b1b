//! SWS, the Mely paper's web server: static files over HTTP/1.1, one color a connection.
//!
//! Everything here but `main` is free of I/O once the site has been read, so that each module can
//! be tested byte by byte without a socket. In the order a request meets them:
//!
//! | module | what it knows |
//! |---|---|
//! | `args` | the command line |
#![allow(dead_code)] // Until the runtime drives it.

mod args;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args = match args::parse(std::env::args_os().skip(1)) {
        Ok(args::Command::Serve(args)) => args,
        Ok(args::Command::Help) => {
            print!("{}", args::HELP);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("sws: {error}\nTry 'sws --help'.");
            return ExitCode::from(2);
        }
    };
    println!(
        "sws: would listen on {}; the server is not wired yet",
        args.listen
    );
    ExitCode::SUCCESS
}
