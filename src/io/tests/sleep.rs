//! Sleeping, the doorbell, and readiness.

use std::thread;
use std::time::{Duration, Instant};

use super::super::{Config, Done};
use super::Make;
use super::world::{PATIENCE, World};

/// Sleeps as long as the doorbell lets us.
fn slept(world: &mut World, most: Duration) -> Duration {
    let start = Instant::now();
    world.backend.wait(Some(most)).unwrap();
    start.elapsed()
}

/// Nothing of what came before is left to wake it.
fn settle(world: &mut World) {
    for _ in 0..10 {
        world.turn();
        if slept(world, Duration::from_millis(10)) >= Duration::from_millis(9) || world.is_sim() {
            return;
        }
    }
    panic!("it does not come to rest");
}

pub(super) fn doorbell_wakes_a_sleeper(make: Make<'_>) {
    let mut world = make(&Config::default());
    for _ in 0..3 {
        settle(&mut world);
        let doorbell = world.backend.doorbell();
        let ringer = thread::spawn(move || {
            thread::sleep(Duration::from_millis(30));
            doorbell.ring();
        });
        let time = slept(&mut world, PATIENCE);
        assert!(time < PATIENCE / 2);
        assert!(
            world.is_sim() || time >= Duration::from_millis(20),
            "{time:?}"
        );
        ringer.join().unwrap();
        // That ring is done with: it does not end the next sleep as well.
        assert_eq!(world.turn(), 0);
        let time = slept(&mut world, Duration::from_millis(20));
        assert!(
            world.is_sim() || time >= Duration::from_millis(19),
            "woken twice by one ring"
        );
    }
}

pub(super) fn doorbell_before_the_wait(make: Make<'_>) {
    let mut world = make(&Config::default());
    for _ in 0..3 {
        settle(&mut world);
        world.backend.doorbell().ring();
        assert!(slept(&mut world, PATIENCE) < PATIENCE / 2);
    }
}

pub(super) fn doorbell_seen_by_a_poll(make: Make<'_>) {
    let mut world = make(&Config::default());
    // Something armed, so that polls look.
    let pipe = world.pipe();
    let readable = world.readable(pipe.fd);
    for _ in 0..3 {
        settle(&mut world);
        // What another wait has returned for is no ring.
        pipe.write();
        world.backend.wait(None).unwrap();
        world.next(readable.0);
        pipe.read_all();
        world.backend.doorbell().ring();
        world.turn();
        world.turn();
        assert!(
            slept(&mut world, PATIENCE) < PATIENCE / 2,
            "the poll took the ring"
        );
    }
    world.backend.cancel(readable.1);
    world.failure(readable.0);
}

pub(super) fn doorbell_coalesces(make: Make<'_>) {
    let mut world = make(&Config::default());
    settle(&mut world);
    let doorbell = world.backend.doorbell();
    let ringers: Vec<_> = (0..2)
        .map(|_| {
            let doorbell = doorbell.clone();
            thread::spawn(move || (0..1000).for_each(|_| doorbell.ring()))
        })
        .collect();
    for ringer in ringers {
        ringer.join().unwrap();
    }
    assert!(slept(&mut world, PATIENCE) < PATIENCE / 2);
    settle(&mut world);
}

pub(super) fn doorbell_outlives_the_backend(make: Make<'_>) {
    let world = make(&Config::default());
    let doorbell = world.backend.doorbell();
    drop(world);
    doorbell.ring();
    thread::spawn(move || doorbell.ring()).join().unwrap();
}

pub(super) fn waits_as_long_as_told(make: Make<'_>) {
    let mut world = make(&Config::default());
    settle(&mut world);
    if world.is_sim() {
        return;
    }
    let time = slept(&mut world, Duration::from_millis(40));
    assert!(
        (Duration::from_millis(39)..PATIENCE / 2).contains(&time),
        "{time:?}"
    );
    // Nothing to wait for, and something that comes only by waking up.
    assert!(slept(&mut world, Duration::ZERO) < PATIENCE / 2);
    let (fd, mut client) = world.pair();
    let recv = world.recv(fd);
    settle(&mut world);
    // Before the thread begins, which may be long before this one goes on.
    let start = Instant::now();
    let writer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(30));
        client.write(b"up").unwrap();
        client
    });
    world.backend.wait(None).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(20));
    assert_eq!(world.received_bytes(recv.0, 2), b"up");
    writer.join().unwrap();
    world.hang_up(fd, recv);
}

pub(super) fn a_buffer_that_nobody_waits_for_wakes_nobody(make: Make<'_>) {
    let mut world = make(&Config::default());
    let (fd, mut client) = world.pair();
    let recv = world.recv(fd);
    world.write(&mut client, b"kept");
    let kept = world.received(recv.0).unwrap();
    settle(&mut world);
    drop(kept);
    let time = slept(&mut world, Duration::from_millis(20));
    assert!(world.is_sim() || time >= Duration::from_millis(19));
    world.hang_up(fd, recv);
}

pub(super) fn readable_again_after_reading(make: Make<'_>) {
    let mut world = make(&Config::default());
    let pipe = world.pipe();
    let (token, op) = world.readable(pipe.fd);
    world.quiet();
    for _ in 0..5 {
        pipe.write();
        assert!(matches!(world.next(token).done, Done::Ready(Ok(()))));
        pipe.read_all();
        world.quiet();
    }
    world.backend.cancel(op);
    world.failure(token);
}
