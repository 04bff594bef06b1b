//! Datagram sockets.

use crate::common::wire::{all_backends, on};
use crate::common::{Alive, Bound, LONG, backends, child_passes, eventually, open_descriptors};
use mely::net::{Addr, Backend, DATAGRAM_BYTES_MAX, Datagram, DatagramSocket, Watch};
use mely::runtime::OnPanic;
use mely::task::{sleep, timeout, with_cx};
use mely::{Callback, Color, Cx, Handler, Runtime};
use std::io::{self, ErrorKind, Read, Write};
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

static RECEIVE: Handler = Handler::new("receive");
const HERE: Color = Color::new(7);

/// An address for a server and one for a client, of UDP and of Unix sockets.
fn families(test: &str) -> [(Addr, Addr); 2] {
    let name = |side: &str| Addr::from(format!("@mely-{test}-{side}-{}", std::process::id()));
    let any = Addr::from("127.0.0.1:0");
    [(any.clone(), any), (name("server"), name("client"))]
}

fn on_each<F>(cx: &mut Cx, socket: &DatagramSocket, color: Color, f: F) -> Watch
where
    F: FnMut(&mut Cx, io::Result<Datagram>) + Send + 'static,
{
    socket.on_datagram(cx, RECEIVE.on_each(color, f)).unwrap()
}

#[test]
fn each_is_answered_where_it_came_from() {
    let _bound = Bound::new("each is answered");
    for backend in all_backends() {
        for (at, from) in families("answered") {
            let runtime = on(&backend).build().unwrap();
            let answers = runtime.run_until(move |cx, finish| {
                let server = cx.bind(at).unwrap();
                let its = server.clone();
                on_each(cx, &server, HERE, move |cx, received| {
                    assert_eq!((cx.color(), cx.handler()), (HERE, "receive"));
                    let Datagram {
                        mut data,
                        from,
                        truncated,
                        ..
                    } = received.unwrap();
                    assert!(!truncated);
                    data.reverse();
                    its.send_to(&data, &from).unwrap();
                });
                cx.spawn(Color::from(8), async move {
                    let client = with_cx(|cx| cx.bind(from)).unwrap();
                    let mut answers = Vec::new();
                    for len in [1, 0, 1_400, 60_000] {
                        let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
                        client.send_to(&bytes, server.local_addr()).unwrap();
                        let mut answer = client.recv().await.unwrap();
                        assert_eq!(answer.from, server.local_addr());
                        answer.data.reverse();
                        answers.push(answer.data == bytes);
                    }
                    finish.finish(answers);
                });
            });
            assert_eq!(answers.unwrap(), [true; 4], "{backend:?}");
        }
    }
}

#[test]
fn a_burst_is_told_in_order() {
    let _bound = Bound::new("a burst");
    for backend in all_backends() {
        for (at, from) in families("burst") {
            let runtime = on(&backend).build().unwrap();
            let got = runtime.run_until(move |cx, finish| {
                let server = cx.bind(at).unwrap();
                let mut got = Vec::new();
                on_each(cx, &server, HERE, move |_, received| {
                    got.push(received.unwrap().data[0]);
                    if got.len() == 100 {
                        finish.finish(std::mem::take(&mut got));
                    }
                });
                cx.spawn(Color::from(8), async move {
                    let client = with_cx(|cx| cx.bind(from)).unwrap();
                    client.connect(server.local_addr()).unwrap();
                    for number in 0..100 {
                        // The queue of a Unix socket is short.
                        while let Err(error) = client.send(&[number; 100]) {
                            assert_eq!(error.kind(), ErrorKind::WouldBlock);
                            sleep(Duration::from_millis(1)).await;
                        }
                    }
                });
            });
            assert_eq!(got.unwrap(), (0..100).collect::<Vec<u8>>(), "{backend:?}");
        }
    }
}

