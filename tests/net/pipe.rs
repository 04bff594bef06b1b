//! Pipes: two connections joined, in simulations of many seeds and on the kernel's backends.

mod ends;
mod kernel;

use crate::common::calls::Calls;
use crate::common::{Alive, Payload};
use mely::Post;
use mely::net::{
    AHEAD_BYTES_MAX, Acceptors, Incoming, PIPE_BYTES_MAX, RecvBuf, Session, SimClient, SimNet,
    Stream,
};
use mely::runtime::OnPanic;
use mely::sim::{self, Simulation, Step};
use mely::{Callback, Color, Colored, Cx, Handler, Hold, Reason, Runtime};
use std::io::{self, ErrorKind, Read, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

static PIPED: Handler = Handler::new("piped");
static READ: Handler = Handler::new("read");

/// Where the ends of pipes are told.
const TOLD: Color = Color::new(77);

/// What the simulated network keeps for who does not read, where little is to be kept. Not less
/// than what a piece counts for.
const SOCKET_BYTES: usize = 4 << 10;

const LIMIT: Duration = Duration::from_secs(10);

/// Bytes that show it if one is missing, doubled or moved.
fn pattern(range: std::ops::Range<usize>) -> &'static [u8] {
    // Once: it takes long without optimization.
    static ALL: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let at = |i: usize| (i ^ (i >> 8) ^ (i >> 16)) as u8;
        (0..9 << 20).map(at).collect()
    });
    &ALL[range]
}

/// Numbers that follow from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % n as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// How two connections are joined.
#[derive(Clone, Copy, Debug)]
struct Joint {
    two_colors: bool,
    limit: usize,
    /// Idle timeouts of this connection, and of the other.
    idle: [Option<Duration>; 2],
    through_stop: bool,
}

impl Joint {
    const ORDINARY: Joint = Joint {
        two_colors: true,
        limit: PIPE_BYTES_MAX,
        idle: [None, None],
        through_stop: false,
    };

    fn both_colors(self) -> [Joint; 2] {
        [true, false].map(|two_colors| Joint { two_colors, ..self })
    }

    fn join(self, cx: &mut Cx, this: Incoming, other: Incoming, tell: Sender<Piped>) {
        let this = this.open_unique();
        let other = match self.two_colors {
            true => other.open_unique(),
            false => other.open(this.color()),
        };
        let done = PIPED.on_value(TOLD, move |cx: &mut Cx, piped| {
            assert_eq!((cx.color(), cx.handler()), (TOLD, "piped"));
            let _ = tell.send(piped);
        });
        cx.post(other.color(), move |cx| {
            self.prepare(cx, &other, self.idle[1]);
            cx.post(this.color(), move |cx| {
                self.prepare(cx, &this, self.idle[0]);
                this.pipe_to(cx, other, self.limit, done).unwrap();
            });
        });
    }

    fn prepare(self, cx: &mut Cx, stream: &Stream, idle: Option<Duration>) {
        stream.set_idle_timeout(cx, idle).unwrap();
        if self.through_stop {
            stream.set_under_way(cx, true).unwrap();
        }
    }
}

/// Accepts connections, and joins each two that come one after the other.
fn joins(joint: Joint, tell: Sender<Piped>) -> impl Fn(&mut Cx, Incoming) + Send + Sync {
    let waiting = Mutex::new((None, tell));
    move |cx, incoming| {
        let (this, tell) = &mut *waiting.lock().unwrap();
        match this.take() {
            None => *this = Some(incoming),
            Some(this) => joint.join(cx, this, incoming, tell.clone()),
        }
    }
}

/// Bytes in either direction, or the error that has ended a pipe.
type Piped = io::Result<(u64, u64)>;

/// A simulated runtime with pipes, and what they came to.
struct World {
    simulation: Simulation,
    net: SimNet,
    addr: std::net::SocketAddr,
    told: Receiver<Piped>,
}

impl World {
    fn new(seed: u64, joint: Joint) -> World {
        let (tell, told) = channel();
        World::serving(seed, told, joins(joint, tell))
    }

