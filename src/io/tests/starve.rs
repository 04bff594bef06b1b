//! A pool without buffers.

use std::thread;
use std::time::{Duration, Instant};

use super::super::{Config, RecvBuf};
use super::Make;
use super::world::{PATIENCE, World};

fn four_buffers() -> Config {
    Config {
        buffers: 4,
        buffer_bytes: 64,
        ..Config::default()
    }
}

pub(super) fn all_buffers_held(make: Make<'_>) {
    let mut world = make(&four_buffers());
    let (fd, mut client) = world.pair();
    let recv = world.recv(fd);
    for _ in 0..5 {
        let bytes: Vec<u8> = (0..1000).map(|n| n as u8).collect();
        world.write(&mut client, &bytes);
        let held: Vec<RecvBuf> = (0..4).map(|_| world.received(recv.0).unwrap()).collect();
        let mut got: Vec<u8> = held.iter().flat_map(|buf| buf.to_vec()).collect();
        // There is more, and no buffer: nothing comes, nothing spins, sleeping works.
        world.quiet();
        assert!(!world.backend.has_work());
        if !world.is_sim() {
            let start = Instant::now();
            world.backend.wait(Some(Duration::from_millis(30))).unwrap();
            assert!(
                start.elapsed() >= Duration::from_millis(25),
                "woke without a cause"
            );
            assert!(!world.backend.has_work());
        }
        // A return elsewhere wakes this core.
        let returner = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            drop(held);
        });
        let start = Instant::now();
        if world.is_sim() {
            returner.join().unwrap();
        } else {
            world.backend.wait(Some(PATIENCE)).unwrap();
            assert!(
                start.elapsed() < PATIENCE / 2,
                "the returned buffer did not wake"
            );
            returner.join().unwrap();
        }
        assert!(world.backend.has_work());
        got.extend(world.received_bytes(recv.0, bytes.len() - got.len()));
        assert!(got == bytes);
        world.quiet();
        assert!(
            !world.backend.has_work(),
            "nobody waits for a buffer any more"
        );
    }
    world.hang_up(fd, recv);
}

/// No further edge tells of the end: it was heard of when there was no buffer.
pub(super) fn hung_up_while_starved(make: Make<'_>) {
    let mut world = make(&four_buffers());
    let (fd, mut client) = world.pair();
    let recv = world.recv(fd);
    let bytes: Vec<u8> = (0..1000).map(|n| n as u8).collect();
    world.write(&mut client, &bytes);
    let held: Vec<RecvBuf> = (0..4).map(|_| world.received(recv.0).unwrap()).collect();
    client.shutdown_write();
    world.quiet_after_some();
    let mut got: Vec<u8> = held.iter().flat_map(|buf| buf.to_vec()).collect();
    drop(held);
    got.extend(world.received_bytes(recv.0, bytes.len() - got.len()));
    assert!(got == bytes);
    assert!(world.received(recv.0).unwrap().is_end());
    world.backend.close(fd);
}

pub(super) fn fewer_buffers_than_connections(make: Make<'_>) {
    let mut world = make(&four_buffers());
    let mut pairs: Vec<_> = (0..40).map(|_| world.pair()).collect();
    let recvs: Vec<_> = pairs.iter().map(|pair| world.recv(pair.0)).collect();
    for round in 0..10u8 {
        for (_, client) in &mut pairs {
            world.write(client, &[round; 150]);
        }
        for bytes in world.received_on_all(&recvs, 150) {
            assert_eq!(bytes, [round; 150]);
        }
    }
    for ((fd, _), recv) in pairs.into_iter().zip(recvs) {
        world.hang_up(fd, recv);
    }
}

pub(super) fn buffers_outlive_the_backend(make: Make<'_>) {
    let mut world = make(&four_buffers());
    let (fd, mut client) = world.pair();
    let recv = world.recv(fd);
    world.write(&mut client, &[9; 64]);
    let got = world.received(recv.0).unwrap();
    world.hang_up(fd, recv);
    drop(world);
    thread::spawn(move || assert!(got.iter().all(|&byte| byte == 9)))
        .join()
        .unwrap();
}

pub(super) fn canceled_while_starved(make: Make<'_>) {
    let mut world = make(&four_buffers());
    let (fd, mut client) = world.pair();
    let recv = world.recv(fd);
    world.write(&mut client, &[1; 1000]);
    let held: Vec<RecvBuf> = (0..4).map(|_| world.received(recv.0).unwrap()).collect();
    world.quiet();
    world.backend.cancel(recv.1);
    let canceled = rustix::io::Errno::CANCELED.raw_os_error();
    assert_eq!(world.failure(recv.0), Some(canceled));
    // And one that starts with nothing to receive into.
    let recv = world.recv(fd);
    world.quiet();
    drop(held);
    world.received(recv.0).unwrap();
    world.hang_up(fd, recv);
}

/// A receive waits for a buffer once, however much more comes for it, and no longer than it lives.
pub(super) fn parked_once(make: Make<'_>) {
    let mut world = make(&four_buffers());
    if world.is_sim() {
        return;
    }
    let mut pairs = [world.pair(), world.pair(), world.pair()];
    let holds = world.recv(pairs[0].0);
    world.write(&mut pairs[0].1, &[1; 256]);
    let held: Vec<RecvBuf> = (0..4).map(|_| world.received(holds.0).unwrap()).collect();
    world.backend.cancel(holds.1);
    let canceled = Some(rustix::io::Errno::CANCELED.raw_os_error());
    assert_eq!(world.failure(holds.0), canceled);
    let recvs = [world.recv(pairs[1].0), world.recv(pairs[2].0)];
    let parked = |world: &World, count: usize| {
        let told = format!("{:?}", world.backend);
        assert!(told.contains(&format!("parked: {count},")), "{told}");
    };
    for _ in 0..5 {
        for (_, client) in &mut pairs[1..] {
            world.write(client, b"more");
        }
        world.quiet_after_some();
        parked(&world, 2);
    }
    // The other one keeps its place.
    world.backend.cancel(recvs[0].1);
    assert_eq!(world.failure(recvs[0].0), canceled);
    parked(&world, 1);
    drop(held);
    assert_eq!(world.received_bytes(recvs[1].0, 20), b"more".repeat(5));
    parked(&world, 0);
    world.hang_up(pairs[2].0, recvs[1]);
    for (fd, _) in &pairs[..2] {
        world.backend.close(*fd);
    }
}
