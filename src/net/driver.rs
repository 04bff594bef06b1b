//! One core's event source as the scheduler sees it: operations and timers in, colored events out.
//!
//! **Move the color, never the operation.** An operation completes on the core that started it; what
//! it came to is posted to the operation's color, wherever that lives by then. So a connection
//! receives on its *home* core for life, while its handlers run on any; sends leave from the core
//! that runs the handler. Whatever touches a home core's tables from elsewhere (arm, cancel, close)
//! is an event of that core's *control color*, which cannot be stolen.
//!
//! Nothing of the user's runs in here: closures are only moved, into events; those that will not be
//! called any more too, so that they are dropped in their color. A connection that nobody else has is moved
//! the same way ([`release`]), because its callbacks are dropped with it.

use super::conn::Conn;
use super::connect::Connecting;
use super::listener::Listening;
use super::signal::Watching;
use super::timer::Timers;
use crate::io::{Completion, Config, Done, EventSource, Fd, Op, Owner, Report, SendBuf, Token};
use crate::runtime::inner::Inner;
use crate::sched::core::Core;
use crate::sched::shared::Bell;
use crate::{Color, Handler};
use slab::Slab;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Turns that ran something between two looks at the event source, unless one of them was long.
const TURNS_MAX: u32 = 16;
/// Completions taken at once.
const COMPLETIONS_MAX: usize = 256;
/// Events beyond the limit, in the whole runtime, up to which completions may add to them.
const RESERVED_MAX: usize = 64;
/// Connections that one event hands over.
const BURST_MAX: usize = 64;
/// How long to wait before accepting again after accept failed, for want of descriptors say.
const ACCEPT_AGAIN: Duration = Duration::from_millis(20);
/// Buffers to receive into of a simulated core.
const SIMULATED_BUFFERS: u16 = 64;

/// What an operation was started for.
#[derive(Debug)]
pub(super) enum Operation {
    Accept {
        listening: Arc<Listening>,
        fd: Fd,
        op: Op,
    },
    Recv {
        conn: Arc<Conn>,
        op: Op,
    },
    Send {
        conn: Arc<Conn>,
        handler: &'static Handler,
        len: usize,
    },
    Connect {
        connecting: Box<Connecting>,
        fd: Fd,
        op: Op,
    },
    Signal {
        watching: Arc<Watching>,
        op: Op,
    },
}

/// See the module text.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(super) backend: EventSource,
    pub(super) operations: Slab<Operation>,
    pub(super) timers: Timers,
    /// Detached connections at home here.
    pub(super) kept: Slab<Arc<Conn>>,
    completions: VecDeque<Completion>,
    reaped: Vec<Completion>,
    /// Connections that were just accepted; none between two looks.
    burst: Option<(Arc<Listening>, Vec<io::Result<Fd>>)>,
    /// Listeners that wait to accept again, and since when, in ns.
    resting: Vec<(u64, Arc<Listening>, Fd)>,
    pub(super) draining: bool,
    pub(super) core: u32,
    inner: Arc<Inner>,
    turns: u32,
    /// Who closes what the backend is not there to close.
    pub(super) owner: Owner,
}

impl Driver {
    /// Sets the event source of a core up, on its own thread.
    pub(crate) fn new(inner: &Arc<Inner>, core: u32) -> io::Result<(Driver, Report)> {
        let choice = match &inner.config.net.backend {
            Some(choice) => choice.clone(),
            None => crate::io::Backend::from_env()?,
        };
        let mut config = Config::default();
        if let crate::io::Backend::Sim(_) = choice {
            // Simulations come by the thousand, and few buffers are sooner used up.
            config.buffers = SIMULATED_BUFFERS;
        }
        let (backend, report) = EventSource::new(choice, &config)?;
        let owner = backend.owner();
        let driver = Driver {
            backend,
            operations: Slab::new(),
            timers: Timers::new(),
            kept: Slab::new(),
            completions: VecDeque::new(),
            reaped: Vec::new(),
            burst: None,
            resting: Vec::new(),
            draining: false,
            core,
            inner: Arc::clone(inner),
            turns: 0,
            owner,
        };
        Ok((driver, report))
    }

