//! What the handlers of the workloads compute, timed here, for runs on machines that files describe:
//! `cargo run --release -p mely-bench --bin costs > benches/costs.txt`.

fn main() {
    print!("{}", mely_bench::costs::Costs::measure().to_text());
}