#[test]
fn a_hold_holds_back_the_next_one() {
    let _bound = Bound::new("a hold");
    for backend in all_backends() {
        let runtime = on(&backend).build().unwrap();
        let most = runtime.run_until(move |cx, finish| {
            let server = cx.bind("127.0.0.1:0").unwrap();
            let inside = Arc::new(AtomicBool::new(false));
            let mut told = 0;
            on_each(cx, &server, HERE, move |cx, received| {
                received.unwrap();
                assert!(
                    !inside.swap(true, Ordering::Relaxed),
                    "another one is handled"
                );
                told += 1;
                let (inside, finish) = (Arc::clone(&inside), finish.clone());
                let (hold, done) = (cx.hold(), told == 20);
                let resume = move |_: &mut Cx| {
                    hold.resume(move |_cx| {
                        inside.store(false, Ordering::Relaxed);
                        if done {
                            finish.finish(20);
                        }
                    });
                };
                let later = Callback::anonymous(Color::from(9), resume);
                cx.timer(Duration::from_micros(100), later);
            });
            let client = cx.bind("127.0.0.1:0").unwrap();
            for _ in 0..20 {
                client.send_to(b"x", server.local_addr()).unwrap();
            }
        });
        assert_eq!(most.unwrap(), 20, "{backend:?}");
    }
}

#[test]
fn a_panic_costs_one_datagram() {
    let _bound = Bound::new("a panic");
    for backend in all_backends() {
        let builder = on(&backend).on_panic(OnPanic::DropEvent).panic_hook(|_| ());
        let got = builder.build().unwrap().run_until(move |cx, finish| {
            let server = cx.bind("127.0.0.1:0").unwrap();
            let mut got = Vec::new();
            on_each(cx, &server, HERE, move |_, received| {
                let byte = received.unwrap().data[0];
                assert!(byte % 3 != 0, "as asked");
                got.push(byte);
                if got.len() == 20 {
                    finish.finish(std::mem::take(&mut got));
                }
            });
            let client = cx.bind("127.0.0.1:0").unwrap();
            for number in 0..30 {
                client.send_to(&[number], server.local_addr()).unwrap();
            }
        });
        let expected: Vec<u8> = (0..30).filter(|byte| byte % 3 != 0).collect();
        assert_eq!(got.unwrap(), expected, "{backend:?}");
    }
}

#[test]
fn what_is_too_long_is_told() {
    let _bound = Bound::new("too long");
    for backend in all_backends() {
        let (at, from) = families("long")[1].clone();
        let runtime = on(&backend).build().unwrap();
        if let Backend::Sim(net) = &backend {
            net.set_socket_bytes(1 << 20);
        }
        let got = runtime.run_until(move |cx, finish| {
            let server = cx.bind(at).unwrap();
            let client = cx.bind(from).unwrap();
            client.send_to(&[7; 100_000], server.local_addr()).unwrap();
            let udp = cx.bind("127.0.0.1:0").unwrap();
            let refused = udp.send_to(&[7; 70_000], udp.local_addr()).unwrap_err();
            let named = refused.to_string();
            assert!(named.starts_with(&udp.local_addr().to_string()), "{named}");
            cx.spawn(
                HERE,
                async move { finish.finish(server.recv().await.unwrap()) },
            );
        });
        let got = got.unwrap();
        assert!(got.truncated, "{backend:?}");
        assert!(got.data == [7; DATAGRAM_BYTES_MAX]);
    }
}

#[test]
fn a_refusal_is_told_and_ends_nothing() {
    let _bound = Bound::new("a refusal");
    for backend in backends() {
        let runtime = on(&backend).build().unwrap();
        let got = runtime.run_until(move |cx, finish| {
            let nowhere = UdpSocket::bind("127.0.0.1:0").unwrap();
            let addr = nowhere.local_addr().unwrap();
            let client = cx.bind("127.0.0.1:0").unwrap();
            client.connect(addr).unwrap();
            drop(nowhere);
            let its = client.clone();
            let mut refused = None;
            on_each(cx, &client, HERE, move |_, received| match received {
                Err(error) => {
                    refused = Some(error.kind());
                    let back = UdpSocket::bind(addr).unwrap();
                    let to = its.local_addr().ip().unwrap();
                    back.send_to(b"back", to).unwrap();
                }
                Ok(datagram) => finish.finish((refused, datagram.data)),
            });
            client.send(b"anybody?").unwrap();
        });
        let got = got.unwrap();
        assert_eq!(got, (Some(ErrorKind::ConnectionRefused), b"back".to_vec()));
    }
}

