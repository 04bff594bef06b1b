//! The papers' tables and further workloads: mely beside its peers, the published schedulers and a
//! plain loop over boxed closures.
//!
//! `cargo bench -p mely-tables --bench papers -- --help`

use mely_bench::command::{self, Exact};
use mely_tables::thesis;

fn main() -> std::process::ExitCode {
    mely_tables::add_published();
    command::main(Some(Exact {
        name: thesis::TABLE,
        print: thesis::print,
    }))
}