    pub(crate) fn doorbell(&self) -> impl Bell + use<> {
        self.backend.doorbell()
    }

    /// Turns what completed, and the timers that are due, into posts.
    ///
    /// What is already queued goes first, up to a bound: a core that is busy looks once in so many
    /// turns, and after each long one.
    #[inline]
    pub(crate) fn reap(&mut self, core: &mut Core) {
        self.turns += 1;
        if core.is_busy() && self.turns < TURNS_MAX {
            return;
        }
        self.turns = 0;
        self.look(core);
    }

    fn look(&mut self, core: &mut Core) {
        core.looked();
        if !self.timers.is_empty() || !self.resting.is_empty() {
            let now_ns = core.clock.now_ns();
            // Also at the limit of events: each was accepted when it was set.
            while let Some(timer) = self.timers.due(now_ns) {
                timer.fire(core);
            }
            self.accept_again(now_ns);
        }
        // At the limit of events one completion a look becomes an event all the same: work that fills the
        // queues again and again would keep the network out for ever.
        let mut spare = true;
        let mut admits = |core: &mut Core| {
            core.has_room() || std::mem::take(&mut spare) && core.reserved() < RESERVED_MAX
        };
        // What had no room at the last look; while there is some, the kernel's rest waits behind it.
        while !self.completions.is_empty()
            && admits(core)
            && let Some(completion) = self.completions.pop_front()
        {
            self.complete(completion, core);
        }
        if self.completions.is_empty() {
            let mut reaped = std::mem::take(&mut self.reaped);
            // Only a kernel that refuses to go on fails here: the core cannot be served any more.
            if let Err(error) = self.backend.poll(&mut reaped, COMPLETIONS_MAX) {
                panic!("core {}: the event source failed: {error}", self.core);
            }
            for completion in reaped.drain(..) {
                // Once one has to wait, those behind it do.
                if self.completions.is_empty() && admits(core) {
                    self.complete(completion, core);
                } else {
                    self.completions.push_back(completion);
                }
            }
            self.reaped = reaped;
        }
        self.post_burst(core);
    }

    /// Posts what a completion means.
    fn complete(&mut self, completion: Completion, core: &mut Core) {
        let Completion {
            token: Token(key),
            done,
            more,
        } = completion;
        let key = key as usize;
        match (&self.operations[key], done) {
            (Operation::Accept { listening, .. }, Done::Accepted(result)) => {
                let listening = Arc::clone(listening);
                if more || !(self.draining || listening.is_closed()) {
                    self.accepted(listening, result, core);
                }
            }
            (Operation::Recv { conn, .. }, Done::Received(result)) => {
                if conn.received(result, core) && more {
                    Arc::clone(conn).adjust(self);
                }
            }
            (Operation::Send { conn, handler, len }, Done::Sent { res, .. }) => {
                Conn::sent(Arc::clone(conn), handler, *len, res, core);
            }
            (Operation::Signal { watching, .. }, Done::Readable(result)) => {
                Watching::readable(watching, result, core);
            }
            (Operation::Connect { .. }, done @ Done::Connected(_)) => {
                let Operation::Connect { connecting, fd, .. } = self.operations.remove(key) else {
                    unreachable!("matched above");
                };
                let Done::Connected(result) = done else {
                    unreachable!("matched above")
                };
                if result.is_err() {
                    self.backend.close(fd);
                }
                connecting.connected(result.map(|()| fd), self.core, &self.owner, core);
                return;
            }
            (operation, done) => unreachable!("{operation:?} came to {done:?}"),
        }
        if !more {
            let operation = self.operations.remove(key);
            self.over(operation, core);
        }
    }

