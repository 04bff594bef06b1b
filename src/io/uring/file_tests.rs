//! Operations on files: pieces, cancels, and the end. The kernel has their memory, so, unlike in
//! `tests.rs`, no test plays its part.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;

use super::super::{FileOp, Token};
use super::tests::{is, next, on_each, poll};
use super::*;

/// A file without a name.
fn file() -> Arc<OwnedFd> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    Arc::new(rustix::fs::memfd_create("file", flags).unwrap())
}

/// The pipe's reading end, as a file, and the other end.
fn waiting() -> (Arc<OwnedFd>, File) {
    let (reads, writes) = std::io::pipe().unwrap();
    (Arc::new(reads.into()), File::from(OwnedFd::from(writes)))
}

/// The error of a completion, and its operation.
fn came_to(completion: Completion) -> (Option<i32>, FileOp) {
    assert!(!completion.more);
    match completion.done {
        Done::File { res, op } => (res.err().and_then(|error| error.raw_os_error()), *op),
        done => panic!("{done:?}"),
    }
}

fn start(uring: &mut Uring, file: &Arc<OwnedFd>, op: FileOp) -> Op {
    uring.file(Token(5), Arc::clone(file), Box::new(op))
}

#[test]
fn bytes_are_written_synced_and_read_in_pieces() {
    on_each(&Config::default(), |uring| {
        let file = file();
        let bytes: Vec<u8> = (0..500_000_u32).map(|i| (i % 251) as u8).collect();
        // Two on one descriptor.
        let halves = bytes.split_at(200_000);
        start(uring, &file, FileOp::write(7, halves.0.to_vec().into()));
        start(
            uring,
            &file,
            FileOp::write(200_007, halves.1.to_vec().into()),
        );
        for _ in 0..2 {
            let (error, op) = came_to(next(uring));
            let (written, all) = op.written().unwrap();
            assert_eq!((error, written), (None, all));
        }
        for data_only in [true, false] {
            start(uring, &file, FileOp::Sync { data_only });
            assert_eq!(came_to(next(uring)).0, None);
        }
        for (offset, len) in [(7, 500_000), (0, usize::MAX), (500_007, 10), (7, 0)] {
            start(uring, &file, FileOp::read(offset, len));
            let (error, op) = came_to(next(uring));
            let all = [&[0; 7][..], &bytes].concat();
            let from = &all[offset as usize..];
            assert_eq!(error, None);
            assert!(
                op.into_read() == from[..len.min(from.len())],
                "{offset} {len}"
            );
        }
        assert_eq!((uring.in_flight(), Arc::strong_count(&file)), (0, 1));
    });
}

#[test]
fn a_cancel_wins_before_the_last_piece_only() {
    on_each(&Config::default(), |uring| {
        let (reads, mut writes) = waiting();
        let op = start(uring, &reads, FileOp::read(0, 5));
        writes.write_all(b"12").unwrap();
        // It has two bytes, and waits for more.
        uring.wait(Some(Duration::from_millis(50))).unwrap();
        assert!(poll(uring, 9).is_empty());
        uring.cancel(op);
        uring.cancel(op);
        let (error, op) = came_to(next(uring));
        assert_eq!(
            (error, op.into_read()),
            (is(Errno::CANCELED), b"12".to_vec())
        );
        writes.write_all(b"12345").unwrap();
        let op = start(uring, &reads, FileOp::read(0, 5));
        let completion = next(uring);
        uring.cancel(op);
        let (error, op) = came_to(completion);
        assert_eq!((error, op.into_read()), (None, b"12345".to_vec()));
        assert!(poll(uring, 9).is_empty());
        assert_eq!((uring.in_flight(), Arc::strong_count(&reads)), (0, 1));
    });
}

#[test]
fn the_end_lets_go_of_files() {
    for flavor in FLAVORS {
        let (reads, _writes) = waiting();
        let mut uring = Uring::new(flavor, &Config::default()).unwrap();
        for _ in 0..10 {
            start(&mut uring, &reads, FileOp::read(0, 5));
        }
        poll(&mut uring, 1);
        // Some that the kernel has not got.
        start(&mut uring, &reads, FileOp::read(0, 5));
        drop(uring);
        assert_eq!(Arc::strong_count(&reads), 1);
    }
}

#[test]
fn an_error_of_the_file_is_told() {
    on_each(&Config::default(), |uring| {
        let (reads, _writes) = waiting();
        start(uring, &reads, FileOp::write(0, "x".into()));
        let (error, op) = came_to(next(uring));
        assert_eq!((error, op.written()), (is(Errno::BADF), Some((0, 1))));
        assert!(reads.as_raw_fd() > 0);
    });
}

/// It would be asked again for ever. Files that answer so are rare (attributes of devices in sysfs),
/// so this test answers. Of a sync the kernel has no memory.
#[test]
fn a_file_that_would_block_is_an_error() {
    on_each(&Config::default(), |uring| {
        let file = file();
        let op = start(uring, &file, FileOp::Sync { data_only: true });
        let again = -Errno::AGAIN.raw_os_error();
        let told = uring.complete(op.0, again, false).map(came_to);
        assert_eq!(told.and_then(|(error, _)| error), is(Errno::AGAIN));
        assert_eq!(uring.in_flight(), 0);
        // The kernel's own answer is for nothing that is there.
        assert!(poll(uring, 9).is_empty());
        drop(file);
    });
}
