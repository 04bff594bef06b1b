//! A soak of the real runtime: threads, rings, sockets; no model and no simulation.
//!
//! ```text
//! cargo run --release -p mely-soak                # a minute of random rounds
//! cargo run --release -p mely-soak -- --million   # a million connections, memory must stay flat
//! cargo run --release -p mely-soak -- --help
//! ```
//!
//! A round draws one or two runtimes from a seed (`draw`), lets foreign threads, handlers, timers
//! and connections loose on them (`lane`, `event`, `acts`, `bounds`, `server`, `client`), ends them
//! somehow (`round`), and asks the oracle (`world`, `ticket`, `order`) and the process (`process`)
//! whether everything is as promised. The first violation ends the process with exit code 1, the
//! seed and what was drawn (`verdict`); so does a round that hangs, with what is known of each
//! core.
//!
//! A seed repeats what is drawn, not how the system schedules the threads: a violation may take
//! several tries to come back.

mod acts;
mod bounds;
mod client;
mod draw;
mod event;
mod lane;
mod million;
mod options;
mod order;
mod process;
mod round;
mod server;
mod soak;
mod ticket;
mod verdict;
mod world;

use std::process::ExitCode;

fn main() -> ExitCode {
    match options::Options::parse() {
        Ok(None) => {
            println!("{}", options::HELP);
            ExitCode::SUCCESS
        }
        Ok(Some(options)) => {
            if options.million {
                million::run(&options)
            } else {
                soak::run(&options)
            }
        }
        Err(error) => {
            eprintln!("{error}\n\n{}", options::HELP);
            ExitCode::from(2)
        }
    }
}
