//! The program: what it prints, and its exit codes.

mod support;

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use support::{CORE_0, Made, OVER, arrival, begin, define};

/// A file with these bytes, which is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, bytes: &[u8]) -> Scratch {
        let name = format!("mely-recording-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, bytes).unwrap();
        Scratch(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A panic here would hide the one of a test that fails.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn small() -> Made {
    let cause = mely_recording::format::Cause::new(CORE_0, 0);
    let records = [define(4, "serve"), arrival(4, 7), begin(4, 7, cause), OVER];
    Made::new(1).page(CORE_0, 0, &records)
}

fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mely-recording"));
    command.args(args);
    command
}

fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = program(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn a_summary_and_a_timeline_are_printed() {
    let file = Scratch::new("whole", &small().end());
    let (code, out, err) = run(&["summary", file.path()]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(
        out.starts_with("1 cores, stealing: locality; 1.00 us, complete: 1 events in 1 colors\n")
    );
    assert!(
        out.lines()
            .any(|line| line.starts_with("serve") && line.contains("1.00 us")),
        "{out}"
    );
    assert!(out.lines().all(|line| line.len() <= 100), "{out}");
    let (code, out, err) = run(&["timeline", file.path()]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let printed: serde_json::Value = serde_json::from_str(&out).unwrap();
    let json = Scratch::new("json", b"");
    let (code, out, _) = run(&["timeline", file.path(), "--out", json.path(), "--posts"]);
    assert_eq!((code, out.as_str()), (Some(0), ""));
    let written = std::fs::read_to_string(&json.0).unwrap();
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&written).unwrap(),
        printed
    );
    let (_, out, _) = run(&["timeline", file.path(), "--to-ms", "6.5"]);
    assert!(out.contains("serve"), "{out}");
    for (options, complaint) in [
        (&["--from-ms", "5", "--to-ms", "6.5"][..], "--from-ms 5: "),
        (
            &["--from-ms", "5", "--to-ms", "5"],
            "--from-ms is not before",
        ),
        (&["--to-ms", "0"], "--from-ms is not before"),
    ] {
        let (code, out, err) = run(&[&["timeline", file.path()], options].concat());
        assert_eq!((code, out.as_str()), (Some(2), ""), "{options:?}");
        assert!(err.contains(complaint), "{err}");
    }
    for option in [&["--posts"][..], &["--to-ms", "1"], &["--out", "x"]] {
        let (code, _, err) = run(&[&["summary", file.path()], option].concat());
        assert!(code == Some(2) && err.contains("are for timeline"), "{err}");
    }
}

#[test]
fn what_is_wrong_is_said_in_a_sentence() {
    let cut = Scratch::new("cut", &small().cut());
    let none = Scratch::new("none", b"Dear Sir or Madam");
    let refused = |args: &[&str], expected: &str| {
        let (code, out, err) = run(args);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{args:?}: {err}");
        assert!(err.contains(expected), "{args:?}: {err}");
        assert!(
            err.starts_with("mely-recording: ") && !err.contains("panicked"),
            "{err}"
        );
    };
    refused(&["summary", cut.path()], ": cut short after ");
    refused(
        &["timeline", none.path()],
        ": not a recording: it does not begin with `mely-rec`\n",
    );
    refused(
        &["summary", "/no/such/file"],
        "/no/such/file: No such file or directory",
    );
    refused(&["summary"], "`summary FILE` or `timeline FILE` is wanted");
    refused(&["draw", "file"], "unexpected argument \"draw\"");
    refused(&["summary", "one", "two"], "unexpected argument \"two\"");
    refused(&["--wrong"], "invalid option '--wrong'");
    refused(&["timeline", "x", "--from-ms", "soon"], "cannot parse");
    refused(
        &["timeline", "x", "--to-ms", "-1"],
        "milliseconds are from 0",
    );
    refused(
        &["timeline", "x", "--to-ms", "NaN"],
        "milliseconds are from 0",
    );
    refused(
        &["timeline", cut.path(), "--cut", "--out", "/no/such/file"],
        "/no/such/file: ",
    );
    let (code, out, _) = run(&["summary", cut.path(), "--cut"]);
    assert_eq!(code, Some(0));
    assert!(out.contains("cut short: 1 events"), "{out}");
    assert_eq!(run(&["--help"]).0, Some(0));
    assert!(run(&["--version"]).1.starts_with("mely-recording 0."));
}

#[test]
fn a_full_disk_is_an_error_and_a_closed_pipe_is_none() {
    let file = Scratch::new("output", &small().end());
    for what in ["summary", "timeline"] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = program(&[what, file.path()])
            .stdout(Stdio::from(full))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{what}");
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(
            err.starts_with("mely-recording: cannot write: No space left"),
            "{err}"
        );
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = program(&[what, file.path()])
            .stdout(writer)
            .output()
            .unwrap();
        assert_eq!(
            (output.status.code(), output.stderr.len()),
            (Some(0), 0),
            "{what}"
        );
    }
}