    fn serving<F>(seed: u64, told: Receiver<Piped>, serve: F) -> World
    where
        F: Fn(&mut Cx, Incoming) + Send + 'static,
    {
        let builder = Runtime::builder().cores(3);
        let builder = builder.on_panic(OnPanic::DropEvent).panic_hook(|_| ());
        let mut simulation = builder.simulate(seed).unwrap();
        let (give, addr) = channel();
        let start = move |cx: &mut Cx| {
            let accept = move |cx: &mut Cx, incoming: io::Result<_>| serve(cx, incoming.unwrap());
            let on_accept = Callback::anonymous_each(Color::from(1), accept);
            let any = crate::common::wire::any_port();
            let listener = cx.listen(any, Acceptors::Single, on_accept).unwrap();
            give.send(listener.local_addr()).unwrap();
        };
        simulation.start(start).unwrap();
        let net = simulation.network().clone();
        let mut world = World {
            addr: crate::common::wire::any_port(),
            simulation,
            net,
            told,
        };
        world.settle();
        world.addr = addr.recv().unwrap().ip().unwrap();
        world
    }

    fn settle(&mut self) {
        while !matches!(self.simulation.step(), Step::Stalled | Step::Ended) {}
    }

    fn client(&mut self) -> SimClient {
        let client = self.net.connect(self.addr).unwrap();
        self.settle();
        client
    }

    /// Both ends of a pipe.
    fn pipe(&mut self) -> [SimClient; 2] {
        [self.client(), self.client()]
    }

    /// What the client can read until nothing happens any more, and what then came of it.
    fn rest(&mut self, client: &mut SimClient) -> (Vec<u8>, io::Result<()>) {
        let (mut bytes, mut space, mut stalled) = (Vec::new(), [0; 1 << 12], false);
        loop {
            match client.read(&mut space) {
                Ok(0) => return (bytes, Ok(())),
                Ok(some) => {
                    bytes.extend_from_slice(&space[..some]);
                    stalled = false;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // Read between the steps: after a stop the clock goes on to the deadline, if
                    // nothing else does.
                    let is_last = matches!(self.simulation.step(), Step::Stalled | Step::Ended);
                    if is_last && std::mem::replace(&mut stalled, true) {
                        return (bytes, Err(error));
                    }
                }
                Err(error) => return (bytes, Err(error)),
            }
        }
    }

    /// This many bytes, which come.
    fn read(&mut self, client: &mut SimClient, len: usize) -> Vec<u8> {
        let (mut bytes, mut space, mut stalled) = (Vec::new(), [0; 1 << 12], false);
        while bytes.len() < len {
            let most = space.len().min(len - bytes.len());
            match client.read(&mut space[..most]) {
                Ok(0) => panic!("the end after {} bytes", bytes.len()),
                Ok(some) => bytes.extend_from_slice(&space[..some]),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    assert!(!std::mem::replace(&mut stalled, true), "{}", bytes.len());
                    self.settle();
                    continue;
                }
            }
            stalled = false;
        }
        bytes
    }

    /// Writes until nothing more is taken. How many bytes that were.
    fn fill(&mut self, client: &mut SimClient) -> usize {
        let mut written = 0;
        loop {
            let bytes = pattern(written..written + (1 << 12));
            match client.write(bytes) {
                Ok(some) => written += some,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.settle();
                    if client.write(&bytes[..1]).is_err() {
                        return written;
                    }
                    written += 1;
                }
                Err(error) => panic!("{error}"),
            }
            assert!(written < 4 << 20, "without a bound");
        }
    }

    /// One pipe is over, for this reason, with nothing left of it but the clients' ends.
    fn is_over(&mut self, clients_open: usize) -> Piped {
        self.settle();
        let piped = self.told.try_recv().expect("the end is told");
        assert!(self.told.try_recv().is_err(), "and once");
        // And the listener.
        assert_eq!(self.net.open_count(), clients_open + 1);
        piped
    }
}

fn kind<T>(end: &io::Result<T>) -> Option<ErrorKind> {
    end.as_ref().err().map(io::Error::kind)
}

