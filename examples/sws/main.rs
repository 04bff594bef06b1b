//! SWS, the Mely paper's web server: static files over HTTP/1.1, one color a connection.
//!
//! Everything here but `main` is free of I/O once the site has been read, so that each module can
//! be tested byte by byte without a socket. In the order a request meets them:
//!
//! | module | what it knows |
//! |---|---|
//! | `args` | the command line |
//! | `site`, `load`, `builtin` | the paper's cache: path to prebuilt response, filled once at start-up |
//! | `conn`, `step` | one connection, cut at the paper's handlers: read, parse, check in cache, write, close |
//! | `request`, `fields`, `path` | the request head, its framing and conditions, its path |
//! | `respond`, `status`, `bytes` | which prebuilt bytes answer a request |
//! | `figures`, `stats_page`, `summary` | what `/_mely` shows, and what is printed at the end |
#![allow(dead_code)] // Until the runtime drives it.

mod args;
mod builtin;
mod bytes;
mod conn;
mod fields;
mod figures;
mod load;
mod path;
mod request;
mod respond;
mod site;
mod stats_page;
mod status;
mod step;
mod summary;
#[cfg(test)]
mod tests;

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
    let site = match &args.root {
        None => builtin::site(),
        Some(root) => match load::read_directory(root, load::Limits::default()) {
            Ok(loaded) => {
                for warning in &loaded.warnings {
                    eprintln!("sws: {warning}");
                }
                loaded.site
            }
            Err(error) => {
                eprintln!("sws: {error}");
                return ExitCode::FAILURE;
            }
        },
    };
    println!(
        "sws: {} paths ready; the runtime that serves them is not wired yet",
        site.len()
    );
    ExitCode::SUCCESS
}
