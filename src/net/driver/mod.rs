//! One core's event source as the scheduler sees it: operations and timers in, colored events out.
//!
//! **Move the color, never the operation.** An operation completes on the core that started it;
//! what it came to is posted to the operation's color, wherever that lives by then. So a connection
//! receives on its *home* core for life, while its handlers run on any; sends leave from the core
//! that runs the handler. Whatever touches a home core's tables from elsewhere (arm, cancel, close)
//! is an event of that core's *control color*, which cannot be stolen; or, while that core is
//! inside a long event, is done at once, under its source's lock ([`crate::host::sources`]).
//!
//! **A visitor** is another core that looks here while this one is inside a long event. Posts are
//! then the visitor's, and it is home to the connections that it finds accepted and made. What it
//! starts, the kernel takes when the owner looks again, or is kicked.
//!
//! Nothing of the user's runs in here: closures are only moved, into events; those that will not be
//! called any more too, so that they are dropped in their color. A connection that nobody else has
//! is moved the same way ([`release`]), because its callbacks are dropped with it.

use super::confined::Here;
use super::conn::Conn;
use super::connect::Connecting;
use super::file::FileUnderWay;
use super::listener::{Acceptor, Listening};
use super::names::Dial;
use super::registry::Registry;
use super::timer::{Pending, Timers, in_ns};
use super::watch::{AtEnd, Watching};
use crate::color::CoreId;
use crate::host::inner::Inner;
use crate::host::source::{Above, Source, Visit};
use crate::host::sources::Open;
use crate::host::stage::Stage;
use crate::host::unfinished::{NAMED_MAX, Obstacle, UnderWay};
use crate::host::worker::Worker;
use crate::io::{
    Alarm, Brings, Bufs, Completion, Config, Done, EventSource, Fd, FileOp, Lookout, Op, Owner,
    Report, Side, Token,
};
use crate::sched::core::Core;
use crate::shared::Shared;
use crate::shared::idle::bells::Bell;
use crate::sync::atomic::{Ordering, fence};
use crate::sync::charge::uncharged;
use crate::sync::lock::Guard;
use crate::{Color, Handler};
use rustix::io::Errno;
use slab::Slab;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Completions taken at once.
const COMPLETIONS_MAX: usize = 256;
/// Completions taken at once by another core, under whose look this one's may wait.
const VISIT_MAX: usize = 16;
/// Reaps that timers which are due wait for at least, while the event source has more. An operation
/// with much to receive has a turn in each.
const LATE_REAPS: usize = 16;
/// Events beyond the limit, in the whole runtime, up to which completions may add to them.
const RESERVED_MAX: usize = 64;
/// Connections that one event hands over.
const BURST_MAX: usize = 64;
/// How long a connection lingers at most: one that is closed after a stop, with input that the
/// program has not read, goes on to throw its input away, until its peer's end.
const LINGER_MAX: Duration = Duration::from_millis(500);
/// How long to wait before accepting again after accept failed, for want of descriptors say.
const ACCEPT_AGAIN: Duration = Duration::from_millis(20);
/// Buffers to receive into of a simulated core.
const SIMULATED_BUFFERS: u16 = 64;

