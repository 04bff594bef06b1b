//! How pipes end: by either side, by an error, at a stop, by a time limit.

use super::{Joint, LIMIT, Random, SOCKET_BYTES, Talker, World, is_canceled, kind, pattern};
use mely::net::{PIPE_BYTES_MAX, SimCall};
use mely::sim::{self, Step};
use std::io::{ErrorKind, Read, Write};

#[test]
fn the_end_of_one_direction_leaves_the_other() {
    sim::check(|seed| {
        for joint in Joint::ORDINARY.both_colors() {
            let mut world = World::new(seed, joint);
            world.net.set_socket_bytes(SOCKET_BYTES);
            let mut ends = world.pipe();
            // Either side may be the first.
            ends.rotate_left(seed as usize % 2);
            let [mut first, mut second] = ends;
            first.write_all(pattern(0..900)).unwrap();
            first.shutdown_write();
            let (got, end) = world.rest(&mut second);
            assert!(got == pattern(0..900) && end.is_ok(), "{end:?}");
            assert!(world.told.try_recv().is_err());
            let answer = world.fill(&mut second);
            assert!(answer > PIPE_BYTES_MAX - SOCKET_BYTES);
            second.shutdown_write();
            let (got, end) = world.rest(&mut first);
            assert!(got == pattern(0..answer) && end.is_ok(), "{end:?}");
            let (there, back) = world.is_over(2).unwrap();
            let counts = [there, back];
            let mut expected = [900, answer as u64];
            expected.rotate_left(seed as usize % 2);
            assert_eq!(counts, expected);
        }
    });
}

/// The peer is not to take what it got for all.
#[test]
fn a_reset_of_one_is_a_reset_of_the_other() {
    sim::check(|seed| {
        for joint in Joint::ORDINARY.both_colors() {
            let mut world = World::new(seed, joint);
            let mut ends = world.pipe();
            ends.rotate_left(seed as usize % 2);
            let [mut leaves, mut stays] = ends;
            leaves.write_all(pattern(0..900)).unwrap();
            // Wherever the bytes are by then.
            for _ in 0..seed {
                world.simulation.step();
            }
            leaves.reset();
            let (got, end) = world.rest(&mut stays);
            assert!(pattern(0..900).starts_with(&got));
            assert_eq!(kind(&end), Some(ErrorKind::ConnectionReset));
            assert_eq!(kind(&world.is_over(1)), Some(ErrorKind::ConnectionReset));
        }
    });
}

/// With bytes on their way in both directions, and more to come.
#[test]
fn an_error_of_sending_resets_both() {
    sim::check(|seed| {
        let [two, one] = Joint::ORDINARY.both_colors();
        let mut world = World::new(seed, if seed % 4 < 2 { two } else { one });
        world.net.set_socket_bytes(SOCKET_BYTES);
        let [mut this, mut other] = world.pipe();
        world.fill(&mut this);
        world.fill(&mut other);
        let failed = rustix::io::Errno::IO.raw_os_error();
        world.net.fail_next(SimCall::Send, failed);
        let reader = if seed % 2 == 0 { &mut this } else { &mut other };
        reader.read_exact(&mut [0; 100]).unwrap();
        let piped = world.is_over(2);
        assert_eq!(piped.unwrap_err().raw_os_error(), Some(failed));
        for end in [&mut this, &mut other] {
            assert_eq!(kind(&world.rest(end).1), Some(ErrorKind::ConnectionReset));
        }
    });
}

#[test]
fn both_may_close_at_the_same_time() {
    sim::check(|seed| {
        let mut random = Random(seed);
        for joint in Joint::ORDINARY.both_colors() {
            let mut world = World::new(seed, joint);
            let mut clients = world.pipe();
            for client in &mut clients {
                client.write_all(pattern(0..random.below(2) * 100)).unwrap();
            }
            for client in clients {
                for _ in 0..random.below(5) {
                    world.simulation.step();
                }
                match random.below(2) {
                    0 => client.reset(),
                    _ => drop(client),
                }
            }
            // An error or an end, and whichever: nothing is left.
            let _ = world.is_over(0);
        }
    });
}

/// In a single color as in two: what one end has of the other's is told before the end.
#[test]
fn a_stop_sends_what_was_received() {
    const LEN: usize = 200_000;
    sim::check(|seed| {
        for joint in Joint::ORDINARY.both_colors() {
            let mut world = World::new(seed, joint);
            let [mut this, mut other] = world.pipe();
            let mut rest = pattern(0..LEN);
            while !rest.is_empty() {
                rest = &rest[this.write(rest).unwrap_or(0)..];
                world.settle();
            }
            other.write_all(b"back").unwrap();
            world.settle();
            // All is received; little of it is sent.
            world.simulation.poster().stop();
            let (got, end) = world.rest(&mut other);
            assert!(got == pattern(0..LEN), "{} bytes", got.len());
            assert!(end.is_ok());
            assert_eq!(world.rest(&mut this).0, b"back");
            while world.simulation.step() != Step::Ended {}
            let piped = world.told.try_recv().unwrap();
            assert!(is_canceled(&piped), "{piped:?}");
            world.simulation.end().unwrap();
            assert_eq!(world.net.open_count(), 2);
        }
    });
}

