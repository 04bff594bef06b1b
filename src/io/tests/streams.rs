//! Connections and the bytes on them.

use std::io::ErrorKind;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::super::{Config, Done, Fd, How, ListenOptions, SendBuf, SimCall, Token};
use super::Make;
use super::world::PATIENCE;

pub(super) fn round_trip(make: Make<'_>) {
    let mut world = make(&Config::default());
    let (listener, addr) = world.listen();
    let (accept, accept_op) = world.accept(listener);
    let mut client = world.client(addr);
    let fd = world.accepted(accept);
    assert_eq!(
        world.backend.owner().peer_addr(fd).unwrap(),
        client.local_addr()
    );
    let recv = world.recv(fd);
    for (request, response) in [("GET /1", "one"), ("GET /2", "two"), ("GET /3", "three")] {
        world.write(&mut client, request.as_bytes());
        assert_eq!(
            world.received_bytes(recv.0, request.len()),
            request.as_bytes()
        );
        let shared: Arc<[u8]> = response.as_bytes().into();
        for buf in [
            SendBuf::from(response),
            SendBuf::from(response.to_owned()),
            SendBuf::from(Arc::clone(&shared)),
            SendBuf::shared(shared, 0..response.len()),
        ] {
            let (send, _) = world.send(fd, buf);
            let (res, buf, sent_bytes) = world.sent(send);
            res.unwrap();
            assert_eq!((&*buf, sent_bytes), (response.as_bytes(), response.len()));
            assert_eq!(world.read(&mut client, response.len()), response.as_bytes());
        }
    }
    world.hang_up(fd, recv);
    assert_eq!(world.read_end(&mut client).unwrap(), 0);
    world.backend.cancel(accept_op);
    world.failure(accept);
    world.backend.close(listener);
    assert_eq!(world.backend.in_flight(), 0);
    world.quiet();
}

pub(super) fn large_send_to_a_slow_reader(make: Make<'_>) {
    let mut world = make(&Config::default());
    let (fd, mut client) = world.pair();
    let bytes: Vec<u8> = (0..1_000_000u32).map(|n| (n % 251) as u8).collect();
    let (send, _) = world.send(fd, bytes.clone());
    let mut got = Vec::new();
    while got.len() < bytes.len() {
        let portion = 10_000.min(bytes.len() - got.len());
        got.extend(world.read(&mut client, portion));
        world.turn();
    }
    assert!(got == bytes, "the bytes arrive as they were sent");
    let (res, buf, sent_bytes) = world.sent(send);
    res.unwrap();
    assert_eq!(sent_bytes, bytes.len());
    assert_eq!(buf.len(), bytes.len());
    world.backend.close(fd);
}

pub(super) fn pipelined_small_receives(make: Make<'_>) {
    let mut world = make(&Config {
        buffers: 16,
        buffer_bytes: 64,
        ..Config::default()
    });
    let (fd, mut client) = world.pair();
    let recv = world.recv(fd);
    let mut sent = Vec::new();
    for n in 0..500 {
        let request = format!("request {n};");
        world.write(&mut client, request.as_bytes());
        sent.extend_from_slice(request.as_bytes());
    }
    assert!(world.received_bytes(recv.0, sent.len()) == sent);
    world.hang_up(fd, recv);
}

pub(super) fn end_of_stream(make: Make<'_>) {
    let mut world = make(&Config {
        buffer_bytes: 16,
        ..Config::default()
    });
    // Before anything, behind a short receive, and behind one that fills its buffer exactly.
    for bytes in [0, 5, 16, 160] {
        let (fd, mut client) = world.pair();
        world.write(&mut client, &vec![7; bytes]);
        drop(client);
        let (recv, _) = world.recv(fd);
        world.received_bytes(recv, bytes);
        assert!(world.received(recv).unwrap().is_end());
        world.backend.close(fd);
    }
    world.quiet();
}

pub(super) fn half_closed(make: Make<'_>) {
    let mut world = make(&Config::default());
    let (fd, mut client) = world.pair();
    let (recv, _) = world.recv(fd);
    world.write(&mut client, b"all");
    client.shutdown_write();
    assert_eq!(world.received_bytes(recv, 3), b"all");
    assert!(world.received(recv).unwrap().is_end());
    let (send, _) = world.send(fd, "still heard");
    world.sent(send).0.unwrap();
    assert_eq!(world.read(&mut client, 11), b"still heard");
    world.backend.close(fd);
}