#[test]
fn nothing_is_left_of_a_socket() {
    child_passes("datagrams::child_nothing_is_left_of_a_socket", &[]);
}

#[test]
#[ignore = "counts descriptors: run in a process of its own"]
fn child_nothing_is_left_of_a_socket() {
    let _bound = Bound::new("nothing is left");
    for backend in all_backends() {
        let before = open_descriptors();
        let alive = Alive::default();
        let net = match &backend {
            Backend::Sim(net) => Some(net.clone()),
            _ => None,
        };
        let runtime = on(&backend).build().unwrap();
        let its = alive.clone();
        let outcome = runtime.run_until(move |cx, finish| {
            // Canceled, by its own callback and from outside; detached; waited for by a task that
            // gives up, and by one until the stop.
            let all: Vec<_> = (0..4).map(|_| cx.bind("127.0.0.1:0").unwrap()).collect();
            let mine: Arc<Mutex<Option<Watch>>> = Arc::default();
            let (own, payload) = (Arc::clone(&mine), its.payload());
            let counter = its.clone();
            let watch = on_each(cx, &all[0], HERE, move |_, received| {
                let _payload = &payload;
                received.unwrap();
                own.lock().unwrap().take().unwrap().cancel();
            });
            *mine.lock().unwrap() = Some(watch);
            let payload = its.payload();
            let watch = on_each(cx, &all[1], HERE, move |_, _| {
                let _payload = &payload;
            });
            let payload = its.payload();
            on_each(cx, &all[2], HERE, move |_, _| {
                let _payload = &payload;
            });
            all[3].send_to(b"one", all[0].local_addr()).unwrap();
            all[3].send_to(b"two", all[0].local_addr()).unwrap();
            cx.spawn(Color::from(9), async move {
                let late = timeout(Duration::from_millis(5), all[3].recv()).await;
                assert!(late.is_err());
                watch.cancel();
                while counter.count() > 1 {
                    sleep(Duration::from_millis(1)).await;
                }
                let its = all[3].clone();
                with_cx(|cx| {
                    cx.spawn(Color::from(10), async move {
                        let error = its.recv().await.unwrap_err();
                        assert_eq!(
                            error.raw_os_error(),
                            Some(rustix::io::Errno::CANCELED.raw_os_error())
                        );
                    })
                });
                sleep(Duration::from_millis(5)).await;
                finish.finish(());
            });
        });
        outcome.unwrap();
        assert_eq!(alive.count(), 0);
        assert_eq!(open_descriptors(), before, "{backend:?}");
        assert_eq!(net.map_or(0, |net| net.open_count()), 0);
    }
}

#[test]
fn who_sends_much_is_bounded_by_the_socket() {
    let _bound = Bound::new("who sends much");
    for backend in backends() {
        let runtime = on(&backend).build().unwrap();
        let poster = runtime.poster();
        let (tell, told) = channel::<Addr>();
        let got = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&got);
        let sends = std::thread::spawn(move || {
            let addr = told.recv().unwrap().ip().unwrap();
            let sockets: Vec<_> = (0..4)
                .map(|_| UdpSocket::bind("127.0.0.1:0").unwrap())
                .collect();
            for number in 0..20_000_u32 {
                let _ = sockets[number as usize % 4].send_to(&number.to_le_bytes(), addr);
            }
            eventually("some", || seen.load(Ordering::Relaxed) > 100);
            poster.stop();
        });
        let outcome = runtime.run(move |cx| {
            let server = cx.bind("127.0.0.1:0").unwrap();
            let mut last = [0; 4];
            on_each(cx, &server, HERE, move |_, received| {
                let number = u32::from_le_bytes(received.unwrap().data.try_into().unwrap());
                let before = &mut last[number as usize % 4];
                assert!(*before == 0 || *before < number, "out of order");
                *before = number;
                got.fetch_add(1, Ordering::Relaxed);
            });
            tell.send(server.local_addr()).unwrap();
        });
        sends.join().unwrap();
        outcome.unwrap();
    }
}

