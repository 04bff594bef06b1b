//! Outputs that are closed, full or not read: serving goes on, and nothing panics.

use crate::client::{Client, PATIENCE};
use crate::on_both;
use crate::setup::Setup;
use crate::site::Directory;
use rustix::process::Signal;
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

on_both!(
    a_reader_of_the_first_line_only,
    a_full_disk,
    a_run_is_recorded
);

fn full() -> Stdio {
    File::options()
        .write(true)
        .open("/dev/full")
        .unwrap()
        .into()
}

/// As in `sws | head -1`.
fn a_reader_of_the_first_line_only(backend: &str) {
    // A program that another test is just starting has the reader's end of the pipe for a moment:
    // then nobody has gone yet, and nothing is lost.
    let told = (0..20).any(|_| {
        let mut server = Setup::new(backend).heard_once().start();
        assert_eq!(Client::connect(server.addr()).get("/").status(), 200);
        let exit = server.end(Signal::TERM);
        assert_eq!((exit.code, exit.out.as_str()), (Some(0), ""), "{exit:?}");
        assert!(!exit.err.contains("panicked"), "{exit:?}");
        exit.err.contains("the summary is lost: ")
    });
    assert!(told, "it does not say that its summary is lost");
}

fn a_full_disk(backend: &str) {
    let mut server = Setup::new(backend).stdout(full()).start();
    assert_eq!(Client::connect(server.addr()).get("/").status(), 200);
    let exit = server.end(Signal::TERM);
    assert_eq!(exit.code, Some(0), "{exit:?}");
    assert!(!exit.err.contains("panicked"), "{exit:?}");
    assert!(exit.err.contains("No space left"), "{exit:?}");
}

fn a_run_is_recorded(backend: &str) {
    let directory = Directory::new();
    let file = directory.path().join("run.rec");
    let record = ["--record", file.to_str().unwrap()];
    let mut server = Setup::new(backend).args(&record).start();
    let mut client = Client::connect(server.addr());
    for _ in 0..100 {
        assert_eq!(client.get("/").status(), 200);
    }
    let exit = server.end(Signal::TERM);
    assert_eq!(exit.code, Some(0), "{exit:?}");
    assert!(exit.out.contains(" bytes, complete\n"), "{exit:?}");
    let recording = std::fs::read(&file).unwrap();
    assert!(recording.starts_with(b"mely-rec"));
    let name = b"WriteResponse";
    assert!(recording.windows(name.len()).any(|bytes| bytes == name));

    let exit = Setup::bare().args(&["--record", "/nowhere/run.rec"]).run();
    assert_eq!(exit.code, Some(1), "{exit:?}");
    assert!(exit.err.starts_with("sws: --record: "), "{exit:?}");
    assert!(exit.err.contains("`/nowhere/run.rec`"), "{exit:?}");
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
}

/// A pipe that is full and that nobody reads: its two ends, and what is in it.
fn full_pipe() -> (PipeReader, PipeWriter, usize) {
    let (reader, mut writer) = pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    let written = std::iter::from_fn(|| writer.write(&[b'x'; 4096]).ok());
    let bytes = written.sum();
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    (reader, writer, bytes)
}

/// What is said while serving does not wait for a reader, and is not lost without a word.
#[test]
fn a_reader_that_does_not_read_holds_nobody_up() {
    let site = Directory::new();
    site.write("index.html", b"index");
    let (mut reader, writer, full_bytes) = full_pipe();
    let mut server = Setup::new("epoll")
        .root(site.path())
        .args(&["--max-clients", "1"])
        .stderr(writer.into())
        .start();
    let mut inside = Client::connect(server.addr());
    assert_eq!(inside.get("/").status(), 200);
    // Each is turned away, which is worth a line.
    for _ in 0..3 {
        let mut outside = Client::connect(server.addr());
        assert_eq!(outside.answer().status(), 503);
        assert_eq!(inside.get("/").status(), 200);
    }
    // The reader is back, and then there is something to say again.
    let mut read = vec![0; full_bytes];
    reader.read_exact(&mut read).unwrap();
    assert!(read.iter().all(|&byte| byte == b'x'));
    drop(inside);
    assert_eq!(server.end(Signal::TERM).code, Some(0));
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    assert!(said.contains("2 times more"), "{said}");
    assert!(
        said.contains("1 lines before this one found no reader"),
        "{said}"
    );
}

/// Nobody reads where it listens: it says so elsewhere. Nobody reads its summary: it waits for a
/// reader, but a second signal ends it all the same.
#[test]
fn a_pipe_that_is_full_from_the_start() {
    let (reader, writer, _) = full_pipe();
    let mut server = Setup::new("epoll").stdout(writer.into()).start();
    assert!(server.says("listening on ").contains("nobody reads it"));
    assert_eq!(Client::connect(server.addr()).get("/").status(), 200);
    server.signal(Signal::TERM);
    // Its port is free: all that is left is to print.
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(server.addr()).is_ok() {
        assert!(Instant::now() < deadline, "it goes on");
    }
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(server.end(Signal::TERM).code, Some(143));
    drop(reader);
}