    /// Connections of one listener that came together are one event, up to a bound: with an event
    /// for each, a listener's color would take up ten of a thousand in each round over the colors of
    /// those that are connected already, and the last would wait for seconds.
    fn accepted(&mut self, listening: Arc<Listening>, result: io::Result<Fd>, core: &mut Core) {
        let same = |(its, results): &(Arc<Listening>, Vec<_>)| {
            Arc::ptr_eq(its, &listening) && results.len() < BURST_MAX
        };
        if !self.burst.as_ref().is_some_and(same) {
            self.post_burst(core);
        }
        let (_, results) = self.burst.get_or_insert((listening, Vec::new()));
        results.push(result);
    }

    fn post_burst(&mut self, core: &mut Core) {
        if let Some((listening, results)) = self.burst.take() {
            Listening::accepted(listening, results, self.core, &self.owner, core);
        }
    }

    /// An operation is over.
    fn over(&mut self, operation: Operation, core: &mut Core) {
        match operation {
            Operation::Accept { listening, fd, .. } => {
                if self.draining || listening.is_closed() {
                    self.leave(listening, fd, core);
                } else {
                    let again_ns = core.clock.now_ns() + ACCEPT_AGAIN.as_nanos() as u64;
                    self.resting.push((again_ns, listening, fd));
                }
            }
            Operation::Recv { conn, .. } => {
                Conn::recv_over(&conn, self, core);
                release(conn, core);
            }
            Operation::Signal { watching, .. } => Watching::discard(watching, core),
            Operation::Send { conn, .. } => release(conn, core),
            Operation::Connect { .. } => {}
        }
    }

    /// This core listens no more on `fd`. Who has connected before is still accepted, unless the runtime
    /// is ending: a client cannot tell whether it was, and may have sent a request.
    pub(super) fn leave(&mut self, listening: Arc<Listening>, fd: Fd, core: &mut Core) {
        if !self.draining {
            for accepted in self.backend.accept_waiting(fd) {
                self.accepted(Arc::clone(&listening), Ok(accepted), core);
            }
            // Before the callback is dropped.
            self.post_burst(core);
        }
        self.backend.close(fd);
        Listening::over(listening, core);
    }

    fn accept_again(&mut self, now_ns: u64) {
        while let Some(i) = self.resting.iter().position(|&(at_ns, ..)| at_ns <= now_ns) {
            let (_, listening, fd) = self.resting.swap_remove(i);
            self.accept(listening, fd);
        }
    }

    /// Starts an operation under the key it is then found by.
    fn start(
        &mut self,
        start: impl FnOnce(&mut EventSource, Token) -> Op,
        make: impl FnOnce(Op) -> Operation,
    ) -> Op {
        let entry = self.operations.vacant_entry();
        let op = start(&mut self.backend, Token(entry.key() as u64));
        entry.insert(make(op));
        op
    }

    pub(super) fn accept(&mut self, listening: Arc<Listening>, fd: Fd) {
        self.start(
            |b, t| b.accept(t, fd),
            |op| Operation::Accept { listening, fd, op },
        );
    }

    pub(super) fn recv(&mut self, conn: Arc<Conn>) -> Op {
        let fd = conn.fd;
        self.start(|b, t| b.recv(t, fd), |op| Operation::Recv { conn, op })
    }

    /// Sends `buf`, what is left of `len` bytes.
    pub(super) fn send(
        &mut self,
        conn: Arc<Conn>,
        handler: &'static Handler,
        buf: SendBuf,
        len: usize,
    ) {
        let fd = conn.fd;
        self.start(
            |b, t| b.send(t, fd, buf),
            |_| Operation::Send { conn, handler, len },
        );
    }

    pub(super) fn watch(&mut self, watching: Arc<Watching>) {
        let fd = watching.fd();
        self.start(
            |b, t| b.readable(t, fd),
            |op| Operation::Signal { watching, op },
        );
    }

    pub(super) fn connect(
        &mut self,
        addr: std::net::SocketAddr,
        connecting: Box<Connecting>,
    ) -> Result<(), (io::Error, Box<Connecting>)> {
        let entry = self.operations.vacant_entry();
        match self.backend.connect(Token(entry.key() as u64), addr) {
            Ok((fd, op)) => {
                entry.insert(Operation::Connect { connecting, fd, op });
                Ok(())
            }
            Err(error) => Err((error, connecting)),
        }
    }

