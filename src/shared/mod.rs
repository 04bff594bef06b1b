//! What the cores of a runtime share: the queues that Mely's paper draws, under a lock for each
//! core, and the words that cores write to each other without one. What a core does with them is in
//! [`crate::sched`], a higher layer, which no code here names.
//!
//! [`queue`] is what is under a core's lock. The rest is without one: [`remote`] is how a core is
//! reached by others, [`idle`] how cores search, sleep and are woken, [`load`] what a core shows of
//! its work. This file is all of it in one place: what all threads see of a runtime, and of a core.
//!
//! What can never happen: published events that no list, checkout, loot, mailbox or gate leads to;
//! mail without a poke; a core asleep while a poke is on its way to it; a change of owner without
//! the old owner's lock.

pub(crate) mod idle;
pub(crate) mod load;
pub(crate) mod queue;
pub(crate) mod remote;

use self::load::hint::Hint;
use self::load::progress::Progress;
use self::load::stats::CoreCounters;
use self::load::steal_costs::StealCosts;
use self::queue::limits::Limits;
use self::queue::queues::Queues;
use self::queue::slots::{Guarded, Slots};
use self::remote::mail;
use self::remote::poke::Pokes;
use self::remote::working::Working;
use crate::color::{ColorMap, CoreId, HashKey, SlotId};
use crate::event::counts::Counts;
use crate::event::fifo::Fifo;
use crate::event::makers::Makers;
use crate::event::pool::Depot;
use crate::event::profile::Profiles;
use crate::gate::Gates;
use crate::policy::Policy;
use crate::policy::numbers::STEAL_NS;
use crate::record::Recorder;
use crate::shared::idle::Idle;
#[cfg(doc)]
use crate::shared::idle::vigil::Vigil;
use crate::shared::idle::wake_cost::WakeCost;
use crate::sync::atomic::AtomicBool;
use crate::sync::lock::CoreLock;
use crate::sync::{Arc, Mutex};
use crossbeam_utils::CachePadded;
use mely_topology::Distance;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// What a core shows the others, each on lines of its own: what its thread writes every quantum
/// must not share a line with what others poll.
#[derive(Debug)]
pub(crate) struct CoreShared {
    pub(crate) lock: CoreLock<Queues>,
    pub(crate) pokes: CachePadded<Pokes>,
    pub(crate) hint: CachePadded<Hint>,
    pub(crate) progress: CachePadded<Progress>,
    /// See [`crate::shared::idle::vigil`].
    pub(crate) busy: CachePadded<AtomicBool>,
    pub(crate) stats: CachePadded<CoreCounters>,
    pub(crate) counts: Counts,
    pub(crate) steal_costs: CachePadded<StealCosts>,
    /// Other cores by distance, the nearest first.
    pub(crate) victims: Vec<(CoreId, Distance)>,
}

/// One runtime, as all its threads and posters see it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) slots: Slots,
    /// Each in an `Arc` of its own, so that a core's thread reaches its own directly.
    pub(crate) cores: Box<[Arc<CoreShared>]>,
    pub(crate) profiles: Profiles,
    pub(crate) gates: Gates,
    /// Whoever has it posts to several colors at once; see [`crate::sched::together`].
    pub(crate) together: CachePadded<Mutex<()>>,
    pub(crate) depot: Arc<Depot>,
    /// What threads that are no cores make their events with.
    pub(crate) foreign: Makers,
    pub(crate) policy: Policy,
    pub(crate) working: CachePadded<Working>,
    pub(crate) idle: Idle,
    /// Where the run is recorded, if it is.
    pub(crate) recorder: Option<Arc<Recorder>>,
}

/// What [`Shared::new`] needs to know.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) slot_bits: u32,
    pub(crate) hash_key: HashKey,
    /// For each core the others by distance.
    pub(crate) victims: Vec<Vec<(CoreId, Distance)>>,
    pub(crate) policy: Policy,
    pub(crate) events_max: usize,
    /// Makers for threads that are no cores.
    pub(crate) makers: usize,
    pub(crate) wake_cost: WakeCost,
    /// See [`Vigil::at_once`].
    pub(crate) watch_at_once: bool,
    /// Where the run is recorded, if it is to be.
    pub(crate) recorder: Option<Arc<Recorder>>,
}

