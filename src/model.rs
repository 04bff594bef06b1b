//! Small worlds for the models in `loom-tests/`: the production scheduler with an event source that
//! completes nothing, a clock that stands still, and cores that run as loom threads or are stepped
//! by hand.
//!
//! Nothing here takes part in a protocol. It builds, starts and looks.

use crate::clock::Clock;
use crate::color::CoreId;
use crate::color::HashKey;
use crate::event::node::Sort;
use crate::host::inner::{Config, Ended, Inner};
use crate::host::panics::InTurn;
use crate::host::panics::OnPanic;
use crate::host::quiesce::{Decided, Phase, Quiesce, Until};
use crate::host::source::silence::Silence;
use crate::host::source::{Above, Attached, Source, Visit};
use crate::host::sources::Watches;
use crate::host::stage::{Stage, StageLimits};
use crate::host::unique::UniqueColor;
use crate::host::watchdog::WatchdogBell;
use crate::host::worker::{Worker, drive};
use crate::policy::Policy;
use crate::policy::Stealing;
use crate::sched::section::Section;
use crate::sched::step::{Stepped, step};
use crate::shared::idle::bells::Bell;
use crate::shared::idle::wake_cost::WakeCost;
use crate::shared::remote::mail::has_mail_or_poke;
use crate::shared::{Setup, Shared};
use crate::sync::atomic::Ordering;
use crate::sync::lock::spin;
use crate::sync::{Arc, Condvar, Mutex, relaxed};
use crate::topology::Distance;
use crate::{Callback, Color, Cx, Handler, Poster, sched};
use std::collections::VecDeque;
use std::sync::{OnceLock, Weak};
use std::time::Duration;

/// Chooses the seeded fault of this process, once.
pub fn set_fault(name: String) {
    crate::sync::set_fault(name);
}

/// What a wake-up costs in a world, in ns: more than a steal (600 until one was measured), so that
/// handlers can be worth a steal and no wake-up.
pub const WAKE_COST_NS: u64 = 1_000;

/// A color that nobody else has, and that starts on this core, as one of a connection does.
pub fn unique_color_on(cx: &Cx, core: usize) -> UniqueColor {
    UniqueColor::issue(&cx.worker_ref().inner, core)
}

/// What a world is made of.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The number of cores.
    pub cores: usize,
    /// Whether and how they steal.
    pub stealing: Stealing,
    /// Whether they leave when nothing is left to do.
    pub exit_when_idle: bool,
    /// log2 of the number of color slots.
    pub slot_bits: u32,
}

impl Plan {
    /// This many cores, which steal by all heuristics and stop when asked to.
    pub const fn cores(cores: usize) -> Plan {
        Plan {
            cores,
            stealing: Stealing::ALL,
            exit_when_idle: false,
            slot_bits: crate::color::SLOT_BITS_MIN,
        }
    }
}

/// A runtime without threads.
#[derive(Debug)]
pub struct World {
    inner: Arc<Inner>,
    now_ns: Arc<relaxed::AtomicU64>,
}

impl World {
    /// A world in which nothing has happened yet.
    pub fn new(plan: Plan) -> World {
        let cores = plan.cores;
        let other = move |core| (CoreId::of(core % cores), Distance::SharedL1);
        let others = |core| (core + 1..core + cores).map(other);
        let shared = Shared::new(Setup {
            slot_bits: plan.slot_bits,
            hash_key: HashKey::from_seed(0),
            victims: (0..cores).map(|core| others(core).collect()).collect(),
            policy: Policy {
                stealing: plan.stealing,
                batch: 10,
                quantum_busy_ns: 600,
            },
            events_max: 1 << 10,
            makers: 1,
            wake_cost: WakeCost::fixed(WAKE_COST_NS),
            watch_at_once: false,
            recorder: None,
        });
        let config = Config {
            on_panic: OnPanic::Stop,
            panic_hook: None,
            slow: None,
            watch_period: Duration::MAX,
            drain_deadline: Duration::ZERO,
            stage_limits: StageLimits::default(),
            drain_hook: None,
            exit_when_idle: plan.exit_when_idle,
            spin_ns: 0,
            oversubscribed: false,
            pins: None,
        };
        World {
            inner: Arc::new(Inner::new(shared, config, Unattached)),
            now_ns: Arc::new(relaxed::AtomicU64::new(0)),
        }
    }

    /// A core, to be stepped or driven by whichever thread takes it; each once.
    pub fn core(&self, id: usize) -> Core {
        let silence = Silence::new();
        self.core_with(id, Box::new(Arc::clone(&silence)), Box::new(silence))
    }

