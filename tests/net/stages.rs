//! The end in stages: what had arrived is answered, nothing acknowledged is lost, and no stage lasts
//! beyond its limit.

use crate::common::wire::{Client, all_backends, any_port, hold_up, on};
use crate::common::{Bound, LONG, backends};
use futures::future::{Either, select};
use futures::io::{AsyncReadExt, AsyncWriteExt};
use mely::aio::AsyncStream;
use mely::net::{Acceptors, Backend, Incoming, Lines, RecvBuf, Session, Stream};
use mely::runtime::{Obstacle, Stage, Unfinished};
use mely::sim::Step;
use mely::state::WeakColored;
use mely::task::with_cx;
use mely::{Builder, Callback, Color, Cx, Handler, Poster, RunError, Runtime};
use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::pin::pin;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

static SERVE: Handler = Handler::new("serve");

/// Runs a server whose connections are sessions that `open` returns, and `clients` against it, who
/// ask it to stop.
fn with_sessions<S, O, C, R>(builder: Builder, open: O, clients: C) -> (R, Result<(), RunError>)
where
    S: Session,
    O: Fn(&mut Cx, Stream, &WeakColored<S>) -> S + Send + Sync + 'static,
    C: FnOnce(SocketAddr, &Poster) -> R + Send + 'static,
    R: Send + 'static,
{
    let runtime = builder.build().unwrap();
    let poster = runtime.poster();
    let (tell, addr) = channel();
    let clients = thread::spawn(move || clients(addr.recv().unwrap(), &poster));
    let outcome = runtime.run(move |cx| {
        let listener = cx
            .serve(any_port(), Acceptors::PerCore, &SERVE, open)
            .unwrap();
        tell.send(listener.local_addr().ip().unwrap()).unwrap();
    });
    (clients.join().unwrap(), outcome)
}

/// A session of a broker. A client that sends `sub` gets all messages. Each other line is a message,
/// which its sender is acknowledged after the subscriber's session was given it.
struct Member {
    stream: Stream,
    lines: Lines,
    me: WeakColored<Member>,
    subscriber: Subscriber,
}

type Subscriber = Arc<Mutex<Option<WeakColored<Member>>>>;

impl Session for Member {
    fn data(&mut self, cx: &mut Cx, data: RecvBuf) {
        self.lines.push(&data);
        while let Some(line) = self.lines.next_line().unwrap() {
            let line = String::from_utf8(line.to_vec()).unwrap() + "\n";
            if line == "sub\n" {
                *self.subscriber.lock().unwrap() = Some(self.me.clone());
                self.stream.write(cx, "ok\n").unwrap();
                continue;
            }
            let (publisher, subscriber) =
                (self.me.clone(), self.subscriber.lock().unwrap().clone());
            subscriber.unwrap().post(cx, move |subscriber, cx| {
                if subscriber.stream.write(cx, line.clone()).is_ok() {
                    publisher.post(cx, move |publisher, cx| {
                        let _ = publisher.stream.write(cx, line);
                    });
                }
            });
        }
    }
}

/// The open of a broker's sessions.
fn broker() -> impl Fn(&mut Cx, Stream, &WeakColored<Member>) -> Member + Send + Sync + 'static {
    let subscriber = Subscriber::default();
    move |cx, stream, me| {
        stream.set_write_limit(cx, usize::MAX).unwrap();
        Member {
            stream,
            lines: Lines::new(100),
            me: me.clone(),
            subscriber: Arc::clone(&subscriber),
        }
    }
}