/// Once the end was told, nothing of this core's keeps the connection open: it need not turn again.
pub(super) fn closed_at_once_after_the_end(make: Make<'_>) {
    let mut world = make(&Config::default());
    let (fd, mut client) = world.pair();
    let (recv, _) = world.recv(fd);
    world.quiet();
    client.shutdown_write();
    assert!(world.received(recv).unwrap().is_end());
    world.backend.close(fd);
    let start = Instant::now();
    loop {
        match client.read(&mut [0; 16]) {
            Ok(len) => break assert_eq!(len, 0),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(start.elapsed() < PATIENCE, "still open");
        thread::sleep(Duration::from_millis(1));
    }
}

pub(super) fn shut_down_by_us(make: Make<'_>) {
    let mut world = make(&Config::default());
    let (fd, mut client) = world.pair();
    let (recv, _) = world.recv(fd);
    world.quiet();
    world.backend.owner().shutdown(fd, How::Write);
    assert_eq!(world.read_end(&mut client).unwrap(), 0);
    world.write(&mut client, b"more");
    assert_eq!(world.received_bytes(recv, 4), b"more");
    world.backend.owner().shutdown(fd, How::Both);
    assert!(world.received(recv).unwrap().is_end());
    world.backend.close(fd);
}

/// What is under way ends, and the peer never takes what it got for all.
pub(super) fn reset_by_us(make: Make<'_>) {
    let mut world = make(&Config::default());
    let (fd, mut client) = world.pair();
    let ((recv, _), (send, _)) = (world.recv(fd), world.send(fd, vec![7; 16 << 20]));
    world.quiet();
    world.backend.owner().reset(fd);
    let failed = world.sent(send).0.unwrap_err().kind();
    let kinds = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
    assert!(kinds.contains(&failed), "{failed}");
    assert!(!world.next(recv).more);
    let left = loop {
        match world.read_end(&mut client) {
            Ok(0) => panic!("an end"),
            Ok(_) => {}
            Err(error) => break error.kind(),
        }
    };
    assert_eq!(left, ErrorKind::ConnectionReset);
    world.backend.close(fd);
}

pub(super) fn peer_reset(make: Make<'_>) {
    let mut world = make(&Config::default());
    let (fd, client) = world.pair();
    let (recv, _) = world.recv(fd);
    world.quiet();
    client.reset();
    assert_eq!(
        world.received(recv).unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
    world.backend.close(fd);
}

/// A reset that comes while the data before it is being received is not lost.
pub(super) fn reset_races_with_receive(make: Make<'_>) {
    let mut world = make(&Config::default());
    if world.is_sim() {
        return;
    }
    let spin = |rounds: u32| (0..rounds).for_each(|_| std::hint::spin_loop());
    for round in 0..1000 {
        let (fd, mut client) = world.pair();
        let (ready, go) = std::sync::mpsc::channel();
        let peer = std::thread::spawn(move || {
            ready.send(()).unwrap();
            assert_eq!(client.write(b"all").unwrap(), 3);
            spin(round % 7 * 25);
            client.reset();
        });
        // The receive starts about when the data comes, or a little later.
        go.recv().unwrap();
        spin(round % 89 * 30);
        let (recv, _) = world.recv(fd);
        // The data may be lost with the reset, or reach us before.
        while world.received(recv).is_ok() {}
        peer.join().unwrap();
        world.backend.close(fd);
    }
}

pub(super) fn send_to_a_closed_peer(make: Make<'_>) {
    let mut world = make(&Config::default());
    let (fd, client) = world.pair();
    client.reset();
    // The first may still find the connection standing.
    for _ in 0..10 {
        let (send, _) = world.send(fd, vec![1; 100_000]);
        let (res, buf, sent_bytes) = world.sent(send);
        assert_eq!(buf.len(), 100_000);
        if let Err(error) = res {
            let kind = error.kind();
            assert!(
                matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset),
                "{kind}"
            );
            assert!(sent_bytes < 100_000);
            world.backend.close(fd);
            return;
        }
    }
    panic!("a closed peer takes everything");
}

pub(super) fn send_of_nothing(make: Make<'_>) {
    let mut world = make(&Config::default());
    let (fd, _client) = world.pair();
    let (send, _) = world.send(fd, SendBuf::default());
    let (res, buf, sent_bytes) = world.sent(send);
    res.unwrap();
    assert_eq!((buf.len(), sent_bytes), (0, 0));
    world.backend.close(fd);
}

/// One after the other, also where the kernel takes a part of them at a time; and an end.
pub(super) fn send_of_parts(make: Make<'_>) {
    let mut world = make(&Config::default());
    let (fd, mut client) = world.pair();
    let bytes: Vec<u8> = (0..1_000_000u32).map(|n| (n % 251) as u8).collect();
    for part_bytes in [1_000_000, 100_001, 4_000] {
        let parts = bytes.chunks(part_bytes).map(|part| part.to_vec().into());
        let parts = parts.chain([SendBuf::default()]).collect();
        let (send, _) = world.send_parts(fd, parts);
        let mut got = Vec::new();
        while got.len() < bytes.len() {
            let portion = 10_000.min(bytes.len() - got.len());
            got.extend(world.read(&mut client, portion));
        }
        assert!(got == bytes);
        let (res, sent_bytes) = world.sent_parts(send);
        res.unwrap();
        assert_eq!(sent_bytes, bytes.len());
    }
    for nothing in [Vec::new(), vec![SendBuf::default(); 2]] {
        let (send, _) = world.send_parts(fd, nothing);
        let (res, sent_bytes) = world.sent_parts(send);
        assert!(res.is_ok() && sent_bytes == 0);
    }
    // Canceled in the middle, it says how far it came.
    let parts = vec![SendBuf::from(bytes.clone()); 30];
    let (send, op) = world.send_parts(fd, parts);
    world.read(&mut client, 10_000);
    world.backend.cancel(op);
    let (res, sent_bytes) = world.sent_parts(send);
    assert!(res.is_err() && (10_000..30_000_000).contains(&sent_bytes));
    world.backend.close(fd);
}

pub(super) fn connect_and_talk(make: Make<'_>) {
    let mut world = make(&Config::default());
    let (listener, addr) = world.listen();
    let (accept, accept_op) = world.accept(listener);
    let (ours, connect, _) = world.connect(addr);
    assert!(matches!(world.next(connect).done, Done::Connected(Ok(()))));
    let theirs = world.accepted(accept);
    assert_eq!(
        world.backend.owner().local_addr(ours).unwrap(),
        world.backend.owner().peer_addr(theirs).unwrap()
    );
    let recv = world.recv(theirs);
    let (send, _) = world.send(ours, "hello");
    world.sent(send).0.unwrap();
    assert_eq!(world.received_bytes(recv.0, 5), b"hello");
    world.hang_up(theirs, recv);
    world.backend.close(ours);
    world.backend.cancel(accept_op);
    world.failure(accept);
    world.backend.close(listener);
}

pub(super) fn connect_refused(make: Make<'_>) {
    let mut world = make(&Config::default());
    let (listener, addr) = world.listen();
    world.backend.close(listener);
    let (fd, connect, _) = world.connect(addr);
    match world.next(connect).done {
        Done::Connected(Err(error)) => assert_eq!(error.kind(), ErrorKind::ConnectionRefused),
        other => panic!("{other:?}"),
    }
    world.backend.close(fd);
}

/// The kernel says so in the call itself.
pub(super) fn connect_to_nowhere(make: Make<'_>) {
    let mut world = make(&Config::default());
    // No connection can be made to a group, whatever the machine's routes are.
    let (fd, connect, _) = world.connect("224.0.0.1:9".parse().unwrap());
    match world.next(connect).done {
        Done::Connected(Err(_)) => {}
        other => panic!("{other:?}"),
    }
    world.backend.close(fd);
}

pub(super) fn port_in_use(make: Make<'_>) {
    let mut world = make(&Config::default());
    let (listener, addr) = world.listen();
    let error = world
        .backend
        .listen(&crate::io::Addr::from(addr), &ListenOptions::default())
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    world.backend.close(listener);
    let again = world
        .backend
        .listen(&crate::io::Addr::from(addr), &ListenOptions::default())
        .unwrap();
    world.backend.close(again);
}

/// Although the kernel remembers the connection that this end has closed first.
pub(super) fn port_free_again(make: Make<'_>) {
    let mut world = make(&Config::default());
    let (listener, addr) = world.listen();
    let accept = world.accept(listener);
    let mut client = world.client(addr);
    let fd = world.accepted(accept.0);
    world.hang_up(listener, accept);
    world.backend.close(fd);
    assert_eq!(world.read_end(&mut client).unwrap(), 0);
    drop(client);
    let again = world
        .backend
        .listen(&crate::io::Addr::from(addr), &ListenOptions::default());
    world.backend.close(again.unwrap());
}

pub(super) fn port_shared(make: Make<'_>) {
    let mut world = make(&Config::default());
    let opts = ListenOptions {
        reuse_port: true,
        ..ListenOptions::default()
    };
    let (first, addr) = world.listen_with(&opts);
    let second = world
        .backend
        .listen(&crate::io::Addr::from(addr), &opts)
        .unwrap();
    let accepts = [world.accept(first), world.accept(second)];
    let clients: Vec<_> = (0..32).map(|_| world.client(addr)).collect();
    let mut count = 0;
    world.until(|world| {
        while let Some(fd) = world.take_accepted() {
            world.backend.close(fd);
            count += 1;
        }
        (count == clients.len()).then_some(())
    });
    for (token, op) in accepts {
        world.backend.cancel(op);
        world.failure(token);
    }
    world.backend.close(first);
    world.backend.close(second);
}

pub(super) fn limit_is_kept(make: Make<'_>) {
    let mut world = make(&Config::default());
    let (listener, addr) = world.listen();
    let accept = world.accept(listener);
    let clients: Vec<_> = (0..50).map(|_| world.client(addr)).collect();
    for limit in [0, 1, 3] {
        world.limit = limit;
        world.turn();
        world.turn();
    }
    let fds: Vec<_> = clients.iter().map(|_| world.accepted(accept.0)).collect();
    for fd in fds {
        world.backend.close(fd);
    }
    world.hang_up(listener, accept);
    // Two at once have it together.
    let listeners = [world.listen(), world.listen()];
    let accepts = listeners.map(|(listener, _)| world.accept(listener));
    world.quiet();
    let _clients = listeners.map(|(_, addr)| [world.client(addr), world.client(addr)]);
    world.limit = 3;
    for ((listener, _), accept) in listeners.into_iter().zip(accepts) {
        for _ in 0..2 {
            let fd = world.accepted(accept.0);
            world.backend.close(fd);
        }
        world.hang_up(listener, accept);
    }
}

/// Whether they fill the last buffer or not, the next are heard of.
pub(super) fn portions_of_all_sizes(make: Make<'_>) {
    let mut world = make(&Config {
        buffer_bytes: 16,
        ..Config::default()
    });
    let (fd, mut client) = world.pair();
    let recv = world.recv(fd);
    for bytes in [16, 20, 5, 32, 20, 16, 16, 1] {
        world.write(&mut client, &vec![bytes; usize::from(bytes)]);
        let got = world.received_bytes(recv.0, usize::from(bytes));
        assert!(got.iter().all(|&byte| byte == bytes));
        world.quiet();
    }
    world.hang_up(fd, recv);
}

/// They do not wait until the peer has confirmed those before.
pub(super) fn answers_go_out_at_once(make: Make<'_>) {
    let mut world = make(&Config::default());
    if world.is_sim() {
        return;
    }
    let (listener, addr) = world.listen();
    let accept = world.accept(listener);
    let (connecting, connect, _) = world.connect(addr);
    assert!(matches!(world.next(connect).done, Done::Connected(Ok(()))));
    let accepted = world.accepted(accept.0);
    for fd in [connecting, accepted] {
        assert!(rustix::net::sockopt::tcp_nodelay(fd.borrow()).unwrap());
        world.backend.close(fd);
    }
    world.hang_up(listener, accept);
}

/// As a stolen color does: received at home, answered from elsewhere.
pub(super) fn sent_by_another_core(make: Make<'_>) {
    let mut world = make(&Config::default());
    let mut thief = world.another();
    let (fd, mut client) = world.pair();
    let recv = world.recv(fd);
    for round in 0..20 {
        world.write(&mut client, b"ask");
        world.received_bytes(recv.0, 3);
        let answer = vec![round; 1000];
        let (send, _) = thief.send(fd, answer.clone());
        let (res, ..) = thief.sent(send);
        res.unwrap();
        assert_eq!(world.read(&mut client, 1000), answer);
    }
    world.hang_up(fd, recv);
}

pub(super) fn connections_by_the_thousand(make: Make<'_>) {
    let mut world = make(&Config {
        buffers: 8,
        ..Config::default()
    });
    let (listener, addr) = world.listen();
    let (accept, accept_op) = world.accept(listener);
    let mut first = None;
    for round in 0..2000 {
        let mut client = world.client(addr);
        let fd = world.accepted(accept);
        let recv = world.recv(fd);
        world.write(&mut client, b"ping");
        assert_eq!(world.received_bytes(recv.0, 4), b"ping");
        let (send, _) = world.send(fd, "pong");
        world.sent(send).0.unwrap();
        assert_eq!(world.read(&mut client, 4), b"pong");
        if round % 2 == 0 {
            drop(client);
            assert!(world.received(recv.0).unwrap().is_end());
            world.backend.close(fd);
        } else {
            world.hang_up(fd, recv);
        }
        assert_eq!(
            world.backend.in_flight(),
            1,
            "only the accept, in round {round}"
        );
        let first = *first.get_or_insert(fd.raw());
        // Other tests open descriptors meanwhile, but not thousands.
        assert!(
            world.is_sim() || fd.raw() < first + 1000,
            "descriptors leak"
        );
    }
    if let Some(net) = &world.net {
        assert_eq!(net.open_count(), 1);
    }
    world.hang_up(listener, (accept, accept_op));
}

pub(super) fn many_at_once(make: Make<'_>) {
    let mut world = make(&Config {
        buffers: 32,
        buffer_bytes: 256,
        ..Config::default()
    });
    let (listener, addr) = world.listen();
    let accept = world.accept(listener);
    let mut clients: Vec<_> = (0..200).map(|_| world.client(addr)).collect();
    let fds: Vec<_> = clients.iter().map(|_| world.accepted(accept.0)).collect();
    let recvs: Vec<_> = fds.iter().map(|&fd| world.recv(fd)).collect();
    for round in 0..5u8 {
        for client in &mut clients {
            world.write(client, &[round; 100]);
        }
        for bytes in world.received_on_all(&recvs, 100) {
            assert_eq!(bytes, [round; 100]);
        }
        let sends: Vec<_> = fds
            .iter()
            .map(|&fd| world.send(fd, vec![round; 50]))
            .collect();
        for (send, _) in sends {
            world.sent(send).0.unwrap();
        }
        for client in &mut clients {
            assert_eq!(world.read(client, 50), [round; 50]);
        }
    }
    for (fd, recv) in fds.into_iter().zip(recvs) {
        world.hang_up(fd, recv);
    }
    world.hang_up(listener, accept);
}

/// The kernel skips them by itself; the simulator says `ECONNABORTED`. Lack of descriptors ends it.
pub(super) fn accept_goes_on_after_dead_ones(make: Make<'_>) {
    let mut world = make(&Config::default());
    let (listener, addr) = world.listen();
    let accept = world.accept(listener);
    if let Some(net) = &world.net {
        net.fail_next(
            SimCall::Accept,
            rustix::io::Errno::CONNABORTED.raw_os_error(),
        );
    }
    world.client(addr).reset();
    let _client = world.client(addr);
    let mut fd = world.accepted(accept.0);
    if world.turn() > 0 {
        // The dead one came first after all.
        world.backend.close(fd);
        fd = world.accepted(accept.0);
    }
    world.backend.close(fd);
    let Some(net) = world.net.clone() else {
        return world.hang_up(listener, accept);
    };
    let full = rustix::io::Errno::MFILE.raw_os_error();
    net.fail_next(SimCall::Accept, full);
    let _waiting = world.client(addr);
    assert_eq!(world.failure(accept.0), Some(full));
    let accept = world.accept(listener);
    let fd = world.accepted(accept.0);
    world.backend.close(fd);
    world.hang_up(listener, accept);
}

/// A caller that breaks its duties is told in debug builds, before any harm is done.
pub(super) fn misuse_is_noticed(make: Make<'_>) {
    fn panics(f: impl FnOnce()) -> bool {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).is_err()
    }
    if !cfg!(debug_assertions) {
        return;
    }
    let mut world = make(&Config::default());
    let (fd, mut client) = world.pair();
    let recv = world.recv(fd);
    assert!(panics(|| world.backend.close(fd)), "closed under a receive");
    let second = || {
        world.backend.recv(Token(u64::MAX), fd);
    };
    assert!(panics(second), "two receives");
    world.write(&mut client, b"all");
    assert_eq!(world.received_bytes(recv.0, 3), b"all");
    world.hang_up(fd, recv);
    // Once it is over, another may start.
    let (fd, _client) = world.pair();
    for _ in 0..2 {
        let (token, op) = world.recv(fd);
        world.backend.cancel(op);
        world.failure(token);
    }
    world.backend.close(fd);
}