    /// A core with an event source that completes what [`Wire`] is told.
    pub fn core_with_wire(&self, id: usize, wire: &Arc<Wire>) -> Core {
        wire.set_home(&self.inner, id);
        let _first =
            (self.inner.shared.idle.lookout).set(Box::new(Watches(Arc::downgrade(&self.inner))));
        let bell = Box::new(Arc::clone(wire));
        self.core_with(id, bell, Box::new(Arc::clone(wire)))
    }

    fn core_with(&self, id: usize, bell: Box<dyn Bell>, source: Box<dyn Source>) -> Core {
        self.inner.shared.idle.bells.hang(CoreId::of(id), bell);
        let clock = Clock::Virtual(Arc::clone(&self.now_ns));
        let inner = Arc::clone(&self.inner);
        Core(Box::new(Worker::new(inner, CoreId::of(id), clock, source)))
    }

    /// Moves the clock.
    pub fn pass(&self, ns: u64) {
        self.now_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Moves the clock, and then looks at the timers of `wire`, as a kernel does.
    pub fn advance(&self, ns: u64, wire: &Wire) {
        self.pass(ns);
        let _events = wire.events.lock().unwrap();
        wire.changed.notify_one();
    }

    /// A poster.
    pub fn poster(&self) -> Poster {
        Poster::of(&self.inner)
    }

    /// Asks for the end.
    pub fn stop(&self) {
        self.inner.stop();
    }

    /// There is a connection, somewhere: the end has all its stages.
    pub fn has_connections(&self) {
        self.inner.quiesce.has_connections();
    }

    /// Ends at once, whatever is left.
    pub fn force(&self) {
        self.inner.force();
    }

    /// Whether the world has ended.
    pub fn ended(&self) -> bool {
        self.inner.ended()
    }

    /// The watchdog sleeps until a core is busy.
    pub fn watchdog_sleeps(&self) {
        let shared = &self.inner.shared;
        shared.idle.bells.hang(
            shared.idle.bells.watchdog(),
            Box::new(WatchdogBell(Arc::downgrade(&self.inner))),
        );
        let outcome = self.inner.outcome.lock().unwrap();
        if shared.idle.vigil.falls_asleep(&shared.cores) {
            drop(self.inner.changed.wait(outcome).unwrap());
        }
        shared.idle.vigil.wakes();
    }

    /// The core that owns a color.
    pub fn owner(&self, color: Color) -> usize {
        let slots = &self.inner.shared.slots;
        slots.owner(slots.map.slot(color)).index()
    }

    /// The profiles of a handler: one for each type of closure that was posted under it.
    pub fn profiles(&self, handler: &'static Handler) -> usize {
        let of = |its: Option<&'static Handler>| its.is_some_and(|its| std::ptr::eq(its, handler));
        let profiles = self.inner.shared.profiles.iter();
        profiles.filter(|(_, profile)| of(profile.handler)).count()
    }

    /// Walks all lists of all cores.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn assert_valid(&self) {
        let shared = &self.inner.shared;
        for core in 0..shared.cores.len() {
            Section::enter(shared, CoreId::of(core)).assert_valid();
        }
    }

    /// Nothing is left anywhere: no event, no mail, no poke, no wish, and nobody who sleeps. Called
    /// when no core is in a step.
    ///
    /// # Panics
    /// If something is.
    pub fn assert_at_rest(&self) {
        self.assert_valid();
        let shared = &self.inner.shared;
        for (core, own) in (0..).map(CoreId::of).zip(&shared.cores) {
            assert_eq!(
                own.hint.queued(),
                0,
                "ORACLE: core {core} has colors queued"
            );
            assert!(!own.pokes.any(), "ORACLE: core {core} has pokes");
            assert!(
                !shared.idle.sleepers.contains(core) && !own.pokes.unpark(),
                "ORACLE: core {core} sleeps"
            );
        }
        for slot in shared.slots.ids() {
            let at = shared.slots.at(slot);
            assert!(
                !has_mail_or_poke(at),
                "ORACLE: slot {slot} has mail, or a poke's mark"
            );
            assert!(
                Section::of_slot(shared, slot).is_unused(slot),
                "ORACLE: slot {slot} is in use"
            );
            assert!(!at.wish.any(), "ORACLE: a wish for slot {slot} is left");
        }
    }

    /// Events accepted and not executed, once every core has left.
    pub fn events_left(&self) -> u64 {
        self.inner.events_left()
    }
}

/// One core of a world.
#[derive(Debug)]
pub struct Core(Box<Worker>);

impl Core {
    /// What a core's thread does: steps, parks, reports, leaves.
    pub fn drive(&mut self) {
        drive(&mut self.0);
    }

