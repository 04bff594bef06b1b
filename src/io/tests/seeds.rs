//! What is particular to the simulator: its seed decides everything, its faults are reported.

use std::io::Write;

use rustix::io::Errno;

use super::super::{
    Backend, Completion, Config, Done, EventSource, ListenOptions, SimCall, SimNet, Token,
};
use super::sim;

/// Twenty clients talk to an echoing server over two cores, and all that the cores are told.
fn story(seed: u64) -> Vec<String> {
    let net = SimNet::new(seed);
    net.set_move_bytes_max(50);
    let make = || {
        EventSource::new(Backend::Sim(net.clone()), &Config::default())
            .unwrap()
            .0
    };
    let mut cores = [make(), make()];
    let opts = ListenOptions {
        reuse_port: true,
        ..ListenOptions::default()
    };
    let addr = &"127.0.0.1:0".into();
    let first = cores[0].listen(addr, &opts).unwrap();
    let addr = cores[0].owner().local_addr(first).unwrap();
    let second = cores[1].listen(&addr, &opts).unwrap();
    cores[0].accept(Token(0), first);
    cores[1].accept(Token(0), second);
    let mut clients: Vec<_> = (0..20).map(|_| net.connect(&addr).unwrap()).collect();
    for client in &mut clients {
        client.write_all(&[1; 200]).unwrap();
        client.shutdown_write();
    }
    let mut lines = Vec::new();
    while cores.iter_mut().any(EventSource::has_work) {
        for (n, core) in cores.iter_mut().enumerate() {
            let mut out: Vec<Completion> = Vec::new();
            core.poll(&mut out, 7).unwrap();
            for completion in out {
                lines.push(format!("core {n}: {completion:?}"));
                match completion.done {
                    Done::Accepted(Ok(fd)) => {
                        core.recv(Token(fd.raw() as u64), fd);
                    }
                    Done::Received(Ok(buf)) if buf.is_end() => {
                        core.close(super::super::Fd::from_raw(completion.token.0 as i32));
                    }
                    _ => {}
                }
            }
        }
    }
    lines
}

#[test]
fn a_seed_replays_and_another_does_not() {
    let stories: Vec<_> = (0..10).map(story).collect();
    for (seed, lines) in stories.iter().enumerate() {
        assert_eq!(lines, &story(seed as u64), "seed {seed}");
        assert!(lines.len() > 100);
    }
    assert!((1..10).all(|n| stories[n] != stories[0]));
}

#[test]
fn what_is_no_error_number_is_refused() {
    let world = sim(3, usize::MAX, &Config::default());
    let net = world.net.clone().unwrap();
    for errno in [0, -1, 4_096, i32::MAX, i32::MIN] {
        let fail = || net.fail_next(SimCall::Recv, errno);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(fail)).unwrap_err();
    }
    assert_eq!(net.open_count(), 0, "it can still be used");
}

#[test]
fn injected_faults_end_what_they_hit() {
    let mut world = sim(3, usize::MAX, &Config::default());
    let net = world.net.clone().unwrap();
    let (fd, mut client) = world.pair();
    let (recv, _) = world.recv(fd);
    net.fail_next(SimCall::Recv, Errno::CONNRESET.raw_os_error());
    world.write(&mut client, b"x");
    assert_eq!(world.failure(recv), Some(Errno::CONNRESET.raw_os_error()));
    // What says nothing about a listener says all about a connection.
    let aborted = Errno::CONNABORTED.raw_os_error();
    net.fail_next(SimCall::Recv, aborted);
    let (recv, _) = world.recv(fd);
    assert_eq!(world.failure(recv), Some(aborted));
    // Lack of buffers is absorbed.
    net.fail_next(SimCall::Recv, Errno::NOBUFS.raw_os_error());
    let recv = world.recv(fd);
    assert_eq!(world.received_bytes(recv.0, 1), b"x");
    net.fail_next(SimCall::Send, Errno::PIPE.raw_os_error());
    let (send, _) = world.send(fd, "never");
    let (res, buf, sent_bytes) = world.sent(send);
    assert_eq!(
        (res.unwrap_err().raw_os_error(), buf.len(), sent_bytes),
        (Some(32), 5, 0)
    );
    net.fail_next(SimCall::Connect, Errno::NETUNREACH.raw_os_error());
    let (other, connect, _) = world.connect("127.0.0.1:1".parse().unwrap());
    assert_eq!(
        world.failure(connect),
        Some(Errno::NETUNREACH.raw_os_error())
    );
    world.backend.close(other);
    world.hang_up(fd, recv);
}

/// What a test sets of the network, and sees of it.
#[test]
fn the_network_is_as_it_was_set() {
    let net = SimNet::new(7);
    assert_eq!((net.seed(), net.open_count()), (7, 0));
    let choice = Backend::Sim(net.clone());
    let (mut core, _) = EventSource::new(choice, &Config::default()).unwrap();
    let any = &"127.0.0.1:0".into();
    let listener = core.listen(any, &ListenOptions::default()).unwrap();
    let addr = core.owner().local_addr(listener).unwrap();
    for (bytes, holds) in [(10, 10), (0, 1)] {
        net.set_socket_bytes(bytes);
        let mut client = net.connect(addr.clone()).unwrap();
        assert_eq!(client.write(&[1; 100]).unwrap(), holds);
    }
    net.set_socket_bytes(1_000);
    for (bytes, most) in [(5, 5), (0, 1)] {
        net.set_move_bytes_max(bytes);
        let mut client = net.connect(&addr).unwrap();
        let moved: Vec<_> = (0..50).map(|_| client.write(&[1; 9]).unwrap()).collect();
        assert_eq!(moved.iter().max(), Some(&most), "{moved:?}");
    }
    // The listener, and the other ends of four clients that are gone.
    assert_eq!(net.open_count(), 5);
    // By whoever holds it, without the core.
    core.owner().close(listener);
    assert_eq!(net.open_count(), 0);
}