    /// Bytes of a connection that have arrived and are not on their way to its color.
    pub(super) fn unread_bytes(&self, conn: &Arc<Conn>) -> usize {
        let its = |completion: &Completion| match (&completion.done, completion.token) {
            (Done::Received(Ok(buf)), Token(key)) => match &self.operations[key as usize] {
                Operation::Recv { conn: other, .. } if Arc::ptr_eq(conn, other) => buf.len(),
                _ => 0,
            },
            _ => 0,
        };
        let waiting: usize = self.completions.iter().map(its).sum();
        waiting + self.backend.unread_bytes(conn.fd)
    }

    /// Stops accepting for a listener; the descriptor is closed when the accept is over.
    pub(super) fn close_listener(&mut self, listening: &Arc<Listening>, core: &mut Core) {
        let ours = |l: &Arc<Listening>| Arc::ptr_eq(l, listening);
        while let Some(i) = self.resting.iter().position(|(_, l, _)| ours(l)) {
            let (_, listening, fd) = self.resting.swap_remove(i);
            self.leave(listening, fd, core);
        }
        for (_, operation) in &self.operations {
            if let Operation::Accept { listening, op, .. } = operation
                && ours(listening)
            {
                self.backend.cancel(*op);
            }
        }
    }

    /// Whether `reap` would do something, as far as can be known without a system call.
    pub(crate) fn has_work(&self) -> bool {
        !self.completions.is_empty() || self.backend.has_work()
    }

    /// When there will be something to reap though nothing completes.
    pub(crate) fn next_ns(&mut self) -> Option<u64> {
        let resting = self.resting.iter().map(|&(at_ns, ..)| at_ns);
        self.timers.next_ns().into_iter().chain(resting).min()
    }

    /// Blocks until there is something to reap, the doorbell rings, or a timer is due.
    pub(crate) fn wait(&mut self, now_ns: u64) {
        let timeout = self.timeout(now_ns);
        if let Err(error) = self.backend.wait(timeout) {
            panic!("core {}: the event source failed: {error}", self.core);
        }
    }

    /// For how long there is nothing to do if nothing completes. None: for ever.
    fn timeout(&mut self, now_ns: u64) -> Option<Duration> {
        let next_ns = self.next_ns()?;
        Some(Duration::from_nanos(next_ns.saturating_sub(now_ns)))
    }

    /// The runtime is ending: everything that waits for the world is canceled. Sends go on.
    pub(crate) fn begin_drain(&mut self, core: &mut Core) {
        self.draining = true;
        for (_, operation) in &self.operations {
            match operation {
                Operation::Accept { op, .. }
                | Operation::Recv { op, .. }
                | Operation::Connect { op, .. }
                | Operation::Signal { op, .. } => self.backend.cancel(*op),
                Operation::Send { .. } => {}
            }
        }
        for (_, listening, fd) in std::mem::take(&mut self.resting) {
            self.leave(listening, fd, core);
        }
        while let Some(timer) = self.timers.pop() {
            timer.discard(core);
        }
        tell_the_end(self.inner.net.of(self.core), core);
    }

    /// Whether nothing is under way that will still become an event.
    pub(crate) fn is_quiet(&self) -> bool {
        self.operations.is_empty()
            && self.completions.is_empty()
            && self.timers.is_empty()
            && self.resting.is_empty()
    }
}

impl Drop for Driver {
    /// A run that was cut short: what the driver owns and nobody else will close. The kernel keeps
    /// what is still under way on it until the backend, dropped next, has ended that.
    fn drop(&mut self) {
        for (_, operation) in &self.operations {
            if let Operation::Accept { fd, .. } | Operation::Connect { fd, .. } = operation {
                self.owner.close(*fd);
            }
        }
        for (_, _, fd) in self.resting.drain(..) {
            self.owner.close(fd);
        }
        for completion in self.completions.drain(..).chain(self.reaped.drain(..)) {
            if let Done::Accepted(Ok(fd)) = completion.done {
                self.owner.close(fd);
            }
        }
    }
}

