//! Datagrams that the kernel joins on their way, and cuts again.

use crate::common::wire::{all_backends, on};
use crate::common::{Bound, LONG, backends, child_passes};
use mely::net::{Addr, Backend, Datagram, DatagramSocket, Watch};
use mely::task::{timeout, with_cx};
use mely::{Color, Cx, Handler};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter_all_threads,
};
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex};

static RECEIVE: Handler = Handler::new("receive");
const HERE: Color = Color::new(7);

/// The loopback addresses that this machine has.
fn hosts() -> Vec<&'static str> {
    let all = ["127.0.0.1:0", "[::1]:0"];
    let has = |host: &&str| match UdpSocket::bind(host) {
        Ok(_) => true,
        Err(error) => {
            eprintln!("left out: {host}: {error}");
            false
        }
    };
    all.into_iter().filter(has).collect()
}

fn set(fd: RawFd, level: i32, name: i32, value: i32) -> std::io::Result<()> {
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the kernel reads an `i32`, of as many bytes as it is told.
    match unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), len) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn get(fd: RawFd, level: i32, name: i32) -> std::io::Result<i32> {
    let (mut value, mut len) = (0, size_of::<i32>() as libc::socklen_t);
    // SAFETY: the kernel writes an `i32`, of no more bytes than `len` says.
    let told = unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut len) };
    match told {
        0 => Ok(value),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Whether the kernel joins and cuts datagrams; since Linux 5.0.
fn kernel_joins() -> bool {
    let probe = UdpSocket::bind("127.0.0.1:0").unwrap();
    let joins = set(probe.as_raw_fd(), libc::SOL_UDP, libc::UDP_GRO, 1).is_ok();
    if !joins {
        eprintln!("left out: this kernel does not join datagrams");
    }
    joins
}

/// Sends `bytes` by one call, cut into datagrams of `size`.
fn send_cut(from: &UdpSocket, bytes: &[u8], size: usize, to: std::net::SocketAddr) {
    set(
        from.as_raw_fd(),
        libc::SOL_UDP,
        libc::UDP_SEGMENT,
        size as i32,
    )
    .unwrap();
    assert_eq!(from.send_to(bytes, to).unwrap(), bytes.len());
    set(from.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, 0).unwrap();
}

fn on_each<F>(cx: &mut Cx, socket: &DatagramSocket, f: F) -> Watch
where
    F: FnMut(&mut Cx, Datagram) + Send + 'static,
{
    let mut f = f;
    let each = move |cx: &mut Cx, received: std::io::Result<Datagram>| f(cx, received.unwrap());
    socket.on_datagram(cx, RECEIVE.on_each(HERE, each)).unwrap()
}

/// The descriptor of the datagram socket that is bound there.
fn descriptor_of(addr: &Addr) -> RawFd {
    let fds = std::fs::read_dir("/proc/self/fd").unwrap();
    let fds = fds.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<RawFd>().ok());
    let mut bound = fds.filter(|&fd| {
        // SAFETY: asked for its name only. If it was closed meanwhile, it has none.
        let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
        let its = rustix::net::getsockname(fd).ok();
        its.and_then(|its| std::net::SocketAddr::try_from(its).ok()) == addr.ip()
            && rustix::net::sockopt::socket_type(fd) == Ok(rustix::net::SocketType::DGRAM)
    });
    bound.next().expect("a socket that is bound there")
}

/// The messages that the senders of [`each_is_told`] send, and the length of the datagrams that they
/// are cut into: a last one that is shorter, one alone, an empty one, all that the kernel joins, the
/// longest.
const SENT: [(usize, usize); 7] = [
    (1_037, 100),
    (100, 100),
    (64, 1),
    (0, 0),
    (64_800, 1_200),
    (65_507, 0),
    (1_201, 1_200),
];

