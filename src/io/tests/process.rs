//! What needs a thread or a process of its own: filters of system calls, limits, signals.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, connect, socket};
use rustix::process::{Resource, Rlimit, Signal, getpid, getrlimit, kill_process, setrlimit};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

use super::super::uring::FLAVORS;
use super::super::{
    Backend, Config, Done, EventSource, Fd, How, Report, SendBuf, Signals, raise_open_file_limit,
};
use super::ring;
use super::world::World;

/// These system calls of this thread come to this from now on.
fn refuse(calls: &[i64], errno: Errno) {
    instead(calls, errno.raw_os_error() as u32);
}

/// They do nothing, and fail with this number; with 0 they seem not to.
fn instead(calls: &[i64], errno: u32) {
    let rules = calls.iter().map(|&call| (call, Vec::new())).collect();
    let errno = SeccompAction::Errno(errno);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, errno, arch).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    apply_filter(&program).unwrap();
}

/// Makes a backend on a thread that may not use these system calls.
fn without(calls: &'static [i64], choice: Backend) -> Result<Report, std::io::Error> {
    let refused = move || {
        refuse(calls, Errno::PERM);
        let (backend, report) = EventSource::new(choice, &Config::default())?;
        // It works, too.
        let mut world = World::new(backend, None);
        let (fd, mut client) = world.pair();
        let recv = world.recv(fd);
        world.write(&mut client, b"hello");
        world.received_bytes(recv.0, 5);
        world.hang_up(fd, recv);
        Ok(report)
    };
    thread::spawn(refused).join().unwrap()
}

/// A signal says nothing about the connection: what it has interrupted is tried again in the next
/// turns.
#[test]
fn interrupted_calls_are_made_again() {
    let interrupted = |choice: Backend| {
        let is_epoll = matches!(choice, Backend::Epoll);
        let mut world = super::kernel(choice, &Config::default());
        let (receiving, mut client) = world.pair();
        let (sending, _client) = world.pair();
        world.write(&mut client, b"hello");
        refuse(&[libc::SYS_recvfrom, libc::SYS_sendto], Errno::INTR);
        world.recv(receiving);
        if is_epoll {
            // The ring sends without a call of ours.
            world.send(sending, "hello");
        }
        let active = format!("active: {},", 1 + usize::from(is_epoll));
        world.until(|world| {
            format!("{:?}", world.backend)
                .contains(&active)
                .then_some(())
        });
        for _ in 0..10 {
            assert_eq!(world.turn(), 0);
            let told = format!("{:?}", world.backend);
            assert!(told.contains(&active), "{told}");
        }
    };
    for choice in [Backend::Epoll, Backend::IoUring] {
        thread::spawn(move || interrupted(choice)).join().unwrap();
    }
}

/// Whoever has gone before the accept is passed over; lack of descriptors is told.
#[test]
fn who_is_gone_before_the_accept_is_passed_over() {
    let accepts = |errno: Errno, is_told: bool| {
        let mut world = super::kernel(Backend::Epoll, &Config::default());
        let (listener, addr) = world.listen();
        let (accept, _) = world.accept(listener);
        let _client = world.client(addr);
        refuse(&[libc::SYS_accept4], errno);
        if is_told {
            assert_eq!(world.failure(accept), Some(errno.raw_os_error()));
            return;
        }
        world.until(|world| world.backend.has_work().then_some(()));
        for _ in 0..10 {
            assert_eq!(world.turn(), 0, "{errno}");
            assert!(world.backend.has_work());
        }
    };
    let passing = [Errno::CONNABORTED, Errno::PROTO, Errno::INTR];
    let told = [Errno::NFILE, Errno::MFILE, Errno::NOBUFS];
    let all = passing.map(|errno| (errno, false)).into_iter();
    for (errno, is_told) in all.chain(told.map(|errno| (errno, true))) {
        thread::spawn(move || accepts(errno, is_told))
            .join()
            .unwrap();
    }
}

#[test]
fn everything_allowed_is_the_best_ring() {
    let report = without(&[libc::SYS_acct], Backend::Auto).unwrap();
    let text = report.to_string();
    assert_eq!(text, "io_uring (single issuer, deferred task work)");
    assert!(report.refused.is_empty());
}

