//! The injector as its user meets it: the real program in a process of its own, without a server.
//!
//! It runs on the event source that the variable `MELY_BACKEND` names.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// After this the kernel ends a program that a test has lost sight of.
const LIFE_SECONDS_MAX: u32 = 120;

/// How it ended, and what it said.
#[derive(Debug)]
struct Exit {
    code: Option<i32>,
    out: String,
    err: String,
}

fn injector(args: &[&str], out: Stdio) -> Exit {
    let mut command = Command::new(env!("CARGO_BIN_EXE_injector"));
    command.args(args).stdin(Stdio::null());
    // SAFETY: only async-signal-safe system calls, between fork and exec. What they do outlives
    // exec. `signal` fails for two signals, which nothing ignores.
    unsafe {
        command.pre_exec(|| {
            // Whatever the tests were started with.
            (1..32).for_each(|signal| {
                libc::signal(signal, libc::SIG_DFL);
            });
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            // Whoever runs the tests may ignore it, and that is inherited.
            libc::signal(libc::SIGALRM, libc::SIG_DFL);
            libc::alarm(LIFE_SECONDS_MAX);
            Ok(())
        });
    }
    let output = command
        .stdout(out)
        .output()
        .expect("the program can be started");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Exit {
        code: output.status.code(),
        out: text(&output.stdout),
        err: text(&output.stderr),
    }
}

/// One that would load a server that is not there.
fn injector_of_nobody(args: &[&str]) -> Exit {
    injector(
        &[&["--target", "127.0.0.1:9"], args].concat(),
        Stdio::piped(),
    )
}

#[test]
fn help_that_cannot_be_printed_is_an_error() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let exit = injector(&["--help"], full.into());
    assert_eq!(exit.code, Some(1), "{exit:?}");
    let begin = "injector: standard output: ";
    assert!(exit.err.starts_with(begin), "{exit:?}");
}

#[test]
fn more_cores_than_there_are_is_an_error() {
    for (cores, expected) in [("5000", "--cores: 5000"), ("511", "--cores 511: ")] {
        let exit = injector_of_nobody(&["--cores", cores]);
        assert_eq!((exit.code, &*exit.out), (Some(1), ""), "{exit:?}");
        assert!(exit.err.contains(expected), "{exit:?}");
        // No setting of the library's, which the program has not.
        assert!(!exit.err.contains("oversubscribe"), "{exit:?}");
    }
}

/// Nobody is at its target: that is no success.
#[test]
fn without_an_answer_it_fails() {
    let exit = injector_of_nobody(&["--warm-up", "0", "--seconds", "0.2", "--clients", "2"]);
    assert_eq!(exit.code, Some(1), "{exit:?}");
    assert!(exit.err.contains("no request was answered"), "{exit:?}");
    assert!(exit.out.contains("latency: none\n"), "{exit:?}");
}

/// It has connections, and no answers. Without a limit it would wait for ever.
#[test]
fn of_a_silent_server_it_fails() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target = silent.local_addr().unwrap().to_string();
    let total = ["--target", &target, "--total", "10", "--silence", "0.2"];
    let exit = injector(&total, Stdio::piped());
    assert_eq!(exit.code, Some(1), "{exit:?}");
    let error = "nothing came from the server for 200ms (--silence), after 0 responses";
    assert!(exit.err.contains(error), "{exit:?}");
    assert!(exit.out.contains("silent 64)\n"), "{exit:?}");
}