/// What an operation was started for.
#[derive(Debug)]
pub(super) enum Operation {
    Accept {
        acceptor: Acceptor,
        op: Op,
        /// It was canceled, to go on elsewhere.
        moves: bool,
    },
    Recv {
        conn: Arc<Conn>,
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
    Watch {
        watching: Arc<Watching>,
        op: Op,
    },
    File {
        file: FileUnderWay,
        op: Op,
    },
    /// Tells when a timer is due by the time of day.
    Alarm,
}

/// The timers that were due by `now_ns` wait for the event source, so often.
#[derive(Debug)]
struct Late {
    now_ns: u64,
    reaps: usize,
}

/// See the module text.
#[derive(Debug)]
pub(crate) struct Driver {
    /// Shown for what is at home here.
    pub(super) here: Here,
    pub(super) backend: EventSource,
    pub(super) operations: Slab<Operation>,
    pub(super) timers: Timers,
    completions: VecDeque<Completion>,
    reaped: Vec<Completion>,
    /// Timers are due, and wait for completions that were there before.
    late: Option<Late>,
    /// What tells that a timer is due by the time of day; none in a simulation, whose driver knows.
    /// Behind the backend, which watches it.
    alarm: Option<Alarm>,
    /// It is watched.
    hears_alarm: bool,
    /// It has told so.
    alarm_has_rung: bool,
    /// Connections that were just accepted; none between two looks.
    burst: Option<(Arc<Listening>, Vec<io::Result<Fd>>)>,
    /// Listeners that wait to accept again, and since when, in ns.
    resting: Vec<(u64, Acceptor)>,
    /// The end was asked for, and is in this stage.
    pub(super) stage: Option<Stage>,
    /// Connections at home here that are still to receive what had arrived.
    pub(super) arriving: usize,
    /// Each connection that there was at the stop has noted how much had arrived.
    pub(super) has_begun_arriving: bool,
    /// Connections that linger, and until when, in ns; the first one for longest.
    lingering: VecDeque<(u64, Arc<Conn>)>,
    pub(super) core: CoreId,
    inner: Arc<Inner>,
    /// An operation or timer was started, or canceled, in the call under way.
    has_started: bool,
    /// A visitor could not get at all that has completed.
    hides: bool,
    /// Who watches, where somebody does.
    lookout: Option<Arc<Lookout>>,
    /// Who closes what the backend is not there to close.
    pub(super) owner: Owner,
}

impl Driver {
    /// Sets the event source of a core up, on its own thread.
    pub(crate) fn new(inner: &Arc<Inner>, core: CoreId) -> io::Result<(Driver, Report)> {
        let choice = match &inner.config.backend {
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
        let alarm = match owner.is_simulated() {
            true => None,
            false => Some(Alarm::new()?),
        };
        let driver = Driver {
            here: Here::claim(inner, core),
            backend,
            operations: Slab::new(),
            timers: Timers::of(core),
            completions: VecDeque::new(),
            reaped: Vec::new(),
            late: None,
            alarm,
            hears_alarm: false,
            alarm_has_rung: false,
            burst: None,
            resting: Vec::new(),
            stage: None,
            arriving: 0,
            has_begun_arriving: false,
            lingering: VecDeque::new(),
            core,
            inner: Arc::clone(inner),
            has_started: false,
            hides: false,
            lookout: None,
            owner,
        };
        Ok((driver, report))
    }

    /// Whether the end was asked for: nothing new begins.
    pub(super) fn is_ending(&self) -> bool {
        self.stage.is_some()
    }

    /// Whether each connection is told the end, or was.
    pub(super) fn tells_the_end(&self) -> bool {
        self.stage >= Some(Stage::Close)
    }

    pub(crate) fn doorbell(&self) -> impl Bell + use<> {
        self.backend.doorbell()
    }

    /// From now on it can be watched, by this one.
    pub(crate) fn attach(&mut self, lookout: &Arc<Lookout>) {
        self.backend.attach(lookout, self.core.index());
        self.lookout = Some(Arc::clone(lookout));
    }

    /// Calls `f`, which runs no user code and does not come back here, with the driver of this
    /// core, if its runtime has a network. If `f` starts something, what the running event has
    /// posted before is published: another core may find that over, and post.
    #[inline]
    pub(crate) fn with<R>(
        worker: &mut Worker,
        f: impl FnOnce(&mut Driver, &mut Core) -> R,
    ) -> Option<R> {
        let Worker { core, inner, .. } = worker;
        let (id, open) = (core.id, inner.sources.lock(core.id));
        call(&inner.shared, id, open, core, f)
    }

    /// The same for the driver of core `home`: of this core, or of another that is inside a long
    /// event, and at whose source nobody is. Else gives `with` back.
    pub(super) fn with_home<A>(
        worker: &mut Worker,
        home: CoreId,
        with: A,
        f: impl FnOnce(&mut Driver, &mut Core, A),
    ) -> Result<(), A> {
        let Worker { core, inner, .. } = worker;
        let shared = &inner.shared;
        let is_here = core.id == home;
        let open = if is_here {
            Some(inner.sources.lock(home))
        } else {
            // After a stop, the core itself begins to drain first.
            let is_open = shared.core(home).progress.is_watched() && !inner.is_stopping();
            is_open
                .then(|| inner.sources.try_visit(home).ok())
                .flatten()
        };
        let mut with = Some(with);
        let f = |driver: &mut Driver, core: &mut Core| {
            if let Some(with) = with.take() {
                f(driver, core, with);
            }
        };
        let _called = open.and_then(|open| call(shared, home, open, core, f));
        with.map_or(Ok(()), Err)
    }

    /// A call is over, of this core or of another one. If it has started something, what the event
    /// has posted before is published; and where the event is long, the kernel is to know of it
    /// now. True: a core that sleeps is to visit.
    fn end_call(&mut self, core: &mut Core) -> bool {
        if !std::mem::take(&mut self.has_started) {
            return false;
        }
        core.publish();
        let shared = &core.shared;
        if !shared.core(self.core).progress.is_watched() {
            return false;
        }
        if core.id == self.core {
            if let Err(error) = self.backend.submit() {
                self.failed(&error);
            }
        } else {
            self.backend.bring_out();
            shared.idle.to_visit.set(self.core);
        }
        shared.idle.sleepers.any() && self.watch()
    }

    /// Turns completions of a core that is inside an event into posts of another one: some of those
    /// that it can get. Timers that are due come when there are no more of these.
    fn look_from_elsewhere(&mut self, core: &mut Core) -> Visit {
        let posted = core.ledger.posted;
        let brings = self.backend.bring_out();
        self.hides = brings != Brings::All;
        let reaped = self.reap_completions(core, VISIT_MAX, EventSource::take);
        let is_full = reaped == VISIT_MAX || !self.completions.is_empty();
        if brings == Brings::All && !is_full && !self.backend.has_more() {
            let now_ns = core.clock.now_ns();
            if self.is_due(now_ns) {
                self.late = None;
                self.fire(now_ns, core);
            }
        }
        self.post_burst(core);
        if core.ledger.posted != posted {
            Visit::Brought
        } else if brings == Brings::Later {
            Visit::Soon
        } else {
            Visit::Nothing
        }
    }

    /// Turns completions into posts, and then the timers that are due.
    ///
    /// **Data before timers.** A core may be late, because of a long handler or because the machine
    /// was paused: then it finds timers due, and completions that were there before. A timer is
    /// often the limit for just these, so they go first: the timers that are due by now wait until
    /// all that has completed by now is posted. Others may complete for ever, so they wait for
    /// [`LATE_REAPS`] and as many more for each half of [`COMPLETIONS_MAX`] that have something to
    /// tell. All of these are made in this look, unless there is no buffer to receive into: then
    /// handlers have to run in between. Nor are they if there is no room for more events: then the
    /// timers are posted in the next look, whatever waits.
    pub(crate) fn look_at_all(&mut self, core: &mut Core) {
        core.looked();
        self.catch_up_if_due(core);
        loop {
            let reaped = self.reap_completions(core, COMPLETIONS_MAX, EventSource::poll);
            if self.alarm_has_rung {
                // That was among them: by the time of day, it is not known before.
                self.catch_up_if_due(core);
            }
            let Some(Late { now_ns, reaps }) = self.late.take() else {
                break;
            };
            let is_full = reaped == COMPLETIONS_MAX || !self.completions.is_empty();
            if reaps == 1 || !is_full && !self.backend.has_more() {
                self.post_burst(core);
                self.fire(now_ns, core);
                break;
            }
            // Without room a look posts one completion. Timers would wait for as many looks as
            // there are reaps, while events that fill the queues run: they wait for the next one.
            let has_room = self.completions.is_empty();
            let reaps = if has_room { reaps - 1 } else { 1 };
            self.late = Some(Late { now_ns, reaps });
            if reaped == 0 || !has_room {
                break;
            }
        }
        self.post_burst(core);
    }

    /// If timers are due, they wait from now on for all that has completed by now.
    fn catch_up_if_due(&mut self, core: &Core) {
        let has_timers = !self.timers.is_empty() || !self.resting.is_empty();
        if self.late.is_some() || !has_timers && self.lingering.is_empty() {
            return;
        }
        let now_ns = core.clock.now_ns();
        if self.is_due(now_ns) {
            let waiting = self.backend.catch_up();
            let waiting = waiting.unwrap_or_else(|error| self.failed(&error));
            let reaps = LATE_REAPS * (1 + waiting / (COMPLETIONS_MAX / 2));
            self.late = Some(Late { now_ns, reaps });
        }
    }

    /// Posts the timers that are due.
    fn fire(&mut self, now_ns: u64, core: &mut Core) {
        // Also at the limit of events: each was accepted when it was set.
        while let Some(timer) = self.timers.due(now_ns) {
            timer.fire(core);
        }
        self.alarm_has_rung = false;
        if !self.timers.has_no_wall() {
            let wall_ns = self.inner.wall_ns();
            while let Some(timer) = self.timers.wall_due(wall_ns) {
                timer.fire(core);
            }
            self.set_alarm();
        }
        self.accept_again(now_ns, core);
        self.end_lingering(now_ns, core);
    }

    /// Turns completions into posts, as far as there is room. Returns how many completions were
    /// taken from the event source.
    fn reap_completions(
        &mut self,
        core: &mut Core,
        most: usize,
        poll: fn(&mut EventSource, &mut Vec<Completion>, usize) -> io::Result<()>,
    ) -> usize {
        // At the limit of events one completion a look becomes an event all the same: work that
        // fills the queues again and again would keep the network out for ever.
        let mut spare = true;
        let mut admits = |core: &mut Core| {
            core.has_room() || std::mem::take(&mut spare) && core.reserved() < RESERVED_MAX
        };
        // What had no room at the last look; while there is some, the kernel's rest waits behind
        // it.
        while !self.completions.is_empty()
            && admits(core)
            && let Some(completion) = self.completions.pop_front()
        {
            self.complete(completion, core);
        }
        if !self.completions.is_empty() {
            return 0;
        }
        let mut reaped = std::mem::take(&mut self.reaped);
        // On a virtual core that takes no time: a core that was left with the simulated network's
        // lock would never get it back from one that looks outside of time.
        let polled = uncharged(|| poll(&mut self.backend, &mut reaped, most));
        if let Err(error) = polled {
            self.failed(&error);
        }
        let count = reaped.len();
        for completion in reaped.drain(..) {
            // Once one has to wait, those behind it do.
            if self.completions.is_empty() && admits(core) {
                self.complete(completion, core);
            } else {
                self.completions.push_back(completion);
            }
        }
        self.reaped = reaped;
        count
    }

    /// Only a kernel that refuses to go on fails here: the core cannot be served any more.
    fn failed(&self, error: &io::Error) -> ! {
        panic!("core {}: the event source failed: {error}", self.core);
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
            (
                Operation::Accept {
                    acceptor, moves, ..
                },
                Done::Accepted(result),
            ) => {
                let listening = Arc::clone(&acceptor.listening);
                // The end of an accept that was asked for is none of a connection.
                if more || !(self.is_ending() || *moves || listening.is_closed()) {
                    self.accepted(listening, result, core);
                }
            }
            (Operation::Recv { conn }, Done::Received(result)) => {
                let is_far_ahead = conn.received(result, &mut self.here, core);
                if self.stage.is_some() {
                    Arc::clone(conn).look_at_arrival(self, core);
                } else if is_far_ahead && more {
                    Arc::clone(conn).adjust(self);
                }
            }
            (Operation::Send { conn, handler, len }, Done::Sent { res, .. }) => {
                Conn::sent(Arc::clone(conn), handler, *len, res, core);
            }
            (Operation::Watch { watching, .. }, Done::Ready(result)) => {
                // Its end when it was asked for is told to nobody.
                if !result.as_ref().is_err_and(super::is_canceled) {
                    Watching::ready(watching, result, core);
                }
            }
            (Operation::Alarm, Done::Ready(result)) => {
                if let Err(error) = result {
                    self.failed(&error);
                }
                self.alarm.iter_mut().for_each(Alarm::hear);
                self.alarm_has_rung = !self.timers.has_no_wall();
            }
            (Operation::Connect { .. }, done @ Done::Connected(_)) => {
                let Operation::Connect {
                    mut connecting, fd, ..
                } = self.operations.remove(key)
                else {
                    unreachable!("matched above");
                };
                let Done::Connected(result) = done else {
                    unreachable!("matched above")
                };
                let result = connecting.settle(result, &mut self.timers);
                if result.is_err() {
                    self.backend.close(fd);
                }
                connecting.connected(result.map(|()| fd), core.id, &self.owner, core);
                return;
            }
            (Operation::File { .. }, Done::File { res, op }) => {
                let Operation::File { file, .. } = self.operations.remove(key) else {
                    unreachable!("matched above");
                };
                let result = res.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
                // The control color of this core, which no hold delays: the home may be in an event.
                let end = move |_cx: &mut crate::Cx| file.end(result, *op);
                core.post_own(None, control(core.id), end);
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
    /// for each, a listener's color would take up ten of a thousand in each round over the colors
    /// of those that are connected already, and the last would wait for seconds.
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
            Listening::accepted(listening, results, core.id, &self.owner, core);
        }
    }

    /// An operation is over.
    fn over(&mut self, operation: Operation, core: &mut Core) {
        match operation {
            Operation::Accept {
                acceptor, moves, ..
            } => {
                if self.is_ending() || moves || acceptor.listening.is_closed() {
                    self.take_in(acceptor, core);
                } else {
                    let again_ns = core.clock.now_ns() + ACCEPT_AGAIN.as_nanos() as u64;
                    self.resting.push((again_ns, acceptor));
                }
            }
            Operation::Recv { conn } => {
                conn.recv_over(self, core);
                release(conn, core);
            }
            Operation::Watch { watching, .. } => Watching::discard(watching, core),
            Operation::Send { conn, .. } => release(conn, core),
            Operation::Connect { .. } | Operation::File { .. } | Operation::Alarm => {}
        }
    }

    /// An acceptor that no operation is under way for: this core goes on with it, or another one
    /// does, or nobody.
    pub(super) fn take_in(&mut self, acceptor: Acceptor, core: &mut Core) {
        if self.is_ending() || acceptor.listening.is_closed() {
            self.leave(acceptor, core);
        } else if acceptor.place(core) != self.core {
            acceptor.send(&self.owner, core);
        } else {
            self.accept(acceptor);
        }
    }

    /// This core listens no more on its descriptor. A client that has connected before is still
    /// accepted: it cannot tell whether it was, and may have sent a request.
    fn leave(&mut self, acceptor: Acceptor, core: &mut Core) {
        let Acceptor { listening, fd, .. } = acceptor;
        for accepted in self.backend.accept_waiting(fd) {
            self.accepted(Arc::clone(&listening), Ok(accepted), core);
        }
        // Before the callback is dropped.
        self.post_burst(core);
        self.backend.close(fd);
        Listening::over(listening, core);
    }

    fn accept_again(&mut self, now_ns: u64, core: &mut Core) {
        while let Some(i) = self.resting.iter().position(|&(at_ns, _)| at_ns <= now_ns) {
            let (_, acceptor) = self.resting.swap_remove(i);
            self.take_in(acceptor, core);
        }
    }

    /// Starts an operation under the key it is then found by.
    fn start(
        &mut self,
        start: impl FnOnce(&mut EventSource, Token) -> Op,
        make: impl FnOnce(Op) -> Operation,
    ) -> Op {
        self.has_started = true;
        let entry = self.operations.vacant_entry();
        let op = start(&mut self.backend, Token(entry.key() as u64));
        entry.insert(make(op));
        op
    }

    fn accept(&mut self, acceptor: Acceptor) {
        let fd = acceptor.fd;
        self.start(
            |b, t| b.accept(t, fd),
            |op| Operation::Accept {
                acceptor,
                op,
                moves: false,
            },
        );
    }

    pub(super) fn recv(&mut self, conn: Arc<Conn>) -> Op {
        let fd = conn.fd;
        self.start(|b, t| b.recv(t, fd), |_| Operation::Recv { conn })
    }

    /// The connections at home here.
    fn conns(&self) -> Vec<Arc<Conn>> {
        Registry::of_runtime(&self.inner).of(self.core)
    }

    /// No client is accepted any more but those that wait, and nothing new begins. Of each
    /// connection, what has arrived by now is received.
    fn begin_receive_stage(&mut self, core: &mut Core) {
        for (_, operation) in &self.operations {
            match operation {
                Operation::Accept { op, .. } => self.backend.cancel(*op),
                // What a child does is under way.
                Operation::Watch { watching, op } => {
                    if !matches!(watching.at_end, AtEnd::WaitsFor(_)) {
                        self.backend.cancel(*op);
                    }
                }
                Operation::Connect { connecting, op, .. } => {
                    if !connecting.gave_up {
                        self.backend.cancel(*op);
                    }
                }
                // Sleeps go on, by the time of day too.
                Operation::Recv { .. }
                | Operation::Send { .. }
                | Operation::File { .. }
                | Operation::Alarm => {}
            }
        }
        for (_, acceptor) in std::mem::take(&mut self.resting) {
            self.leave(acceptor, core);
        }
        if self.owner.is_simulated() {
            for watching in Registry::of_runtime(&self.inner).watches() {
                if watching.is_simulated_at(self.core) {
                    Watching::discard(watching, core);
                }
            }
        }
        for timer in self.timers.take_ordinary() {
            timer.discard(core);
        }
        // See `Conn::set_at_stop`.
        fence(Ordering::SeqCst);
        for conn in self.conns() {
            conn.begin_arriving(self, core);
            release(conn, core);
        }
        self.has_begun_arriving = true;
    }

    /// Asks an operation to end.
    pub(super) fn cancel(&mut self, op: Op) {
        self.has_started = true;
        self.backend.cancel(op);
    }

    /// Sends `buf`, what is left of `len` bytes.
    pub(super) fn send(
        &mut self,
        conn: Arc<Conn>,
        handler: &'static Handler,
        buf: Bufs,
        len: usize,
    ) {
        let fd = conn.fd;
        self.start(
            |b, t| b.send(t, fd, buf),
            |_| Operation::Send { conn, handler, len },
        );
    }

    /// Sets a timer, or drops its callback in its color: if it was canceled, or the runtime ends.
    /// It is due then, by its own clock.
    pub(super) fn set_timer(&mut self, at_ns: u64, pending: Pending, core: &mut Core) {
        self.has_started = true;
        if pending.passes() || !self.is_ending() {
            self.timers.set(at_ns, pending, core);
            self.set_alarm();
        } else {
            pending.discard(core);
        }
    }

    /// Sets the alarm to the next moment at which a timer is due by the time of day.
    fn set_alarm(&mut self) {
        let Some(at_ns) = self.timers.next_wall_ns() else {
            return;
        };
        let Some(alarm) = &mut self.alarm else {
            return;
        };
        let (fd, set) = (alarm.fd(), alarm.set(at_ns));
        if let Err(error) = set {
            self.failed(&error);
        }
        if !std::mem::replace(&mut self.hears_alarm, true) {
            let watch = |b: &mut EventSource, token| b.ready(token, fd, Side::Reader);
            self.start(watch, |_| Operation::Alarm);
        }
    }

    /// Waits until a descriptor is ready, which stays open until the operation is over.
    pub(super) fn begin_watch(&mut self, watching: Arc<Watching>, fd: Fd, side: Side) -> Op {
        self.start(
            |b, t| b.ready(t, fd, side),
            |op| Operation::Watch { watching, op },
        )
    }

    /// Starts an operation on a file. `None` if the event source has no such operations. From the
    /// stage close on it is canceled at once, as those that were under way then.
    pub(super) fn begin_file(
        &mut self,
        file: FileUnderWay,
        fd: Arc<OwnedFd>,
        op: Box<FileOp>,
    ) -> Option<Op> {
        self.has_started = true;
        let entry = self.operations.vacant_entry();
        let op = self.backend.file(Token(entry.key() as u64), fd, op)?;
        entry.insert(Operation::File { file, op });
        if self.tells_the_end() {
            self.backend.cancel(op);
        }
        Some(op)
    }

    /// Returns the operation's key.
    pub(super) fn connect(
        &mut self,
        connecting: Box<Connecting>,
    ) -> Result<usize, (io::Error, Box<Connecting>)> {
        self.has_started = true;
        let entry = self.operations.vacant_entry();
        let key = entry.key();
        let addr = connecting.addr();
        match self.backend.connect(Token(key as u64), addr) {
            Ok((fd, op)) => {
                entry.insert(Operation::Connect { connecting, fd, op });
                Ok(key)
            }
            Err(error) => Err((addr.name_error(error), connecting)),
        }
    }

    /// The connection being made whose operation has this key.
    pub(super) fn connecting(&mut self, key: usize) -> &mut Connecting {
        match &mut self.operations[key] {
            Operation::Connect { connecting, .. } => connecting,
            other => unreachable!("{other:?} is not a connect"),
        }
    }

    /// Ends the attempts of a dial that are under way here.
    pub(super) fn end_attempts(&mut self, dial: &Arc<Dial>) {
        for (_, operation) in &self.operations {
            if let Operation::Connect { connecting, op, .. } = operation
                && connecting.is_of(dial)
            {
                self.backend.cancel(*op);
            }
        }
    }

    /// The limit of a connect has passed. Its end is told as any other; a connect that was over
    /// before has canceled the timer.
    pub(super) fn give_up_connecting(&mut self, key: usize) {
        if self.is_ending() {
            // It was asked to end with all others.
            return;
        }
        self.connecting(key).gave_up = true;
        if let Operation::Connect { op, .. } = &self.operations[key] {
            self.backend.cancel(*op);
        }
    }

    /// Bytes of a connection that have arrived and are not on their way to its color.
    pub(super) fn unread_bytes(&self, conn: &Arc<Conn>) -> usize {
        let its = |completion: &Completion| match (&completion.done, completion.token) {
            (Done::Received(Ok(buf)), Token(key)) => match &self.operations[key as usize] {
                Operation::Recv { conn: other } if Arc::ptr_eq(conn, other) => buf.len(),
                _ => 0,
            },
            _ => 0,
        };
        let waiting: usize = self.completions.iter().map(its).sum();
        waiting + self.backend.unread_bytes(conn.fd)
    }

    /// Stops accepting for a listener; the descriptor is closed when the accept is over. False: the
    /// acceptor that is at home here is elsewhere.
    pub(super) fn close_listener(&mut self, listening: &Arc<Listening>, core: &mut Core) -> bool {
        let mut found = self.is_ending();
        let home = self.core;
        let mut ours = |acceptor: &Acceptor| {
            let ours = Arc::ptr_eq(&acceptor.listening, listening);
            found |= ours && acceptor.home == home;
            ours
        };
        while let Some(i) = self.resting.iter().position(|(_, resting)| ours(resting)) {
            let (_, acceptor) = self.resting.swap_remove(i);
            self.leave(acceptor, core);
        }
        for (_, operation) in &self.operations {
            if let Operation::Accept { acceptor, op, .. } = operation
                && ours(acceptor)
            {
                self.backend.cancel(*op);
            }
        }
        found
    }

    /// When a timer is due, or a listener has rested, or a connection lingered.
    fn due_ns(&mut self) -> Option<u64> {
        let timers = [self.timers.next_ns(), self.wall_due_ns()];
        let resting = self.resting.iter().map(|&(at_ns, _)| at_ns);
        let lingering = self.lingering.front().map(|&(at_ns, _)| at_ns);
        let others = resting.chain(lingering);
        timers.into_iter().flatten().chain(others).min()
    }

    /// When a timer is due by the time of day, as the core's clock has it.
    fn wall_due_ns(&mut self) -> Option<u64> {
        let at_ns = self.timers.next_wall_ns()?;
        if self.alarm.is_some() {
            // When it will ring by the core's clock depends on who sets the other one.
            return self.alarm_has_rung.then_some(0);
        }
        let in_ns = at_ns.saturating_sub(self.inner.wall_ns());
        Some(self.inner.now_ns().saturating_add(in_ns))
    }

    /// A connection lingers: it is closed in a while, whatever its peer does.
    pub(super) fn linger(&mut self, conn: Arc<Conn>) {
        self.has_started = true;
        let at_ns = self.inner.now_ns() + LINGER_MAX.as_nanos() as u64;
        self.lingering.push_back((at_ns, conn));
    }

    fn end_lingering(&mut self, now_ns: u64, core: &mut Core) {
        while self
            .lingering
            .front()
            .is_some_and(|&(at_ns, _)| at_ns <= now_ns)
            && let Some((_, conn)) = self.lingering.pop_front()
        {
            conn.end_lingering(self);
            release(conn, core);
        }
    }

    fn is_due(&mut self, now_ns: u64) -> bool {
        self.due_ns().is_some_and(|due_ns| due_ns <= now_ns)
    }

    /// For how long there is nothing to do if nothing completes. None: for ever.
    fn timeout(&mut self, now_ns: u64) -> Option<Duration> {
        let due_ns = self.due_ns()?;
        Some(Duration::from_nanos(due_ns.saturating_sub(now_ns)))
    }
}

/// Calls `f` with the driver of core `home`, whose source is locked. None: it is without a network.
#[inline]
fn call<R>(
    shared: &Shared,
    home: CoreId,
    mut open: Guard<'_, Open>,
    core: &mut Core,
    f: impl FnOnce(&mut Driver, &mut Core) -> R,
) -> Option<R> {
    let driver: &mut Driver = open.source().driver()?;
    let result = f(driver, core);
    let is_there = driver.end_call(core);
    drop(open);
    if is_there {
        shared.seen(home);
    }
    Some(result)
}

impl Above for Inner {
    type Driver = Driver;
    type Attached = Registry;
}

impl Source for Driver {
    fn look(&mut self, core: &mut Core) {
        self.hides = false;
        self.backend.let_go(false);
        self.look_at_all(core);
        self.has_started = false;
    }