#[test]
fn sockets_that_were_made_elsewhere_are_taken() {
    let _bound = Bound::new("made elsewhere");
    for backend in backends() {
        let runtime = on(&backend).build().unwrap();
        let got = runtime.run_until(|cx, finish| {
            let group = [239, 255, 77, 7].into();
            let udp = UdpSocket::bind("0.0.0.0:0").unwrap();
            udp.join_multicast_v4(&group, &[127, 0, 0, 1].into())
                .unwrap();
            let port = udp.local_addr().unwrap().port();
            let server = cx.bind(udp).unwrap();
            let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
            rustix::net::sockopt::set_ip_multicast_if(&sender, &[127, 0, 0, 1].into()).ok();
            let (ours, theirs) = UnixDatagram::pair().unwrap();
            theirs.send(b"local").unwrap();
            let local = cx.bind(ours).unwrap();
            let refused = cx.bind(std::net::TcpListener::bind("127.0.0.1:0").unwrap());
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
            sender.send_to(b"all", (group, port)).unwrap();
            cx.spawn(HERE, async move {
                let all = timeout(LONG, server.recv()).await.unwrap().unwrap().data;
                let local = local.recv().await.unwrap();
                finish.finish((all, local.data, local.from));
            });
        });
        let got = got.unwrap();
        assert_eq!(got, (b"all".to_vec(), b"local".to_vec(), Addr::Unnamed));
    }
}

#[test]
fn descriptors_are_passed() {
    let _bound = Bound::new("descriptors are passed");
    for backend in backends() {
        let runtime = on(&backend).build().unwrap();
        let got = runtime.run_until(|cx, finish| {
            let (ours, theirs) = UnixDatagram::pair().unwrap();
            let (ours, theirs) = (cx.bind(ours).unwrap(), cx.bind(theirs).unwrap());
            let udp = cx.bind("127.0.0.1:0").unwrap();
            let (reads, mut writes) = std::io::pipe().unwrap();
            let both = [reads.as_fd(), writes.as_fd()];
            ours.send_descriptors(b"two", &both, None).unwrap();
            ours.send(b"none").unwrap();
            let many = vec![reads.as_fd(); 254];
            let refused = ours.send_descriptors(b"many", &many, None).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidInput);
            let to = udp.local_addr();
            let refused = udp.send_descriptors(b"x", &both, Some(&to)).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidInput);
            writes.write_all(b"through").unwrap();
            drop((reads, writes));
            on_each(cx, &theirs, HERE, move |_, received| {
                let Datagram {
                    data, descriptors, ..
                } = received.unwrap();
                match &data[..] {
                    b"two" => {
                        let [reads, writes] = descriptors.try_into().unwrap();
                        drop::<OwnedFd>(writes);
                        let mut text = String::new();
                        std::fs::File::from(reads)
                            .read_to_string(&mut text)
                            .unwrap();
                        assert_eq!(text, "through");
                    }
                    _ => finish.finish(descriptors.len()),
                }
            });
        });
        assert_eq!(got.unwrap(), 0);
    }
}

