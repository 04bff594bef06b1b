//! Streams that tasks read and write, on every backend.

mod ends;
mod lines;
mod stopping;

use crate::common::wire::{ACCEPTING, Client, all_backends, any_port, on, with_server};
use crate::common::{Bound, LONG, backends, cores, eventually};
use futures::future::join;
use futures::io::{AsyncReadExt, AsyncWriteExt, copy};
use futures::{AsyncRead, AsyncWrite};
use mely::aio::{AsyncStream, QUEUED_BYTES_MAX, UNREAD_BYTES_MAX, connect};
use mely::net::{Acceptors, Addr, Backend, Incoming, SimClient, SimNet};
use mely::sim::{Simulation, Step};
use mely::task::{sleep, with_cx};
use mely::{Callback, Color, Cx, Reason, Runtime};
use std::future::{pending, poll_fn};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;

const HERE: Color = Color::new(7);
const THERE: Color = Color::new(8);

fn code(error: &io::Error) -> rustix::io::Errno {
    rustix::io::Errno::from_io_error(error).unwrap_or_else(|| panic!("{error:?}"))
}

const CANCELED: rustix::io::Errno = rustix::io::Errno::CANCELED;

/// Runs `f` as a task of a fresh stream's own color.
fn task<F, G>(cx: &mut Cx, incoming: Incoming, f: F)
where
    F: FnOnce(AsyncStream) -> G + Send + 'static,
    G: Future<Output = ()> + Send + 'static,
{
    let stream = incoming.open_unique();
    let color = stream.color();
    let task = async move {
        let stream = with_cx(|cx| AsyncStream::new(cx, stream)).unwrap();
        assert_eq!(stream.get_ref().color(), color);
        f(stream).await;
    };
    cx.spawn(color, task);
}

/// Bytes that show it if one is missing, doubled or moved.
fn pattern(len: usize) -> &'static [u8] {
    // Once: it takes long without optimization.
    static ALL: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let at = |i: usize| (i ^ (i >> 8) ^ (i >> 16)) as u8;
        (0..32 << 20).map(at).collect()
    });
    &ALL[..len]
}

/// As many bytes as are not taken at once; fewer where the network is simulated.
fn big(backend: &Backend) -> usize {
    match backend {
        Backend::Sim(_) => 300_000,
        _ => 8 << 20,
    }
}

/// Reads to the end of much. What `read_to_end` reads into it fills with zeros first, byte by byte,
/// and that takes long without optimization.
async fn read_rest(from: &mut (impl AsyncRead + Unpin), all: &mut Vec<u8>) -> io::Result<()> {
    let mut space = vec![0; 64 << 10];
    loop {
        match from.read(&mut space).await? {
            0 => return Ok(()),
            len => all.extend_from_slice(&space[..len]),
        }
    }
}

/// Reads pieces of many sizes, and writes each back.
async fn echo(mut stream: AsyncStream) {
    let mut space = vec![0; 100_000];
    for round in 0.. {
        let size = [1, 7, 4_096, 16_384, 65_537, 100_000][round % 6];
        let len = stream.read(&mut space[..size]).await.unwrap();
        if len == 0 {
            return stream.close().await.unwrap();
        }
        stream.write_all(&space[..len]).await.unwrap();
        if round % 3 == 0 {
            stream.flush().await.unwrap();
        }
    }
}

#[test]
fn echoes_whatever_the_sizes() {
    for backend in all_backends() {
        let at = backend.clone();
        let serve = |cx: &mut Cx, incoming| task(cx, incoming, echo);
        with_server("echoes_whatever", on(&backend), serve, move |addr| {
            for len in [0, 1, 2, 100, 4_095, 16_384, 16_385, 65_536, 65_537, 200_001] {
                let mut client = Client::connect(&at, addr);
                let all = pattern(len);
                // What both ends take at once.
                for piece in all.chunks(16_000) {
                    client.write_all(piece).unwrap();
                    assert!(client.exactly(piece.len()) == piece, "{len}");
                }
                client.shutdown_write();
                assert_eq!(client.rest(), b"", "closed after the end of the stream");
            }
        });
    }
}