/// What cannot be watched is told as any failure is.
#[test]
fn what_epoll_cannot_watch_fails() {
    let mut world = super::kernel(super::Backend::Epoll, &Config::default());
    let null = std::fs::File::open("/dev/null").unwrap();
    let fd = Fd::from_raw(std::os::fd::AsRawFd::as_raw_fd(&null));
    for _ in 0..2 {
        let (token, op) = world.readable(fd);
        let errno = rustix::io::Errno::PERM.raw_os_error();
        assert_eq!(world.failure(token), Some(errno));
        world.backend.cancel(op);
        world.quiet();
    }
}

/// Neither does a child process inherit them, nor does a call on them block.
pub(super) fn descriptors_stay_here(make: Make<'_>) {
    use rustix::fs::{OFlags, fcntl_getfl};
    use rustix::io::{FdFlags, fcntl_getfd};
    let mut world = make(&Config::default());
    if world.is_sim() {
        return;
    }
    let is_inherited =
        |fd: Fd| -> bool { !fcntl_getfd(fd.borrow()).unwrap().contains(FdFlags::CLOEXEC) };
    let blocks = |fd: Fd| -> bool { !fcntl_getfl(fd.borrow()).unwrap().contains(OFlags::NONBLOCK) };
    let (listener, addr) = world.listen();
    assert!(!is_inherited(listener));
    let (accept, accept_op) = world.accept(listener);
    let _client = world.client(addr);
    let accepted = world.accepted(accept);
    assert!(!is_inherited(accepted) && !blocks(accepted));
    world.backend.cancel(accept_op);
    world.failure(accept);
    let _late = [world.client(addr), world.client(addr)];
    let mut waiting = Vec::new();
    world.until(|world| {
        waiting.extend(world.backend.accept_waiting(listener));
        (waiting.len() == 2).then_some(())
    });
    let (connecting, connect, connect_op) = world.connect(addr);
    world.backend.cancel(connect_op);
    world.failure(connect);
    waiting.extend([accepted, connecting]);
    for fd in waiting {
        assert!(!is_inherited(fd) && !blocks(fd));
        world.backend.close(fd);
    }
    world.backend.close(listener);
}