fn lengths((bytes, size): (usize, usize)) -> Vec<usize> {
    let whole = bytes.checked_div(size).unwrap_or(0);
    let mut lengths = vec![size; whole];
    if whole == 0 || bytes > whole * size {
        lengths.push(bytes - whole * size);
    }
    lengths
}

/// Joined datagrams, from two sources, are told one by one.
fn each_is_told(backend: &Backend, host: &'static str, by_task: bool, elsewhere: bool) {
    let runtime = on(backend).build().unwrap();
    let senders = [(); 2].map(|()| UdpSocket::bind(host).unwrap());
    let mut expected = Vec::new();
    for (number, sent) in SENT.into_iter().enumerate() {
        let from = Addr::from(senders[number % 2].local_addr().unwrap());
        for (place, len) in lengths(sent).into_iter().enumerate() {
            let first = place * sent.1;
            let data: Vec<u8> = (first..first + len).map(|i| (i + number) as u8).collect();
            expected.push((data, from.clone()));
        }
    }
    let count = expected.len();
    let got = runtime.run_until(move |cx, finish| {
        let server = match elsewhere {
            true => {
                let socket = UdpSocket::bind(host).unwrap();
                set(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_GRO, 1).unwrap();
                cx.bind(socket).unwrap()
            }
            false => cx.bind(host).unwrap(),
        };
        let to = server.local_addr();
        let fd = descriptor_of(&to);
        assert_eq!(get(fd, libc::SOL_UDP, libc::UDP_GRO).unwrap(), 1);
        set(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, 1 << 20).unwrap();
        for (number, (bytes, size)) in SENT.into_iter().enumerate() {
            let data: Vec<u8> = (0..bytes).map(|i| (i + number) as u8).collect();
            send_cut(&senders[number % 2], &data, size, to.ip().unwrap());
        }
        let mut got = Vec::new();
        if by_task {
            cx.spawn(HERE, async move {
                while got.len() < count {
                    let Datagram { data, from, .. } = server.recv().await.unwrap();
                    got.push((data, from));
                }
                finish.finish(got);
            });
        } else {
            on_each(cx, &server, move |_, datagram| {
                assert!(!datagram.truncated);
                got.push((datagram.data, datagram.from));
                if got.len() == count {
                    finish.finish(std::mem::take(&mut got));
                }
            });
        }
    });
    assert!(got.unwrap() == expected, "{backend:?} {host} {by_task}");
}

#[test]
fn joined_datagrams_are_told_one_by_one() {
    let _bound = Bound::new("joined datagrams");
    if !kernel_joins() {
        return;
    }
    for backend in backends() {
        for host in hosts() {
            for (by_task, elsewhere) in [(false, false), (true, false), (false, true)] {
                each_is_told(&backend, host, by_task, elsewhere);
            }
        }
    }
}