#[test]
fn what_a_canceled_watch_has_not_told_is_there() {
    let _bound = Bound::new("a canceled watch");
    let cases = all_backends().into_iter();
    let cases = cases.flat_map(|backend| families("canceled").map(|its| (backend.clone(), its)));
    for (backend, (at, from)) in cases {
        let runtime = on(&backend).build().unwrap();
        let got = runtime.run_until(move |cx, finish| {
            let server = cx.bind(at).unwrap();
            let client = cx.bind(from).unwrap();
            for number in 0..4 {
                client.send_to(&[number], server.local_addr()).unwrap();
            }
            let mine: Arc<Mutex<Option<Watch>>> = Arc::default();
            let (own, socket) = (Arc::clone(&mine), server.clone());
            let watch = on_each(cx, &server, HERE, move |cx, received| {
                assert_eq!(received.unwrap().data, [0]);
                own.lock().unwrap().take().unwrap().cancel();
                let (socket, finish) = (socket.clone(), finish.clone());
                cx.spawn(Color::from(8), async move {
                    let mut rest = Vec::new();
                    while rest.len() < 3 {
                        rest.push(socket.recv().await.unwrap().data[0]);
                    }
                    finish.finish(rest);
                });
            });
            *mine.lock().unwrap() = Some(watch);
        });
        assert_eq!(got.unwrap(), [1, 2, 3], "{backend:?}");
    }
}

#[test]
fn a_task_that_receives_much_lets_others_run() {
    let _bound = Bound::new("a task that receives much");
    for backend in backends() {
        let runtime = on(&backend).build().unwrap();
        let outcome = runtime.run_until(move |cx, finish| {
            let socket = cx.bind("127.0.0.1:0").unwrap();
            let over: Arc<AtomicBool> = Arc::default();
            let seen = Arc::clone(&over);
            cx.spawn(HERE, async move {
                // Each is followed by another, as long as nothing else runs.
                socket.send_to(b"x", socket.local_addr()).unwrap();
                while !seen.load(Ordering::Relaxed) {
                    socket.recv().await.unwrap();
                    socket.send_to(b"x", socket.local_addr()).unwrap();
                }
            });
            cx.spawn(HERE, async move {
                sleep(Duration::from_millis(20)).await;
                over.store(true, Ordering::Relaxed);
                finish.finish(());
            });
        });
        outcome.unwrap();
    }
}

/// Two watches of one socket, each the first operation of its core.
#[test]
fn each_core_is_told_of_a_simulated_datagram() {
    for seed in 0..100 {
        let mut simulation = Runtime::builder().cores(2).simulate(seed).unwrap();
        let run = |cx: &mut Cx, finish: mely::runtime::Finish<()>| {
            let socket = cx.bind("10.0.0.1:53").unwrap();
            let left = Arc::new(AtomicUsize::new(2));
            for core in 0..2 {
                let (socket, finish, left) = (socket.clone(), finish.clone(), Arc::clone(&left));
                let color = Color::from(100 + core as u64);
                cx.place(color, core);
                cx.spawn(color, async move {
                    socket.recv().await.unwrap();
                    if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                        finish.finish(());
                    }
                });
            }
            let send = move |_: &mut Cx| {
                for _ in 0..2 {
                    socket.send_to(b"x", "10.0.0.1:53").unwrap();
                }
            };
            let later = Callback::anonymous(Color::from(9), send);
            cx.timer(Duration::from_millis(5), later);
        };
        simulation.run_until(run).unwrap();
    }
}

#[test]
fn a_simulated_network_loses_some() {
    let run = |seed: u64| {
        let mut simulation = Runtime::builder().cores(2).simulate(seed).unwrap();
        simulation.network().lose_one_datagram_in(3);
        simulation
            .run_until(|cx: &mut Cx, finish| {
                let server = cx.bind("10.0.0.1:53").unwrap();
                let got = Arc::new(Mutex::new(Vec::new()));
                let its = Arc::clone(&got);
                on_each(cx, &server, HERE, move |_, received| {
                    its.lock().unwrap().push(received.unwrap().data[0]);
                });
                let client = cx.bind("10.0.0.2:0").unwrap();
                for number in 0..60 {
                    client.send_to(&[number], "10.0.0.1:53").unwrap();
                }
                let done =
                    move |_: &mut Cx| finish.finish(std::mem::take(&mut *got.lock().unwrap()));
                cx.timer(Duration::from_secs(1), Callback::anonymous(HERE, done));
            })
            .unwrap()
    };
    let first = run(1);
    assert!((20..60).contains(&first.len()), "{first:?}");
    assert!(first.is_sorted());
    assert_eq!(run(1), first);
    assert_ne!(run(2), first);
}
