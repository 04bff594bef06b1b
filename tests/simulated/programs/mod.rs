//! Arbitrary programs on the simulated runtime, against a plain model of what mely promises.
//!
//! - `program.rs`: what a program is, and how proptest makes and shrinks one;
//! - `run.rs`: runs one, on virtual cores that the seed steps;
//! - `model.rs`: a map from color to FIFO, with what each event knew of when it was posted; judges
//!   each event as it begins.
//!
//! `MELY_SIM_RUNS=100000 cargo test --test simulated programs` looks longer; a failure is printed with the
//! command that repeats it, and shrunk.

mod model;
mod program;
mod run;

use mely::sim;
use program::Program;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use std::sync::Once;

/// Panics that are part of a program are many, and no news.
fn quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if info.payload().downcast_ref::<&str>() != Some(&run::ON_PURPOSE) {
                before(info);
            }
        }));
    });
}

/// For each seed a program that `strategy` makes of it, shrunk if it fails.
fn check(strategy: impl Fn() -> proptest::strategy::BoxedStrategy<Program>) {
    quiet();
    sim::check(|seed| {
        let config = Config {
            cases: 1,
            failure_persistence: None,
            max_shrink_iters: 2_000,
            // A ring that is lost takes seconds to find.
            max_shrink_time: 60_000,
            ..Config::default()
        };
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(config, rng);
        let result = runner.run(&strategy(), |program| {
            run::run(&program, seed).map_err(TestCaseError::fail)
        });
        match result {
            Ok(()) => {}
            Err(TestError::Fail(why, program)) => panic!("{why}\nin the program {program:#?}"),
            Err(TestError::Abort(why)) => panic!("no program could be made: {why}"),
        }
    });
}

#[test]
fn any_program_keeps_the_promises() {
    check(|| program::mixed().boxed());
}

#[test]
fn much_to_steal_keeps_the_promises() {
    check(|| program::wide().boxed());
}

#[test]
fn holds_keep_the_promises() {
    check(|| program::held().boxed());
}

/// The harness itself: a model that is told lies must say so.
#[test]
fn the_model_notices() {
    model::notices();
}
