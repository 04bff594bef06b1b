//! The servers of the bench `response`, and the schedulers that it posts to. `respond PEER WORKERS`, until SIGTERM;
//! `respond posts PEER CORES REQUESTS SEED ROW`, by the bench alone.

use mely_bench::response::{options, peers, posts};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("respond: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<(), String> {
    match arguments {
        [first, rest @ ..] if first == posts::ARGUMENT => posts::child(rest),
        [peer, workers] => {
            let workers = workers.parse().ok().filter(|&workers| workers > 0);
            let workers: usize = workers.ok_or("WORKERS: not a count")?;
            let peer = peers::find(peer).ok_or_else(|| {
                let names = options::peer_names();
                format!("{peer}: no such server; there are {names}")
            })?;
            let served = (peer.serve)(workers);
            served.map_err(|error| format!("{}: {error}", peer.name))
        }
        _ => Err("usage: respond PEER WORKERS".to_owned()),
    }
}