/// Whatever is going on: it ends, tells once, and what arrives is a beginning of what was sent.
#[test]
fn a_stop_may_come_at_any_time() {
    sim::check(|seed| {
        let mut random = Random(seed);
        let joint = Joint {
            two_colors: random.below(2) == 0,
            limit: random.one_of(&[1, 5_000, PIPE_BYTES_MAX]),
            ..Joint::ORDINARY
        };
        let mut world = World::new(seed, joint);
        world.net.set_socket_bytes(SOCKET_BYTES);
        let mut ends = world.pipe().map(|client| Talker::new(client, 50_000));
        let stop_at = random.below(400);
        for step in 0.. {
            if step == stop_at {
                world.simulation.poster().stop();
            }
            if world.simulation.step() == Step::Ended {
                break;
            }
            if step < stop_at {
                ends[random.below(2)].write(random.below(2_000));
            }
            for end in &mut ends {
                let mut space = [0; 900];
                // In the end perhaps an error: what this client has sent was not all received.
                // After the stop all is read, since the clock goes on if nothing else does.
                while let Ok(some @ 1..) = end.client.read(&mut space) {
                    end.got.extend_from_slice(&space[..some]);
                    if step < stop_at && random.below(2) == 0 {
                        break;
                    }
                }
            }
            assert!(step < 1_000_000, "it does not end");
        }
        world.simulation.end().unwrap();
        let told: Vec<_> = world.told.try_iter().collect();
        assert_eq!(told.len(), 1);
        for (end, other) in [(0, 1), (1, 0)] {
            assert!(ends[end].got.len() <= ends[other].written);
            assert!(pattern(0..50_000).starts_with(&ends[end].got));
        }
    });
}

#[test]
fn what_receives_through_a_stop_is_piped_to_its_end() {
    for joint in (Joint {
        through_stop: true,
        ..Joint::ORDINARY
    })
    .both_colors()
    {
        let mut world = World::new(1, joint);
        let [mut this, mut other] = world.pipe();
        world.simulation.poster().stop();
        for _ in 0..10 {
            world.simulation.step();
        }
        this.write_all(b"late").unwrap();
        this.shutdown_write();
        assert_eq!(world.rest(&mut other).0, b"late");
        other.write_all(b"later").unwrap();
        other.shutdown_write();
        assert_eq!(world.rest(&mut this).0, b"later");
        while world.simulation.step() != Step::Ended {}
        assert!(world.told.try_recv().unwrap().is_ok());
        world.simulation.end().unwrap();
    }
}

/// The limit of either stream ends the pipe, and not before its time.
#[test]
fn an_idle_timeout_of_one_ends_both() {
    for (which, two_colors) in [(0, true), (1, true), (0, false), (1, false)] {
        let mut joint = Joint {
            two_colors,
            ..Joint::ORDINARY
        };
        joint.idle[which] = Some(LIMIT);
        let mut world = World::new(1, joint);
        let mut ends = [(); 2].map(|()| world.net.connect(world.addr).unwrap());
        let piped = world.is_over(2);
        assert_eq!(kind(&piped), Some(ErrorKind::TimedOut));
        let now = world.simulation.now();
        assert!((LIMIT..LIMIT + LIMIT / 10).contains(&now), "{now:?}");
        for end in &mut ends {
            let end = world.rest(end).1;
            assert_eq!(kind(&end), Some(ErrorKind::ConnectionReset));
        }
    }
}

/// Also if its own direction is over: then nobody receives on it any more.
#[test]
fn an_idle_timeout_notices_who_does_not_read_after_the_end() {
    for joint in (Joint {
        idle: [Some(LIMIT), None],
        ..Joint::ORDINARY
    })
    .both_colors()
    {
        let mut world = World::new(1, joint);
        let this = world.net.connect(world.addr).unwrap();
        let mut other = world.net.connect(world.addr).unwrap();
        this.shutdown_write();
        while other.read(&mut [0]).is_err() {
            world.simulation.step();
        }
        let mut written = 0;
        while world.simulation.now() < LIMIT / 2 && written < 300_000 {
            written += other.write(&[7; 4096]).unwrap_or(0);
            world.simulation.step();
        }
        let piped = world.is_over(2);
        assert_eq!(kind(&piped), Some(ErrorKind::TimedOut));
        assert_eq!(
            kind(&world.rest(&mut other).1),
            Some(ErrorKind::ConnectionReset)
        );
    }
}
