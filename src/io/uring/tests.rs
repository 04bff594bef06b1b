//! What kernels seldom do, or at moments that no test can choose: here we play their part.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::event::PollFlags;
use rustix::io::Errno;

use super::super::{Fd, ListenOptions, SendBuf, Side, Token};
use super::*;

const PATIENCE: Duration = Duration::from_secs(20);
const IN: i32 = PollFlags::IN.bits() as i32;

/// On a ring of each flavor.
pub(super) fn on_each(config: &Config, test: impl Fn(&mut Uring)) {
    for flavor in FLAVORS {
        let mut uring = Uring::new(flavor, config).unwrap();
        uring.poll(&mut Vec::new(), 1).unwrap();
        test(&mut uring);
    }
}

/// Receives come in portions of 16 bytes.
fn small_buffers() -> Config {
    Config {
        buffer_bytes: 16,
        ..Config::default()
    }
}

pub(super) fn poll(uring: &mut Uring, limit: usize) -> Vec<Completion> {
    let mut out = Vec::new();
    uring.poll(&mut out, limit).unwrap();
    out
}

/// The one completion that comes.
pub(super) fn next(uring: &mut Uring) -> Completion {
    let start = Instant::now();
    loop {
        if let Some(completion) = poll(uring, 1).pop() {
            return completion;
        }
        assert!(start.elapsed() < PATIENCE, "nothing comes: {uring:?}");
        uring.wait(Some(Duration::from_millis(2))).unwrap();
    }
}

/// A receive that the kernel knows of, its descriptor, and the peer.
fn receive(uring: &mut Uring) -> (Op, UnixStream, UnixStream) {
    let (here, there) = UnixStream::pair().unwrap();
    let op = uring.recv(Token(0), Fd::from_raw(here.as_raw_fd()));
    poll(uring, 1);
    (op, here, there)
}

/// The kernel says that this came of it, and whether more will.
fn told(uring: &mut Uring, op: Op, errno: Errno, more: bool) -> Option<Completion> {
    uring.complete(op.0, -errno.raw_os_error(), more)
}

/// It goes on, and the kernel has been asked again.
fn is_asked_again(uring: &mut Uring) -> bool {
    let is_asked = uring.glance().queued;
    poll(uring, 0);
    is_asked && uring.in_flight() == 1
}

/// It is over, and this is the reason.
fn reason(completion: Option<Completion>) -> Option<i32> {
    let completion = completion.expect("it has ended");
    assert!(!completion.more);
    completion.done.error()?.raw_os_error()
}

pub(super) fn is(errno: Errno) -> Option<i32> {
    Some(errno.raw_os_error())
}

#[test]
fn the_queues_are_as_long_as_asked() {
    let config = Config {
        submissions: 8,
        completions: 64,
        ..Config::default()
    };
    on_each(&config, |uring| {
        let params = uring.ring.params();
        assert_eq!((params.sq_entries(), params.cq_entries()), (8, 64));
    });
}

/// However short its queue is.
#[test]
fn one_poll_hands_over_what_was_started_and_the_end_lets_go_of_it() {
    let short = Config {
        submissions: 4,
        completions: 16,
        ..Config::default()
    };
    for config in [short, Config::default()] {
        on_each(&config, |uring| {
            let pairs: Vec<_> = (0..30).map(|_| UnixStream::pair().unwrap()).collect();
            for (here, _) in &pairs {
                uring.recv(Token(0), Fd::from_raw(here.as_raw_fd()));
            }
            assert!(uring.glance().queued);
            poll(uring, 0);
            assert!(!uring.glance().queued && uring.backlog.is_empty());
            assert_eq!(uring.in_flight(), 30);
            assert!(uring.drain());
            assert_eq!(uring.in_flight(), 0);
        });
    }
}

#[test]
fn a_receive_goes_on_for_passing_reasons_only() {
    on_each(&small_buffers(), |uring| {
        let (op, _here, mut there) = receive(uring);
        // All was read: nothing to do but to wait.
        there.write_all(b"short").unwrap();
        assert!(next(uring).more);
        assert!(!uring.has_own_work());
        // Nothing in particular.
        assert!(uring.complete(op.0, 0, true).is_none());
        assert!(!uring.glance().queued);
        for errno in [Errno::AGAIN, Errno::INTR] {
            assert!(told(uring, op, errno, false).is_none());
            assert!(is_asked_again(uring), "{errno}");
        }
        let end = told(uring, op, Errno::PERM, false);
        assert_eq!(reason(end), is(Errno::PERM));
        assert_eq!(uring.in_flight(), 0);
    });
}

/// Until then the kernel holds the descriptor, and a close would not close.
#[test]
fn a_canceled_receive_ends_with_its_last_entry() {
    on_each(&small_buffers(), |uring| {
        let (op, _here, _there) = receive(uring);
        uring.cancel(op);
        assert!(uring.complete(op.0, IN, true).is_none());
        assert_eq!(uring.in_flight(), 1);
        let end = told(uring, op, Errno::CANCELED, false);
        assert_eq!(reason(end), is(Errno::CANCELED));
        assert_eq!(uring.in_flight(), 0);
    });
}

