//! hyper 1 on mely: server and client, HTTP/1 and HTTP/2.

#[path = "../../examples/hyper.rs"]
#[allow(dead_code, reason = "its `main` is not called")]
mod example;

use crate::common::wire::{Client, all_backends, any_port, hold_up, on, with_server};
use crate::common::{Bound, LONG, backends, cores};
use futures::future::join_all;
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Bytes, Incoming as Body};
use hyper::rt::{Executor, Timer};
use hyper::service::service_fn;
use hyper::{Request, Response, client, server};
use mely::Post;
use mely::aio::hyper::{ColorExecutor, Io, TaskTimer};
use mely::aio::{AsyncStream, connect};
use mely::net::{Acceptors, Backend, Incoming, SimClient};
use mely::task::{sleep, stopping, with_cx};
use mely::{Callback, Color, Cx, Poster, Runtime, sim};
use std::error::Error;
use std::future::poll_fn;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

const HERE: Color = Color::new(7);
const THERE: Color = Color::new(8);

type Answer = Response<Either<Full<Bytes>, Body>>;

async fn answer(request: Request<Body>) -> hyper::Result<Answer> {
    let (head, body) = request.into_parts();
    let text = |text: String| Response::new(Either::Left(Full::from(text)));
    Ok(match head.uri.path() {
        "/echo" => Response::new(Either::Right(body)),
        "/count" => text(body.collect().await?.to_bytes().len().to_string()),
        "/stop" => {
            with_cx(|cx| cx.stop());
            // By then the core's event source has heard of it.
            sleep(Duration::from_millis(50)).await;
            text("stopped".into())
        }
        path => {
            // Not in the order in which they came.
            let number = path.trim_start_matches('/').parse().unwrap_or(0);
            sleep(Duration::from_micros(number * 7_919 % 5_000)).await;
            text(path.into())
        }
    })
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Version {
    Http1,
    Http2,
}

use Version::{Http1, Http2};

/// Polls a connection to its end, which a stop asks it to come to.
macro_rules! to_the_end {
    ($connection:expr) => {{
        let mut connection = pin!($connection);
        let mut stop = pin!(stopping());
        let mut asked = false;
        let served = poll_fn(|context| {
            if !asked && stop.as_mut().poll(context).is_ready() {
                connection.as_mut().graceful_shutdown();
                asked = true;
            }
            connection.as_mut().poll(context)
        });
        served.await
    }};
}

/// Whether a client was gone before it had read all: one that has what it wanted, say.
fn is_hung_up(error: &(dyn Error + 'static)) -> bool {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        let kind = error.downcast_ref().map(io::Error::kind);
        if matches!(
            kind,
            Some(ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
        ) {
            return true;
        }
        next = error.source();
    }
    false
}

/// Serves a connection; what HTTP/2 has in tasks of its own is in this color, or in the stream's.
fn serve(cx: &mut Cx, incoming: Incoming, version: Version, tasks: Option<Color>) {
    let stream = incoming.open_unique();
    let color = stream.color();
    let connection = async move {
        let (stream, executor) = with_cx(|cx| {
            stream.set_under_way(cx, true).unwrap();
            let executor = ColorExecutor::new(cx, tasks.unwrap_or(color));
            (AsyncStream::new(cx, stream).unwrap(), executor)
        });
        let service = service_fn(answer);
        let served = match version {
            Http1 => {
                let mut builder = server::conn::http1::Builder::new();
                builder.pipeline_flush(true).timer(TaskTimer);
                to_the_end!(builder.serve_connection(stream, service))
            }
            Http2 => {
                let mut builder = server::conn::http2::Builder::new(executor);
                builder.timer(TaskTimer);
                to_the_end!(builder.serve_connection(stream, service))
            }
        };
        if let Err(error) = served {
            assert!(is_hung_up(&error), "{error:?}");
        }
    };
    cx.spawn(color, connection);
}

fn request(path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let url = format!("http://localhost{path}");
    Request::post(url).body(Full::new(body.into())).unwrap()
}

async fn body_of(answer: Response<Body>) -> Bytes {
    assert_eq!(answer.status(), 200);
    answer.into_body().collect().await.unwrap().to_bytes()
}

/// Runs a client in a runtime of its own.
fn client_of<F, G>(backend: &Backend, addr: SocketAddr, client: F) -> G::Output
where
    F: FnOnce(AsyncStream) -> G + Send + 'static,
    G: Future<Output: Send + 'static> + Send + 'static,
{
    let runtime = on(backend).build().unwrap();
    let answered = runtime.run_until(move |cx, finish| {
        let client = async move {
            let stream = connect(addr, LONG).await.unwrap();
            finish.finish(client(stream).await);
        };
        cx.spawn(HERE, client);
    });
    answered.unwrap()
}

/// Several on one connection, one after the other and all at once, in order.
#[test]
fn http1_keeps_the_connection_and_answers_in_order() {
    for backend in all_backends() {
        let at = backend.clone();
        let serve = |cx: &mut Cx, incoming| serve(cx, incoming, Http1, None);
        with_server("http1_keeps", on(&backend), serve, move |addr| {
            let mut client = Client::connect(&at, addr);
            let request = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
            let answered = |client: &mut Client, path: &str| {
                let mut answer = Vec::new();
                while !answer.ends_with(b"\r\n\r\n") {
                    answer.extend(client.exactly(1));
                }
                let answer = String::from_utf8(answer).unwrap();
                assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
                let length = format!("content-length: {}\r\n", path.len());
                assert!(answer.contains(&length), "{answer}");
                assert_eq!(client.exactly(path.len()), path.as_bytes());
            };
            let paths: Vec<_> = (0..20).map(|n| format!("/{n}")).collect();
            for path in &paths {
                client.write_all(request(path).as_bytes()).unwrap();
                answered(&mut client, path);
            }
            let all: String = paths.iter().map(|path| request(path)).collect();
            client.write_all(all.as_bytes()).unwrap();
            for path in &paths {
                answered(&mut client, path);
            }
            client.shutdown_write();
            assert_eq!(client.rest(), b"");
        });
    }
}

#[test]
fn http1_with_bodies_both_ways() {
    for backend in all_backends() {
        let at = backend.clone();
        let serve = |cx: &mut Cx, incoming| serve(cx, incoming, Http1, None);
        with_server("http1_with_bodies", on(&backend), serve, move |addr| {
            client_of(&at, addr, |stream| async move {
                // As a stream of somebody else's would be.
                let shaken = client::conn::http1::handshake(Io(stream)).await;
                let (mut sender, connection) = shaken.unwrap();
                with_cx(|cx| cx.spawn(HERE, connection));
                for len in [0, 1, 10_000, 300_000] {
                    let bytes = vec![len as u8; len];
                    sender.ready().await.unwrap();
                    let sent = sender.send_request(request("/echo", bytes.clone()));
                    assert!(body_of(sent.await.unwrap()).await == bytes);
                    sender.ready().await.unwrap();
                    let sent = sender.send_request(request("/count", bytes));
                    assert_eq!(body_of(sent.await.unwrap()).await, len.to_string());
                }
            });
        });
    }
}

/// Its requests are in tasks of the connection's color, or of another one.
#[test]
fn http2_with_many_streams() {
    for backend in all_backends() {
        for tasks in [None, Some(THERE)] {
            let at = backend.clone();
            let serve = move |cx: &mut Cx, incoming| serve(cx, incoming, Http2, tasks);
            with_server("http2_with_many", on(&backend), serve, move |addr| {
                client_of(&at, addr, |stream| async move {
                    let executor = with_cx(|cx| ColorExecutor::new(cx, HERE));
                    let shaken = client::conn::http2::handshake(executor, stream).await;
                    let (sender, connection) = shaken.unwrap();
                    with_cx(|cx| cx.spawn(HERE, connection));
                    let all = (0..300usize).map(|n| {
                        let mut sender = sender.clone();
                        async move {
                            let path = format!("/{n}");
                            let sent = sender.send_request(request(&path, "")).await;
                            assert_eq!(body_of(sent.unwrap()).await, path);
                            let bytes = vec![n as u8; n * 41];
                            let sent = sender.send_request(request("/echo", bytes.clone())).await;
                            assert!(body_of(sent.unwrap()).await == bytes);
                        }
                    });
                    join_all(all).await;
                });
            });
        }
    }
}

/// What was asked is answered, and its run ends well.
#[test]
fn a_stop_while_a_request_is_answered() {
    for backend in all_backends() {
        for version in [Http1, Http2] {
            let at = backend.clone();
            let serve = move |cx: &mut Cx, incoming| serve(cx, incoming, version, None);
            let (answered, _) = with_server("a_stop_while", on(&backend), serve, move |addr| {
                client_of(&at, addr, move |stream| async move {
                    match version {
                        Http1 => {
                            let shaken = client::conn::http1::handshake(stream).await;
                            let (mut sender, connection) = shaken.unwrap();
                            let ended = with_cx(|cx| cx.spawn(HERE, connection));
                            let sent = sender.send_request(request("/stop", "")).await;
                            let body = body_of(sent.unwrap()).await;
                            ended.await.unwrap().unwrap();
                            body
                        }
                        Http2 => {
                            let executor = with_cx(|cx| ColorExecutor::new(cx, HERE));
                            let shaken = client::conn::http2::handshake(executor, stream).await;
                            let (mut sender, connection) = shaken.unwrap();
                            let ended = with_cx(|cx| cx.spawn(HERE, connection));
                            let sent = sender.send_request(request("/stop", "")).await;
                            let body = body_of(sent.unwrap()).await;
                            // It is told that there will be no more.
                            ended.await.unwrap().unwrap();
                            body
                        }
                    }
                })
            });
            assert_eq!(answered, "stopped", "{backend:?} {version:?}");
        }
    }
}

/// The first bytes of a client of HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Asks `/` this often on one connection, all at once.
fn requests(version: Version, count: usize) -> Vec<u8> {
    match version {
        Http1 => b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".repeat(count),
        Http2 => {
            // GET, http, `/`, and x as the authority.
            let head = |n| frame(1, 5, 1 + 2 * n as u32, b"\x82\x86\x84\x41\x01x");
            let heads: Vec<u8> = (0..count).flat_map(head).collect();
            [PREFACE, &frame(4, 0, 0, b""), &heads].concat()
        }
    }
}

/// Reads to the end, and returns how many requests were answered.
fn answers(client: &mut Client, version: Version) -> usize {
    if version == Http1 {
        let text = String::from_utf8(client.rest()).unwrap();
        return text.matches("HTTP/1.1 200 OK\r\n").count();
    }
    let (mut answers, mut head) = (0, [0; 9]);
    while client.read_exact(&mut head).is_ok() {
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let payload = client.exactly(len as usize);
        let (kind, flags) = (head[3], head[4]);
        match (kind, flags & 1) {
            (4, 0) => client.write_all(&frame(4, 1, 0, b"")).unwrap(),
            // Until then the server waits for requests on their way.
            (6, 0) => client.write_all(&frame(6, 1, 0, &payload)).unwrap(),
            (0 | 1, 1) => answers += 1,
            _ => {}
        }
    }
    answers
}

/// Runs clients against the example on two cores, and insists that the run ends well.
fn with_example<R: Send + 'static>(
    backend: &Backend,
    clients: impl FnOnce(Poster, SocketAddr) -> R + Send + 'static,
) -> R {
    let _bound = Bound::new("the example");
    let runtime = on(backend).build().unwrap();
    let poster = runtime.poster();
    let (tell, addr) = channel();
    let clients = thread::spawn(move || clients(poster, addr.recv().unwrap()));
    let outcome = runtime.run(move |cx| {
        let addr = example::listen(cx, any_port().into(), None).unwrap();
        tell.send(addr.ip().unwrap()).unwrap();
    });
    let returned = clients.join().unwrap();
    outcome.unwrap();
    returned
}

/// Connects this many clients, and has each of them answered once.
fn answered_clients(backend: &Backend, addr: SocketAddr, count: usize) -> Vec<Client> {
    let request = requests(Http1, 1);
    let mut clients: Vec<_> = (0..count).map(|_| Client::connect(backend, addr)).collect();
    for client in &mut clients {
        client.write_all(&request).unwrap();
        let mut answer = Vec::new();
        while !answer.windows(5).any(|end| end == b"core ") {
            answer.extend(client.exactly(1));
        }
        // The core, and the line's end.
        client.exactly(2);
    }
    clients
}

/// Both cores are held up while clients connect and ask. Then the stop comes first.
#[test]
fn the_example_answers_what_had_come_before_a_stop() {
    for backend in backends() {
        for (version, connections, each) in [
            (Http1, 300, 1),
            (Http1, 10, 30),
            (Http2, 300, 1),
            (Http2, 10, 30),
        ] {
            let at = backend.clone();
            let answered = with_example(&backend, move |poster, addr| {
                // Some are accepted before.
                let old = if version == Http1 { connections / 2 } else { 0 };
                let mut clients = answered_clients(&at, addr, old);
                let go_on = hold_up(&poster, 2);
                clients.extend((old..connections).map(|_| Client::connect(&at, addr)));
                for client in &mut clients {
                    client.write_all(&requests(version, each)).unwrap();
                }
                poster.stop();
                go_on();
                let answers = clients.iter_mut().map(|client| answers(client, version));
                answers.sum::<usize>()
            });
            assert_eq!(answered, 300, "{version:?} on {connections} connections");
        }
    }
}

/// The core that receives is held up for longer than requests may take to arrive, and these had
/// arrived. The others go on without it.
#[test]
fn the_example_answers_what_a_busy_core_has_not_received_yet() {
    for backend in backends() {
        let at = backend.clone();
        let answered = with_example(&backend, move |poster, addr| {
            let mut clients = answered_clients(&at, addr, 20);
            let go_on = hold_up(&poster, 1);
            for client in &mut clients {
                client.write_all(&requests(Http1, 3)).unwrap();
            }
            poster.stop();
            thread::sleep(2 * example::ARRIVAL_MAX);
            go_on();
            let answers = clients.iter_mut().map(|client| answers(client, Http1));
            answers.sum::<usize>()
        });
        assert_eq!(answered, 60);
    }
}

/// Connects a client for each of these beginnings, which sends it and reads nothing.
fn silent_clients(beginnings: &[Vec<u8>]) -> (sim::Simulation, Vec<SimClient>) {
    let builder = Runtime::builder().cores(2);
    let mut simulation = builder.simulate(3).unwrap();
    let (tell, addr) = channel();
    let listen = move |cx: &mut Cx| {
        let addr = example::listen(cx, any_port().into(), None).unwrap();
        tell.send(addr.ip().unwrap()).unwrap();
    };
    simulation.start(listen).unwrap();
    let addr = loop {
        simulation.step();
        if let Ok(addr) = addr.try_recv() {
            break addr;
        }
    };
    let connect = |beginning: &Vec<u8>| {
        let mut client = simulation.network().connect(addr).unwrap();
        // The server does not read bytes that it has no room for.
        let _ = client.write(beginning).unwrap();
        client
    };
    let clients = beginnings.iter().map(connect).collect();
    (simulation, clients)
}

/// Asks to stop after a second.
fn stop_after_a_second(simulation: &sim::Simulation) -> Duration {
    let second = Duration::from_secs(1);
    let stop = Callback::anonymous(Color::DEFAULT, |cx: &mut Cx| cx.stop());
    let _timer = simulation.poster().timer(second, stop).unwrap();
    second
}

/// The bytes that clients may have sent when they fall silent.
fn beginnings() -> Vec<Vec<u8>> {
    let whole = requests(Http1, 1);
    let echo = b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 9999999\r\n\r\n";
    let mut flood = echo.to_vec();
    flood.resize(1 << 20, b'x');
    let mut all: Vec<Vec<u8>> = [
        &b""[..],
        b"P",
        b"GET / HT",
        b"GET / HTTP/1.1\r\nhost: x\r\n",
        echo,
        b"PRI * HT",
        PREFACE,
        &requests(Http2, 3)[..50],
        &flood,
    ]
    .map(Vec::from)
    .into();
    all.push([&whole[..], &whole[..9]].concat());
    all
}

/// In virtual time.
#[test]
fn the_example_answers_what_was_on_its_way_at_a_stop() {
    let _bound = Bound::new("on_its_way");
    let whole = requests(Http1, 1);
    // A client that is new, one that has sent a half, and one that has been answered.
    let begun = [vec![], whole[..9].to_vec(), whole.clone()];
    let (mut simulation, mut clients) = silent_clients(&begun);
    let second = stop_after_a_second(&simulation);
    let (tell, told) = channel();
    // A stop ends timers, and no tasks.
    let send = async move {
        sleep(second + example::ARRIVAL_MAX / 2).await;
        for (client, begun) in clients.iter_mut().zip(begun) {
            client
                .write_all(&whole[begun.len() % whole.len()..])
                .unwrap();
        }
        tell.send(clients).unwrap();
    };
    simulation.poster().try_spawn(HERE, send).unwrap();
    while simulation.step() != sim::Step::Ended {}
    simulation.end().unwrap();
    let answers = told
        .recv()
        .unwrap()
        .into_iter()
        .map(|client| answers(&mut Client::Sim(client), Http1));
    assert_eq!(answers.collect::<Vec<_>>(), [1, 1, 2]);
}

/// The run ends at the limit of the stage in which requests are finished, and ends well.
#[test]
fn silent_clients_do_not_keep_the_example() {
    let _bound = Bound::new("silent_clients");
    let mut beginnings = beginnings();
    beginnings.retain(|beginning| beginning.len() < 1_000);
    let (mut simulation, _clients) = silent_clients(&beginnings);
    let second = stop_after_a_second(&simulation);
    while simulation.step() != sim::Step::Ended {}
    simulation.end().unwrap();
    let took = simulation.now() - second;
    assert!(took < Duration::from_secs(6), "{took:?}");
}

/// A client that does not read its answer does, until the deadline.
#[test]
fn a_client_that_does_not_read_is_named_by_the_example() {
    let _bound = Bound::new("does_not_read");
    let (mut simulation, _clients) = silent_clients(&beginnings());
    stop_after_a_second(&simulation);
    while simulation.step() != sim::Step::Ended {}
    let text = simulation.end().unwrap_err().to_string();
    assert!(text.contains("in stage flush"), "{text}");
    assert!(text.contains("waits for its peer to read"), "{text}");
}

/// Also if they have not begun to ask, or do not read the answer.
#[test]
fn silent_clients_are_sent_away_by_the_example() {
    let _bound = Bound::new("are_sent_away");
    let (mut simulation, _clients) = silent_clients(&beginnings());
    // With no connection left there is no timer.
    while simulation.step() != sim::Step::Stalled {}
    let (took, second) = (simulation.now(), Duration::from_secs(1));
    // A client that does not read has the idle timeout again while its connection is closed.
    assert!(took < 4 * example::SILENCE_MAX + second, "{took:?}");
    assert_eq!(simulation.stats().tasks, 0);
}

/// A client that says nothing is sent away after half a minute, which is virtual.
#[test]
fn its_timeouts_go_by_the_time_of_tasks() {
    let _bound = Bound::new("its_timeouts");
    let begun = Instant::now();
    let builder = Runtime::builder().cores(2);
    let mut simulation = builder.simulate(3).unwrap();
    let net = simulation.network().clone();
    let silent = simulation.run_until(move |cx, finish| {
        let on_accept =
            Callback::anonymous_each(THERE, move |cx: &mut Cx, incoming: io::Result<_>| {
                let (stream, finish) = (Incoming::open_unique(incoming.unwrap()), finish.clone());
                let color = stream.color();
                let connection = async move {
                    let stream = with_cx(|cx| AsyncStream::new(cx, stream)).unwrap();
                    let before = with_cx(|cx| cx.now());
                    let mut builder = server::conn::http1::Builder::new();
                    builder
                        .timer(TaskTimer)
                        .header_read_timeout(Duration::from_secs(30));
                    let served = builder.serve_connection(stream, service_fn(answer)).await;
                    let after = with_cx(|cx| cx.now()) - before;
                    finish.finish((after, served.unwrap_err().is_timeout()));
                };
                cx.spawn(color, connection);
            });
        let listener = cx.listen(any_port(), Acceptors::Single, on_accept).unwrap();
        let addr = listener.local_addr();
        let client = net.connect(addr).unwrap();
        // Kept for longer than that.
        let never = Callback::anonymous(HERE, move |_| drop(client));
        cx.timer(Duration::from_secs(100), never);
    });
    let (after, is_timeout) = silent.unwrap();
    assert!(is_timeout, "{after:?}");
    assert!((30..32).contains(&after.as_secs()), "{after:?}");
    assert!(begun.elapsed() < LONG, "in real time");
}

/// The time it has between events, sleeps that are begun late, and sleeps that are put off.
#[test]
fn its_sleeps_end_at_their_deadline() {
    let _bound = Bound::new("its_sleeps");
    let mut simulation = Runtime::builder().simulate(1).unwrap();
    let slept = simulation.run_until(|cx, finish| {
        let sleeps = async move {
            let timer = TaskTimer;
            let begun = timer.now();
            let mut put_off = timer.sleep(Duration::from_secs(1));
            let late = timer.sleep_until(begun + Duration::from_secs(3));
            let past = timer.sleep_until(begun - Duration::from_secs(1));
            past.await;
            let mut all = vec![timer.now() - begun];
            timer.reset(&mut put_off, begun + Duration::from_secs(2));
            put_off.await;
            all.push(timer.now() - begun);
            late.await;
            all.push(timer.now() - begun);
            finish.finish(all);
        };
        cx.spawn(HERE, sleeps);
    });
    let seconds: Vec<_> = slept.unwrap().iter().map(Duration::as_secs).collect();
    assert_eq!(seconds, [0, 2, 3]);
}

/// hyper cannot be told that there is no room.
#[test]
fn it_spawns_at_the_limit_of_events_too() {
    backends().into_iter().for_each(spawns_at_the_limit);
}

fn spawns_at_the_limit(backend: Backend) {
    let _bound = Bound::new("it_spawns_at_the_limit");
    let run = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&run);
    let runtime = cores(1)
        .backend(backend.clone())
        .exit_when_idle(true)
        .events_max(10)
        .build()
        .unwrap();
    let poster = runtime.poster();
    let executor = ColorExecutor::new(&poster, THERE);
    let later = executor.clone();
    runtime
        .run(move |cx| {
            while cx.try_post(HERE, |_cx| ()).is_ok() {}
            for _ in 0..20 {
                let count = Arc::clone(&count);
                executor.execute(async move {
                    assert_eq!(with_cx(|cx| cx.color()), THERE);
                    count.fetch_add(1, Ordering::Relaxed);
                });
            }
        })
        .unwrap();
    assert_eq!(run.load(Ordering::Relaxed), 20);
    // After the end a future is dropped.
    let (tell, told) = channel::<()>();
    later.execute(async move { tell.send(()).unwrap() });
    assert!(told.recv().is_err());
    // From a thread.
    let runtime = cores(1).backend(backend).build().unwrap();
    let (poster, executor) = (
        runtime.poster(),
        ColorExecutor::new(&runtime.poster(), THERE),
    );
    let outside = thread::spawn(move || {
        executor.execute(async move { poster.stop() });
    });
    runtime.run(|_cx| ()).unwrap();
    outside.join().unwrap();
}
