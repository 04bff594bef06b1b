//! Connections as the runtimes of a round serve and make them.

use crate::event::Place;
use crate::verdict::{PLANTED, fail};
use crate::world::World;
use mely::net::{Incoming, PIPE_BYTES_MAX, RecvBuf, Session, Stream};
use mely::runtime::OnPanic;
use mely::{Callback, Color, Cx, Handler};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

static SERVE: Handler = Handler::new("serve");
static ASK: Handler = Handler::new("ask");

/// The listeners' colors and those of connections that have none of their own.
const NET_COLORS: u64 = 1 << 40;

/// The first byte of a connection says how it is served.
pub(crate) mod manner {
    /// Everything comes back.
    pub(crate) const ECHO: u8 = b'e';
    /// The same, and the receive is paused and resumed after each piece.
    pub(crate) const PAUSE: u8 = b'p';
    /// Closed after the first piece was sent back.
    pub(crate) const CLOSE: u8 = b'c';
    /// Cut off after the first piece.
    pub(crate) const ABORT: u8 = b'a';
    /// The end of the stream is sent after the first piece.
    pub(crate) const SHUT: u8 = b's';
    /// The handler panics.
    pub(crate) const PANIC: u8 = b'x';
    /// Those after which everything sent comes back.
    pub(crate) const POLITE: [u8; 2] = [ECHO, PAUSE];
    pub(crate) const ALL: [u8; 6] = [ECHO, PAUSE, CLOSE, ABORT, SHUT, PANIC];
}

/// The n-th byte of what is sent over a connection.
pub(crate) fn byte(manner: u8, n: usize) -> u8 {
    if n == 0 { manner } else { (n % 251) as u8 }
}

/// Listens, and says where.
pub(crate) fn start(cx: &mut Cx, world: &Arc<World>, side: usize) {
    let draw = &world.draw.sides[side];
    if draw.clients == 0 {
        return;
    }
    let its = Arc::clone(world);
    let accept = move |cx: &mut Cx, incoming: io::Result<Incoming>| match incoming {
        Ok(incoming) => open(cx, &its, side, incoming),
        Err(error) => fail(&format!("accept: {error}")),
    };
    let addr = "127.0.0.1:0";
    let callback = Callback::anonymous_each(Color::from(NET_COLORS), accept);
    match cx.listen(addr, draw.acceptors, callback) {
        Ok(listener) => {
            let _ = world.sides[side]
                .addr
                .set(listener.local_addr().ip().unwrap());
            *world.sides[side].listener.lock().unwrap() = Some(listener);
        }
        // Asked to stop before it began.
        Err(_) if cx.stopping() => {}
        Err(error) => fail(&format!("listen: {error}")),
    }
}

fn open(cx: &mut Cx, world: &Arc<World>, side: usize, incoming: Incoming) {
    let number = incoming.fd() as u64;
    if number % 7 == 3 {
        return pass_on(cx, world, side, incoming);
    }
    let stream = if number.is_multiple_of(2) {
        incoming.open_unique()
    } else {
        incoming.open(Color::from(NET_COLORS + number % 5))
    };
    let panics = world.draw.sides[side].on_panic == OnPanic::DropEvent;
    let held = Arc::clone(world);
    stream.serve(&SERVE, move |_, stream, _| Served {
        stream,
        manner: None,
        panics,
        _held: held,
    });
}

/// A connection that this side serves.
struct Served {
    stream: Stream,
    /// Its first byte.
    manner: Option<u8>,
    panics: bool,
    /// Kept by the session, which the runtime must drop.
    _held: Arc<World>,
}

impl Session for Served {
    fn data(&mut self, cx: &mut Cx, data: RecvBuf) {
        let stream = &self.stream;
        // Refused when the peer has gone, or the end was sent before.
        let _ = stream.write(cx, data.to_vec());
        match *self.manner.get_or_insert(data[0]) {
            manner::PAUSE => {
                let _ = stream.pause(cx);
                cx.place(cx.color(), data.len() % cx.cores());
                let _ = stream.resume(cx);
            }
            manner::CLOSE => stream.close(cx),
            manner::ABORT => stream.abort(cx),
            manner::SHUT => drop(stream.shutdown_write(cx)),
            manner::PANIC if self.panics => std::panic::panic_any(PLANTED),
            _ => {}
        }
    }
}

/// Joins a connection with another one to the same server, which serves it.
fn pass_on(cx: &mut Cx, world: &Arc<World>, side: usize, incoming: Incoming) {
    let Some(&addr) = world.sides[side].addr.get() else {
        return;
    };
    let stream = incoming.open_unique();
    let color = stream.color();
    let held = Arc::clone(world);
    let done = Callback::anonymous_value(color, move |cx: &mut Cx, _piped: io::Result<_>| {
        let _held = held;
        if cx.color() != color {
            fail("a pipe ends in another color");
        }
    });
    let connected = move |cx: &mut Cx, other: io::Result<Incoming>| {
        let Ok(other) = other else { return };
        if stream
            .pipe_to(cx, other.open(color), PIPE_BYTES_MAX, done)
            .is_err()
        {
            fail("a pipe is refused in its own color");
        }
    };
    // Refused when the runtime is ending.
    let _ = cx.connect(
        addr,
        CONNECT_MAX,
        Callback::anonymous_value(color, connected),
    );
}

/// How long an attempt to connect may last.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Most bytes that a handler's connection sends.
const ASKED_MAX: usize = 20_000;

/// Reads what comes back of what it has sent.
struct Asks {
    stream: Stream,
    world: Arc<World>,
    manner: u8,
    /// Bytes sent, and bytes that have come back.
    len: usize,
    got: usize,
    abort_at: Option<usize>,
}

impl Session for Asks {
    fn data(&mut self, cx: &mut Cx, data: RecvBuf) {
        for &found in &*data {
            if found != byte(self.manner, self.got) {
                fail(&format!("byte {} of a connection is {found}", self.got));
            }
            self.got += 1;
        }
        if self.abort_at.is_some_and(|at| self.got > at) {
            self.stream.abort(cx);
        } else if self.got == self.len {
            self.world.served.fetch_add(1, Relaxed);
            self.stream.close(cx);
        }
    }
}

/// Connects to a runtime of the round, sends, and reads what comes back.
pub(crate) fn connect_to_any(cx: &mut Cx, world: &Arc<World>, at: Place, rng: &mut fastrand::Rng) {
    let to = rng.usize(..world.sides.len());
    let Some(&addr) = world.sides[to].addr.get() else {
        return;
    };
    let manner = manner::ALL[rng.usize(..manner::ALL.len())];
    let len = rng.usize(1..=ASKED_MAX);
    let abort_at = rng.bool().then(|| rng.usize(..len));
    let world = Arc::clone(world);
    let connected = move |_: &mut Cx, incoming: io::Result<Incoming>| {
        let Ok(incoming) = incoming else { return };
        incoming.serve(&ASK, move |cx, stream, _| {
            let bytes: Vec<u8> = (0..len).map(|n| byte(manner, n)).collect();
            let _ = stream.write(cx, bytes);
            Asks {
                stream,
                world,
                manner,
                len,
                got: 0,
                abort_at,
            }
        });
    };
    let color = Color::from(NET_COLORS + 10 + at.color as u64);
    // Refused when the runtime is ending.
    let _ = cx.connect(
        addr,
        CONNECT_MAX,
        Callback::anonymous_value(color, connected),
    );
}
