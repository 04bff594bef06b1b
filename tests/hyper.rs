//! hyper 1 on mely: server and client, HTTP/1 and HTTP/2.

mod common;

use common::wire::{Client, all_backends, any_port, on, with_server};
use common::{Bound, LONG, cores};
use futures::future::join_all;
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Bytes, Incoming as Body};
use hyper::rt::{Executor, Timer};
use hyper::service::service_fn;
use hyper::{Request, Response, client, server};
use mely::aio::hyper::{ColorExecutor, TaskTimer};
use mely::aio::{AsyncStream, connect};
use mely::net::{Acceptors, Backend, Incoming};
use mely::{Callback, Color, Cores, Cx, Runtime, sleep, stopping, with_cx};
use std::error::Error;
use std::future::poll_fn;
use std::io::{self, ErrorKind, Write};
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
            stream.receive_through_stop(cx).unwrap();
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
    cx.spawn(color, connection).detach();
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
            let stream = connect(addr).await.unwrap();
            finish.finish(client(stream).await);
        };
        cx.spawn(HERE, client).detach();
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
                let shaken = client::conn::http1::handshake(stream).await;
                let (mut sender, connection) = shaken.unwrap();
                with_cx(|cx| cx.spawn(HERE, connection).detach());
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
                    with_cx(|cx| cx.spawn(HERE, connection).detach());
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

/// A client that says nothing is sent away after half a minute, which is virtual.
#[test]
fn its_timeouts_go_by_the_time_of_tasks() {
    let _bound = Bound::new("its_timeouts");
    let begun = Instant::now();
    let builder = Runtime::builder().cores(Cores::Count(2));
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
                cx.spawn(color, connection).detach();
            });
        let listener = cx.listen(any_port(), Acceptors::Single, on_accept).unwrap();
        let addr = listener.local_addr();
        listener.detach();
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
        cx.spawn(HERE, sleeps).detach();
    });
    let seconds: Vec<_> = slept.unwrap().iter().map(Duration::as_secs).collect();
    assert_eq!(seconds, [0, 2, 3]);
}

/// hyper cannot be told that there is no room.
#[test]
fn it_spawns_at_the_limit_of_events_too() {
    let _bound = Bound::new("it_spawns_at_the_limit");
    let run = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&run);
    let runtime = cores(1)
        .exit_when_idle(true)
        .events_max(10)
        .build()
        .unwrap();
    let poster = runtime.poster();
    let executor = ColorExecutor::new(&poster, THERE);
    assert_eq!(executor.color(), THERE);
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
    let runtime = cores(1).build().unwrap();
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