    fn visit(&mut self, visitor: &mut Core) -> Visit {
        self.backend.let_go(false);
        let visit = self.look_from_elsewhere(visitor);
        self.has_started = false;
        visit
    }

    fn watch(&mut self) -> bool {
        // What waits for room a visitor could not post either.
        if !self.completions.is_empty() {
            return false;
        }
        let due_ns = self.due_ns();
        let now_ns = due_ns.map_or(0, |_| self.inner.now_ns());
        if let Some((lookout, due_ns)) = self.lookout.as_ref().zip(due_ns) {
            // An event that is thought to be short is mostly over when its core's next timer is
            // due, and with many timers the lookout would wake up for each of them, in vain. So it
            // is told as late as the watchdog would find out, which is asleep.
            let progress = &self.inner.shared.core(self.core).progress;
            let at_ns = match progress.is_known_long() {
                true => due_ns,
                false => due_ns.max(now_ns.saturating_add(in_ns(self.inner.config.watch_period))),
            };
            lookout.watch_timer(self.core.index(), at_ns, now_ns);
        }
        // Timers come behind what has completed.
        self.backend.watch() || self.is_due(now_ns) && !self.hides
    }

    fn has_work(&mut self) -> bool {
        !self.completions.is_empty() || self.backend.has_work()
    }