/// The client reads nothing until the server has stopped reading.
#[test]
fn much_both_ways_with_a_slow_reader() {
    for backend in backends() {
        let at = backend.clone();
        let serve = |cx: &mut Cx, incoming| task(cx, incoming, echo);
        with_server("much_both_ways", on(&backend), serve, move |addr| {
            let Client::Tcp(mut writer) = Client::connect(&at, addr) else {
                unreachable!()
            };
            let mut reader = Client::Tcp(writer.try_clone().unwrap());
            let all = pattern(32 << 20);
            let (len, sent) = (all.len(), Arc::new(AtomicUsize::new(0)));
            let count = Arc::clone(&sent);
            let writing = thread::spawn(move || {
                for piece in all.chunks(64 << 10) {
                    writer.write_all(piece).unwrap();
                    count.fetch_add(piece.len(), Ordering::Relaxed);
                }
                writer.shutdown(std::net::Shutdown::Write).unwrap();
                all
            });
            // Until nothing moves.
            let mut before = usize::MAX;
            eventually("back-pressure", || {
                thread::sleep(Duration::from_millis(50));
                let now = sent.load(Ordering::Relaxed);
                std::mem::replace(&mut before, now) == now
            });
            assert!(sent.load(Ordering::Relaxed) < len, "nobody slowed it down");
            let back = reader.rest();
            assert!(back == writing.join().unwrap(), "other bytes came back");
        });
    }
}

/// A simulated server of one core whose connections are given to `serve`, and a client.
fn simulated<S>(seed: u64, serve: S) -> (Simulation, SimClient)
where
    S: Fn(&mut Cx, Incoming) + Send + Sync + 'static,
{
    let builder = Runtime::builder().cores(1);
    let mut simulation = builder.simulate(seed).unwrap();
    simulation.network().set_socket_bytes(SOCKET_BYTES);
    let (tell, addr) = channel();
    let start = move |cx: &mut Cx| {
        let serve = move |cx: &mut Cx, incoming: io::Result<Incoming>| serve(cx, incoming.unwrap());
        let on_accept = Callback::anonymous_each(ACCEPTING, serve);
        let listener = cx.listen(any_port(), Acceptors::Single, on_accept).unwrap();
        tell.send(listener.local_addr()).unwrap();
    };
    simulation.start(start).unwrap();
    settle(&mut simulation);
    let client = simulation.network().connect(addr.recv().unwrap()).unwrap();
    settle(&mut simulation);
    (simulation, client)
}

const SOCKET_BYTES: usize = 16 << 10;

/// Steps until nothing is left to do.
fn settle(simulation: &mut Simulation) {
    while !matches!(simulation.step(), Step::Stalled | Step::Ended) {}
}