/// Calls that start nothing: what lies in the kernel, and what it takes at once.
pub(super) fn what_needs_no_operation(make: Make<'_>) {
    let mut world = make(&Config::default());
    let (fd, mut client) = world.pair();
    assert_eq!(world.backend.unread_bytes(fd), 0);
    world.write(&mut client, b"hello");
    world.until(|world| (world.backend.unread_bytes(fd) == 5).then_some(()));
    let sent = world
        .backend
        .owner()
        .send_now(fd, &SendBuf::from("at once").into());
    // Where it is simulated each send is an operation.
    assert_eq!(sent, if world.is_sim() { 0 } else { 7 });
    assert_eq!(world.read(&mut client, sent), &b"at once"[..sent]);
    let recv = world.recv(fd);
    assert_eq!(world.received_bytes(recv.0, 5), b"hello");
    assert_eq!(world.backend.unread_bytes(fd), 0);
    world.hang_up(fd, recv);
    let (listener, addr) = world.listen();
    let _clients = [world.client(addr), world.client(addr)];
    let mut accepted = Vec::new();
    world.until(|world| {
        accepted.extend(world.backend.accept_waiting(listener));
        (accepted.len() == 2).then_some(())
    });
    for fd in accepted.into_iter().chain([listener]) {
        world.backend.close(fd);
    }
}