    #[cfg(feature = "sim")]
    fn next_ns(&mut self) -> Option<u64> {
        self.due_ns()
    }

    fn wait(&mut self, core: &Core) {
        self.backend.let_go(true);
        let timeout = self.timeout(core.clock.now_ns());
        if let Err(error) = self.backend.wait(timeout) {
            self.failed(&error);
        }
    }

    #[cfg(feature = "sim")]
    fn has_come(&mut self) -> bool {
        let now_ns = self.inner.now_ns();
        let is_there = self.backend.has_work() || self.is_due(now_ns);
        is_there && self.backend.is_watched()
    }

    #[cfg(all(feature = "sim", debug_assertions))]
    fn has_news(&mut self, now_ns: u64) -> bool {
        // What waits for room is no news.
        self.completions.is_empty() && (self.backend.has_work() || self.is_due(now_ns))
    }

    /// Acceptors are for cores that work: those whose place is another core by now go there, once
    /// the accept is over.
    fn working_changed(&mut self, core: &mut Core) {
        for (_, operation) in &mut self.operations {
            if let Operation::Accept {
                acceptor,
                op,
                moves,
            } = operation
                && acceptor.place(core) != self.core
            {
                *moves = true;
                self.backend.cancel(*op);
            }
        }
    }

    fn begin_stage(&mut self, stage: Stage, core: &mut Core) {
        self.stage = Some(stage);
        match stage {
            Stage::Receive => self.begin_receive_stage(core),
            Stage::Drain => {
                for conn in self.conns() {
                    conn.give_up_arriving(self, core);
                    release(conn, core);
                }
            }
            Stage::Close => {
                for (_, operation) in &self.operations {
                    if let Operation::Watch { op, .. } | Operation::File { op, .. } = operation {
                        self.backend.cancel(*op);
                    }
                }
                for conn in self.conns() {
                    conn.end_at_home(self, core);
                    release(conn, core);
                }
            }
            // What is left is closed when the run is over.
            Stage::Flush => {}
        }
    }

