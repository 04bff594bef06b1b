//! A core's thread: steps, idling, and sleep.
//!
//! [`go_on`] takes a [`step`] of the scheduler, and does what follows from it; [`drive`] is the
//! thread that does so again and again. It goes on at once if anything ran. Otherwise it spins for
//! a while ([`crate::policy::spin`]), searching, and then sleeps by the protocol of
//! [`crate::shared::idle`]: announce, fence, look again, wait. A wake-up takes some
//! 20 us, of which the waker is busy for 7 (the halt exit of a virtual processor), so it spins for
//! a few of those first.

use super::inner::Inner;
use super::source::{AtEnd, Source, Visit};
use super::sources::{Closed, Installed, Open};
use super::stage::Stage;
use crate::Cx;
use crate::clock::Clock;
use crate::color::CoreId;
use crate::cx::{self, Behind};
use crate::host::quiesce::{Decided, Phase};
use crate::policy::numbers::{LOOK_QUANTA, PAUSES};
use crate::policy::spin::Spin;
use crate::sched::core::Core;
use crate::sched::step::{Stepped, step};
use crate::sync::atomic::{Ordering, fence};
use crate::sync::lock::Guard;
use crate::sync::{Arc, charge, fault, yield_now, yield_to_model};

/// Steps that ran something between two looks at the event source, unless one of them was long.
const STEPS_MAX: u64 = if cfg!(loom) { 1 } else { LOOK_QUANTA };

/// What belongs to one core's thread.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) core: Core,
    pub(crate) inner: Arc<Inner>,
    pub(crate) spin: Spin,
    /// What the running event has gathered.
    pub(super) gathered: Vec<Arc<dyn AtEnd>>,
    /// Turns that ran something since the last look at the event source.
    steps: u64,
    /// The event source knows of these stages of the end.
    stages: &'static [Stage],
    /// It has received all that had arrived when the end was asked for.
    received: bool,
    /// It counts as one that rests: see [`super::quiesce`].
    rests: bool,
    /// Events that it has posted and executed, as it reported last.
    reported: (u64, u64),
    _installed: Installed,
}

// SAFETY: the only one.
unsafe impl Behind for Worker {}

// How the runtime's own code reaches the worker of its thread. What makes each borrow exclusive is
// that it lives for one call into the runtime, and that no such call runs user code: see
// `crate::cx`.
impl Cx {
    /// The worker behind the context.
    #[inline(always)]
    pub(crate) fn worker(&mut self) -> &mut Worker {
        self.behind_mut()
    }

    #[inline(always)]
    pub(crate) fn worker_ref(&self) -> &Worker {
        self.behind()
    }

    /// Calls `f`, which runs no user code, with the worker behind a context that is shared.
    #[inline(always)]
    pub(super) fn lend<R>(&self, f: impl FnOnce(&mut Worker) -> R) -> R {
        self.lend_behind(f)
    }
}

/// Calls `f`, which runs no user code, with this thread's worker, if it is one of this runtime and
/// inside an event; else gives `with` back. The runtime's address will do.
pub(crate) fn lend_current<A, R>(
    inner: *const Inner,
    with: A,
    f: impl FnOnce(&mut Worker, A) -> R,
) -> Result<R, A> {
    lend_current_if(|its| std::ptr::eq(its, inner), with, f)
}

/// Inside an event of whatever runtime, publishes what was posted there: somebody else is about to
/// be told something, and what that one posts must not come before.
pub(crate) fn publish_current() {
    let _elsewhere = lend_current_if(|_its| true, (), |worker, ()| worker.publish());
}

/// Calls `f` if this thread's worker is of a runtime that will do.
#[inline(always)]
fn lend_current_if<A, R>(
    will_do: impl FnOnce(*const Inner) -> bool,
    with: A,
    f: impl FnOnce(&mut Worker, A) -> R,
) -> Result<R, A> {
    cx::lend_current(with, |worker: &mut Worker, with| {
        if !will_do(&*worker.inner) {
            return Err(with);
        }
        Ok(f(worker, with))
    })
}

/// Whether this thread is inside an event of this runtime.
pub(crate) fn is_inside(inner: &Arc<Inner>) -> bool {
    lend_current(Arc::as_ptr(inner), (), |_worker, ()| ()).is_ok()
}

/// Whether a wait of this thread would block a core.
pub(crate) fn would_block() -> bool {
    #[cfg(feature = "sim")]
    if ASIDE.get() {
        return true;
    }
    cx::has_host()
}

