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
    let instructions = env!("CARGO_BIN_EXE_instructions");
    refuses(instructions, &["nothing"], "no table `nothing`");
    refuses(
        instructions,
        &["chain16", "cross1000"],
        "no table `cross1000`",
    );
    refuses(instructions, &[""], "no table ``");
    refuses(env!("CARGO_BIN_EXE_recording"), &["/nowhere"], "/nowhere");
}