    fn has_received(&self) -> bool {
        let accepts =
            |(_, operation): (usize, &Operation)| matches!(operation, Operation::Accept { .. });
        self.arriving == 0 && !self.operations.iter().any(accepts)
    }

    fn is_quiet(&self) -> bool {
        // A peer that does not read keeps no other from being told the end.
        let ignores_sends = self.stage == Some(Stage::Close);
        let mut operations = self.operations.iter();
        let is_quiet = match ignores_sends {
            true => operations.all(|(_, operation)| {
                matches!(operation, Operation::Send { .. } | Operation::Alarm)
            }),
            // A signal that may come, or a child that nobody waits for, is no work.
            false => operations.all(|(_, operation)| match operation {
                Operation::Watch { watching, .. } => watching.at_end == AtEnd::Ignored,
                // Timers are counted themselves.
                Operation::Alarm => true,
                _ => false,
            }),
        };
        is_quiet
            && self.arriving == 0
            && self.completions.is_empty()
            && self.timers.is_empty()
            && self.resting.is_empty()
    }

    fn under_way(&self, now_ns: u64) -> UnderWay {
        type Named<'a> = (&'a Arc<Conn>, Option<&'static Handler>, bool);
        fn connection(operation: &Operation) -> Option<Named<'_>> {
            match operation {
                Operation::Recv { conn } => Some((conn, conn.read_handler.get().copied(), false)),
                Operation::Send { conn, handler, .. } => Some((conn, Some(handler), true)),
                _ => None,
            }
        }
        let operations = self.operations.iter();
        let mut connections = operations.filter_map(|(_, operation)| connection(operation));
        let count = connections.clone().count();
        let named = connections.by_ref().take(NAMED_MAX);
        let mut named: Vec<_> = named
            .map(|(conn, handler, sends)| Obstacle::Connection {
                color: conn.color(),
                handler: handler.map_or("(none)", |handler| handler.name()),
                peer: self.owner.peer_addr(conn.fd).ok(),
                sends,
            })
            .collect();
        let children = self
            .operations
            .iter()
            .filter_map(|(_, operation)| match operation {
                Operation::Watch { watching, .. } => watching.obstacle(),
                _ => None,
            });
        named.extend(children.take(NAMED_MAX));
        let files = self.operations.iter();
        let files = files.filter_map(|(_, operation)| match operation {
            Operation::File { file, .. } => Some(Obstacle::File {
                path: file.job.path().to_owned(),
            }),
            _ => None,
        });
        named.extend(files.take(NAMED_MAX));
        named.extend(self.timers.latest(NAMED_MAX, now_ns, self.inner.wall_ns()));
        UnderWay {
            timers: self.timers.len() as u64,
            connections: count as u64,
            named,
        }
    }

