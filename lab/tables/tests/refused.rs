//! Programs that are asked for something that is not there say so, and fail.

use std::process::Command;

fn refuses(program: &str, arguments: &[&str], complaint: &str) {
    let output = Command::new(program).args(arguments).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{program} {arguments:?}");
    assert!(err.contains(complaint), "{program} {arguments:?}: {err}");
    // No table without a row.
    assert_eq!(output.stdout, b"", "{program} {arguments:?}");
}

#[test]
fn what_is_not_there_is_refused() {
    refuses(env!("CARGO_BIN_EXE_measured"), &["hop16"], "hop16");
    refuses(env!("CARGO_BIN_EXE_costs"), &["--help"], "--help");
}

#[cfg(feature = "machine")]
#[test]
fn what_cannot_be_simulated_is_refused() {
    let refuses = |line: &str, complaint: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        refuses(env!("CARGO_BIN_EXE_simulate"), &words, complaint);
    };
    refuses("run nowhere hop16 mely 2 100", "nowhere");
    refuses("run epyc-2x64 nothing mely 2 100", "no such table");
    refuses("run epyc-2x64 hop16 nobody 2 100", "no such scheduler");
    refuses("run epyc-2x64 hop16 mely 0 100", "0 cores");
    refuses("run epyc-2x64 hop16 mely 2 0", "0 events");
    refuses("run epyc-2x64 hop16 tokio 2 100", "cannot be simulated");
    refuses("validate epyc-2x64 /dev/null", "no figures");
    refuses("scale epyc-2x64", "--help");
}
