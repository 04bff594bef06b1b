//! Response times of servers whose requests compute, as ratios to an ideal queue: see
//! [`mely_bench::response`]. `cargo bench -p mely-bench --bench response -- --help`

use mely_bench::response::measure_all;
use mely_bench::response::options::{HELP, Options, peer_names, row_names};
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let options = match Options::from_args(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{HELP}\n\nRows: {}\nPeers: {}", row_names(), peer_names());
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    match measure_all(PathBuf::from(env!("CARGO_BIN_EXE_respond")), &options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