    #[inline]
    fn driver(&mut self) -> Option<&mut Driver> {
        Some(self)
    }
}

impl Drop for Driver {
    /// A run that was cut short: names the operations and timers that are left, and closes the
    /// descriptors that only the driver owns. The kernel keeps the operations until the backend,
    /// dropped next, has ended them.
    fn drop(&mut self) {
        if !self.is_quiet() {
            let under_way = self.under_way(self.inner.now_ns());
            self.inner.answers.give(self.core, under_way);
        }
        for (_, operation) in &self.operations {
            if let Operation::Accept {
                acceptor: Acceptor { fd, .. },
                ..
            }
            | Operation::Connect { fd, .. } = operation
            {
                self.owner.close(*fd);
            }
        }
        for (_, acceptor) in self.resting.drain(..) {
            self.owner.close(acceptor.fd);
        }
        for completion in self.completions.drain(..).chain(self.reaped.drain(..)) {
            if let Done::Accepted(Ok(fd)) = completion.done {
                self.owner.close(fd);
            }
        }
    }
}

/// Lets a connection go: if nobody else has it, in its color. (A thread outside may have dropped
/// its handle meanwhile.)
fn release(conn: Arc<Conn>, core: &mut Core) {
    if let Some(conn) = Arc::into_inner(conn) {
        core.post_own(None, conn.color(), move |_cx: &mut crate::Cx| drop(conn));
    }
}

impl Bell for crate::io::Doorbell {
    fn ring(&self) {
        crate::io::Doorbell::ring(self);
    }
}

/// The color whose events run on `core` only.
pub(crate) fn control(core: CoreId) -> Color {
    Color::control(core.index())
}

#[cfg(all(test, feature = "sim"))]
mod tests;
