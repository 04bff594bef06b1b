//! The program: what it prints, how it refuses, and that it ends quietly when nobody listens.

mod support;

use std::io::Read;
use std::process::{Command, Output, Stdio};

use support::{TempFolder, Tree};

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_mely-topology"))
}

fn run(arguments: &[&str]) -> Output {
    program().args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn draws_a_recorded_machine() {
    let folder = TempFolder::new();
    Tree::of("mely-amd-16").unfold(folder.path());
    let root = folder.path().to_str().unwrap();

    let whole = run(&[root]);
    assert!(whole.status.success());
    assert!(
        stdout(&whole).starts_with("16 cores on 16 physical cores, 4 packages, 4 NUMA nodes\n")
    );
    assert!(whole.stderr.is_empty());

    let part = run(&[root, "--cpus", "0-3,8", "--take=4"]);
    assert!(stdout(&part).ends_with("\n0: L3 1-3\n1: L3 2 3 0\n2: L3 3 0 1\n3: L3 0-2\n"));
}

#[test]
fn draws_this_machine() {
    let output = run(&[]);
    assert!(output.status.success());
    assert!(stdout(&output).contains("victims of each CPU"));
}

#[test]
fn warnings_go_to_standard_error() {
    let folder = TempFolder::new();
    Tree::of("broken").unfold(folder.path());
    let output = run(&[folder.path().to_str().unwrap()]);
    assert!(output.status.success());
    assert!(!stdout(&output).contains("warning"));
    let warnings = String::from_utf8(output.stderr).unwrap();
    assert!(warnings.lines().all(|line| line.starts_with("warning: ")));
    assert!(warnings.lines().count() > 10);
}

#[test]
fn helps() {
    for option in ["-h", "--help"] {
        let output = run(&[option]);
        assert!(output.status.success());
        assert!(stdout(&output).starts_with("Usage: mely-topology"));
    }
    assert!(stdout(&run(&["--version"])).starts_with("mely-topology "));
}

#[test]
fn bad_input_is_refused_with_a_reason() {
    for (arguments, reason) in [
        (
            &["/nowhere"][..],
            "/nowhere/devices/system/cpu: no such folder",
        ),
        (&["--frobnicate"], "invalid option '--frobnicate'"),
        (&["/sys", "/sys"], "name one machine, not several"),
        (&["--take", "0"], "no core is left to run on"),
        (&["--take", "-1"], "cannot parse argument"),
        (&["--cpus", "0-4294967295"], "beyond the limit of 8192"),
        (&["--cpus", "8191"], "the topology has no CPU 8191"),
        (&["--cpus"], "missing argument"),
        (&["--xml", "/nowhere.xml"], "hwloc"),
        (&["--synthetic", "not:a machine"], "hwloc"),
    ] {
        let output = run(arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(
            message.starts_with("mely-topology: "),
            "{arguments:?}: {message}"
        );
        assert!(message.contains(reason), "{arguments:?}: {message}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    let folder = TempFolder::new();
    Tree::of("epyc-2x64").unfold(folder.path());
    let mut child = program()
        .arg(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let status = child.wait().unwrap();
    let mut message = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut message)
        .unwrap();
    assert_eq!((status.code(), message.as_str()), (Some(0), ""));
}