/// Tells connections that do not receive now: the others are told by their receive's end.
fn tell_the_end(conns: Vec<Arc<Conn>>, core: &mut Core) {
    for conn in conns {
        Conn::canceled(&conn, core);
        // Its handle may have been dropped meanwhile, by a thread outside.
        release(conn, core);
    }
}

/// Lets a connection go: if nobody else has it, in its color.
fn release(conn: Arc<Conn>, core: &mut Core) {
    if let Some(conn) = Arc::into_inner(conn) {
        core.post_own(None, conn.color, move |_cx: &mut crate::Cx| drop(conn));
    }
}

impl Bell for crate::io::Doorbell {
    fn ring(&self) {
        crate::io::Doorbell::ring(self);
    }
}

/// The color whose events run on `core` only.
pub(super) fn control(core: u32) -> Color {
    Color::control(core as usize)
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use super::{BURST_MAX, COMPLETIONS_MAX, Driver, release, tell_the_end};
    use crate::net::tests::{Drops, Witness};
    use crate::net::{Acceptors, Backend, Incoming, SimCall, SimNet, Stream};
    use crate::sim::{Simulation, Step};
    use crate::{Callback, Color, Cores, Cx, Handler, Runtime};
    use std::io;
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    static ACCEPT: Handler = Handler::new("accept");
    static READ: Handler = Handler::new("read");
    static DRAINED: Handler = Handler::new("drained");
    const ACCEPTING: Color = Color::new(1);

    /// A simulated runtime of one core that listens, and where.
    fn listening<F>(seed: u64, events_max: usize, accept: F) -> (Simulation, SocketAddr)
    where
        F: FnMut(&mut Cx, io::Result<Incoming>) + Send + 'static,
    {
        let builder = Runtime::builder()
            .cores(Cores::Count(1))
            .events_max(events_max);
        let mut simulation = builder.simulate(seed).unwrap();
        let (tell, addr) = channel();
        let begin = move |cx: &mut Cx| {
            let any = "127.0.0.1:0".parse().unwrap();
            let on_accept = ACCEPT.on_each(ACCEPTING, accept);
            let listener = cx.listen(any, Acceptors::Single, on_accept).unwrap();
            tell.send(listener.local_addr()).unwrap();
            listener.detach();
        };
        simulation.start(begin).unwrap();
        settle(&mut simulation);
        (simulation, addr.recv().unwrap())
    }

    /// Steps until nothing is left to do.
    fn settle(simulation: &mut Simulation) {
        while !matches!(simulation.step(), Step::Stalled | Step::Ended) {}
    }

    /// Steps until something was sent.
    fn until<T>(simulation: &mut Simulation, told: &std::sync::mpsc::Receiver<T>) -> T {
        loop {
            assert!(simulation.steps() < 100_000, "it does not come");
            simulation.step();
            if let Ok(told) = told.try_recv() {
                return told;
            }
        }
    }

    /// Runs `f` in an event with the core's driver, and returns what it returns.
    fn in_an_event<T, F>(simulation: &mut Simulation, f: F) -> T
    where
        T: Send + 'static,
        F: FnOnce(&mut Cx) -> T + Send + 'static,
    {
        let (tell, told) = channel();
        let event = move |cx: &mut Cx| tell.send(f(cx)).unwrap();
        simulation.poster().post(Color::from(2), event).unwrap();
        until(simulation, &told)
    }

    fn driver(cx: &mut Cx) -> &mut Driver {
        cx.worker().source.driver().unwrap()
    }

    /// Gives a connection that was accepted a callback that tells where it is dropped.
    fn open(cx: &mut Cx, incoming: io::Result<Incoming>, witness: Witness) -> Stream {
        let stream = incoming.unwrap().open(cx.color());
        let drained = move |_: &mut Cx, _: &Stream, _| {
            let _ = &witness;
        };
        stream.on_drained(cx, &DRAINED, drained).unwrap();
        stream
    }

    /// Reserved events are counted until they have run, and say nothing of whether there is room.
    #[test]
    fn what_cannot_be_refused_is_counted_beyond_the_limit() {
        let mut simulation = Runtime::builder().events_max(10).simulate(1).unwrap();
        let color = Color::from(1);
        simulation
            .run(move |cx| {
                let core = &mut cx.worker().core;
                assert!(core.has_room() && core.reserved() == 0);
                while core.post(None, color, |_| ()).is_ok() {}
                assert!(!core.has_room() && core.reserved() == 0);
                for reserved in 1..=3 {
                    core.post_own(None, color, |_: &mut Cx| ());
                    assert!(!core.has_room() && core.reserved() == reserved);
                }
                core.post_own(None, color, |cx: &mut Cx| {
                    let core = &mut cx.worker().core;
                    assert!(core.has_room() && core.reserved() == 0);
                    cx.stop();
                });
            })
            .unwrap();
    }

    /// By this the watchdog tells a core that goes on from one that is stuck in a handler.
    #[test]
    fn looks_at_the_event_source_are_counted() {
        let (mut simulation, _) = listening(1, 100, |_, _| ());
        let looks = |cx: &mut Cx| cx.worker_ref().core.shared.cores[0].stats.looks.get();
        let look = move |cx: &mut Cx| {
            let before = looks(cx);
            let worker = cx.worker();
            let driver = worker.source.driver().unwrap();
            driver.look(&mut worker.core);
            looks(cx) - before
        };
        assert_eq!(in_an_event(&mut simulation, look), 1);
    }

    #[test]
    fn a_core_sleeps_until_its_next_timer() {
        let (mut simulation, _) = listening(1, 100, |_, _| ());
        let timeouts = |cx: &mut Cx| {
            let now_ns = cx.now().as_nanos() as u64;
            let never = Callback::anonymous(ACCEPTING, |_| ());
            let timer = cx.timer(Duration::from_secs(5), never);
            let timeouts = [0, 1, 5, 6].map(|s| driver(cx).timeout(now_ns + s * 1_000_000_000));
            timer.cancel(cx);
            (timeouts, driver(cx).timeout(now_ns))
        };
        let (timeouts, without) = in_an_event(&mut simulation, timeouts);
        assert_eq!(timeouts, [5, 4, 0, 0].map(|s| Some(Duration::from_secs(s))));
        assert_eq!(without, None);
    }

    /// Neither a nanosecond too early nor one too late.
    #[test]
    fn a_listener_rests_until_its_moment() {
        let (tell, told) = channel();
        let fails = move |_: &mut Cx, incoming: io::Result<Incoming>| {
            tell.send(incoming.is_err()).unwrap();
        };
        let (mut simulation, addr) = listening(1, 100, fails);
        let net = simulation.network().clone();
        net.fail_next(SimCall::Accept, rustix::io::Errno::MFILE.raw_os_error());
        let _client = net.connect(addr).unwrap();
        assert!(until(&mut simulation, &told), "it has failed");
        let rests = |cx: &mut Cx| {
            let driver = driver(cx);
            let at_ns = driver.resting[0].0;
            [at_ns - 1, at_ns].map(|now_ns| {
                driver.accept_again(now_ns);
                (driver.resting.len(), driver.operations.len())
            })
        };
        assert_eq!(in_an_event(&mut simulation, rests), [(1, 0), (0, 1)]);
        settle(&mut simulation);
        assert!(!told.recv().unwrap());
    }

    /// Connections that came together are few events, none of them too long.
    #[test]
    fn connections_are_handed_over_in_bursts() {
        let count = Arc::new(AtomicUsize::new(0));
        let its = Arc::clone(&count);
        let (mut simulation, addr) = listening(1, 1_000, move |_, incoming| {
            drop(incoming.unwrap());
            its.fetch_add(1, Ordering::Relaxed);
        });
        let net = simulation.network().clone();
        let events = |simulation: &mut Simulation, clients: usize| {
            let all: Vec<_> = (0..clients).map(|_| net.connect(addr).unwrap()).collect();
            settle(simulation);
            assert_eq!(count.swap(0, Ordering::Relaxed), all.len());
            let profile = simulation.profile();
            let accept = profile.handlers.iter().find(|its| its.name == "accept");
            accept.map_or(0, |accept| accept.events())
        };
        assert_eq!(events(&mut simulation, 2 * BURST_MAX), 2);
        assert_eq!(events(&mut simulation, 2 * BURST_MAX + 1), 2 + 3);
    }

    /// A connection may be in no hands but the driver's when it lets it go.
    #[test]
    fn the_last_reference_is_dropped_in_an_event() {
        for ends in [false, true] {
            let drops = Drops::default();
            let (given, (give, streams)) = (drops.clone(), channel());
            let (mut simulation, addr) = listening(1, 100, move |cx, incoming| {
                let witness = given.witness(cx.poster());
                let stream = open(cx, incoming, witness);
                stream.on_data(cx, &READ, |_, _, _| ()).unwrap();
                give.send(stream).unwrap();
            });
            let client = simulation.network().connect(addr).unwrap();
            let mut stream = until(&mut simulation, &streams);
            // So it receives no more, and has been told so.
            client.shutdown_write();
            settle(&mut simulation);
            in_an_event(&mut simulation, move |cx| {
                let conn = Arc::clone(&stream.conn);
                stream.owner = false;
                drop(stream);
                let core = &mut cx.worker().core;
                if ends {
                    tell_the_end(vec![conn], core);
                } else {
                    release(conn, core);
                }
            });
            settle(&mut simulation);
            assert_eq!(drops.seen(), [Some(ACCEPTING)], "ends: {ends}");
        }
    }

    /// The canceled receive may be all that is left of a connection whose handle was dropped by a
    /// thread, after a stop and before the core has heard of that.
    #[test]
    fn callbacks_are_dropped_in_their_color_whenever_the_end_comes() {
        for (seed, steps) in (0..4).flat_map(|seed| (0..6).map(move |steps| (seed, steps))) {
            let drops = Drops::default();
            let (given, (give, streams)) = (drops.clone(), channel());
            let (mut simulation, addr) = listening(seed, 100, move |cx, incoming| {
                let witness = given.witness(cx.poster());
                let stream = open(cx, incoming, witness);
                stream.on_data(cx, &READ, |_, _, _| ()).unwrap();
                give.send(stream).unwrap();
            });
            let _client = simulation.network().connect(addr).unwrap();
            let stream = until(&mut simulation, &streams);
            settle(&mut simulation);
            let (give, paused) = channel();
            let pause = move |cx: &mut Cx| {
                stream.pause(cx).unwrap();
                give.send(stream).unwrap();
            };
            simulation.poster().post(ACCEPTING, pause).unwrap();
            let stream = until(&mut simulation, &paused);
            for _ in 0..steps {
                simulation.step();
            }
            simulation.poster().stop();
            drop(stream);
            // It may also have been this thread that had the last of it.
            let was_ours = !drops.seen().is_empty();
            settle(&mut simulation);
            simulation.end().unwrap();
            let color = (!was_ours).then_some(ACCEPTING);
            assert_eq!(drops.seen(), [color], "seed {seed}, {steps} steps");
        }
    }

    /// Fills the queues for ever: posts itself again, as often as there is room. And looks at the
    /// driver.
    fn fill<F>(cx: &mut Cx, look: &Arc<F>)
    where
        F: Fn(&Driver) + Send + Sync + 'static,
    {
        look(driver(cx));
        loop {
            let its = Arc::clone(look);
            let again = move |cx: &mut Cx| fill(cx, &its);
            if cx.try_post(Color::from(9), again).is_err() {
                return;
            }
        }
    }

    /// What has arrived of a connection and waits for room counts as unread, and what has of others
    /// does not.
    #[test]
    fn what_waits_for_room_is_unread() {
        const BYTES: [usize; 3] = [3, 5, 9];
        let conns = Arc::new(Mutex::new(Vec::new()));
        let its = Arc::clone(&conns);
        let (mut simulation, addr) = listening(1, 20, move |cx, incoming| {
            let stream = incoming.unwrap().open(cx.color());
            stream.on_data(cx, &READ, |_, _, _| ()).unwrap();
            its.lock().unwrap().push(Arc::clone(&stream.conn));
            stream.detach(cx).unwrap();
        });
        let net = simulation.network().clone();
        let mut clients = BYTES.map(|_| net.connect(addr).unwrap());
        settle(&mut simulation);
        let (tell, told) = channel();
        let (tell_full, full) = channel();
        let look = move |driver: &Driver| {
            let conns = conns.lock().unwrap();
            let unread = |conn| driver.unread_bytes(conn);
            let unread: Vec<usize> = conns.iter().map(unread).collect();
            tell_full.send(()).unwrap();
            // One of the three has found room, and nothing is left in the network.
            if driver.completions.len() == 2 {
                tell.send(unread).unwrap();
            }
        };
        let look = Arc::new(look);
        let begin = move |cx: &mut Cx| fill(cx, &look);
        simulation.poster().post(Color::from(9), begin).unwrap();
        for _ in 0..20 {
            until(&mut simulation, &full);
        }
        for (client, bytes) in clients.iter_mut().zip(BYTES) {
            io::Write::write_all(client, &vec![0; bytes]).unwrap();
        }
        let unread = until(&mut simulation, &told);
        let left_out = |bytes: usize| BYTES.map(|its| if its == bytes { 0 } else { its }).to_vec();
        assert!(BYTES.map(left_out).contains(&unread), "{unread:?}");
        assert!(simulation.end().is_err(), "there was no end to the events");
    }

    /// The queues are full, so the driver has taken connections that it cannot post yet, and a run
    /// that is cut short never will. It takes no more before it could post those.
    #[test]
    fn connections_that_wait_for_room_are_closed_when_a_run_is_cut_short() {
        const CLIENTS: usize = 400;
        let net = SimNet::new(1);
        let mut simulation = Runtime::builder()
            .cores(Cores::Count(1))
            .events_max(20)
            .backend(Backend::Sim(net.clone()))
            .simulate(1)
            .unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let (tell, addr) = channel();
        let counted = Arc::clone(&accepted);
        let waiting_max = Arc::new(AtomicUsize::new(0));
        let its = Arc::clone(&waiting_max);
        let begin = move |cx: &mut Cx| {
            let count = move |_: &mut Cx, _: io::Result<Incoming>| {
                counted.fetch_add(1, Ordering::Relaxed);
            };
            let any = "127.0.0.1:0".parse().unwrap();
            let on_accept = Callback::anonymous_each(ACCEPTING, count);
            let listener = cx.listen(any, Acceptors::Single, on_accept).unwrap();
            tell.send(listener.local_addr()).unwrap();
            listener.detach();
            let look = Arc::new(move |driver: &Driver| {
                its.fetch_max(driver.completions.len(), Ordering::Relaxed);
            });
            // Behind the event that begins to accept.
            cx.post(Color::from(9), move |cx| fill(cx, &look));
        };
        simulation.start(begin).unwrap();
        let addr = until(&mut simulation, &addr);
        let connect = |_| net.connect(addr).unwrap();
        let clients: Vec<_> = (0..CLIENTS).map(connect).collect();
        while accepted.load(Ordering::Relaxed) < 10 {
            simulation.step();
        }
        // Of those that were taken at once, a look at the event source posts one.
        assert!(accepted.load(Ordering::Relaxed) < CLIENTS / 2);
        let waiting_max = waiting_max.load(Ordering::Relaxed);
        assert!(
            (200..=COMPLETIONS_MAX).contains(&waiting_max),
            "{waiting_max}"
        );
        assert!(simulation.end().is_err(), "there was no end to the events");
        drop((simulation, clients));
        assert_eq!(net.open_count(), 0);
    }
}