    /// The core has been awake for some time.
    pub fn become_busy(&mut self) {
        self.0.core.become_busy();
    }

    /// Announces that it sleeps, and looks again. False: there is something to do.
    pub fn lie_down(&mut self) -> bool {
        let phase = self.0.inner.quiesce.phase();
        self.0.lie_down(phase)
    }

    /// It sleeps until its doorbell rings.
    pub fn sleep(&mut self) {
        self.0.wait();
        self.rise();
    }

    /// It is woken.
    pub fn rise(&mut self) {
        self.0.wake_up();
    }

    /// One step, after which it looks up, if it is asked to. True if events ran.
    pub fn step(&mut self) -> bool {
        let stepped = Cx::with(&mut *self.0, |cx| {
            if cx.worker().core.is_retired() {
                step::<true, _>(cx, |_| ())
            } else {
                step::<false, _>(cx, |_| ())
            }
        });
        self.look_up();
        stepped == Stepped::Ran
    }

    /// Visits the event sources of other cores, as if it was told of each.
    pub fn visit(&mut self) {
        let (shared, id) = (&self.0.inner.shared, self.0.core.id);
        let others = shared.core(id).victims.iter();
        others.for_each(|&(other, _)| shared.idle.to_visit.set(other));
        let _brought = self.0.visit_others(true);
    }

    /// Looks up, if it is asked to: from then on it may be retired, or work again.
    pub fn look_up(&mut self) {
        let _changed = self.0.core.looks_up();
    }
}

/// An event source for models: other threads say what completes on it, and its core sleeps on it
/// until something has, a timer is due, or the doorbell rings. It has what the contract of the real
/// ones says, and a lock where they have a kernel.
#[derive(Debug)]
pub struct Wire {
    events: Mutex<Events>,
    changed: Condvar,
    /// Whose it is.
    home: OnceLock<(Weak<Inner>, CoreId)>,
}

#[derive(Debug, Default)]
struct Events {
    rung: bool,
    /// Somebody is told when something completes.
    watched: bool,
    /// Operations that are not completed yet.
    under_way: usize,
    completed: VecDeque<Completed>,
    /// When it is due, and what happens then.
    timer: Option<(u64, Completed)>,
}

/// What a completion is turned into.
struct Completed(Box<dyn FnOnce(&mut sched::core::Core) + Send>);

impl std::fmt::Debug for Completed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Completed")
    }
}

impl Completed {
    fn posts<F: FnOnce(&mut Cx) + Send + 'static>(callback: Callback<F>) -> Completed {
        Completed(Box::new(move |core| {
            let Callback { handler, color, f } = callback;
            let posted = core.post_sort(handler, color, f, Sort::ORDINARY, |f| f);
            assert!(posted.is_ok(), "the world is not full");
        }))
    }
}

impl Wire {
    /// With this many operations under way.
    pub fn new(under_way: usize) -> Arc<Wire> {
        let events = Events {
            under_way,
            ..Events::default()
        };
        Arc::new(Wire {
            events: Mutex::new(events),
            changed: Condvar::new(),
            home: OnceLock::new(),
        })
    }

    /// One of the operations completes, and becomes this event.
    pub fn complete<F: FnOnce(&mut Cx) + Send + 'static>(&self, callback: Callback<F>) {
        let mut events = self.events.lock().unwrap();
        events.under_way -= 1;
        events.completed.push_back(Completed::posts(callback));
        self.changed.notify_one();
        let watched = std::mem::take(&mut events.watched);
        drop(events);
        if watched && let Some((inner, core)) = self.home.get() {
            // What the thread does that is told.
            inner
                .upgrade()
                .expect("the world is there")
                .shared
                .seen(*core);
        }
    }

    fn set_home(&self, inner: &Arc<Inner>, core: usize) {
        let home = (Arc::downgrade(inner), CoreId::of(core));
        assert!(self.home.set(home).is_ok(), "a wire is one core's");
    }

    /// Arms the one timer, before its core runs.
    pub fn at<F: FnOnce(&mut Cx) + Send + 'static>(&self, ns: u64, callback: Callback<F>) {
        let timer = Some((ns, Completed::posts(callback)));
        self.events.lock().unwrap().timer = timer;
    }
}

/// No network.
#[derive(Debug)]
pub(crate) struct Unattached;

impl Above for Inner {
    type Driver = ();
    type Attached = Unattached;
}

