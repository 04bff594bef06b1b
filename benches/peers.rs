//! mely beside its peers and a plain loop over boxed closures, on the workloads of an event.
//!
//! `cargo bench -p mely-bench --bench peers -- --help`

fn main() -> std::process::ExitCode {
    mely_bench::command::main(None)
}
