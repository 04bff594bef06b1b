//! The soak, shortened: seeds that stay the same and one that does not; and that it can fail.

use std::process::{Command, Output};

fn soak(arguments: &[&str]) -> (Output, String) {
    let program = env!("CARGO_BIN_EXE_mely-soak");
    let output = Command::new(program).args(arguments).output().unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    println!("{arguments:?}\n{text}");
    (output, text)
}

fn passes(arguments: &[&str]) -> String {
    let (output, text) = soak(arguments);
    assert!(output.status.success(), "{arguments:?}");
    text
}

/// This many rounds from each seed: counted and not timed, so that a slow machine does the same.
const ROUNDS: &str = "12";

#[test]
fn fixed_seeds() {
    for seed in ["1", "1000", "2003", "2010"] {
        let text = passes(&["--seed", seed, "--rounds", ROUNDS]);
        assert!(text.contains(" 12 rounds,"), "{seed}");
    }
}

#[test]
fn a_drawn_seed() {
    passes(&["--rounds", ROUNDS]);
}

/// A command line that would run nothing, or whose options change nothing, is no success.
#[test]
fn what_chooses_nothing_is_refused() {
    for (arguments, complaint) in [
        (&["--rounds", "0"][..], "--rounds"),
        (&["--seconds", "0"], "0 seconds"),
        (&["--seconds", "-1"], "seconds"),
        (&["--million", "--connections", "0"], "--connections"),
        (&["--million", "--rounds", "3"], "--rounds with --million"),
        (&["--leak", "3"], "--leak without --million"),
        (&["--plant", "nothing"], "--plant nothing"),
        (&["--backend", "kqueue"], "--backend kqueue"),
        (&["--huh"], "--huh"),
    ] {
        let (output, text) = soak(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text.contains(complaint), "{arguments:?}");
    }
}

/// Each lie told to the oracle is found out, for what it is, with the seed.
#[test]
fn the_oracle_finds_what_is_planted() {
    let lies = [
        ("lost", "accepted and dropped"),
        ("overlap", "at once"),
        ("order", "FIFO"),
        ("leak", "never dropped"),
        ("descriptor", "left behind"),
    ];
    for (lie, complaint) in lies {
        let (output, text) = soak(&["--seed", "7", "--rounds", "20", "--plant", lie]);
        assert_eq!(output.status.code(), Some(1), "{lie}");
        assert!(
            text.contains("VIOLATION") && text.contains(complaint),
            "{lie}"
        );
        assert!(text.contains("again: cargo run --release -p mely-soak -- --seed "));
    }
}

#[test]
fn a_round_that_hangs_is_ended_and_named() {
    let (output, text) = soak(&["--seed", "7", "--plant", "hang", "--patience", "2"]);
    assert!(!output.status.success());
    assert!(text.contains("VIOLATION: the round hangs"));
    assert!(text.contains("seed 7, running after") && text.contains("core 0: "));
}

/// A hundredth of the million on each backend; and memory that does grow is told from one that does
/// not.
#[test]
fn memory_of_some_connections() {
    let few = [
        "--million",
        "--connections",
        "10000",
        "--at-once",
        "400",
        "--growth-max",
        "400",
    ];
    passes(&few);
    let (output, text) = soak(&[&few[..], &["--leak", "4000"]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("VIOLATION: grows"));
}

#[test]
fn the_command_line() {
    assert!(passes(&["--help"]).contains("--million"));
    for wrong in [
        &["--seconds", "-1"][..],
        &["--backend", "kqueue"],
        &["--huh"],
    ] {
        assert_eq!(soak(wrong).0.status.code(), Some(2), "{wrong:?}");
    }
}
