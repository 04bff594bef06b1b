//! The servers of the bench `response`, and the schedulers that it posts to. `respond PEER WORKERS`, until SIGTERM;
//! `respond posts PEER CORES REQUESTS SEED ROW`, by the bench alone.

use mely_bench::response::respond;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match respond(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("respond: {error}");
            ExitCode::FAILURE
        }
    }
}
