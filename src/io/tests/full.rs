//! Queues that are full, and a kernel that takes nothing for the moment.

use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

use super::super::uring::{FLAVORS, Flavor};
use super::super::{Backend, Config, Done, Fd, How, Op, Token};
use super::world::{Client, PATIENCE, World};
use super::{Make, kernel, ring};

/// More than the completion queue of the tiny ring holds, by far.
const MANY: usize = 100;

/// All of it is known to be there without another sleep, although it overflows the queue.
pub(super) fn more_completes_than_is_polled(make: Make<'_>) {
    let mut world = make(&Config::default());
    let mut pairs: Vec<_> = (0..MANY).map(|_| world.pair()).collect();
    let recvs: Vec<_> = pairs.iter().map(|pair| world.recv(pair.0)).collect();
    world.quiet();
    everybody_writes(&world, &mut pairs);
    world.backend.wait(None).unwrap();
    // In portions, so that some stay in the queue while more want to come.
    world.limit = 7;
    while world.backend.has_work() {
        world.turn();
    }
    let here = |world: &World, op: &(Token, Op)| world.has_arrived(op.0);
    assert!(recvs.iter().all(|recv| here(&world, recv)));
    let sends: Vec<_> = pairs.iter().map(|pair| world.send(pair.0, "x")).collect();
    while world.backend.has_work() {
        world.turn();
    }
    assert!(sends.iter().all(|send| here(&world, send)));
    // A kernel that finds the queue full stops telling of more: it has been asked again.
    for recv in &recvs {
        world.received(recv.0).unwrap();
    }
    everybody_writes(&world, &mut pairs);
    for recv in &recvs {
        assert_eq!(world.received_bytes(recv.0, 1), b"x");
    }
    for ((fd, _), recv) in pairs.into_iter().zip(recvs) {
        world.hang_up(fd, recv);
    }
}

/// A kernel that is only asked to submit brings out fewer at once.
pub(super) fn all_that_has_happened_is_told_after_catching_up(make: Make<'_>) {
    const COUNT: usize = 3 * MANY;
    let mut world = make(&Config::default());
    world.limit = 2 * COUNT;
    let mut pairs: Vec<_> = (0..COUNT).map(|_| world.pair()).collect();
    let recvs: Vec<_> = pairs.iter().map(|pair| world.recv(pair.0)).collect();
    world.quiet();
    everybody_writes(&world, &mut pairs);
    let most = world.backend.catch_up().unwrap();
    world.turn();
    // Of a queue that was too small they come in portions.
    let start = Instant::now();
    let mut polls = 1;
    while world.backend.has_more() {
        world.turn();
        polls += 1;
        assert!(start.elapsed() < PATIENCE);
    }
    assert!(recvs.iter().all(|recv| world.has_arrived(recv.0)));
    assert!(polls > 1 || most >= COUNT, "{most} of {COUNT}");
    for ((fd, _), recv) in pairs.into_iter().zip(recvs) {
        world.received_bytes(recv.0, 1);
        world.hang_up(fd, recv);
    }
}

/// And no core has looked yet.
fn everybody_writes(world: &World, pairs: &mut [(Fd, Client)]) {
    for (_, client) in &mut *pairs {
        world.write_now(client, b"x");
    }
    // Acknowledged, so it is there, also on a machine that is slow to deliver.
    let start = Instant::now();
    while pairs.iter().any(|(_, client)| client.unacknowledged() > 0) {
        assert!(start.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(1));
    }
}

/// The same on short queues of each kind: only the kernel's overflow flag tells of it on a bare
/// ring, where nothing is deferred.
#[test]
fn overflow_is_seen_on_every_ring() {
    for flavor in FLAVORS {
        more_completes_than_is_polled(&|config| {
            let short = Config {
                submissions: 4,
                completions: 16,
                ..config.clone()
            };
            ring(flavor, &short)
        });
    }
}

/// While there is no room for what it has to tell.
#[test]
fn who_is_heard_of_again_takes_one_turn() {
    let mut world = kernel(Backend::Epoll, &Config::default());
    let mut pairs = [world.pair()];
    let recv = world.recv(pairs[0].0);
    world.limit = 0;
    for _ in 0..3 {
        everybody_writes(&world, &mut pairs);
        for _ in 0..3 {
            world.turn();
        }
        let told = format!("{:?}", world.backend);
        assert!(told.contains("active: 1,"), "{told}");
    }
    world.limit = 64;
    assert_eq!(world.received_bytes(recv.0, 3), b"xxx");
    world.hang_up(pairs[0].0, recv);
}

/// What is over is told before more is received, if there is room for one only.
#[test]
fn a_send_is_told_although_there_is_always_more_to_receive() {
    let mut world = kernel(
        Backend::Epoll,
        &Config {
            buffer_bytes: 64,
            ..Config::default()
        },
    );
    let (fd, mut client) = world.pair();
    let (recv, _) = world.recv(fd);
    world.write_now(&mut client, &[1; 10_000]);
    world.limit = 1;
    world.received(recv).unwrap();
    let (send, _) = world.send(fd, "answer");
    world.turn();
    assert!(world.has_arrived(send));
}