fn is_canceled<T>(end: &io::Result<T>) -> bool {
    let canceled = rustix::io::Errno::CANCELED.raw_os_error();
    end.as_ref().err().and_then(io::Error::raw_os_error) == Some(canceled)
}

/// A client of the simulation that writes a pattern in portions, and reads one.
struct Talker {
    client: SimClient,
    to_write: usize,
    written: usize,
    got: Vec<u8>,
    ended: bool,
}

impl Talker {
    fn new(client: SimClient, to_write: usize) -> Talker {
        Talker {
            client,
            to_write,
            written: 0,
            got: Vec::new(),
            ended: false,
        }
    }

    fn write(&mut self, most: usize) {
        let until = self.to_write.min(self.written + most);
        if until == self.written {
            return;
        }
        if let Ok(some) = self.client.write(pattern(self.written..until)) {
            self.written += some;
            if self.written == self.to_write {
                self.client.shutdown_write();
            }
        }
    }

    fn read(&mut self, most: usize) {
        let mut space = vec![0; most];
        match self.client.read(&mut space) {
            Ok(0) => self.ended = true,
            Ok(some) => self.got.extend_from_slice(&space[..some]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
}

/// Whatever the sizes, the limit, the speed of each side, and the order of what the colors do.
#[test]
fn all_arrives_in_order_both_ways() {
    sim::check(|seed| {
        let mut random = Random(seed);
        let joint = Joint {
            two_colors: random.below(3) > 0,
            limit: random.one_of(&[0, 1, 100, 5_000, 20_000, PIPE_BYTES_MAX]),
            ..Joint::ORDINARY
        };
        let mut world = World::new(seed, joint);
        world
            .net
            .set_socket_bytes(random.one_of(&[100, 700, 64 << 10]));
        let portion = random.one_of(&[30, 1_000, usize::MAX]);
        world.net.set_move_bytes_max(portion);
        let most = if portion < 100 { 2_000 } else { 50_000 };
        let [this, other] = [(); 2].map(|()| world.net.connect(world.addr).unwrap());
        let lens = [1 + random.below(most), 1 + random.below(most)];
        let mut ends = [Talker::new(this, lens[0]), Talker::new(other, lens[1])];
        let speed = [1 + random.below(3_000), 1 + random.below(3_000)];
        let mut idle = 0;
        while !ends.iter().all(|end| end.ended) {
            for _ in 0..random.below(20) {
                world.simulation.step();
            }
            let end = &mut ends[random.below(2)];
            let before = (end.written, end.got.len(), end.ended);
            end.write(1 + random.below(speed[0]));
            end.read(1 + random.below(speed[1]));
            let moved = before != (end.written, end.got.len(), end.ended);
            idle = if moved { 0 } else { idle + 1 };
            assert!(idle < 2_000, "{joint:?}: it does not go on");
        }
        assert!(ends[0].got == pattern(0..lens[1]), "{joint:?}");
        assert!(ends[1].got == pattern(0..lens[0]), "{joint:?}");
        let counts = world.is_over(2).unwrap();
        // Which of them was accepted first is the network's matter.
        let sent = (lens[0] as u64, lens[1] as u64);
        assert!(counts == sent || counts == (sent.1, sent.0), "{counts:?}");
    });
}

/// What the source has received and the destination has not taken, for several limits: one of them
/// above what a stream queues by itself.
#[test]
fn who_does_not_read_holds_a_bounded_number_of_bytes() {
    for limit in [16 << 10, PIPE_BYTES_MAX, 2 << 20] {
        for joint in (Joint {
            limit,
            ..Joint::ORDINARY
        })
        .both_colors()
        {
            let mut world = World::new(limit as u64, joint);
            world.net.set_socket_bytes(SOCKET_BYTES);
            let [mut this, mut other] = world.pipe();
            let held = world.fill(&mut this) - 2 * SOCKET_BYTES;
            assert!(held >= limit - SOCKET_BYTES, "{held} of {joint:?}");
            assert!(held <= limit + AHEAD_BYTES_MAX, "{held} of {joint:?}");
            // The other way nothing is held up.
            other.write_all(b"!").unwrap();
            world.settle();
            assert_eq!(this.read(&mut [0; 9]).unwrap(), 1);
            // It goes on with half of that, and not only when all is taken.
            let mut got = world.read(&mut other, limit * 3 / 4);
            let more = world.fill(&mut this);
            if limit >= PIPE_BYTES_MAX {
                assert!(more >= limit / 2, "{more} of {joint:?}");
            }
            let all = held + 2 * SOCKET_BYTES + more;
            let held = all - got.len() - 2 * SOCKET_BYTES;
            assert!(held <= limit + AHEAD_BYTES_MAX, "{held} of {joint:?}");
            let (rest, blocked) = world.rest(&mut other);
            assert_eq!(kind(&blocked), Some(ErrorKind::WouldBlock));
            got.extend(rest);
            let first = all - more;
            assert_eq!(got.len(), all);
            assert!(got[..first] == *pattern(0..first) && got[first..] == *pattern(0..more));
            // And again.
            let again = world.fill(&mut this) - 2 * SOCKET_BYTES;
            assert!((limit / 2..=limit + AHEAD_BYTES_MAX).contains(&again));
            assert_eq!(world.rest(&mut other).0.len(), again + 2 * SOCKET_BYTES);
        }
    }
}

#[test]
fn with_no_limit_to_speak_of_one_piece_goes_after_another() {
    for joint in (Joint {
        limit: 0,
        ..Joint::ORDINARY
    })
    .both_colors()
    {
        let mut world = World::new(1, joint);
        let [mut this, mut other] = world.pipe();
        for _ in 0..5 {
            this.write_all(pattern(0..10_000)).unwrap();
            world.settle();
            assert!(world.read(&mut other, 10_000) == pattern(0..10_000));
        }
    }
}

/// Each of them keeps a buffer, if the destination's color waits.
#[test]
fn single_bytes_count_for_more() {
    const BYTES: usize = 4_000;
    let (mut world, streams, tell) = unjoined();
    let [mut this, mut other] = world.pipe();
    let (first, second) = (streams.recv().unwrap(), streams.recv().unwrap());
    let (color, waits) = (first.color(), second.color());
    let done = PIPED.on_value(TOLD, move |_: &mut Cx, piped| tell.send(piped).unwrap());
    let (give, hold) = channel::<Hold>();
    let poster = world.simulation.poster();
    let pipe = move |cx: &mut Cx| {
        first.pipe_to(cx, second, 64 << 10, done).unwrap();
        cx.post(waits, move |cx| give.send(cx.hold()).unwrap());
    };
    poster.try_post(color, pipe).unwrap();
    world.settle();
    for &byte in pattern(0..BYTES) {
        this.write_all(&[byte]).unwrap();
        world.settle();
    }
    // Of the buffers of its core, which are 64, enough are left for others.
    let mut third = world.client();
    let stream = streams.recv().unwrap();
    let echo = |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
        stream.write(cx, data.unwrap().unwrap()).unwrap();
    };
    Calls::new(echo).serve(stream, &READ);
    world.settle();
    third.write_all(b"ping").unwrap();
    world.settle();
    assert_eq!(third.read(&mut [0; 9]).unwrap(), 4);
    hold.recv().unwrap().resume(|_| ());
    assert!(world.rest(&mut other).0 == pattern(0..BYTES));
    this.shutdown_write();
    other.shutdown_write();
    world.settle();
    assert_eq!(world.told.try_recv().unwrap().unwrap().0, BYTES as u64);
}

/// A world of streams that are not joined yet, with what is to be told.
fn unjoined() -> (World, Receiver<Stream>, Sender<Piped>) {
    let ((tell, told), (give, streams)) = (channel(), channel());
    let serve = move |_: &mut Cx, incoming: Incoming| give.send(incoming.open_unique()).unwrap();
    (World::serving(1, told, serve), streams, tell)
}

/// Has the session give its stream away.
fn taken(world: &mut World, session: &Colored<Calls>) -> Stream {
    let (give, given) = channel();
    let take = move |calls: &mut Calls, _: &mut Cx| give.send(calls.take_stream()).unwrap();
    let poster = world.simulation.poster();
    session.try_post(&poster, take).unwrap();
    world.settle();
    given.recv().unwrap()
}

/// Pipes one to the other in the color of `at`.
fn pipe_at(
    world: &mut World,
    at: Color,
    [this, other]: [Stream; 2],
    tell: Sender<Piped>,
) -> Result<(), Reason> {
    let (give, piped) = channel();
    let done = PIPED.on_value(TOLD, move |_: &mut Cx, piped| tell.send(piped).unwrap());
    let pipe = move |cx: &mut Cx| {
        give.send(this.pipe_to(cx, other, PIPE_BYTES_MAX, done))
            .unwrap()
    };
    world.simulation.poster().try_post(at, pipe).unwrap();
    world.settle();
    piped.recv().unwrap()
}

/// What had come and was not given to anybody, and what was written.
#[test]
fn what_came_before_goes_first() {
    let (mut world, streams, tell) = unjoined();
    let [mut this, mut other] = world.pipe();
    let sessions = [(); 2].map(|()| {
        // Pauses after the first piece, which is not the pipe's.
        let read = |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
            assert_eq!(&data.unwrap().unwrap()[..], b"a");
            stream.pause(cx).unwrap();
        };
        Calls::new(read).open(streams.recv().unwrap(), &READ, |cx, stream| {
            stream.write(cx, "hello, ").unwrap();
        })
    });
    world.settle();
    for (client, bytes) in [(&mut this, [b"a", b"b"]), (&mut other, [b"a", b"c"])] {
        for byte in bytes {
            client.write_all(byte).unwrap();
            world.settle();
        }
    }
    let streams = sessions.map(|session| taken(&mut world, &session));
    let at = streams[0].color();
    pipe_at(&mut world, at, streams, tell).unwrap();
    assert_eq!(world.rest(&mut this).0, b"hello, c");
    assert_eq!(world.rest(&mut other).0, b"hello, b");
    drop(this);
    assert_eq!(world.rest(&mut other).1.unwrap(), ());
    drop(other);
    let piped = world.is_over(0);
    assert_eq!(piped.unwrap(), (1, 1));
}

#[test]
fn in_another_color_it_is_refused_and_both_are_closed() {
    let (mut world, streams, tell) = unjoined();
    let [mut this, mut other] = world.pipe();
    let streams = [streams.recv().unwrap(), streams.recv().unwrap()];
    let at = streams[1].color();
    let refused = pipe_at(&mut world, at, streams, tell).unwrap_err();
    assert!(matches!(refused, Reason::OtherColor { .. }));
    for client in [&mut this, &mut other] {
        assert!(world.rest(client).1.is_ok());
    }
    // Dropped, and not told.
    assert!(world.told.try_recv().is_err());
    assert_eq!(world.net.open_count(), 3);
}

#[test]
fn a_stream_of_another_runtime_is_refused() {
    let (mut here, streams, tell) = unjoined();
    let (mut there, others, _) = unjoined();
    let (mut this, mut other) = (here.client(), there.client());
    let streams = [streams.recv().unwrap(), others.recv().unwrap()];
    let at = streams[0].color();
    let refused = pipe_at(&mut here, at, streams, tell).unwrap_err();
    assert_eq!(refused, Reason::OtherRuntime);
    assert!(here.rest(&mut this).1.is_ok());
    assert!(there.rest(&mut other).1.is_ok());
}

#[test]
fn a_stream_whose_end_was_told_or_sent_is_not_piped() {
    for case in ["told", "sent", "closed"] {
        for swap in [false, true] {
            let (mut world, streams, tell) = unjoined();
            let mut clients = world.pipe();
            clients[0].shutdown_write();
            let mut streams = [streams.recv().unwrap(), streams.recv().unwrap()];
            let [first, second] = streams;
            let first = if case == "told" {
                let session = Calls::none().half_open().serve(first, &READ);
                world.settle();
                taken(&mut world, &session)
            } else {
                let (give, given) = channel();
                let color = first.color();
                let before = move |cx: &mut Cx| {
                    match case {
                        "sent" => first.shutdown_write(cx).unwrap(),
                        _ => first.close(cx),
                    }
                    give.send(first).unwrap();
                };
                world.simulation.poster().try_post(color, before).unwrap();
                world.settle();
                given.recv().unwrap()
            };
            streams = [first, second];
            if swap {
                streams.reverse();
            }
            let at = streams[0].color();
            pipe_at(&mut world, at, streams, tell).unwrap();
            assert_eq!(kind(&world.is_over(2)), Some(ErrorKind::NotConnected));
            let end = world.rest(&mut clients[1]).1;
            assert_eq!(kind(&end), Some(ErrorKind::ConnectionReset), "{case}");
        }
    }
}

/// Gives its own stream to a pipe, and then panics.
struct PipesAndPanics {
    stream: Option<Stream>,
    other: Option<(Stream, Sender<Piped>)>,
}

impl Session for PipesAndPanics {
    fn data(&mut self, cx: &mut Cx, _: RecvBuf) {
        let (stream, (other, tell)) = (self.stream.take().unwrap(), self.other.take().unwrap());
        let done = PIPED.on_value(TOLD, move |_: &mut Cx, piped| tell.send(piped).unwrap());
        stream.pipe_to(cx, other, PIPE_BYTES_MAX, done).unwrap();
        panic!("planted");
    }
}

/// Piped by its own session, which then panics: that closes its connection.
#[test]
fn an_end_that_is_closed_by_a_panic_ends_the_other() {
    let (mut world, streams, tell) = unjoined();
    let [mut this, mut other] = world.pipe();
    let (stream, second) = (streams.recv().unwrap(), streams.recv().unwrap());
    stream.serve(&READ, |_, stream, _| PipesAndPanics {
        stream: Some(stream),
        other: Some((second, tell)),
    });
    this.write_all(b"!").unwrap();
    let piped = world.is_over(2);
    assert_eq!(kind(&piped), Some(ErrorKind::ConnectionAborted));
    let end = world.rest(&mut other).1;
    assert_eq!(kind(&end), Some(ErrorKind::ConnectionReset));
}

/// Of a runtime that is dropped nothing is left: what the callback has is dropped with it.
#[test]
fn a_run_that_is_cut_short_leaves_nothing() {
    for joint in Joint::ORDINARY.both_colors() {
        for steps in 0..60 {
            let (tell, _told) = channel();
            let alive = Alive::default();
            let payload = Arc::new(alive.payload());
            let joins = joins(joint, tell);
            let (_, told) = channel();
            let serve = move |cx: &mut Cx, incoming: Incoming| {
                let _alive: &Payload = &payload;
                joins(cx, incoming);
            };
            let mut world = World::serving(steps, told, serve);
            let mut this = world.net.connect(world.addr).unwrap();
            let other = world.net.connect(world.addr).unwrap();
            for _ in 0..steps * 3 {
                let _ = this.write(&[7; 4096]);
                world.simulation.step();
            }
            let net = world.net.clone();
            drop(world);
            assert_eq!(net.open_count(), 2);
            assert_eq!(alive.count(), 0);
            drop((this, other));
        }
    }
}

#[test]
fn a_thousand_pipes() {
    const PIPES: usize = 1_000;
    let mut world = World::new(3, Joint::ORDINARY);
    let mut clients: Vec<_> = (0..PIPES).map(|_| world.pipe()).collect();
    for (number, [this, other]) in clients.iter_mut().enumerate() {
        this.write_all(pattern(number..number + 500)).unwrap();
        other.write_all(pattern(number..number + 50)).unwrap();
        this.shutdown_write();
    }
    for (number, [this, other]) in clients.iter_mut().enumerate() {
        assert!(world.rest(other).0 == pattern(number..number + 500));
        other.shutdown_write();
        assert!(world.rest(this).0 == pattern(number..number + 50));
    }
    world.settle();
    let told: Vec<_> = world.told.try_iter().collect();
    assert_eq!(told.len(), PIPES);
    for piped in told {
        assert_eq!(piped.unwrap(), (500, 50));
    }
    assert_eq!(world.net.open_count(), 1 + 2 * PIPES);
}