impl Shared {
    pub(crate) fn new(mut setup: Setup) -> Shared {
        let cores = setup.victims.len();
        // A single core need not keep what only thieves ask for.
        setup.policy.stealing.enabled &= cores > 1;
        let map = ColorMap::new(setup.slot_bits, cores, setup.hash_key);
        let limits = Limits::new(STEAL_NS.into(), setup.wake_cost.ns(), &setup.policy, map);
        // One for each core, and those of foreign threads.
        let pools = cores + setup.makers;
        let depot = Depot::new(setup.events_max, pools);
        Shared {
            slots: Slots::new(map),
            cores: setup
                .victims
                .into_iter()
                .map(|victims| {
                    Arc::new(CoreShared {
                        lock: CoreLock::new(Queues::new(limits)),
                        pokes: CachePadded::default(),
                        hint: CachePadded::default(),
                        progress: CachePadded::new(Progress::new()),
                        busy: CachePadded::new(AtomicBool::new(setup.watch_at_once)),
                        stats: CachePadded::new(CoreCounters::default()),
                        counts: Counts::new(),
                        steal_costs: CachePadded::new(StealCosts::new()),
                        victims,
                    })
                })
                .collect(),
            profiles: Profiles::new(setup.recorder.is_some()),
            gates: Gates::new(map.slots()),
            together: CachePadded::new(Mutex::new(())),
            foreign: Makers::new(setup.makers, &depot, setup.recorder.clone()),
            depot,
            policy: setup.policy,
            working: CachePadded::new(Working::all(cores)),
            idle: Idle::new(cores, setup.watch_at_once, setup.wake_cost),
            recorder: setup.recorder,
        }
    }

    /// What this core shows the others.
    #[inline(always)]
    pub(crate) fn core(&self, core: CoreId) -> &Arc<CoreShared> {
        &self.cores[core.index()]
    }

    /// What the critical sections of a core judge by, as of now.
    pub(crate) fn limits(&self, core: CoreId) -> Limits {
        Limits::new(
            self.reference_cost_ns(core),
            self.idle.wake_cost.ns(),
            &self.policy,
            self.slots.map,
        )
    }

    /// The steal cost that decides about worth and bands on this core: that of its nearest thief.
    #[inline]
    pub(crate) fn reference_cost_ns(&self, core: CoreId) -> u64 {
        match self.core(core).victims.first() {
            Some(&(thief, distance)) => self.core(thief).steal_costs.ns(distance),
            None => STEAL_NS.into(),
        }
    }
}

impl Shared {
    /// Drops the closures in queues and mailboxes and at gates, and tells how many there were. No
    /// core runs any more; foreign threads may still push, and look.
    pub(crate) fn discard(&self) -> u64 {
        let (mut discarded, mut panic) = (0, None);
        for slot in self.slots.ids() {
            if self.slots.at(slot).was_never_used() {
                continue;
            }
            let fifo = self.take_rest(slot);
            discarded += self.discard_all(fifo, &mut panic);
        }
        for fifo in self.gates.take_all() {
            discarded += self.discard_all(fifo, &mut panic);
        }
        // When all are dropped; nobody hears of a second panic at a time.
        if let Some(panic) = panic
            && !std::thread::panicking()
        {
            resume_unwind(panic);
        }
        discarded
    }

    /// Takes everything out of a color: nobody wants its poke, and no list is looked at any more.
    fn take_rest(&self, slot: SlotId) -> Fifo {
        let mut guarded = Guarded::of_slot(self, slot);
        let mut queue = guarded.colors.at(slot);
        mail::take_rest(&self.slots, slot, &mut queue.fifo);
        queue.fifo.take()
    }

    /// Drops the closures of all. One that panics keeps no other from being dropped.
    fn discard_all(&self, mut fifo: Fifo, panic: &mut Option<Box<dyn Any + Send>>) -> u64 {
        let mut discarded = 0;
        while let Some(event) = fifo.pop() {
            // No lock is held while the user's `Drop` runs.
            let discard = || self.profiles.discard(event);
            // In a model a panic is a finding.
            if cfg!(loom) {
                discard();
            } else if let Err(payload) = catch_unwind(AssertUnwindSafe(discard)) {
                panic.get_or_insert(payload);
            }
            discarded += 1;
        }
        discarded
    }
}

impl Drop for Shared {
    /// Drops what a runtime that was cut short left behind.
    fn drop(&mut self) {
        self.discard();
    }
}