/// Of which no entry will come: it is over at once, and told when there is room.
#[test]
fn a_canceled_receive_may_have_no_poll() {
    on_each(&small_buffers(), |uring| {
        let receives = [(); 2].map(|()| {
            let (op, here, mut there) = receive(uring);
            there.write_all(&[1; 10_000]).unwrap();
            // It has more to read and goes on by itself, when a queue is full.
            let start = Instant::now();
            while !uring.active.contains(&op) {
                assert!(start.elapsed() < PATIENCE);
                poll(uring, 8);
            }
            assert!(told(uring, op, Errno::AGAIN, false).is_none());
            (op, here, there)
        });
        for (op, ..) in &receives {
            uring.cancel(*op);
        }
        for (limit, left) in [(0, 2), (1, 1), (1, 0)] {
            assert!(uring.has_own_work());
            let ended = poll(uring, limit);
            assert_eq!((ended.len(), uring.in_flight()), (limit, left));
            for completion in ended {
                assert_eq!(reason(Some(completion)), is(Errno::CANCELED));
            }
        }
        assert!(!uring.has_own_work());
    });
}

#[test]
fn an_accept_goes_on_for_what_is_no_matter_of_the_listener() {
    on_each(&Config::default(), |uring| {
        let any = "127.0.0.1:0".into();
        let listener = uring.listen(&any, &ListenOptions::default()).unwrap();
        let op = uring.accept(Token(0), listener);
        poll(uring, 1);
        for errno in [Errno::AGAIN, Errno::INTR, Errno::CONNABORTED, Errno::PROTO] {
            assert!(told(uring, op, errno, false).is_none());
            assert!(is_asked_again(uring), "{errno}");
        }
        let end = told(uring, op, Errno::MFILE, false);
        assert_eq!(reason(end), is(Errno::MFILE));
        uring.close(listener);
    });
}

#[test]
fn a_multishot_that_has_ended_goes_on_unless_it_is_canceled() {
    on_each(&Config::default(), |uring| {
        let (here, _there) = UnixStream::pair().unwrap();
        let start = |uring: &mut Uring| {
            let op = uring.ready(Token(0), Fd::from_raw(here.as_raw_fd()), Side::Reader);
            poll(uring, 1);
            op
        };
        let op = start(uring);
        let completion = uring.complete(op.0, IN, false).unwrap();
        assert!(completion.more);
        assert!(is_asked_again(uring));
        assert!(told(uring, op, Errno::AGAIN, false).is_none());
        assert!(is_asked_again(uring));
        uring.cancel(op);
        let completion = uring.complete(op.0, IN, false).unwrap();
        assert!(completion.more);
        let end = poll(uring, 1).pop();
        assert_eq!(reason(end), is(Errno::CANCELED));
        // What it came to is told, if that is anything.
        for (errno, end) in [
            (Errno::AGAIN, Errno::CANCELED),
            (Errno::CANCELED, Errno::CANCELED),
            (Errno::BADF, Errno::BADF),
        ] {
            let op = start(uring);
            uring.cancel(op);
            let completion = told(uring, op, errno, false);
            assert_eq!(reason(completion), is(end));
        }
    });
}

/// It would be asked for ever.
#[test]
fn a_send_of_which_nothing_was_taken_has_failed() {
    on_each(&Config::default(), |uring| {
        let (here, _there) = UnixStream::pair().unwrap();
        let fd = Fd::from_raw(here.as_raw_fd());
        let op = uring.send(Token(0), fd, SendBuf::from("all").into());
        let end = uring.complete(op.0, 0, false);
        assert_eq!(reason(end), is(Errno::PIPE));
    });
}

#[test]
fn the_doorbell_is_watched_for_as_long_as_the_ring_lives() {
    on_each(&Config::default(), |uring| {
        uring.complete(DOORBELL, IN, true);
        assert!(!uring.glance().queued);
        for res in [IN, -Errno::CANCELED.raw_os_error()] {
            uring.complete(DOORBELL, res, false);
            assert!(uring.glance().queued);
            poll(uring, 1);
        }
    });
}

/// The threads that the system takes for ones that wait for a disk.
fn blocked() -> usize {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let line = stat
        .lines()
        .find_map(|line| line.strip_prefix("procs_blocked "));
    line.unwrap().parse().unwrap()
}

/// Whether a thread of this process sleeps.
fn sleeps(thread: rustix::thread::Pid) -> bool {
    let path = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
    let stat = std::fs::read_to_string(path).unwrap();
    stat.rsplit_once(") ").unwrap().1.starts_with('S')
}

#[test]
fn a_core_that_sleeps_does_not_wait_for_a_disk() {
    // More than wait for one on a machine that is busy with other things.
    const RINGS: usize = 64;
    let small = Config {
        submissions: 4,
        completions: 16,
        ..Config::default()
    };
    let uring = Uring::new(Flavor::Bare, &small).unwrap();
    if !uring.ring.params().is_feature_no_iowait() {
        eprintln!("not applicable: this kernel has no IORING_FEAT_NO_IOWAIT");
        return;
    }
    let (tell, told) = std::sync::mpsc::channel();
    let sleepers: Vec<_> = (0..RINGS)
        .map(|_| {
            let (tell, small) = (tell.clone(), small.clone());
            std::thread::spawn(move || {
                let mut uring = Uring::new(Flavor::Deferred, &small).unwrap();
                tell.send((rustix::thread::gettid(), uring.doorbell()))
                    .unwrap();
                drop(tell);
                uring.wait(None).unwrap();
            })
        })
        .collect();
    drop(tell);
    let rings: Vec<_> = told.iter().collect();
    let start = Instant::now();
    let all_sleep = || rings.iter().all(|(thread, _)| sleeps(*thread));
    // Others that wait for a disk are done some time.
    while !(all_sleep() && blocked() < RINGS / 2) {
        assert!(start.elapsed() < PATIENCE, "{} are blocked", blocked());
        std::thread::sleep(Duration::from_millis(10));
    }
    rings.iter().for_each(|(_, doorbell)| doorbell.ring());
    for sleeper in sleepers {
        sleeper.join().unwrap();
    }
}
