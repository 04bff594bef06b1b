//! Operations that are ended early.

use std::time::Instant;

use rustix::io::Errno;

use super::super::{Config, Done, ListenOptions};
use super::Make;
use super::world::{PATIENCE, World};

fn canceled() -> Option<i32> {
    Some(Errno::CANCELED.raw_os_error())
}

pub(super) fn cancel_accept(make: Make<'_>) {
    let mut world = make(&Config::default());
    let (listener, addr) = world.listen();
    // Before it was handed over, and after.
    let (token, op) = world.accept(listener);
    world.backend.cancel(op);
    assert_eq!(world.failure(token), canceled());
    let (token, op) = world.accept(listener);
    world.quiet();
    world.backend.cancel(op);
    assert_eq!(world.failure(token), canceled());
    // A connection that comes now waits for the next accept.
    let _client = world.client(addr);
    world.quiet();
    let accept = world.accept(listener);
    let fd = world.accepted(accept.0);
    world.backend.close(fd);
    world.hang_up(listener, accept);
}

pub(super) fn cancel_recv(make: Make<'_>) {
    let mut world = make(&Config::default());
    let (fd, mut client) = world.pair();
    let (token, op) = world.recv(fd);
    world.backend.cancel(op);
    assert_eq!(world.failure(token), canceled());
    let (token, op) = world.recv(fd);
    world.write(&mut client, b"abc");
    world.received_bytes(token, 3);
    world.backend.cancel(op);
    assert_eq!(world.failure(token), canceled());
    world.write(&mut client, b"def");
    world.quiet();
    let recv = world.recv(fd);
    assert_eq!(
        world.received_bytes(recv.0, 3),
        b"def",
        "nothing is lost between two receives"
    );
    world.hang_up(fd, recv);
}

pub(super) fn cancel_readable(make: Make<'_>) {
    let mut world = make(&Config::default());
    let pipe = world.pipe();
    let (token, op) = world.readable(pipe.fd);
    world.quiet();
    world.backend.cancel(op);
    assert_eq!(world.failure(token), canceled());
    pipe.write();
    world.quiet();
    let (token, op) = world.readable(pipe.fd);
    assert!(matches!(world.next(token).done, Done::Ready(Ok(()))));
    world.backend.cancel(op);
    assert_eq!(world.failure(token), canceled());
}

pub(super) fn cancel_send(make: Make<'_>) {
    let mut world = make(&Config::default());
    let (fd, client) = world.pair();
    let len = 50_000_000;
    // The second finds no room at all.
    for least in [1, 0] {
        let (token, op) = world.send(fd, vec![1; len]);
        world.quiet();
        world.backend.cancel(op);
        let (res, buf, sent_bytes) = world.sent(token);
        assert_eq!(res.unwrap_err().raw_os_error(), canceled());
        assert_eq!(buf.len(), len);
        assert!((least..len).contains(&sent_bytes), "{sent_bytes}");
    }
    drop(client);
    world.backend.close(fd);
}

pub(super) fn cancel_connect(make: Make<'_>) {
    let mut world = make(&Config::default());
    // A listener that accepts nothing: when its queue is full, connecting takes forever.
    let (listener, addr) = world.listen_with(&ListenOptions {
        backlog: 1,
        reuse_port: false,
        mode: None,
    });
    let connects: Vec<_> = (0..6).map(|_| world.connect(addr)).collect();
    world.quiet_after_some();
    let mut in_time = 0;
    for (fd, token, op) in connects {
        world.backend.cancel(op);
        // Too late for those that found room.
        let end = world.failure(token);
        assert!(end.is_none() || end == canceled(), "{end:?}");
        in_time += usize::from(end.is_some());
        world.backend.close(fd);
    }
    assert!(in_time > 0);
    world.backend.close(listener);
}

pub(super) fn cancel_twice_and_late(make: Make<'_>) {
    let mut world = make(&Config::default());
    let (fd, mut client) = world.pair();
    let (first, first_op) = world.recv(fd);
    world.quiet();
    world.backend.cancel(first_op);
    world.backend.cancel(first_op);
    assert_eq!(world.failure(first), canceled());
    // The next one is given the same slot; the old name must not reach it.
    let recv = world.recv(fd);
    world.backend.cancel(first_op);
    world.quiet();
    world.write(&mut client, b"here");
    assert_eq!(world.received_bytes(recv.0, 4), b"here");
    world.backend.cancel(first_op);
    world.hang_up(fd, recv);
    world.backend.cancel(recv.1);
    world.quiet();
}

/// What was taken comes first, and the rest is the next receive's.
pub(super) fn cancel_with_more_to_read(make: Make<'_>) {
    let mut world = make(&Config {
        buffer_bytes: 16,
        ..Config::default()
    });
    let (fd, mut client) = world.pair();
    let bytes: Vec<u8> = (0..1000).map(|n| n as u8).collect();
    world.write(&mut client, &bytes);
    world.limit = 4;
    let (token, op) = world.recv(fd);
    let mut got = world.received(token).unwrap().to_vec();
    world.backend.cancel(op);
    let end = loop {
        match world.received(token) {
            Ok(buf) => got.extend_from_slice(&buf),
            Err(error) => break error,
        }
    };
    assert_eq!(end.raw_os_error(), canceled());
    assert!(got.len() < bytes.len(), "there was more");
    let recv = world.recv(fd);
    got.extend(world.received_bytes(recv.0, bytes.len() - got.len()));
    assert!(got == bytes);
    world.hang_up(fd, recv);
}