#[test]
fn a_refused_ring_is_epoll_and_says_why() {
    let report = without(&[libc::SYS_io_uring_setup], Backend::Auto).unwrap();
    assert_eq!(report.name, "epoll");
    let text = report.to_string();
    assert!(text.contains("because io_uring"), "{text}");
    assert!(
        text.contains("seccomp") && text.contains("os error 1"),
        "{text}"
    );
}

#[test]
fn a_ring_that_may_not_register_or_enter_is_epoll() {
    for call in [&[libc::SYS_io_uring_register], &[libc::SYS_io_uring_enter]] {
        let report = without(call, Backend::Auto).unwrap();
        assert_eq!(report.name, "epoll", "{report}");
        assert_eq!(report.refused.len(), 3, "{report}");
    }
}

/// Nothing would ever wake a core on it.
#[test]
fn a_ring_that_completes_nothing_is_epoll() {
    let report = thread::spawn(|| {
        instead(&[libc::SYS_io_uring_enter], 0);
        EventSource::new(Backend::Auto, &Config::default())
            .unwrap()
            .1
    });
    let report = report.join().unwrap();
    assert_eq!(report.name, "epoll", "{report}");
    let refused = &report.refused;
    let says = |text: &String| text.contains("the ring completes nothing");
    assert!(refused.len() == 3 && refused.iter().all(says), "{report}");
}

/// Where the exact wait is refused, epoll sleeps for some milliseconds, and no longer.
#[test]
fn epoll_does_without_the_wait_that_counts_nanoseconds() {
    for errno in [Errno::PERM, Errno::NOSYS] {
        let waits = move || {
            refuse(&[libc::SYS_epoll_pwait2], errno);
            let (mut backend, _) = EventSource::new(Backend::Epoll, &Config::default()).unwrap();
            for _ in 0..3 {
                backend.wait(Some(Duration::from_micros(50))).unwrap();
            }
            // Not with a timeout either is a ring of the doorbell lost.
            backend.doorbell().ring();
            backend.wait(Some(Duration::MAX)).unwrap();
        };
        thread::spawn(waits).join().unwrap();
    }
}

#[test]
fn a_forced_backend_is_that_or_an_error() {
    let error = without(&[libc::SYS_io_uring_setup], Backend::IoUring).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(
        error
            .to_string()
            .contains("no event source can be set up: io_uring"),
        "{error}"
    );
    let error = without(&[libc::SYS_epoll_create1], Backend::Epoll).unwrap_err();
    assert!(error.to_string().contains("epoll: "), "{error}");
    let report = without(&[libc::SYS_io_uring_setup], Backend::Epoll).unwrap();
    assert_eq!(report.to_string(), "epoll (edge-triggered)");
}

#[test]
fn with_both_refused_the_error_tells_of_both() {
    let error = without(
        &[libc::SYS_io_uring_setup, libc::SYS_epoll_create1],
        Backend::Auto,
    );
    let text = error.unwrap_err().to_string();
    assert!(
        text.contains("io_uring (single issuer") && text.contains("epoll: "),
        "{text}"
    );
}