// This thread is a virtual core's, though it seems to be outside.
#[cfg(feature = "sim")]
crate::sync::thread_local! {
    static ASIDE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

impl Worker {
    pub(crate) fn new(
        inner: Arc<Inner>,
        id: CoreId,
        clock: Clock,
        source: Box<dyn Source>,
    ) -> Worker {
        inner.sources.lock(id).source = Some(source);
        Worker {
            core: Core::new(Arc::clone(&inner.shared), id, clock),
            spin: Spin::new(inner.config.spin_ns),
            _installed: Installed(Arc::clone(&inner), id),
            inner,
            gathered: Vec::new(),
            steps: 0,
            stages: &[],
            received: false,
            rests: false,
            reported: (0, 0),
        }
    }

    /// Calls `f`, which runs no user code and does not come back here, with the core's event
    /// source, locked.
    #[inline]
    pub(crate) fn with_source<R>(&mut self, f: impl FnOnce(&mut dyn Source, &mut Core) -> R) -> R {
        let mut open = self.inner.sources.lock(self.core.id);
        f(open.source(), &mut self.core)
    }

    /// Whether it is time to look at the event source. What is already queued goes first, up to a
    /// bound: a core that is busy looks once in a number of steps, and after each long one.
    #[inline(always)]
    pub(super) fn is_to_look(&mut self) -> bool {
        self.steps += 1;
        if self.core.has_run() && self.steps < STEPS_MAX {
            return false;
        }
        self.steps = 0;
        true
    }

    /// Looks at the event source, and publishes what it has found before another core may.
    pub(super) fn look_and_exchange<const RETIRED: bool>(&mut self) {
        let id = self.core.id;
        let mut open = self.inner.sources.lock(id);
        open.source().look(&mut self.core);
        let shared = &self.inner.shared;
        if shared.idle.to_visit.contains(id) {
            shared.idle.to_visit.clear(id);
        }
        let open = (!fault("let go before published")).then_some(open);
        self.core.exchange::<RETIRED>();
        drop(open);
    }

    /// Visits the event sources of cores that are inside an event, to which something has come; and
    /// `all` of those that are in so long an event that it might have. Posts what it finds.
    pub(crate) fn visit_others(&mut self, all: bool) -> Visit {
        let Worker { core, inner, .. } = self;
        let shared = &inner.shared;
        if !shared.policy.stealing.enabled || core.is_retired() || fault("no visits") {
            return Visit::Nothing;
        }
        let mut came = Visit::Nothing;
        for &(other, _) in &shared.core(core.id).victims {
            let told = shared.idle.to_visit.contains(other);
            let visits = told || all && shared.core(other).progress.is_watched();
            if !visits {
                continue;
            }
            let open = match inner.sources.try_visit(other) {
                Ok(open) => open,
                Err(Closed::ForNow) => continue,
                Err(Closed::ToOthers) => {
                    shared.idle.to_visit.clear(other);
                    continue;
                }
            };
            if told {
                shared.idle.to_visit.clear(other);
            }
            let visit = visit(inner, open, other, core);
            if visit != Visit::Nothing {
                // There may be more.
                shared.idle.to_visit.set(other);
                came = came.max(visit);
            }
        }
        if came == Visit::Soon {
            core.may_pass_visits_on();
        }
        came
    }

    /// Announces and looks again; true if there is nothing to do but wait. `phase` is what the
    /// caller acted upon.
    pub(crate) fn lie_down(&mut self, phase: Phase) -> bool {
        // Borrowed, not cloned: a reference count is a line that all cores share.
        let shared = &self.inner.shared;
        let id = self.core.id;
        self.core.end_search(false);
        // Of a ring that came when it was awake.
        let _ = shared.idle.bells.take_rung_ns(id);
        let pokes = &shared.core(id).pokes;
        if !pokes.park() {
            // Whoever has made work known since it began to search has woken nobody.
            self.core.begin_awake();
            self.end_rest();
            return false;
        }
        // Nobody else wakes a retired core: what is sent to it does.
        if !self.core.is_retired() {
            shared.idle.sleepers.set(id);
        }
        if !fault("sleeper's fence skipped") {
            fence(Ordering::SeqCst);
        }
        let visits =
            shared.policy.stealing.enabled && !self.core.is_retired() && phase == Phase::Running;
        let stay = !fault("second look before parking skipped")
            && (visits && !fault("sleeper has nobody watched") && !shared.watch_others(id)
                || self.core.anything_to_do()
                || self.inner.quiesce.phase() != phase
                || visits && shared.idle.to_visit.any()
                || self.with_source(|source, _| source.has_work()));
        let shared = &self.inner.shared;
        if stay {
            yield_to_model();
            self.spin.stays();
            self.rise();
        } else {
            shared.core(id).stats.parks.add(1);
            self.core.record_park();
            shared.idle.vigil.end_busy(shared.core(id));
        }
        !stay
    }

    /// Publishes what the running event has posted to other colors.
    pub(crate) fn publish(&mut self) {
        self.core.publish();
    }

    /// It has nothing to run: it rests, unless its event source has something under way.
    fn begin_rest(&mut self) -> Decided {
        let is_quiet = {
            let mut open = self.inner.sources.lock(self.core.id);
            open.rests = open.source().is_quiet();
            open.rests
        };
        if !is_quiet {
            return Decided::Nothing;
        }
        let core = &self.core;
        let now = core.ledger.sums();
        let before = std::mem::replace(&mut self.reported, now);
        self.rests = true;
        (self.inner.quiesce).rest(core.id, now.0 - before.0, now.1 - before.1)
    }

    /// The end has come to this stage: tells the event source each stage that it does not know of,
    /// and whether it has received what had arrived.
    fn follow(&mut self, stage: Stage) {
        while self.stages.last().is_none_or(|&last| last < stage) {
            let known = self.stages.len() + 1;
            self.stages = &Stage::ALL[..known];
            self.with_source(|source, core| source.begin_stage(Stage::ALL[known - 1], core));
            self.inner.quiesce.follows(self.core.id);
        }
        if !self.received && self.with_source(|source, _| source.has_received()) {
            self.received = true;
            if self.inner.quiesce.received() {
                self.inner.begin_stage();
            }
        }
    }

    /// Whether the end was asked for, as far as it knows.
    fn is_ending(&self) -> bool {
        !self.stages.is_empty()
    }

    /// It may run something again.
    fn end_rest(&mut self) {
        if std::mem::take(&mut self.rests) {
            self.inner.quiesce.end_rest(self.core.id);
            self.inner.sources.lock(self.core.id).rests = false;
        }
    }

    /// Waits for the event source or the doorbell. Nobody else finds the source meanwhile.
    pub(crate) fn wait(&mut self) {
        let id = self.core.id;
        let source = self.inner.sources.lock(id).source.take();
        let mut source = source.expect("its core has it");
        source.wait(&self.core);
        self.inner.sources.lock(id).source = Some(source);
    }

    /// The wait is over.
    pub(crate) fn wake_up(&mut self) {
        self.core.record_wake_up();
        self.rise();
    }

    /// The core does not sleep any more.
    fn rise(&mut self) {
        self.end_rest();
        self.spin.has_slept(self.core.clock.now_ns());
        if self.core.rise() {
            self.with_source(|source, core| source.working_changed(core));
        }
        let shared = &self.inner.shared;
        shared.idle.sleepers.clear(self.core.id);
        // Fails if a poke or a waker was first, which is as good.
        let _ = shared.core(self.core.id).pokes.unpark();
        self.core.help_ring();
    }
}

/// Visits the event source of another core, and lets it go: watched, if a core sleeps that is to
/// see what comes next. The visitor may have something to run by then.
fn visit(inner: &Inner, mut open: Guard<'_, Open>, other: CoreId, visitor: &mut Core) -> Visit {
    // After the end was asked for, a source is its core's, which counts that it knows of it.
    if inner.quiesce.phase() != Phase::Running {
        return Visit::Nothing;
    }
    let visit = open.source().visit(visitor);
    let watches = inner.shared.idle.sleepers.any() && visit != Visit::Soon;
    let is_there = watches && open.source().watch();
    let open = (!fault("visit let go before published")).then_some(open);
    let worth = (visit == Visit::Brought).then(|| visitor.publish_visit());
    drop(open);
    if let Some(worth) = worth {
        visitor.tell_visit(worth);
    }
    if is_there {
        inner.shared.seen(other);
    }
    visit
}

/// What a core's driver does after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The next step, at once.
    Step,
    /// The same, and this core may work or be retired unlike before.
    Changed,
    /// The next step, a little later: nothing was found, and it is too early to sleep.
    Spin,
    /// Waits for the event source and the doorbell, then calls [`Worker::wake_up`].
    Wait,
    /// The runtime has ended.
    Leave,
}

