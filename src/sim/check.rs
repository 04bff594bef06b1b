//! Many seeds, and the command that repeats one that failed.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The environment variable that replays one seed.
const SEED: &str = "MELY_SIM_SEED";
/// The environment variable that says how many seeds to try.
const RUNS: &str = "MELY_SIM_RUNS";
/// Without it.
const RUNS_DEFAULT: u64 = 100;

/// Runs `test` with the seeds from 0 on, 100 of them or as many as the environment variable
/// `MELY_SIM_RUNS` says. The first that panics is printed with the command that replays it, and the
/// panic goes on. With `MELY_SIM_SEED=<seed>` only that one is run.
///
/// # Panics
/// As `test` does; and if one of the variables is no number.
pub fn check(test: impl Fn(u64)) {
    if let Some(seed) = variable(SEED) {
        return test(seed);
    }
    for seed in 0..variable(RUNS).unwrap_or(RUNS_DEFAULT) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| test(seed))) {
            eprintln!("seed {seed} failed; to replay it: {}", replay(seed));
            resume_unwind(payload);
        }
    }
}

fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok().filter(|value| !value.is_empty())?;
    let number = value.parse();
    Some(number.unwrap_or_else(|_| panic!("{name}={value}: a number is needed")))
}

/// The command that runs this very test, or this program, with one seed.
fn replay(seed: u64) -> String {
    let program = std::env::current_exe();
    let program = program.map_or_else(|_| "<program>".into(), |path| path.display().to_string());
    let thread = std::thread::current();
    // The test harness names its threads after the tests.
    match thread.name() {
        Some(test) if test != "main" => {
            format!("{SEED}={seed} {program} --exact {test} --nocapture")
        }
        _ => format!("{SEED}={seed} {program}"),
    }
}