#[test]
fn sockets_that_were_made_elsewhere_stay_as_they_are() {
    let _bound = Bound::new("stay as they are");
    let runtime = on(&backends()[0]).build().unwrap();
    let joins = runtime.run_until(|cx, finish| {
        let server = cx.bind(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
        let fd = descriptor_of(&server.local_addr());
        finish.finish(get(fd, libc::SOL_UDP, libc::UDP_GRO).unwrap_or(0));
    });
    assert_eq!(joins.unwrap(), 0);
}

/// The watch that has taken all from the kernel is canceled by its first call, which begins
/// another: that one is told of the rest, though the kernel has nothing for it.
#[test]
fn the_rest_is_told_to_the_next_watch() {
    let _bound = Bound::new("the next watch");
    for backend in backends() {
        let runtime = on(&backend).build().unwrap();
        let got = runtime.run_until(|cx, finish| {
            let server = cx.bind("127.0.0.1:0").unwrap();
            for number in 0..10 {
                server.send_to(&[number], server.local_addr()).unwrap();
            }
            let mine: Arc<Mutex<Option<Watch>>> = Arc::default();
            let (own, socket) = (Arc::clone(&mine), server.clone());
            let watch = on_each(cx, &server, move |cx, datagram| {
                assert_eq!(datagram.data, [0]);
                own.lock().unwrap().take().unwrap().cancel();
                let (mut got, finish) = (Vec::new(), finish.clone());
                on_each(cx, &socket, move |_, datagram| {
                    got.extend(datagram.data);
                    if got.len() == 9 {
                        finish.finish(std::mem::take(&mut got));
                    }
                });
            });
            *mine.lock().unwrap() = Some(watch);
        });
        assert_eq!(got.unwrap(), (1..10).collect::<Vec<u8>>(), "{backend:?}");
    }
}

/// A task takes one datagram, and with it the others from the kernel, before the kernel knows that
/// a watch waits: that one is told of them by the task.
#[test]
fn a_watch_is_told_of_datagrams_that_a_task_has_left() {
    let _bound = Bound::new("a task has left some");
    for backend in backends() {
        let runtime = on(&backend).build().unwrap();
        let got = runtime.run_until(|cx, finish| {
            cx.spawn(HERE, async move {
                let server = with_cx(|cx| cx.bind("127.0.0.1:0")).unwrap();
                let mut got = Vec::new();
                let each = move |_: &mut Cx, datagram: Datagram| {
                    got.extend(datagram.data);
                    if got.len() == 2 {
                        finish.finish(std::mem::take(&mut got));
                    }
                };
                with_cx(|cx| on_each(cx, &server, each));
                for number in 0..3 {
                    server.send_to(&[number], server.local_addr()).unwrap();
                }
                assert_eq!(server.recv().await.unwrap().data, [0]);
            });
        });
        assert_eq!(got.unwrap(), [1, 2], "{backend:?}");
    }
}

/// Has the kernel refuse to join datagrams, as those before Linux 5.0 do.
fn refuse_to_join() {
    let is = |argument, value: i32| {
        let len = SeccompCmpArgLen::Dword;
        SeccompCondition::new(argument, len, SeccompCmpOp::Eq, value as u64).unwrap()
    };
    let rule = SeccompRule::new(vec![is(1, libc::SOL_UDP), is(2, libc::UDP_GRO)]).unwrap();
    let refused = SeccompAction::Errno(libc::ENOPROTOOPT as u32);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let rules = [(libc::SYS_setsockopt, vec![rule])].into();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    apply_filter_all_threads(&program).unwrap();
}

#[test]
fn a_kernel_that_joins_none_is_served() {
    child_passes("joined::child_a_kernel_that_joins_none", &[]);
}

#[test]
#[ignore = "run in a process of its own"]
fn child_a_kernel_that_joins_none() {
    let _bound = Bound::new("joins none");
    refuse_to_join();
    assert!(!kernel_joins());
    for backend in backends() {
        let got = on(&backend).build().unwrap().run_until(|cx, finish| {
            let server = cx.bind("127.0.0.1:0").unwrap();
            let fd = descriptor_of(&server.local_addr());
            assert_ne!(get(fd, libc::SOL_UDP, libc::UDP_GRO).ok(), Some(1));
            for number in 0..3 {
                server.send_to(&[number], server.local_addr()).unwrap();
            }
            cx.spawn(HERE, async move {
                let mut got = Vec::new();
                while got.len() < 3 {
                    let received = timeout(LONG, server.recv()).await.unwrap();
                    got.extend(received.unwrap().data);
                }
                finish.finish(got);
            });
        });
        assert_eq!(got.unwrap(), [0, 1, 2], "{backend:?}");
    }
}

/// Payloads of these lengths, each of its own bytes.
fn payloads(lengths: &[usize]) -> Vec<Vec<u8>> {
    let payload = |(number, &len): (usize, &usize)| (0..len).map(|i| (i + number) as u8).collect();
    lengths.iter().enumerate().map(payload).collect()
}

/// The payloads of [`many_are_sent_in_order`]: more of one length than the kernel cuts, one that is
/// shorter behind them and then longer ones; empty ones; the longest; two that are too long for one
/// message.
fn many() -> Vec<Vec<u8>> {
    let mut lengths = vec![1_200; 70];
    lengths.extend([
        600, 1_200, 0, 0, 5, 5, 0, 5, 4, 4, 6, 65_507, 1, 33_000, 33_000, 1,
    ]);
    payloads(&lengths)
}

#[test]
fn many_are_sent_in_order() {
    let _bound = Bound::new("many are sent");
    for backend in all_backends() {
        let is_simulated = matches!(&backend, Backend::Sim(_));
        if let Backend::Sim(net) = &backend {
            net.set_socket_bytes(1 << 20);
        }
        for (host, connects) in hosts().into_iter().flat_map(|it| [(it, false), (it, true)]) {
            let runtime = on(&backend).build().unwrap();
            let got = runtime.run_until(move |cx, finish| {
                let server = cx.bind(host).unwrap();
                let client = cx.bind(host).unwrap();
                let (to, from) = (server.local_addr(), client.local_addr());
                if !is_simulated {
                    let fd = descriptor_of(&to);
                    set(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, 1 << 20).unwrap();
                }
                let (all, mut got) = (many(), Vec::new());
                let count = all.len();
                on_each(cx, &server, move |_, datagram| {
                    assert_eq!(datagram.from, from);
                    got.push(datagram.data);
                    if got.len() == count {
                        finish.finish(std::mem::take(&mut got));
                    }
                });
                let sent = if connects {
                    client.connect(&to).unwrap();
                    client.send_many(&all, None)
                } else {
                    client.send_many(&all, Some(&to))
                };
                assert_eq!(sent.unwrap(), count);
                assert_eq!(client.send_many::<[u8]>([], Some(&to)).unwrap(), 0);
            });
            assert!(got.unwrap() == many(), "{backend:?} {host} {connects}");
        }
    }
}

#[test]
fn those_behind_one_that_is_refused_are_not_sent() {
    let _bound = Bound::new("one is refused");
    for backend in all_backends() {
        let runtime = on(&backend).build().unwrap();
        let got = runtime.run_until(|cx, finish| {
            let socket = cx.bind("127.0.0.1:0").unwrap();
            let to = socket.local_addr();
            let all = payloads(&[100, 100, 70_000, 100]);
            assert_eq!(socket.send_many(&all, Some(&to)).unwrap(), 2);
            let error = socket.send_many(&all[2..], Some(&to)).unwrap_err();
            assert!(error.to_string().starts_with(&to.to_string()), "{error}");
            assert_eq!(socket.send_many(&all[3..], Some(&to)).unwrap(), 1);
            cx.spawn(HERE, async move {
                let mut got = Vec::new();
                for _ in 0..3 {
                    got.push(socket.recv().await.unwrap().data);
                }
                finish.finish(got);
            });
        });
        let sent = payloads(&[100, 100, 70_000, 100]);
        let sent = [0, 1, 3].map(|number| sent[number].clone());
        assert!(got.unwrap() == sent, "{backend:?}");
    }
}

#[test]
fn a_full_queue_tells_how_many_it_has_taken() {
    let _bound = Bound::new("a full queue");
    for backend in all_backends() {
        let runtime = on(&backend).build().unwrap();
        let (sent, got) = runtime
            .run_until(|cx, finish| {
                let name = |side| Addr::from(format!("@mely-full-{side}-{}", std::process::id()));
                let server = cx.bind(name("server")).unwrap();
                let client = cx.bind(name("client")).unwrap();
                let to = server.local_addr();
                let all = payloads(&[1_000; 3_000]);
                let sent = client.send_many(&all, Some(&to)).unwrap();
                assert!((1..3_000).contains(&sent), "{sent}");
                let refused = client.send_many(&all[sent..], Some(&to)).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::WouldBlock);
                cx.spawn(HERE, async move {
                    let mut got = Vec::new();
                    for _ in 0..sent {
                        got.push(server.recv().await.unwrap().data);
                    }
                    // There is room again, for this one as the next.
                    client.send_to(b"next", &to).unwrap();
                    assert_eq!(server.recv().await.unwrap().data, b"next");
                    finish.finish((sent, got));
                });
            })
            .unwrap();
        assert!(got == payloads(&[1_000; 3_000])[..sent], "{backend:?}");
    }
}