/// They fill all the room there is, turn for turn.
pub(super) fn those_who_send_much_keep_nobody_waiting(make: Make<'_>) {
    let mut world = make(&Config {
        buffer_bytes: 64,
        ..Config::default()
    });
    let mut pairs: Vec<_> = (0..4).map(|_| world.pair()).collect();
    let recvs: Vec<_> = pairs.iter().map(|pair| world.recv(pair.0).0).collect();
    world.quiet();
    world.limit = 2;
    let (quiet, much) = pairs.split_last_mut().unwrap();
    let sent = much
        .iter_mut()
        .map(|(_, client)| client.write(&[1; 50_000]).unwrap());
    let rounds = sent.min().unwrap() / 64;
    // All of them are at it when the last one asks.
    for recv in &recvs[..3] {
        world.received(*recv).unwrap();
    }
    quiet.1.write(b"x").unwrap();
    let mut turns = 0;
    while !world.has_arrived(recvs[3]) {
        world.turn();
        turns += 1;
        assert!(turns < rounds, "only after the others");
    }
    if world.is_sim() {
        return;
    }
    // Nor what is answered.
    let (answer, _) = world.send(pairs[3].0, "y");
    while !world.has_arrived(answer) {
        world.turn();
        turns += 1;
        assert!(turns < rounds, "only after the others");
    }
    drop(world);
}

/// More is started at once than the submission queue of the tiny ring holds, and then ended.
pub(super) fn more_starts_than_is_polled(make: Make<'_>) {
    let mut world = make(&Config::default());
    let pairs: Vec<_> = (0..MANY).map(|_| world.pair()).collect();
    let recvs: Vec<_> = pairs.iter().map(|pair| world.recv(pair.0)).collect();
    for &(_, op) in &recvs {
        world.backend.cancel(op);
    }
    let canceled = Some(Errno::CANCELED.raw_os_error());
    for &(token, _) in &recvs {
        assert_eq!(world.failure(token), canceled);
    }
    // All at once, of another kind.
    let sends: Vec<_> = pairs.iter().map(|pair| world.send(pair.0, "out")).collect();
    for (token, _) in sends {
        world.sent(token).0.unwrap();
    }
    for (fd, _) in pairs {
        world.backend.owner().shutdown(fd, How::Both);
        world.backend.close(fd);
    }
}

/// The kernel refuses to take three entries at once: with more it takes them. For a moment, and
/// whatever the reason, nothing is lost and nobody is told.
#[test]
fn refused_enters_pass() {
    for errno in [Errno::BUSY, Errno::AGAIN, Errno::INTR] {
        for flavor in FLAVORS {
            thread::spawn(move || refused(errno, flavor))
                .join()
                .unwrap();
        }
    }
}

fn refused(errno: Errno, flavor: Flavor) {
    let mut world = ring(flavor, &Config::default());
    let mut pairs: Vec<_> = (0..4).map(|_| world.pair()).collect();
    world.quiet();
    refuse_three(errno);
    let mut recvs: Vec<(Token, Op)> = (0..3).map(|i| world.recv(pairs[i].0)).collect();
    for (_, client) in &mut pairs {
        world.write_now(client, b"all");
    }
    // Again and again, and the entries stay in the queue.
    for _ in 0..5 {
        assert_eq!(world.turn(), 0, "{errno:?}, {flavor:?}");
        assert!(world.backend.has_work());
        world.backend.wait(None).unwrap();
    }
    recvs.push(world.recv(pairs[3].0));
    for recv in &recvs {
        match world.next(recv.0).done {
            Done::Received(Ok(buf)) => assert_eq!(&*buf, b"all"),
            other => panic!("{other:?}"),
        }
    }
    for ((fd, _), recv) in pairs.into_iter().zip(recvs) {
        world.hang_up(fd, recv);
    }
}

/// This thread's enters with three entries to submit come to this from now on.
fn refuse_three(errno: Errno) {
    let three = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, 3).unwrap();
    let rules = [(
        libc::SYS_io_uring_enter,
        vec![SeccompRule::new(vec![three]).unwrap()],
    )];
    let filter = SeccompFilter::new(
        rules.into_iter().collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(errno.raw_os_error() as u32),
        std::env::consts::ARCH.try_into().unwrap(),
    )
    .unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    apply_filter(&program).unwrap();
}

impl Client {
    /// Bytes written that the peer's kernel does not have.
    fn unacknowledged(&self) -> i32 {
        let Client::Tcp(stream) = self else { return 0 };
        let mut bytes = 0;
        // SAFETY: the descriptor is open, and this request writes one `int`.
        let res = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
        assert_eq!(res, 0);
        bytes
    }
}

impl World {
    /// Writes what fits for sure, and lets nothing turn meanwhile.
    fn write_now(&self, client: &mut Client, bytes: &[u8]) {
        assert_eq!(client.write(bytes).unwrap(), bytes.len());
    }
}
