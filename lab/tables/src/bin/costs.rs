//! What the handlers of the workloads compute, timed here, for runs on machines that files describe:
//! `cargo run --release -p mely-bench --bin costs > benches/costs.txt`.

fn main() -> std::process::ExitCode {
    if let Some(argument) = std::env::args().nth(1) {
        eprintln!("costs: unknown argument: {argument}");
        return std::process::ExitCode::from(2);
    }
    print!("{}", mely_bench::costs::Costs::measure().to_text());
    std::process::ExitCode::SUCCESS
}
