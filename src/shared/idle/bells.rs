//! Doorbells: what makes a core that sleeps wake up.
//!
//! Whoever turns a core's pokes from parked to awake ([`super`], [`crate::shared::remote::poke`])
//! *owes* it a ring. The ring comes after all locks are released.
//!
//! **Many at once.** A ring takes who rings some microseconds, so one core that wakes 127 others
//! keeps the last of them waiting for half a millisecond. Hence it shares out what it owes, if that
//! are more than [`RINGS`]: it puts those cores into the set of the *due*. Each core that wakes
//! up takes some of them out before it does anything else, and rings them; who has put them there
//! does the same meanwhile. Who takes a core out of the set rings it, or is that core. How a core
//! does so is in `src/sched/waking.rs`.
//!
//! What can never happen: a core that is owed a ring, is not due, and whom nobody is about to ring;
//! one that is due, while nobody is about to look at the set.

use super::core_set::CoreSet;
use crate::color::CoreId;
use crate::policy::numbers::RINGS;
use crate::sync::relaxed::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;
use std::sync::{Arc, RwLock};

/// Wakes a sleeping core; see [`super`] for who rings when.
pub(crate) trait Bell: Send + Sync + std::fmt::Debug {
    /// Makes the core's present or next wait return. Never lost; many may become one.
    fn ring(&self);
}

/// Where a doorbell hangs.
#[derive(Debug, Default)]
pub(crate) struct Hook {
    /// The lock is held for a copy only, also in models: loom need not see it.
    bell: RwLock<Option<Arc<dyn Bell>>>,
    /// When a core has last rung it, in ns, unless who was woken has seen that: 0.
    rung_ns: AtomicU64,
}

/// The doorbells of a runtime.
#[derive(Debug)]
pub(crate) struct Bells {
    /// One a core, hung up by its thread before it first sleeps; and the watchdog's.
    pub(crate) hooks: Box<[CachePadded<Hook>]>,
    /// Cores that are owed a ring by whoever takes them out.
    pub(crate) due: CoreSet,
}

impl Bells {
    /// None hangs yet.
    pub(crate) fn of(cores: usize) -> Bells {
        Bells {
            hooks: (0..=cores).map(|_| CachePadded::default()).collect(),
            due: CoreSet::none_of(cores),
        }
    }

    /// Gives a core its doorbell, once, before it first sleeps.
    pub(crate) fn hang(&self, core: CoreId, bell: Box<dyn Bell>) {
        let mut hook = self.hooks[core.index()].bell.write().unwrap();
        let before = hook.replace(bell.into());
        debug_assert!(before.is_none(), "core {core} has a doorbell already");
    }

    /// Gives the doorbells' descriptors back: posters may be kept for longer than the runtime. No
    /// core is there any more.
    pub(crate) fn take_down(&self) {
        for hook in &self.hooks {
            *hook.bell.write().unwrap() = None;
        }
    }

    /// The number of the watchdog's bell.
    pub(crate) fn watchdog(&self) -> CoreId {
        CoreId::of(self.hooks.len() - 1)
    }

    /// Rings a core's doorbell, or the watchdog's. Whoever has none has never slept, or has left.
    pub(crate) fn ring(&self, core: CoreId) {
        let bell = self.hooks[core.index()].bell.read().unwrap().clone();
        if let Some(bell) = bell {
            bell.ring();
        }
    }

    /// The same, by a core at this time.
    pub(crate) fn ring_at(&self, core: CoreId, now_ns: u64) {
        let rung_ns = &self.hooks[core.index()].rung_ns;
        rung_ns.store(now_ns, Ordering::Relaxed);
        self.ring(core);
    }

    /// The core looks when another has rung its doorbell, since it last looked.
    pub(crate) fn take_rung_ns(&self, core: CoreId) -> Option<u64> {
        let at_ns = &self.hooks[core.index()].rung_ns;
        let rung_ns = Some(at_ns.load(Ordering::Relaxed)).filter(|&ns| ns != 0)?;
        at_ns.store(0, Ordering::Relaxed);
        Some(rung_ns)
    }

    /// Rings these doorbells, without any lock, for a thread that is no core.
    pub(crate) fn ring_all(&self, cores: &[CoreId]) {
        if cores.len() > RINGS {
            cores.iter().for_each(|&core| self.due.set(core));
            self.ring_due();
        } else {
            cores.iter().for_each(|&core| self.ring(core));
        }
    }

    /// Rings all that are due.
    pub(crate) fn ring_due(&self) {
        while let Some(core) = self.due.take_from(CoreId::of(0)) {
            self.ring(core);
        }
    }
}

/// A doorbell for tests: counts how often it rings.
#[cfg(all(test, not(loom)))]
#[derive(Debug, Default)]
pub(crate) struct Rings(pub(crate) Arc<AtomicU64>);

#[cfg(all(test, not(loom)))]
impl Bell for Rings {
    fn ring(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
