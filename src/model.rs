//! Small worlds for the models in `loom-tests/`: the production scheduler with an event source that
//! completes nothing, a clock that stands still, and cores that run as loom threads or are stepped by
//! hand.
//!
//! Nothing here takes part in a protocol. It builds, starts and looks.

use crate::runtime::inner::{Config, Inner};
use crate::runtime::source::{NullBell, Source};
use crate::runtime::worker::{Worker, drive, enter};
use crate::sched::clock::Clock;
use crate::sched::lock::spin;
use crate::sched::policy::Policy;
use crate::sched::section::Section;
use crate::sched::shared::{Setup, Shared};
use crate::sched::turn::{Turn, turn};
use crate::sync::{Arc, relaxed};
use crate::topology::Distance;
use crate::{Color, Heuristics, OnPanic, Poster, Stealing};
use std::sync::OnceLock;
use std::time::Duration;

static FAULT: OnceLock<String> = OnceLock::new();

/// Chooses the seeded fault of this process, once.
pub fn set_fault(name: String) {
    FAULT.set(name).expect("one fault a process");
}

#[inline]
pub(crate) fn fault(name: &str) -> bool {
    FAULT.get().is_some_and(|chosen| chosen == name)
}

/// What a wake-up costs in a world, in ns: more than a steal (600 until one was measured), so that
/// handlers can be worth a steal and no wake-up.
pub const WAKE_COST_NS: u64 = 1_000;

/// What a world is made of.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The number of cores.
    pub cores: usize,
    /// Whether and how they steal.
    pub stealing: Stealing,
    /// Whether they leave when nothing is left to do.
    pub exit_when_idle: bool,
}

impl Plan {
    /// So many cores, which steal by all heuristics and stop when asked to.
    pub fn cores(cores: usize) -> Plan {
        Plan {
            cores,
            stealing: Stealing::On(Heuristics::ALL),
            exit_when_idle: false,
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
        let (stealing, heuristics) = match plan.stealing {
            Stealing::Off => (false, Heuristics::NONE),
            Stealing::On(heuristics) => (true, heuristics),
        };
        let cores = plan.cores as u32;
        let others = |core| (1..cores).map(move |i| ((core + i) % cores, Distance::SharedL1));
        let shared = Shared::new(Setup {
            slot_bits: crate::color::SLOT_BITS_MIN,
            victims: (0..cores).map(|core| others(core).collect()).collect(),
            policy: Policy {
                stealing,
                heuristics,
                batch: 10,
            },
            events_max: 1 << 10,
            wake_cost_ns: WAKE_COST_NS,
        });
        let config = Config {
            on_panic: OnPanic::Stop,
            panic_hook: None,
            slow: None,
            drain_deadline: Duration::ZERO,
            exit_when_idle: plan.exit_when_idle,
            spin_ns: 0,
            oversubscribed: false,
            pins: None,
        };
        World {
            inner: Arc::new(Inner::new(shared, config)),
            now_ns: Arc::new(relaxed::AtomicU64::new(0)),
        }
    }

    /// A core, to be stepped or driven by whichever thread takes it; each once.
    pub fn core(&self, id: usize) -> Core {
        let bell = NullBell::new();
        let shared = &self.inner.shared;
        shared.hang_bell(id as u32, Box::new(Arc::clone(&bell)));
        let clock = Clock::Virtual(Arc::clone(&self.now_ns));
        let inner = Arc::clone(&self.inner);
        let worker = Worker::new(inner, id as u32, clock, Source::Null(bell));
        Core(Box::new(worker))
    }

    /// A poster.
    pub fn poster(&self) -> Poster {
        Poster {
            inner: Arc::clone(&self.inner),
        }
    }

    /// Asks for the end.
    pub fn stop(&self) {
        self.inner.stop();
    }

    /// Ends at once, whatever is left.
    pub fn force(&self) {
        self.inner.force();
    }

    /// Whether the world has ended.
    pub fn ended(&self) -> bool {
        self.inner.ended()
    }

    /// The core that owns a color.
    pub fn owner(&self, color: Color) -> usize {
        let slots = &self.inner.shared.slots;
        slots.owner(slots.map.slot(color)) as usize
    }

    /// Walks all lists of all cores.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn assert_valid(&self) {
        let shared = &self.inner.shared;
        for core in 0..shared.cores.len() {
            Section::enter(shared, core as u32).assert_valid();
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

// SAFETY: a worker is used by one thread at a time; it moves between threads in models only, whole,
// and outside of events.
unsafe impl Send for Core {}

impl Core {
    /// What a core's thread does: turns, parks, reports, leaves.
    pub fn drive(&mut self) {
        drive(&mut self.0);
    }

    /// One step. True if events ran.
    pub fn turn(&mut self) -> bool {
        enter(&mut self.0, |cx| turn(cx, |_| ())) == Turn::Ran
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