/// Runs a core until the runtime has ended.
pub(crate) fn drive(worker: &mut Worker) {
    Cx::with(worker, run_until_closed);
}

/// Runs `f` as if this thread were inside no worker, but for what would wait: for that, a virtual
/// core is what it is.
#[cfg(feature = "sim")]
pub(crate) fn aside<R>(f: impl FnOnce() -> R) -> R {
    ASIDE.set(true);
    let result = cx::outside(f);
    ASIDE.set(false);
    result
}

fn run_until_closed(cx: &mut Cx) {
    loop {
        match go_on_for_long(cx) {
            Next::Step | Next::Changed => {}
            Next::Spin => {
                let worker = cx.worker();
                relax(&worker.core, worker.inner.config.oversubscribed);
            }
            Next::Wait => {
                let worker = cx.worker();
                worker.wait();
                worker.wake_up();
            }
            Next::Leave => break,
        }
    }
}

/// Takes the next step of a core, and of one that works all that it takes at once: so none of those
/// asks whether the core works.
#[inline(always)]
fn go_on_for_long(cx: &mut Cx) -> Next {
    if cx.worker().core.is_retired() {
        return go_on::<true>(cx, |_| ());
    }
    loop {
        let next = go_on::<false>(cx, |_| ());
        if next != Next::Step {
            return next;
        }
    }
}