/// The lengths of the buffers that a socket which joins datagrams receives.
fn received_lengths(socket: &UdpSocket, bytes: usize) -> Vec<usize> {
    let (mut buffer, mut lengths) = (vec![0; 1 << 16], Vec::new());
    while lengths.iter().sum::<usize>() < bytes {
        lengths.push(socket.recv(&mut buffer).unwrap());
    }
    lengths
}

/// A socket of std's that receives datagrams as they were joined.
fn joining(host: &str) -> UdpSocket {
    let socket = UdpSocket::bind(host).unwrap();
    set(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_GRO, 1).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket
}

#[test]
fn payloads_of_one_length_are_one_message() {
    let _bound = Bound::new("one message");
    if !kernel_joins() {
        return;
    }
    for (backend, host) in backends()
        .into_iter()
        .flat_map(|backend| hosts().into_iter().map(move |host| (backend.clone(), host)))
    {
        let runtime = on(&backend).build().unwrap();
        let lengths = runtime.run_until(move |cx, finish| {
            let socket = cx.bind(host).unwrap();
            let peer = joining(host);
            let to = Addr::from(peer.local_addr().unwrap());
            let cases = [
                vec![100; 130],
                vec![100, 100, 50, 100],
                vec![1_200; 60],
                vec![40_000, 25_000],
            ];
            let lengths = cases.map(|lengths| {
                let sent = socket.send_many(&payloads(&lengths), Some(&to));
                assert_eq!(sent.unwrap(), lengths.len());
                received_lengths(&peer, lengths.iter().sum())
            });
            finish.finish(lengths);
        });
        let lengths = lengths.unwrap();
        assert_eq!(lengths[0], [6_400, 6_400, 200], "{backend:?} {host}");
        assert_eq!(lengths[1], [250, 100]);
        assert_eq!(lengths[2], [64_800, 7_200]);
        assert_eq!(lengths[3], [65_000]);
    }
}