pub(super) fn cancel_races_with_receives(make: Make<'_>) {
    let mut world = make(&Config {
        buffers: 4,
        buffer_bytes: 64,
        ..Config::default()
    });
    let (fd, mut client) = world.pair();
    let (mut sent, mut got) = (Vec::new(), Vec::new());
    for round in 0..300u32 {
        let (token, op) = world.recv(fd);
        for n in 0..round % 4 {
            let bytes = vec![(round + n) as u8; 40];
            world.write(&mut client, &bytes);
            sent.extend(bytes);
            if n == 1 {
                world.turn();
            }
        }
        world.backend.cancel(op);
        loop {
            let completion = world.next(token);
            match completion.done {
                Done::Received(Ok(buf)) => got.extend_from_slice(&buf),
                Done::Received(Err(error)) => assert_eq!(error.raw_os_error(), canceled()),
                other => panic!("{other:?}"),
            }
            if !completion.more {
                break;
            }
        }
    }
    let recv = world.recv(fd);
    got.extend(world.received_bytes(recv.0, sent.len() - got.len()));
    assert!(got == sent, "each byte once and in order, whoever won");
    world.write(&mut client, &[0; 256]);
    let all: Vec<_> = (0..4).map(|_| world.received(recv.0).unwrap()).collect();
    assert_eq!(all.len(), 4, "no buffer got lost");
    drop(all);
    world.hang_up(fd, recv);
}

pub(super) fn cancel_races_with_sends(make: Make<'_>) {
    let mut world = make(&Config::default());
    let (fd, mut client) = world.pair();
    for round in 0..200usize {
        let len = if round % 2 == 0 { 100 } else { 30_000 };
        let (token, op) = world.send(fd, vec![round as u8; len]);
        if round % 3 == 0 {
            world.turn();
        }
        world.backend.cancel(op);
        let (res, buf, sent_bytes) = world.sent(token);
        assert_eq!(buf.len(), len);
        match res {
            Ok(()) => assert_eq!(sent_bytes, len),
            Err(error) => assert_eq!(error.raw_os_error(), canceled()),
        }
        assert_eq!(
            world.read(&mut client, sent_bytes),
            vec![round as u8; sent_bytes]
        );
    }
    world.backend.close(fd);
}

/// Connections that come while accepting ends: with this accept or with the next, and none is lost.
pub(super) fn cancel_races_with_accepts(make: Make<'_>) {
    let mut world = make(&Config::default());
    let (listener, addr) = world.listen();
    let mut clients = Vec::new();
    let mut accepted = Vec::new();
    for round in 0..150 {
        let (token, op) = world.accept(listener);
        if round % 3 == 0 {
            world.turn();
        }
        clients.extend((0..round % 4).map(|_| world.client(addr)));
        if round % 2 == 0 {
            world.turn();
        }
        world.backend.cancel(op);
        loop {
            let completion = world.next(token);
            match completion.done {
                Done::Accepted(Ok(fd)) => accepted.push(fd),
                Done::Accepted(Err(error)) => assert_eq!(error.raw_os_error(), canceled()),
                other => panic!("{other:?}"),
            }
            if !completion.more {
                break;
            }
        }
    }
    let accept = world.accept(listener);
    while accepted.len() < clients.len() {
        accepted.push(world.accepted(accept.0));
    }
    world.quiet();
    for fd in accepted {
        world.backend.close(fd);
    }
    for client in &mut clients {
        assert_eq!(
            world.read_end(client).unwrap(),
            0,
            "each was somebody's to close"
        );
    }
    world.hang_up(listener, accept);
}

pub(super) fn dropped_with_everything_under_way(make: Make<'_>) {
    let mut world = make(&Config {
        buffers: 2,
        ..Config::default()
    });
    let (listener, addr) = world.listen();
    world.accept(listener);
    let pairs: Vec<_> = (0..20).map(|_| world.pair()).collect();
    let pipe = world.pipe();
    world.readable(pipe.fd);
    for &(fd, _) in &pairs {
        world.recv(fd);
        world.send(fd, vec![3; 10_000_000]);
    }
    world.quiet_after_some();
    // Things that arrive between the last poll and the drop.
    let mut late = world.client(addr);
    let mut pairs = pairs;
    for (_, client) in &mut pairs {
        client.write(b"unheard").unwrap();
    }
    let fds: Vec<_> = pairs.iter().map(|pair| pair.0).chain([listener]).collect();
    let mut after = world.another();
    let start = Instant::now();
    drop(world);
    assert!(start.elapsed() < PATIENCE / 2, "{:?}", start.elapsed());
    for fd in fds {
        after.backend.close(fd);
    }
    // Accepted and never told, or never accepted: nobody keeps it open.
    assert_eq!(after.read_end(&mut late).unwrap_or(0), 0);
}

impl World {
    /// Whatever comes at first, and then nothing.
    pub(super) fn quiet_after_some(&mut self) {
        self.until(|world| {
            let busy = (0..5).any(|_| {
                world
                    .backend
                    .wait(Some(std::time::Duration::from_millis(2)))
                    .unwrap();
                world.turn() > 0
            });
            (!busy).then_some(())
        });
    }
}
