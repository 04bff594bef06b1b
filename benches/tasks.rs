//! Tasks: mely's beside tokio's. `cargo bench -p mely-bench --bench tasks -- --help`

use mely_bench::options::Options;
use mely_bench::tasks;
use std::process::ExitCode;

const HELP: &str = "\
Options, after `--`:
  --table A,B    only rows whose name begins with A or B
  --cores N      only on N cores
  --seconds S    how long to measure each figure, in all rounds together; 1 by default
  --rounds N     interleaved rounds of each figure; 7, or fewer if there is little time
  --json         one JSON object a line instead of the table
  --help         this";

const OPTIONS: [&str; 5] = ["--table", "--cores", "--seconds", "--rounds", "--json"];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, rest @ ..] = &arguments[..]
        && first == tasks::ARGUMENT
    {
        return exit_code(tasks::child(rest));
    }
    match Options::from_args(arguments, &OPTIONS) {
        Ok(Some(options)) => exit_code(tasks::measure_all(&options)),
        Ok(None) => {
            let names: Vec<_> = tasks::ROWS.iter().map(|row| row.name).collect();
            println!("{HELP}\n\nRows: {}", names.join(", "));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

fn exit_code(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