/// Sockets whose messages the kernel refuses to cut, with the errors of kernels and devices that
/// cut none: one without checksums, and one whose packets are shorter than its datagrams.
#[test]
fn datagrams_that_the_kernel_does_not_cut_are_sent_one_by_one() {
    let _bound = Bound::new("one by one");
    let mut cases = vec![("127.0.0.1:0", libc::SOL_SOCKET, libc::SO_NO_CHECK, 1)];
    if hosts().contains(&"[::1]:0") {
        cases.push(("[::1]:0", libc::IPPROTO_IPV6, libc::IPV6_MTU, 1_280));
    }
    for (host, level, name, value) in cases {
        let runtime = on(&backends()[0]).build().unwrap();
        let lengths = runtime.run_until(move |cx, finish| {
            let socket = UdpSocket::bind(host).unwrap();
            set(socket.as_raw_fd(), level, name, value).unwrap();
            let socket = cx.bind(socket).unwrap();
            let peer = match kernel_joins() {
                true => joining(host),
                false => UdpSocket::bind(host).unwrap(),
            };
            let to = Addr::from(peer.local_addr().unwrap());
            let lengths = [(); 2].map(|()| {
                let all = payloads(&[2_000, 2_000, 2_000, 1_500]);
                assert_eq!(socket.send_many(&all, Some(&to)).unwrap(), 4);
                received_lengths(&peer, 7_500)
            });
            finish.finish(lengths);
        });
        let expected = [2_000, 2_000, 2_000, 1_500];
        assert_eq!(lengths.unwrap(), [expected, expected], "{host}");
    }
}
