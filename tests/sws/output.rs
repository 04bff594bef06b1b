//! Outputs that are closed, full or not read: serving goes on, and nothing panics.

use crate::client::Client;
use crate::on_both;
use crate::server::Setup;
use rustix::process::Signal;
use std::fs::File;
use std::process::Stdio;

on_both!(a_reader_of_the_first_line_only, a_full_disk);

fn full() -> Stdio {
    File::options()
        .write(true)
        .open("/dev/full")
        .unwrap()
        .into()
}

/// As in `sws | head -1`.
fn a_reader_of_the_first_line_only(backend: &str) {
    let mut server = Setup::new(backend).heard_once().start();
    assert_eq!(Client::connect(server.addr()).get("/").status(), 200);
    let exit = server.end(Signal::TERM);
    assert_eq!((exit.code, exit.out.as_str()), (Some(0), ""), "{exit:?}");
    assert!(exit.err.contains("the summary is lost: "), "{exit:?}");
    assert!(!exit.err.contains("panicked"), "{exit:?}");
}

fn a_full_disk(backend: &str) {
    let mut server = Setup::new(backend).stdout(full()).start();
    assert_eq!(Client::connect(server.addr()).get("/").status(), 200);
    let exit = server.end(Signal::TERM);
    assert_eq!(exit.code, Some(0), "{exit:?}");
    assert!(!exit.err.contains("panicked"), "{exit:?}");
    assert!(exit.err.contains("No space left"), "{exit:?}");
}

#[test]
fn help_that_cannot_be_printed_is_an_error() {
    let exit = Setup::bare().args(&["--help"]).stdout(full()).output();
    assert_eq!(exit.code, Some(1), "{exit:?}");
    assert!(exit.err.starts_with("sws: standard output: "), "{exit:?}");
    // With nobody to be told, there is still the code.
    let mute = Setup::bare().args(&["--help"]).stdout(full());
    assert_eq!(mute.stderr(full()).output().code, Some(1));
    let wrong = Setup::bare().args(&["--wrong"]).stderr(full());
    assert_eq!(wrong.output().code, Some(2));
    let injector = Setup::injector().args(&["--help"]).stdout(full()).output();
    assert_eq!(injector.code, Some(1), "{injector:?}");
    let begin = "injector: standard output: ";
    assert!(injector.err.starts_with(begin), "{injector:?}");
}