/// Runs one of the `child_` tests below in a process of its own, on each backend of the kernel.
fn in_children(test: &str) {
    for backend in ["io_uring", "epoll"] {
        let name = format!("io::tests::process::{test}");
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", &name, "--ignored", "--nocapture"])
            .env("MELY_BACKEND", backend)
            .stdin(Stdio::null());
        // It ignores no signal, whatever this process ignores (SIGINT in the background of a
        // script).
        // SAFETY: system calls that are allowed between fork and exec. They fail for two signals,
        // which nothing ignores.
        unsafe {
            command.pre_exec(|| {
                (1..32).for_each(|signal| {
                    libc::signal(signal, libc::SIG_DFL);
                });
                Ok(())
            });
        }
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{backend}: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

fn chosen_by_env() -> World {
    let choice = Backend::from_env().unwrap();
    let (backend, report) = EventSource::new(choice, &Config::default()).unwrap();
    assert_eq!(report.name, std::env::var("MELY_BACKEND").unwrap());
    World::new(backend, None)
}

/// Who lives by the kernel alone is told that it refuses, and makes no call where none is due.
#[test]
fn a_ring_that_may_not_enter_any_more_says_so() {
    for flavor in FLAVORS {
        let refused = move || {
            let mut world = ring(flavor, &Config::default());
            let (fd, _client) = world.pair();
            world.quiet();
            refuse(&[libc::SYS_io_uring_enter], Errno::PERM);
            for _ in 0..5 {
                assert_eq!(world.turn(), 0);
            }
            let refusal = Some(Errno::PERM.raw_os_error());
            for timeout in [None, Some(Duration::ZERO)] {
                let error = world.backend.wait(timeout).unwrap_err();
                assert_eq!(error.raw_os_error(), refusal);
            }
            world.recv(fd);
            let error = world.backend.poll(&mut Vec::new(), 1).unwrap_err();
            assert_eq!(error.raw_os_error(), refusal);
        };
        thread::spawn(refused).join().unwrap();
    }
}

/// For the moment: the entries stay, those too for which the queue has no room.
#[test]
fn a_full_queue_of_which_nothing_is_taken_stays() {
    for flavor in FLAVORS {
        let refused = move || {
            let short = Config {
                submissions: 4,
                completions: 16,
                ..Config::default()
            };
            let mut world = ring(flavor, &short);
            let pairs: Vec<_> = (0..6).map(|_| world.pair()).collect();
            world.quiet();
            refuse(&[libc::SYS_io_uring_enter], Errno::BUSY);
            for (fd, _) in &pairs {
                world.recv(*fd);
            }
            for _ in 0..3 {
                assert_eq!(world.turn(), 0);
                assert!(world.backend.has_work());
                world.backend.wait(None).unwrap();
            }
        };
        thread::spawn(refused).join().unwrap();
    }
}

/// What the kernel reads is freed when it reads it no more, and never if it would not say so.
#[test]
fn what_was_to_be_sent_is_freed_with_the_ring() {
    let freed = |flavor, is_refused: bool| {
        let mut world = ring(flavor, &Config::default());
        let (fd, _client) = world.pair();
        let bytes: Arc<[u8]> = vec![1; 50_000_000].into();
        world.send(fd, SendBuf::shared(Arc::clone(&bytes), 0..bytes.len()));
        world.quiet();
        if is_refused {
            refuse(&[libc::SYS_io_uring_enter], Errno::PERM);
        }
        drop(world);
        assert_eq!(Arc::strong_count(&bytes), 1 + usize::from(is_refused));
    };
    for flavor in FLAVORS {
        for is_refused in [false, true] {
            thread::spawn(move || freed(flavor, is_refused))
                .join()
                .unwrap();
        }
    }
}

#[test]
fn a_send_to_nobody_raises_no_signal() {
    in_children("child_a_send_to_nobody_raises_no_signal");
}

#[test]
#[ignore = "run by a_send_to_nobody_raises_no_signal"]
fn child_a_send_to_nobody_raises_no_signal() {
    // SAFETY: this process runs nothing but this test, and sets no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let mut world = chosen_by_env();
    let (fd, _client) = world.pair();
    world.backend.owner().shutdown(fd, How::Write);
    assert_eq!(
        world
            .backend
            .owner()
            .send_now(fd, &SendBuf::from("x").into()),
        0
    );
    let (send, _) = world.send(fd, "x");
    let error = world.sent(send).0.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    world.backend.close(fd);
}

#[test]
fn descriptors_run_out() {
    in_children("child_descriptors_run_out");
}

#[test]
#[ignore = "run by descriptors_run_out"]
fn child_descriptors_run_out() {
    let maximum = raise_open_file_limit().unwrap();
    assert_eq!(
        getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
        maximum
    );
    let limit = |most| {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(maximum),
        };
        setrlimit(Resource::Nofile, limit).unwrap();
    };
    let mut world = chosen_by_env();
    let (listener, addr) = world.listen();
    // The client has its descriptor before there are no more.
    let client = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    // The ring goes by the limit that holds when an accept is armed, and fails without waiting for
    // a connection; epoll notices with the connection.
    limit(3);
    let (token, _) = world.accept(listener);
    connect(&client, &addr).unwrap();
    assert_eq!(world.failure(token), Some(Errno::MFILE.raw_os_error()));
    world.quiet();
    // It ends anew while nothing has changed, and finds the waiting connection when there is room.
    let (token, _) = world.accept(listener);
    assert_eq!(world.failure(token), Some(Errno::MFILE.raw_os_error()));
    limit(maximum);
    let accept = world.accept(listener);
    let fd = world.accepted(accept.0);
    world.backend.close(fd);
    world.hang_up(listener, accept);
}

#[test]
fn signals_become_readable() {
    in_children("child_signals_become_readable");
}

#[test]
#[ignore = "run by signals_become_readable"]
fn child_signals_become_readable() {
    let mut world = chosen_by_env();
    let signals = Signals::new(&[libc::SIGINT, libc::SIGTERM], false).unwrap();
    let (token, op) = world.readable(Fd::from_raw(signals.as_fd().as_raw_fd()));
    world.quiet();
    assert_eq!(signals.take().next(), None);
    for signal in [Signal::TERM, Signal::INT] {
        kill_process(getpid(), signal).unwrap();
        assert!(matches!(world.next(token).done, Done::Ready(Ok(()))));
        assert!(signals.take().eq([signal.as_raw()]));
        world.quiet();
    }
    world.backend.cancel(op);
    world.failure(token);
}

#[test]
fn a_signal_for_a_forked_child_is_not_taken_for_ones_own() {
    in_children("child_forks_and_is_signaled");
}

#[test]
#[ignore = "run by a_signal_for_a_forked_child_is_not_taken_for_ones_own"]
fn child_forks_and_is_signaled() {
    let signals = Signals::new(&[libc::SIGINT, libc::SIGTERM], false).unwrap();
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the child makes two system calls that are allowed after a fork.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: see above; the handler has run when `raise` returns.
            unsafe {
                libc::raise(signal);
                libc::_exit(7);
            }
        }
        let mut status = 0;
        // SAFETY: it writes an `i32`, which `status` is.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(waited, child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7);
        assert_eq!(signals.take().next(), None, "{signal} was for the child");
        // SAFETY: it has a handler.
        unsafe { libc::raise(signal) };
        assert!(signals.take().eq([signal]), "{signal} was for this process");
    }
}