/// Moves what can be moved through `call`.
fn until_it_blocks(
    simulation: &mut Simulation,
    mut call: impl FnMut() -> io::Result<usize>,
) -> usize {
    let mut moved = 0;
    loop {
        match call() {
            Ok(0) => return moved,
            Ok(len) => moved += len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                settle(simulation);
                match call() {
                    Ok(len) => moved += len,
                    // Nobody does anything any more.
                    Err(_) => return moved,
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// What nobody reads waits with the peer, but for a bound.
#[test]
fn a_slow_task_is_sent_no_more_than_a_bound() {
    let _bound = Bound::new("a_slow_task");
    for seed in 0..4 {
        let (go_on, gate) = oneshot::channel::<()>();
        let (give, given) = channel();
        let gate = Mutex::new(Some(gate));
        let (mut simulation, mut client) = simulated(seed, move |cx, incoming| {
            let (gate, give) = (gate.lock().unwrap().take().unwrap(), give.clone());
            task(cx, incoming, move |mut stream| async move {
                gate.await.unwrap();
                let mut all = Vec::new();
                stream.read_to_end(&mut all).await.unwrap();
                give.send(all).unwrap();
            });
        });
        let (all, mut sent) = (pattern(1 << 20), 0);
        let mut send = |simulation: &mut Simulation, sent: &mut usize| {
            until_it_blocks(simulation, || {
                let len = client.write(&all[*sent..])?;
                *sent += len;
                Ok(len)
            });
        };
        send(&mut simulation, &mut sent);
        let most = UNREAD_BYTES_MAX + 4 * SOCKET_BYTES;
        assert!((64 << 10..=most).contains(&sent), "seed {seed}: {sent}");
        go_on.send(()).unwrap();
        settle(&mut simulation);
        send(&mut simulation, &mut sent);
        assert_eq!(sent, all.len(), "seed {seed}");
        client.shutdown_write();
        settle(&mut simulation);
        assert!(
            given.try_recv().unwrap() == all,
            "seed {seed}: other bytes came"
        );
    }
}

/// A task that writes to somebody who does not read waits, and what it wrote is bounded.
#[test]
fn a_slow_peer_is_written_no_more_than_a_bound() {
    let _bound = Bound::new("a_slow_peer");
    for seed in 0..4 {
        let written = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&written);
        let (mut simulation, mut client) = simulated(seed, move |cx, incoming| {
            let count = Arc::clone(&count);
            task(cx, incoming, move |mut stream| async move {
                let all = pattern(1 << 20);
                let mut rest = all;
                while !rest.is_empty() {
                    let piece = &rest[..rest.len().min(1 + rest.len() % 150_000)];
                    let len = stream.write(piece).await.unwrap();
                    assert!(len <= QUEUED_BYTES_MAX);
                    count.fetch_add(len, Ordering::Relaxed);
                    rest = &rest[len..];
                }
                stream.close().await.unwrap();
                let late = stream.write(b"late").await.unwrap_err();
                assert_eq!(late.kind(), ErrorKind::BrokenPipe);
            });
        });
        settle(&mut simulation);
        let most = QUEUED_BYTES_MAX + 4 * SOCKET_BYTES;
        let before = written.load(Ordering::Relaxed);
        assert!((1..=most).contains(&before), "seed {seed}: {before}");
        let (mut back, mut space) = (Vec::new(), [0; 10_000]);
        while back.len() < (1 << 20) {
            let moved = until_it_blocks(&mut simulation, || {
                let len = client.read(&mut space)?;
                back.extend_from_slice(&space[..len]);
                Ok(len)
            });
            assert!(moved > 0, "seed {seed}: {} bytes came", back.len());
        }
        assert!(back == pattern(1 << 20), "seed {seed}: other bytes came");
    }
}

/// Reads into no space and writes of no bytes, in all their forms: ready, with nothing.
fn nothing(stream: &mut AsyncStream) {
    let context = &mut Context::from_waker(Waker::noop());
    let mut stream = Pin::new(stream);
    let mut spaces: [&mut [u8]; 2] = [&mut [], &mut []];
    let mut spaces = spaces.each_mut().map(|space| io::IoSliceMut::new(space));
    let slices = [io::IoSlice::new(b""), io::IoSlice::new(b"")];
    let done = [
        stream.as_mut().poll_read(context, &mut []),
        stream.as_mut().poll_read_vectored(context, &mut []),
        stream.as_mut().poll_read_vectored(context, &mut spaces),
        stream.as_mut().poll_write(context, b""),
        stream.as_mut().poll_write_vectored(context, &[]),
        stream.as_mut().poll_write_vectored(context, &slices),
    ];
    for (call, done) in done.into_iter().enumerate() {
        assert!(matches!(done, Poll::Ready(Ok(0))), "{call}: {done:?}");
    }
    let mut space = hyper::rt::ReadBuf::new(&mut []);
    let read = hyper::rt::Read::poll_read(stream, context, space.unfilled());
    assert!(matches!(read, Poll::Ready(Ok(()))), "{read:?}");
}

/// In every state of the stream; and those that wait go on to.
#[test]
fn nothing_is_read_and_written_at_once() {
    let _bound = Bound::new("nothing_is_read");
    for reset in [false, true] {
        let (tell, told) = channel();
        let (mut simulation, mut client) = simulated(1, move |cx, incoming| {
            let tell = tell.clone();
            task(cx, incoming, move |mut stream| async move {
                nothing(&mut stream);
                // One that waits for data.
                let mut byte = [0];
                let read = poll_fn(|context| {
                    let read = Pin::new(&mut stream).poll_read(context, &mut byte);
                    nothing(&mut stream);
                    read
                });
                read.await.unwrap();
                // More is there.
                nothing(&mut stream);
                stream.read_exact(&mut byte).await.unwrap();
                assert_eq!(&byte, b"2");
                let written = poll_fn(|context| {
                    let written = loop {
                        match Pin::new(&mut stream).poll_write(context, &[7; 10_000]) {
                            Poll::Ready(Ok(_)) => {}
                            other => break other,
                        }
                    };
                    // The queue is full, or nothing can be sent any more.
                    nothing(&mut stream);
                    tell.send(()).unwrap();
                    written
                });
                written.await.unwrap_err();
                let _ = stream.read(&mut byte).await;
                nothing(&mut stream);
                tell.send(()).unwrap();
            });
        });
        settle(&mut simulation);
        client.write_all(b"12").unwrap();
        settle(&mut simulation);
        assert_eq!(told.try_iter().count(), 1);
        if reset {
            client.reset();
        } else {
            drop(client);
        }
        settle(&mut simulation);
        assert_eq!(told.try_iter().count(), 2);
    }
}

/// A flush is ready when the kernel has all, and not before.
#[test]
fn a_flush_waits_until_all_has_left() {
    let _bound = Bound::new("a_flush_waits");
    let flushed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&flushed);
    let (mut simulation, mut client) = simulated(1, move |cx, incoming| {
        let count = Arc::clone(&count);
        task(cx, incoming, move |mut stream| async move {
            stream.write_all(pattern(50_000)).await.unwrap();
            stream.flush().await.unwrap();
            count.store(1, Ordering::Relaxed);
            pending::<()>().await;
        });
    });
    settle(&mut simulation);
    assert_eq!(flushed.load(Ordering::Relaxed), 0, "16 KiB fit");
    let mut space = [0; 10_000];
    let moved = until_it_blocks(&mut simulation, || client.read(&mut space));
    assert_eq!((moved, flushed.load(Ordering::Relaxed)), (50_000, 1));
}

/// A server and clients on one runtime, in tasks all of them; the two halves are used at a time.
#[test]
fn connects_and_is_answered() {
    for backend in all_backends() {
        let _bound = Bound::new("connects_and_is_answered");
        let len = big(&backend);
        let served = on(&backend).build().unwrap().run_until(move |cx, finish| {
            let serve = |cx: &mut Cx, incoming: io::Result<Incoming>| {
                task(cx, incoming.unwrap(), |stream| async move {
                    let (from, mut to) = stream.split();
                    copy(from, &mut to).await.unwrap();
                    to.close().await.unwrap();
                });
            };
            let on_accept = Callback::anonymous_each(ACCEPTING, serve);
            let listener = cx
                .listen(any_port(), Acceptors::PerCore, on_accept)
                .unwrap();
            let addr = listener.local_addr();
            let client = |color: Color, addr: Addr| async move {
                let stream = connect(&addr, LONG).await?;
                assert_eq!(stream.get_ref().color(), color);
                assert_eq!(with_cx(|cx| stream.get_ref().peer_addr(cx))?, addr);
                assert_ne!(with_cx(|cx| stream.get_ref().local_addr(cx))?, addr);
                let (mut from, mut to) = stream.split();
                let writing = async move {
                    to.write_all(pattern(len)).await?;
                    to.close().await
                };
                let mut back = Vec::new();
                let (written, read) = join(writing, read_rest(&mut from, &mut back)).await;
                written.and(read)?;
                assert!(back == pattern(len));
                Ok::<_, io::Error>(())
            };
            let clients: Vec<_> = (0..4)
                .map(|n| Color::from(100 + n))
                .map(|color| cx.spawn(color, client(color, addr.clone())))
                .collect();
            let all = async move {
                for client in clients {
                    client.await.unwrap().unwrap();
                }
                finish.finish(());
            };
            cx.spawn(HERE, all);
        });
        served.unwrap();
    }
}

#[test]
fn connecting_fails_as_it_should() {
    for backend in backends() {
        let _bound = Bound::new("connecting_fails");
        let closed = TcpListener::bind(any_port()).unwrap().local_addr().unwrap();
        // Outside of tasks.
        let mut outside = Box::pin(connect(closed, LONG));
        let polled = outside
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Err(error)) = polled else {
            panic!("polled outside of a task");
        };
        let why = error.into_inner().unwrap().downcast::<Reason>().unwrap();
        assert_eq!(*why, Reason::NoContext);

        let seen = on(&backend).build().unwrap().run_until(move |cx, finish| {
            let tries = async move {
                let refused = connect(closed, LONG).await.unwrap_err().kind();
                // Dropped before it is there: whatever comes of it is closed.
                let mut early = Box::pin(connect(closed, LONG));
                let pending = poll_fn(|cx| Poll::Ready(early.as_mut().poll(cx).is_pending())).await;
                drop(early);
                with_cx(|cx| cx.stop());
                // The driver has heard of it.
                sleep(Duration::from_millis(20)).await;
                let canceled = code(&connect(closed, LONG).await.unwrap_err());
                finish.finish((refused, pending, canceled));
            };
            cx.spawn(HERE, tries);
        });
        let expected = (ErrorKind::ConnectionRefused, true, CANCELED);
        assert_eq!(seen.unwrap(), expected, "{backend:?}");
    }
}

/// What does not answer is given up at the limit, and keeps no run; what answers is connected.
#[test]
fn connecting_gives_up_at_its_limit() {
    for backend in backends() {
        let _bound = Bound::new("connecting_gives_up");
        // Nobody accepts, and few are kept waiting.
        let listener = TcpListener::bind(any_port()).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let addr = listener.local_addr().unwrap();
        let builder = on(&backend).exit_when_idle(true);
        let seen = builder.build().unwrap().run_until(move |cx, finish| {
            let tries = async move {
                let limit = Duration::from_millis(50);
                let mut connected = Vec::new();
                let error = loop {
                    let begun = with_cx(|cx| cx.now());
                    match connect(addr, limit).await {
                        Ok(stream) => connected.push(stream),
                        Err(error) => {
                            assert!(with_cx(|cx| cx.now()) - begun >= limit, "early");
                            break error;
                        }
                    }
                    assert!(
                        connected.len() < 64,
                        "the queue is longer than was asked for"
                    );
                };
                finish.finish((error.kind(), error.to_string(), connected.len()));
            };
            cx.spawn(HERE, tries);
        });
        let (kind, text, connected) = seen.unwrap();
        assert_eq!(kind, ErrorKind::TimedOut, "{backend:?}");
        let late = "not connected within the limit of 50ms";
        assert_eq!(text, format!("{addr}: {late}"));
        assert!(connected > 0);
    }
}

/// In moves of a few bytes, in an order of its own for each seed.
#[test]
fn echoes_in_small_pieces() {
    // What functions that take streams ask for.
    fn is<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>() {}
    is::<AsyncStream>();
    for seed in 0..20 {
        let net = SimNet::new(seed);
        net.set_move_bytes_max(700);
        let backend = Backend::Sim(net);
        let at = backend.clone();
        let serve = |cx: &mut Cx, incoming| task(cx, incoming, echo);
        with_server(
            "echoes_in_small",
            cores(2).backend(backend),
            serve,
            move |addr: SocketAddr| {
                let mut client = Client::connect(&at, addr);
                for piece in pattern(100_000).chunks(9_000) {
                    client.write_all(piece).unwrap();
                    assert!(client.exactly(piece.len()) == piece, "seed {seed}");
                }
                client.shutdown_write();
                assert_eq!(client.rest(), b"");
            },
        );
    }
}
