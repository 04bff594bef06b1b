//! The program as its users meet it.

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_mely-machine");
    Command::new(program)
        .args(arguments)
        .output()
        .expect("it starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("it writes text")
}

#[test]
fn what_is_shown_is_right() {
    for name in mely_hardware::Machine::shipped_names() {
        let shown = run(&["show", name]);
        assert!(shown.status.success());
        let path = std::env::temp_dir().join(format!("mely-{}-{name}", std::process::id()));
        std::fs::write(&path, &shown.stdout).expect("a file in the temporary folder");
        let checked = run(&["check", path.to_str().expect("a plain path")]);
        std::fs::remove_file(&path).expect("it was there");
        assert!(checked.status.success(), "{}", text(&checked.stderr));
    }
}

#[test]
fn what_is_wrong_is_one_sentence_and_exit_code_2() {
    let path = std::env::temp_dir().join(format!("mely-{}-bad", std::process::id()));
    let bad = text(&run(&["show", "epyc-2x64"]).stdout).replace("clock = 22", "clock = -1");
    std::fs::write(&path, bad).expect("a file in the temporary folder");
    let path_text = path.to_str().expect("a plain path");
    let checked = run(&["check", path_text]);
    std::fs::remove_file(&path).expect("it was there");
    assert_eq!(checked.status.code(), Some(2));
    let said = text(&checked.stderr);
    let expected = "`clock`: -1 is not more than 0\n";
    assert!(
        said.starts_with(&format!("mely-machine: {path_text}: line ")),
        "{said}"
    );
    assert!(said.ends_with(expected), "{said}");
    for (arguments, said) in [
        (
            &["check", "/nowhere/at/all"][..],
            "/nowhere/at/all: No such file or directory (os error 2)",
        ),
        (
            &["show", "vax"],
            "\"vax\" is none of xeon-e5410, epyc-2x64, measured-vm",
        ),
        (&["check"], "`check` is used otherwise: see --help"),
        (&["measure", "x"], "`measure` is used otherwise: see --help"),
        (&["run", "x"], "`run` is used otherwise: see --help"),
        (
            &["check", "x", "--cores", "2"],
            "`check` is used otherwise: see --help",
        ),
        (&["weigh"], "no command `weigh`: see --help"),
        (&[], "a command is missing: see --help"),
        (&["--fast"], "invalid option '--fast'"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_eq!(text(&output.stderr), format!("mely-machine: {said}\n"));
    }
    assert!(text(&run(&["--help"]).stdout).starts_with("Usage: mely-machine"));
}

#[cfg(not(feature = "simulate"))]
#[test]
fn a_build_that_measures_runs_no_recordings() {
    let output = run(&["run", "some.rec", "epyc-2x64"]);
    assert_eq!(output.status.code(), Some(2));
    let said = "mely-machine: `run` simulates: it is in a build with `--features simulate`\n";
    assert_eq!(text(&output.stderr), said);
}