#[test]
fn a_signal_that_is_ignored_goes_on_being_ignored() {
    in_children("child_ignores_a_signal");
}

#[test]
#[ignore = "run by a_signal_that_is_ignored_goes_on_being_ignored"]
fn child_ignores_a_signal() {
    // As in a process that a shell without job control has started in the background.
    // SAFETY: no handler is set.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
    let signals = Signals::new(&[libc::SIGINT, libc::SIGTERM], false).unwrap();
    // SAFETY: it is ignored, or has a handler.
    unsafe { libc::raise(libc::SIGINT) };
    assert_eq!(signals.take().next(), None);
    // SAFETY: it has a handler.
    unsafe { libc::raise(libc::SIGTERM) };
    // Both, in the order of their numbers, and each once.
    let twice = Signals::new(&[libc::SIGUSR2, libc::SIGUSR1], false).unwrap();
    for signal in [libc::SIGUSR2, libc::SIGUSR1, libc::SIGUSR2] {
        // SAFETY: it has a handler.
        unsafe { libc::raise(signal) };
    }
    assert!(twice.take().eq([libc::SIGUSR1, libc::SIGUSR2]));
    for signal in [
        0,
        -1,
        65,
        33,
        libc::SIGKILL,
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGURG,
    ] {
        let error = Signals::check(&[signal]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(
            error.to_string().starts_with(&format!("signal {signal} ")),
            "{error}"
        );
    }
    assert!(signals.take().eq([libc::SIGTERM]));
    drop(signals);
    // SAFETY: asks only, by setting what is set already.
    let before = unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
    assert_eq!(before, libc::SIG_IGN);
}