impl Attached for Unattached {
    fn drop_callbacks(&self, _ended: &mut Ended<'_>, _drops: &mut InTurn) {}
}

impl Source for Arc<Wire> {
    fn look(&mut self, core: &mut sched::core::Core) {
        let mut events = self.events.lock().unwrap();
        let mut completed = std::mem::take(&mut events.completed);
        if events.is_due(&core.clock) {
            completed.extend(events.timer.take().map(|(_, timer)| timer));
        }
        drop(events);
        completed
            .into_iter()
            .for_each(|completed| completed.0(core));
    }

    /// One of them, so that the order of two is explored.
    fn visit(&mut self, visitor: &mut sched::core::Core) -> Visit {
        let first = self.events.lock().unwrap().completed.pop_front();
        let Some(first) = first else {
            return Visit::Nothing;
        };
        first.0(visitor);
        Visit::Brought
    }

    fn watch(&mut self) -> bool {
        let mut events = self.events.lock().unwrap();
        events.watched = true;
        !events.completed.is_empty()
    }

    fn has_work(&mut self) -> bool {
        !self.events.lock().unwrap().completed.is_empty()
    }

    fn begin_stage(&mut self, _stage: Stage, _core: &mut sched::core::Core) {}

    fn is_quiet(&self) -> bool {
        let events = self.events.lock().unwrap();
        let quiet = events.under_way == 0 && events.completed.is_empty() && events.timer.is_none();
        quiet || crate::sync::fault("event source not asked")
    }

    fn wait(&mut self, core: &sched::core::Core) {
        let mut events = self.events.lock().unwrap();
        while !events.rung && events.completed.is_empty() && !events.is_due(&core.clock) {
            events = self.changed.wait(events).unwrap();
        }
        events.rung = false;
    }
}

impl Events {
    fn is_due(&self, clock: &Clock) -> bool {
        let timer = self.timer.as_ref();
        timer.is_some_and(|&(at_ns, _)| at_ns <= clock.now_ns())
    }
}

impl Bell for Arc<Wire> {
    fn ring(&self) {
        self.events.lock().unwrap().rung = true;
        self.changed.notify_one();
    }
}

/// How a run ends, without its cores.
#[derive(Debug)]
pub struct Ending(Quiesce);

impl Ending {
    /// Of a run on this number of cores, in which nothing was posted yet.
    pub fn of(cores: usize) -> Ending {
        Ending(Quiesce::new(cores))
    }

    /// Of one whose end has all stages, and is in the one to drain, into which all have followed.
    pub fn in_stages(cores: usize) -> Ending {
        let ending = Ending::of(cores);
        ending.0.has_connections();
        ending.stop();
        let received = (0..cores).filter(|_| ending.0.received()).count();
        assert_eq!(received, 1, "the last one ends the stage");
        (0..cores).for_each(|core| ending.drains(core));
        ending
    }

    /// A core rests, and has posted and executed these numbers of events since it did last. True:
    /// the run is over.
    pub fn rest(&self, core: usize, posted: u64, executed: u64) -> bool {
        self.0.rest(CoreId::of(core), posted, executed) == Decided::Over
    }

    /// The same; true if that ends a stage.
    pub fn rest_in_stage(&self, core: usize, posted: u64, executed: u64) -> bool {
        self.0.rest(CoreId::of(core), posted, executed) == Decided::Stage
    }

    /// The event source of a core, which does not rest, knows of one more stage.
    pub fn follows(&self, core: usize) {
        self.0.follows(CoreId::of(core));
    }

    /// The name of the stage.
    pub fn stage(&self) -> Option<&'static str> {
        self.0.phase().stage().map(Stage::name)
    }

    /// A core runs something.
    pub fn run(&self, core: usize) {
        self.0.end_rest(CoreId::of(core));
    }

    /// The end is asked for.
    pub fn stop(&self) {
        let _first = self.0.drain();
    }

    /// The event source of a core, which does not rest, knows that.
    pub fn drains(&self, core: usize) {
        for _stage in [Stage::Receive, Stage::Drain] {
            self.follows(core);
        }
    }

    /// Posts from outside. False: it is refused.
    pub fn post(&self) -> bool {
        self.0.foreign_post(Until::Stop)
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.0.phase() == Phase::Over
    }
}

/// The spin lock that other models replace by loom's mutex.
#[derive(Debug)]
pub struct SpinLock<T>(spin::CoreLock<T>);

impl<T> SpinLock<T> {
    /// A free lock.
    pub fn new(value: T) -> SpinLock<T> {
        SpinLock(spin::CoreLock::new(value))
    }

    /// Runs `f` with the lock held.
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.0.lock())
    }

    /// Runs `f` with the lock held, if it is free.
    pub fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.0.try_lock().map(|mut value| f(&mut value))
    }
}