fn lines_of(bytes: &[u8]) -> HashSet<String> {
    // The last one may be cut off.
    let end = bytes
        .iter()
        .rposition(|&byte| byte == b'\n')
        .map_or(0, |at| at + 1);
    let text = String::from_utf8(bytes[..end].to_vec()).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn read_all(mut client: TcpStream) -> Vec<u8> {
    client.set_read_timeout(Some(LONG)).unwrap();
    let (mut all, mut space) = (Vec::new(), [0; 4096]);
    // To its end, or until it is reset.
    while let Ok(len @ 1..) = client.read(&mut space) {
        all.extend_from_slice(&space[..len]);
    }
    all
}

/// One run of a broker that is asked to stop in the middle of its load. Returns how many messages
/// were acknowledged.
fn broker_run(backend: &Backend, run: u64) -> usize {
    let clients = move |addr: SocketAddr, poster: &Poster| {
        let mut subscriber = TcpStream::connect(addr).unwrap();
        subscriber.write_all(b"sub\n").unwrap();
        subscriber.read_exact(&mut [0; 3]).unwrap();
        let received = thread::spawn(move || read_all(subscriber));
        let publishers: Vec<_> = (0..3)
            .map(|publisher| {
                let client = TcpStream::connect(addr).unwrap();
                let mut writer = client.try_clone().unwrap();
                // At its end the client closes: until then the server throws away what it sends.
                let acknowledged = thread::spawn(move || {
                    let all = read_all(client.try_clone().unwrap());
                    let _ = client.shutdown(Shutdown::Both);
                    all
                });
                let writer = thread::spawn(move || {
                    for number in 0..2_000_000 {
                        let message = format!("{publisher}:{number}\n");
                        if writer.write_all(message.as_bytes()).is_err() {
                            return;
                        }
                        if number % 50 == 0 {
                            thread::sleep(Duration::from_micros(100));
                        }
                    }
                });
                (acknowledged, writer)
            })
            .collect();
        thread::sleep(Duration::from_micros(3_000 + run * 137 % 10_000));
        poster.stop();
        let mut acknowledged = HashSet::new();
        for (its, writer) in publishers {
            acknowledged.extend(lines_of(&its.join().unwrap()));
            writer.join().unwrap();
        }
        (acknowledged, lines_of(&received.join().unwrap()))
    };
    let ((acknowledged, received), outcome) = with_sessions(on(backend), broker(), clients);
    outcome.unwrap();
    let lost: Vec<_> = acknowledged.difference(&received).collect();
    assert!(lost.is_empty(), "run {run}: {} lost: {lost:?}", lost.len());
    acknowledged.len()
}

#[test]
fn a_broker_loses_nothing_that_it_has_acknowledged() {
    let _bound = Bound::new("a_broker");
    for backend in backends() {
        let acknowledged: usize = (0..10).map(|run| broker_run(&backend, run)).sum();
        assert!(acknowledged > 0);
    }
}

#[test]
#[ignore = "takes long"]
fn a_broker_loses_nothing_in_many_runs() {
    for backend in backends() {
        let acknowledged: usize = (0..100).map(|run| broker_run(&backend, run)).sum();
        println!("{backend:?}: {acknowledged} messages were acknowledged");
    }
}

/// In virtual time, and in an order for each seed.
#[test]
fn a_simulated_broker_loses_nothing() {
    let _bound = Bound::new("a_simulated_broker");
    let mut some = 0;
    for seed in 0..60 {
        let builder = Runtime::builder().cores(3);
        let mut simulation = builder.simulate(seed).unwrap();
        let net = simulation.network().clone();
        let (tell, addr) = channel();
        let open = broker();
        let listen = move |cx: &mut Cx| {
            let listener = cx
                .serve(any_port(), Acceptors::Single, &SERVE, open)
                .unwrap();
            tell.send(listener.local_addr()).unwrap();
        };
        simulation.start(listen).unwrap();
        while simulation.step() != Step::Stalled {}
        let addr = addr.recv().unwrap();
        let mut subscriber = net.connect(addr.clone()).unwrap();
        subscriber.write_all(b"sub\n").unwrap();
        while simulation.step() != Step::Stalled {}
        let mut publishers = [(); 3].map(|()| net.connect(&addr).unwrap());
        let mut got = [const { Vec::new() }; 4];
        let stop_at = 20 + seed * 11 % 300;
        for step in 0.. {
            if step == stop_at {
                simulation.poster().stop();
            }
            if step % 3 == 0 {
                let publisher = &mut publishers[step as usize % 9 / 3];
                let _ = publisher.write(format!("{step}\n").as_bytes());
            }
            let clients = [&mut subscriber].into_iter().chain(&mut publishers);
            for (client, got) in clients.zip(&mut got) {
                let mut space = [0; 256];
                if let Ok(len) = client.read(&mut space) {
                    got.extend_from_slice(&space[..len]);
                }
            }
            if simulation.step() == Step::Ended {
                break;
            }
        }
        simulation.end().unwrap();
        let clients = [&mut subscriber].into_iter().chain(&mut publishers);
        for (client, got) in clients.zip(&mut got) {
            let _ = client.read_to_end(got);
        }
        let received = lines_of(&got[0]);
        for got in &got[1..] {
            let acknowledged = lines_of(got);
            some += acknowledged.len();
            assert!(acknowledged.is_subset(&received), "seed {seed}");
        }
    }
    assert!(some > 500, "{some}");
}

/// Answers each line by the line, and says goodbye. Waits for the rest of a line, if it is to.
struct Echo {
    stream: Stream,
    lines: Lines,
    waits: bool,
}

impl Echo {
    fn new(stream: Stream, waits: bool) -> Echo {
        let lines = Lines::new(100);
        Echo {
            stream,
            lines,
            waits,
        }
    }

    fn open(_: &mut Cx, stream: Stream, _: &WeakColored<Echo>) -> Echo {
        Echo::new(stream, true)
    }
}

impl Session for Echo {
    fn data(&mut self, cx: &mut Cx, data: RecvBuf) {
        self.lines.push(&data);
        while let Some(line) = self.lines.next_line().unwrap() {
            self.stream.write(cx, [line, b"\n"].concat()).unwrap();
        }
        // A half of one may be followed by the other half.
        let is_under_way = self.waits && !self.lines.rest().is_empty();
        self.stream.set_under_way(cx, is_under_way).unwrap();
    }

    fn end(&mut self, cx: &mut Cx, end: io::Result<()>) {
        let last = match end {
            Ok(()) => "end\n",
            Err(_) => "stop\n",
        };
        self.stream.write(cx, last).unwrap();
    }
}

/// Clients of all kinds ask while both cores are held up, and the stop is first: those that were
/// accepted, with several requests at once, and those that wait for the listener.
#[test]
fn what_had_arrived_is_answered_and_the_end_may_write() {
    let _bound = Bound::new("what_had_arrived");
    for backend in backends() {
        let at = backend.clone();
        let (answers, outcome) = with_sessions(on(&backend), Echo::open, move |addr, poster| {
            let mut clients: Vec<_> = (0..20).map(|_| Client::connect(&at, addr)).collect();
            for client in &mut clients {
                client.write_all(b"0\n").unwrap();
                assert_eq!(client.exactly(2), b"0\n");
            }
            let go_on = hold_up(poster, 2);
            clients.extend((0..20).map(|_| Client::connect(&at, addr)));
            for (number, client) in clients.iter_mut().enumerate() {
                client.write_all(b"1\n2\n3\n").unwrap();
                if number % 4 == 0 {
                    client.shutdown_write();
                }
            }
            poster.stop();
            go_on();
            // No end by a reset.
            clients.iter_mut().map(Client::rest).collect::<Vec<_>>()
        });
        outcome.unwrap();
        for (number, answer) in answers.iter().enumerate() {
            let last = if number % 4 == 0 { "end" } else { "stop" };
            let expected = format!("1\n2\n3\n{last}\n");
            assert_eq!(
                String::from_utf8_lossy(answer),
                expected,
                "of client {number}"
            );
        }
    }
}

/// A connection that is under way receives on, and another one does not.
#[test]
fn what_is_under_way_is_finished() {
    let _bound = Bound::new("what_is_under_way");
    for backend in all_backends() {
        let at = backend.clone();
        let (answers, outcome) = with_sessions(on(&backend), Echo::open, move |addr, poster| {
            let mut clients = [(); 2].map(|()| Client::connect(&at, addr));
            clients[0].write_all(b"0\n1").unwrap();
            clients[1].write_all(b"0\n").unwrap();
            for client in &mut clients {
                assert_eq!(client.exactly(2), b"0\n");
            }
            poster.stop();
            thread::sleep(Duration::from_millis(50));
            clients[1].write_all(b"2\n").unwrap();
            clients[0].write_all(b"1\n").unwrap();
            clients.map(|mut client| client.rest())
        });
        outcome.unwrap();
        assert_eq!(answers, [&b"11\nstop\n"[..], b"stop\n"], "{backend:?}");
    }
}

/// Does nothing with what comes after the first bytes.
struct Pauses(Stream);

impl Session for Pauses {
    fn data(&mut self, cx: &mut Cx, data: RecvBuf) {
        self.0.pause(cx).unwrap();
        self.0.write(cx, data.to_vec()).unwrap();
    }

    fn end(&mut self, cx: &mut Cx, _: io::Result<()>) {
        self.0.write(cx, "last").unwrap();
    }
}

/// Tells of each stage that has lasted to its limit.
fn told_of_limits(builder: Builder) -> (Builder, Arc<Mutex<Vec<Unfinished>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let its = Arc::clone(&told);
    let builder = builder.on_drain(move |unfinished| {
        if unfinished.is_over_limit {
            its.lock().unwrap().push(unfinished.clone());
        }
    });
    (builder, told)
}

fn stages(told: &Mutex<Vec<Unfinished>>) -> Vec<Stage> {
    told.lock().unwrap().iter().map(|its| its.stage).collect()
}

/// Its input is unread until the limit of the first stage. Then it gets its answer, and is not reset.
#[test]
fn a_connection_with_unread_input_is_not_reset() {
    let _bound = Bound::new("with_unread_input");
    for backend in backends() {
        let (at, limit) = (backend.clone(), Duration::from_millis(100));
        let builder = on(&backend).stage_limit(Stage::Receive, limit);
        let (builder, told) = told_of_limits(builder);
        let open = |_: &mut Cx, stream: Stream, _: &_| Pauses(stream);
        let (rest, outcome) = with_sessions(builder, open, move |addr, poster| {
            let mut client = Client::connect(&at, addr);
            client.write_all(b"first").unwrap();
            assert_eq!(client.exactly(5), b"first");
            // By now it is paused.
            thread::sleep(Duration::from_millis(20));
            client.write_all(&[7; 50_000]).unwrap();
            poster.stop();
            client.rest()
        });
        outcome.unwrap();
        assert_eq!(rest, b"last", "{backend:?}");
        assert_eq!(stages(&told), [Stage::Receive], "{backend:?}");
    }
}

/// The end is put off by no more than the limit, and the connection is named with the stage.
#[test]
fn a_silent_client_delays_the_end_to_the_limit() {
    let _bound = Bound::new("a_silent_client");
    for backend in all_backends() {
        // On a busy machine the other events of the stage may take some of it.
        let (at, limit) = (backend.clone(), Duration::from_millis(500));
        let builder = on(&backend).stage_limit(Stage::Drain, limit);
        let (builder, told) = told_of_limits(builder);
        let (rest, outcome) = with_sessions(builder, Echo::open, move |addr, poster| {
            let mut client = Client::connect(&at, addr);
            client.write_all(b"0\nhalf of").unwrap();
            assert_eq!(client.exactly(2), b"0\n");
            poster.stop();
            client.rest()
        });
        outcome.unwrap();
        assert_eq!(rest, b"stop\n", "{backend:?}");
        assert_eq!(stages(&told), [Stage::Drain], "{backend:?}");
        let unfinished = &told.lock().unwrap()[0];
        let text = unfinished.to_string();
        for part in [
            "in stage drain, over its limit, which waits for work that is under way: ",
            "waits for its peer to send (handler `serve`)",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(unfinished.stopping_for >= limit);
        let is_connection = |named: &Obstacle| matches!(named, Obstacle::Connection { .. });
        assert!(unfinished.named.iter().any(is_connection), "{text}");
    }
}

/// In virtual time: a hold that nobody ends keeps all stages but the first to their limits.
#[test]
fn each_limit_is_told_with_its_stage() {
    let _bound = Bound::new("each_limit");
    let s = Duration::from_secs;
    let builder = Runtime::builder()
        .cores(2)
        .stage_limit(Stage::Drain, s(2))
        .stage_limit(Stage::Close, s(1))
        .stage_limit(Stage::Flush, s(4));
    let (builder, told) = told_of_limits(builder);
    let mut simulation = builder.simulate(1).unwrap();
    let (net, kept) = (simulation.network().clone(), Arc::new(Mutex::new(None)));
    let keeps = Arc::clone(&kept);
    let begin = move |cx: &mut Cx| {
        let serve = cx.serve(any_port(), Acceptors::Single, &SERVE, Echo::open);
        let listener = serve.unwrap();
        let client = net.connect(listener.local_addr()).unwrap();
        let hold = move |cx: &mut Cx| {
            *keeps.lock().unwrap() = Some((cx.hold(), client));
        };
        cx.post(Color::from(5), hold);
        let stop = Callback::anonymous(Color::DEFAULT, |cx: &mut Cx| cx.stop());
        cx.timer(s(1), stop);
    };
    let ran = simulation.run(begin);
    let text = ran.unwrap_err().to_string();
    assert!(text.contains("in stage flush"), "{text}");
    assert_eq!(stages(&told), [Stage::Drain, Stage::Close]);
    let times: Vec<_> = told
        .lock()
        .unwrap()
        .iter()
        .map(|its| its.stopping_for.as_secs())
        .collect();
    assert_eq!(times, [2, 3]);
    assert_eq!(simulation.now().as_secs(), 1 + 2 + 1 + 4);
    let client = kept.lock().unwrap().take().unwrap().1;
    let mut rest = String::new();
    { client }.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "stop\n");
}

/// A task that takes pairs of bytes, and a pair whose second byte comes after the stop.
#[test]
fn a_task_finishes_what_it_has_begun() {
    async fn serve(mut stream: AsyncStream) -> io::Result<()> {
        let mut stop = with_cx(|cx| stream.stopping(cx))?;
        loop {
            let mut pair = [0; 2];
            match select(pin!(stream.read(&mut pair[..1])), &mut stop).await {
                Either::Left((Ok(1), _)) => {}
                _ => return stream.close().await,
            }
            stream.read_exact(&mut pair[1..]).await?;
            stream.write_all(&pair).await?;
        }
    }
    let _bound = Bound::new("a_task_finishes");
    for backend in all_backends() {
        let runtime = on(&backend).build().unwrap();
        let (poster, (tell, addr)) = (runtime.poster(), channel());
        let clients = thread::spawn(move || {
            let addr = addr.recv().unwrap();
            let mut clients = [(); 3].map(|()| Client::connect(&backend, addr));
            for client in &mut clients[..2] {
                client.write_all(b"ab").unwrap();
                assert_eq!(client.exactly(2), b"ab");
            }
            clients[0].write_all(b"c").unwrap();
            // By then it is read.
            thread::sleep(Duration::from_millis(50));
            poster.stop();
            thread::sleep(Duration::from_millis(50));
            clients[0].write_all(b"d").unwrap();
            clients.map(|mut client| client.rest())
        });
        let outcome = runtime.run(move |cx| {
            let accept = |cx: &mut Cx, incoming: io::Result<Incoming>| {
                let stream = incoming.unwrap().open_unique();
                let color = stream.color();
                let served = async move {
                    let stream = with_cx(|cx| AsyncStream::new(cx, stream)).unwrap();
                    serve(stream).await.unwrap();
                };
                cx.spawn(color, served);
            };
            let on_accept = Callback::anonymous_each(Color::from(1), accept);
            let listener = cx
                .listen(any_port(), Acceptors::PerCore, on_accept)
                .unwrap();
            tell.send(listener.local_addr().ip().unwrap()).unwrap();
        });
        outcome.unwrap();
        assert_eq!(clients.join().unwrap(), [&b"cd"[..], b"", b""]);
    }
}

/// A client that sends without pause, and reads what it is sent.
#[test]
fn a_client_that_goes_on_sending_does_not_put_the_end_off() {
    let _bound = Bound::new("goes_on_sending");
    for backend in backends() {
        let (builder, told) = told_of_limits(on(&backend));
        let open = |_: &mut Cx, stream: Stream, _: &_| Echo::new(stream, false);
        let (answers, outcome) = with_sessions(builder, open, move |addr, poster| {
            let client = TcpStream::connect(addr).unwrap();
            let mut writer = client.try_clone().unwrap();
            let writes = thread::spawn(move || while writer.write_all(b"0123456\n").is_ok() {});
            let reads = thread::spawn(move || {
                let answers = read_all(client.try_clone().unwrap());
                let _ = client.shutdown(Shutdown::Both);
                answers
            });
            thread::sleep(Duration::from_millis(20));
            poster.stop();
            writes.join().unwrap();
            reads.join().unwrap()
        });
        outcome.unwrap();
        assert!(answers.ends_with(b"0123456\nstop\n"), "{backend:?}");
        assert!(stages(&told).is_empty(), "{told:?}");
    }
}