/// One step of a core, and what comes of a step that found nothing. Never blocks: whoever
/// drives the core, a thread or a simulation, waits for it. `between` is called after each event.
#[cfg(any(feature = "sim", all(test, not(loom))))]
pub(crate) fn go_on_once(cx: &mut Cx, between: impl Fn(&mut Cx)) -> Next {
    if cx.worker().core.is_retired() {
        go_on::<true>(cx, between)
    } else {
        go_on::<false>(cx, between)
    }
}

/// The same of a core that works, or is [`RETIRED`](crate::sched::retiring).
#[inline]
fn go_on<const RETIRED: bool>(cx: &mut Cx, between: impl Fn(&mut Cx)) -> Next {
    let ran = step::<RETIRED, _>(cx, between);
    #[cfg(feature = "tracing")]
    tell(cx);
    let worker = cx.worker();
    if worker.core.looks_up() {
        worker.with_source(|source, core| source.working_changed(core));
        return Next::Changed;
    }
    let phase = worker.inner.quiesce.phase();
    if phase == Phase::Over {
        // From here on it is in no handler, whatever ran last: who waits for it goes by that.
        worker.core.note_idle();
        return Next::Leave;
    }
    if let Some(stage) = phase.stage() {
        // At once and not when idle: a core whose peers keep it busy would never be.
        worker.follow(stage);
    }
    if ran == Stepped::Ran {
        worker.spin.has_run();
        return Next::Step;
    }
    if phase == Phase::Running && worker.inner.shared.idle.to_visit.any() {
        match worker.visit_others(false) {
            Visit::Nothing => {}
            Visit::Soon => return Next::Spin,
            Visit::Brought => return Next::Step,
        }
    }
    // A runtime that looks for its end must not spin past it, and a retired core has nothing to
    // spin for.
    if worker.spin.goes_on(worker.core.clock.now_ns()) && !worker.is_ending() && !RETIRED {
        return Next::Spin;
    }
    // It would announce that it sleeps, on lines that all cores share, only to find that it must
    // not.
    if !worker.is_ending() && worker.core.is_tempted() {
        yield_to_model();
        worker.spin.stays();
        return Next::Spin;
    }
    if worker.visit_others(true) != Visit::Nothing {
        worker.spin.stays();
        return Next::Spin;
    }
    let next = rest(worker, phase);
    if next != Next::Wait {
        worker.spin.stays();
    }
    next
}

/// Tells what the core has noted down. Not under a borrow of the worker: whoever listens is the
/// user's code, and may post.
#[cfg(feature = "tracing")]
fn tell(cx: &mut Cx) {
    let core = &mut cx.worker().core;
    if !core.notices.is_empty() {
        let (notices, core) = (std::mem::take(&mut core.notices), core.id.index());
        notices.tell(core);
    }
}

/// Lies down; or leaves, if a runtime that looks for its end has nothing left.
fn rest(worker: &mut Worker, phase: Phase) -> Next {
    let ending = phase != Phase::Running || worker.inner.config.exit_when_idle;
    if ending && !worker.core.has_outbox() {
        match worker.begin_rest() {
            Decided::Nothing => {}
            Decided::Stage => {
                worker.end_rest();
                worker.inner.begin_stage();
                return Next::Changed;
            }
            Decided::Over => {
                worker.inner.end();
                return Next::Leave;
            }
        }
    }
    if worker.lie_down(phase) {
        Next::Wait
    } else {
        Next::Changed
    }
}

