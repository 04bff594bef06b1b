//! Pipes on the kernel's event sources.

use super::{Joint, Random, joins, pattern};
use crate::common::LONG;
use crate::common::wire::{Client, on, with_server};
use std::io::{ErrorKind, Read, Write};
use std::sync::mpsc::channel;
use std::thread;

/// Both ends of a pipe on a kernel's backend: two sockets of this process.
fn kernel_pipe(
    backend: &mely::net::Backend,
    addr: std::net::SocketAddr,
) -> [std::net::TcpStream; 2] {
    [(); 2].map(|()| match Client::connect(backend, addr) {
        Client::Tcp(stream) => stream,
        Client::Sim(_) => unreachable!("the kernel's"),
    })
}

/// Writes this many bytes of the pattern, in portions of all sizes, and then the end.
fn writes(mut stream: std::net::TcpStream, len: usize, seed: u64) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let (mut random, mut written) = (Random(seed), 0);
        while written < len {
            let most = random.one_of(&[1, 100, 10_000, 1 << 20]);
            let until = len.min(written + 1 + random.below(most));
            stream.write_all(pattern(written..until)).unwrap();
            written = until;
        }
        stream.shutdown(std::net::Shutdown::Write).unwrap();
    })
}

fn reads(mut stream: std::net::TcpStream) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

#[test]
fn megabytes_both_ways_between_two_cores() {
    const LENS: [usize; 2] = [9 << 20, 5_000_000];
    for backend in crate::common::backends() {
        let [two, one] = Joint::ORDINARY.both_colors();
        // Where the kernel takes a piece at once, one is over before its source would pause.
        let least = Joint { limit: 0, ..one };
        for joint in [two, one, least] {
            let (at, (tell, told)) = (backend.clone(), channel());
            with_server("megabytes", on(&backend), joins(joint, tell), move |addr| {
                let ends = kernel_pipe(&at, addr);
                let both = |end: &std::net::TcpStream, len, seed| {
                    let [one, other] = [(); 2].map(|()| end.try_clone().unwrap());
                    (writes(one, len, seed), reads(other))
                };
                let (this, other) = (both(&ends[0], LENS[0], 1), both(&ends[1], LENS[1], 2));
                assert!(this.1.join().unwrap() == pattern(0..LENS[1]));
                assert!(other.1.join().unwrap() == pattern(0..LENS[0]));
                this.0.join().unwrap();
                other.0.join().unwrap();
                let piped = told.recv_timeout(LONG).unwrap();
                let (there, back) = piped.unwrap();
                assert_eq!(there + back, (LENS[0] + LENS[1]) as u64);
            });
        }
    }
}

/// One goes away with an error while the other takes nothing, so that the pipe is in the middle of
/// a send: the other gets an error, and never an end.
#[test]
fn a_reset_reaches_who_does_not_read() {
    for backend in crate::common::backends() {
        for joint in Joint::ORDINARY.both_colors() {
            let (at, (tell, told)) = (backend.clone(), channel());
            with_server("a reset", on(&backend), joins(joint, tell), move |addr| {
                let [this, mut other] = kernel_pipe(&at, addr);
                // More than the kernel and the pipe keep: it never ends by itself.
                let mut writer = this.try_clone().unwrap();
                let writes =
                    thread::spawn(move || while writer.write_all(&[7; 1 << 16]).is_ok() {});
                other.read_exact(&mut [0; 1 << 20]).unwrap();
                Client::Tcp(other.try_clone().unwrap()).reset();
                drop(other);
                let piped = told.recv_timeout(LONG).unwrap();
                assert!(piped.is_err());
                writes.join().unwrap();
                drop(this);

                let [mut this, mut other] = kernel_pipe(&at, addr);
                this.write_all(&[7; 1 << 17]).unwrap();
                other.read_exact(&mut [0; 9]).unwrap();
                Client::Tcp(this).reset();
                let mut rest = Vec::new();
                let error = other.read_to_end(&mut rest).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ConnectionReset);
                assert!(told.recv_timeout(LONG).unwrap().is_err());
            });
        }
    }
}