/// Waits a little before the next look at the event source and at the others: some hundred
/// nanoseconds between looks keep the victims' lines mostly the victims'. (A pause takes from 10 to
/// 50 ns.) What is sent to this core it sees at once.
fn relax(core: &Core, oversubscribed: bool) {
    if oversubscribed {
        yield_now();
        return;
    }
    for _ in 0..PAUSES {
        if core.is_called() {
            return;
        }
        charge::pause();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Post;
    use crate::host::source::silence::Silence;
    use crate::sync::relaxed::AtomicU64;
    use crate::{Color, Runtime};
    use std::time::Duration;

    const SPIN_NS: u64 = 1_000;

    /// The only core of a runtime, whose steps and clock are the test's.
    struct Solo {
        worker: Worker,
        now_ns: Arc<AtomicU64>,
        runtime: Runtime,
    }

    impl Solo {
        fn new() -> Solo {
            let builder = Runtime::builder().cores(1).pin(false);
            let spin = Duration::from_nanos(SPIN_NS);
            let runtime = builder.spin(spin).build().unwrap();
            let inner = Arc::clone(&runtime.inner);
            let now_ns = Arc::new(AtomicU64::new(0));
            let clock = Clock::Virtual(Arc::clone(&now_ns));
            let source = Box::new(Silence::new());
            Solo {
                worker: Worker::new(inner, CoreId::of(0), clock, source),
                now_ns,
                runtime,
            }
        }

        fn step_at(&mut self, now_ns: u64) -> Next {
            self.now_ns.store(now_ns, Ordering::Relaxed);
            Cx::with(&mut self.worker, |cx| go_on_once(cx, |_| ()))
        }

        fn post(&self) {
            let poster = self.runtime.poster();
            poster.try_post(Color::from(1), |_cx| ()).unwrap();
        }

        /// Whether it is marked as asleep: in the list of sleepers, and in the word of its pokes.
        fn marks(&self) -> (bool, bool) {
            let shared = &self.runtime.inner.shared;
            let pokes = &shared.cores[0].pokes;
            let parked = pokes.unpark();
            assert!(!parked || pokes.park());
            (shared.idle.sleepers.contains(CoreId::of(0)), parked)
        }
    }

    #[test]
    fn a_core_lies_down_if_nothing_is_left_to_do() {
        let mut core = Solo::new();
        let inner = Arc::clone(&core.runtime.inner);
        let (vigil, cores) = (&inner.shared.idle.vigil, &inner.shared.cores);
        let _ = vigil.begin_busy(&cores[0]);
        let phase = inner.quiesce.phase();
        assert!(!core.worker.lie_down(Phase::Draining), "that has changed");
        assert_eq!(core.marks(), (false, false));
        assert!(vigil.any_busy(cores));
        assert!(core.worker.lie_down(phase));
        assert_eq!(core.marks(), (true, true));
        assert!(!vigil.any_busy(cores), "the watchdog may sleep");
        core.worker.rise();
        assert_eq!(core.marks(), (false, false));
        core.post();
        assert!(!core.worker.lie_down(phase), "it was called");
        assert_eq!(core.marks(), (false, false));
    }

    #[test]
    fn a_core_sleeps_when_it_found_nothing_for_as_long_as_it_spins() {
        let mut core = Solo::new();
        // It sleeps for no time at all, so it goes on spinning for as long.
        for begin_ns in [0, 10 * SPIN_NS] {
            assert_eq!(core.step_at(begin_ns), Next::Spin);
            let ran_ns = begin_ns + SPIN_NS / 2;
            core.post();
            assert_eq!(core.step_at(ran_ns), Next::Step);
            assert_eq!(core.step_at(ran_ns), Next::Spin);
            assert_eq!(core.step_at(ran_ns + SPIN_NS - 1), Next::Spin);
            assert_eq!(core.step_at(ran_ns + SPIN_NS), Next::Wait);
            core.worker.rise();
        }
    }

    #[cfg(feature = "sim")]
    #[test]
    fn a_core_that_is_left_is_not_this_threads_for_a_while() {
        let mut core = Solo::new();
        assert!(!cx::has_host());
        Cx::with(&mut core.worker, |_cx| {
            assert!(cx::has_host());
            assert!(!cx::outside(cx::has_host));
            assert!(cx::has_host());
        });
        assert!(!cx::has_host());
    }
}
