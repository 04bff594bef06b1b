//! What all cores of a runtime share.

use super::limits::Limits;
use super::lock::CoreLock;
use super::poke::Pokes;
use super::policy::Policy;
use super::queues::Queues;
use super::section::Section;
use super::sleepers::Sleepers;
use super::slots::Slots;
use super::stats::CoreCounters;
use super::vigil::Vigil;
use crate::color::{ColorMap, HashKey};
use crate::event::counts::Counts;
use crate::event::fifo::Fifo;
use crate::event::makers::{self, Makers};
use crate::event::pool::Depot;
use crate::event::profile::Profiles;
use crate::event::tag::ProfileId;
use crate::gate::Gates;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use crate::sync::relaxed;
use crate::sync::{Arc, fault};
use crossbeam_utils::CachePadded;
use mely_topology::Distance;
use std::sync::RwLock;

/// What a core shows the others, each on lines of its own: what its thread writes every quantum
/// must not share a line with what others poll.
#[derive(Debug)]
pub(crate) struct CoreShared {
    pub(crate) lock: CachePadded<CoreLock<Queues>>,
    pub(crate) pokes: CachePadded<Pokes>,
    pub(crate) hint: CachePadded<Hint>,
    pub(crate) progress: CachePadded<Progress>,
    /// See [`super::vigil`].
    pub(crate) busy: CachePadded<AtomicBool>,
    pub(crate) stats: CachePadded<CoreCounters>,
    pub(crate) counts: Counts,
    /// Other cores by distance, the nearest first.
    pub(crate) victims: Vec<(u32, Distance)>,
}

/// What there is to steal: read plainly by thieves and would-be sleepers, written under the lock.
#[derive(Debug)]
pub(crate) struct Hint {
    worth_ns: AtomicU64,
    stealable: AtomicU32,
    queued: AtomicU32,
    lasting: relaxed::AtomicU32,
    asked: relaxed::AtomicU32,
    events: relaxed::AtomicU64,
}

impl Hint {
    fn new() -> Hint {
        Hint {
            worth_ns: AtomicU64::new(0),
            stealable: AtomicU32::new(0),
            queued: AtomicU32::new(0),
            lasting: relaxed::AtomicU32::new(0),
            asked: relaxed::AtomicU32::new(0),
            events: relaxed::AtomicU64::new(0),
        }
    }

    #[inline]
    pub(crate) fn write(&self, worth_ns: u64, queues: &Queues) {
        let (queued, events) = (queues.core_queue.len, queues.core_queue.events);
        let stealable = queues.core_queue.stealable();
        let lasting = queues.all_lasting();
        // What is unchanged is not stored: others poll this line, and a store takes it from them
        // and costs a transfer each way. One writer at a time, under the lock, so what it reads is
        // the latest.
        if self.queued.load(Ordering::Relaxed) != queued {
            self.queued.store(queued, Ordering::Relaxed);
        }
        if self.lasting.load(Ordering::Relaxed) != lasting {
            self.lasting.store(lasting, Ordering::Relaxed);
        }
        if self.events.load(Ordering::Relaxed) != events {
            self.events.store(events, Ordering::Relaxed);
        }
        if self.stealable.load(Ordering::Relaxed) != stealable {
            self.stealable.store(stealable, Ordering::Relaxed);
        }
        if self.worth_ns.load(Ordering::Relaxed) != worth_ns {
            self.worth_ns.store(worth_ns, Ordering::Release);
        }
    }

    /// Time-left of the worthy colors in ns, as of the last critical section.
    #[inline]
    pub(crate) fn worth_ns(&self) -> u64 {
        self.worth_ns.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn stealable(&self) -> u32 {
        self.stealable.load(Ordering::Relaxed)
    }

    /// Colors in the core-queue, as of the last critical section. A thief may remove some, or link
    /// some whose mail it took: then it nudges the owner.
    #[inline]
    pub(crate) fn queued(&self) -> u32 {
        self.queued.load(Ordering::Relaxed)
    }

    /// Stealable colors that last, checked out or not.
    pub(crate) fn lasting(&self) -> u32 {
        self.lasting.load(Ordering::Relaxed)
    }

    /// Asks the core to leave some of those in its core-queue, or no longer.
    pub(crate) fn ask(&self, asked: bool) {
        if self.is_asked() != asked {
            self.asked.store(asked.into(), Ordering::Relaxed);
        }
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed) != 0
    }

    /// Stealable events, for the base algorithm's fullest-first order and for reports.
    #[inline]
    pub(crate) fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }
}

/// How a core is getting on: a thief that sees it unchanged for a steal's cost knows that the core
/// is inside one handler, without a clock on the core's side. And what it is asked for meanwhile.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Why the core does something before its next event: [`Progress::SAMPLE`],
    /// [`Progress::LOOK_UP`].
    attention: relaxed::AtomicU32,
    /// Counts turns begun, long handlers begun and ended, and rests.
    turns: AtomicU64,
    /// In a handler known or feared to be long. A hint of the core's own, which spares thieves the
    /// wait to find out.
    long: AtomicU32,
    /// The profile of the event that runs, plus one; 0 once the core found nothing to run. For
    /// reports and the watchdog.
    running: relaxed::AtomicU32,
}

impl Progress {
    /// The events of this turn are timed.
    const SAMPLE: u32 = 1;
    /// Somebody asks the core to *look up*: to end its quantum, and to look at its event source and
    /// at how far the runtime is.
    const LOOK_UP: u32 = 2;

    fn new() -> Progress {
        Progress {
            attention: relaxed::AtomicU32::new(0),
            turns: AtomicU64::new(0),
            long: AtomicU32::new(0),
            running: relaxed::AtomicU32::new(0),
        }
    }

    /// Whether there is anything to be done before the next event.
    #[inline(always)]
    pub(crate) fn wants_attention(&self) -> bool {
        self.attention.load(Ordering::Relaxed) != 0
    }

    /// Whether the events of this turn are to be timed.
    pub(crate) fn sample(&self, sample: bool) {
        if sample {
            self.attention.fetch_or(Progress::SAMPLE, Ordering::Relaxed);
        } else {
            self.attention
                .fetch_and(!Progress::SAMPLE, Ordering::Relaxed);
        }
    }

    /// Asks the core to look up. What the caller wrote before, the core sees when it does.
    pub(crate) fn ask_to_look_up(&self) {
        self.attention
            .fetch_or(Progress::LOOK_UP, Ordering::Release);
    }

    pub(crate) fn is_asked_to_look_up(&self) -> bool {
        self.attention.load(Ordering::Relaxed) & Progress::LOOK_UP != 0
    }

    /// The core does look up: whoever asks from now on asks anew. Returns whether anybody had
    /// asked.
    #[inline(always)]
    pub(crate) fn looks_up(&self) -> bool {
        // A read-modify-write, so that a question that comes at this moment is either answered now,
        // with what was written before it, or left.
        self.is_asked_to_look_up()
            && self
                .attention
                .fetch_and(!Progress::LOOK_UP, Ordering::AcqRel)
                & Progress::LOOK_UP
                != 0
    }

    /// Notes what runs.
    #[inline]
    pub(crate) fn running(&self, profile: Option<ProfileId>) {
        let noted = profile.map_or(0, |profile| profile.index() as u32 + 1);
        self.running.store(noted, Ordering::Relaxed);
    }

    /// The profile of the event that runs.
    pub(crate) fn profile(&self) -> Option<ProfileId> {
        let place = self.running.load(Ordering::Relaxed).checked_sub(1)?;
        ProfileId::new(place as usize)
    }

    /// The next color begins.
    #[inline(always)]
    pub(crate) fn step(&self) {
        // One writer: a load and a store.
        self.turns.store(
            self.turns.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Relaxed,
        );
    }

    /// A handler known or feared to be long begins, or ends.
    pub(crate) fn long(&self, long: bool) {
        self.step();
        self.long.store(long.into(), Ordering::Release);
    }

    pub(crate) fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    pub(crate) fn is_long(&self) -> bool {
        self.long.load(Ordering::Acquire) != 0
    }
}

/// The steal cost before anything was measured, in ns; and the bounds of what is believed.
const STEAL_COST_PRIOR_NS: u32 = 600;
const STEAL_COST_MIN_NS: u32 = 100;
const STEAL_COST_MAX_NS: u32 = 20_000;

/// One runtime, as all its threads and posters see it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) slots: Slots,
    /// Counted singly, so that each core's thread has its own at hand.
    pub(crate) cores: Box<[Arc<CoreShared>]>,
    pub(crate) profiles: Profiles,
    pub(crate) gates: Gates,
    pub(crate) depot: Arc<Depot>,
    /// What threads that are no cores make their events with.
    pub(crate) foreign: Makers,
    pub(crate) policy: Policy,
    pub(crate) sleepers: Sleepers,
    pub(crate) vigil: CachePadded<Vigil>,
    /// Cores without work that look for some, until they find it or sleep. On a line of its own,
    /// like everything here that changes: the rest is what each core reads for each event.
    pub(crate) searching: CachePadded<AtomicU32>,
    steal_cost_ns: CachePadded<[relaxed::AtomicU32; Distance::COUNT]>,
    /// What a wake-up costs: less than this in sight wakes nobody, in ns.
    pub(crate) wake_cost_ns: u64,
    /// One a core, hung up by its thread before it first sleeps; and the watchdog's.
    bells: Box<[Hook]>,
}

/// Where a doorbell hangs. The lock is held for a copy only, also in models: loom need not see it.
type Hook = RwLock<Option<std::sync::Arc<dyn Bell>>>;

/// Wakes a sleeping core; see [`super::sleepers`] for who rings when.
pub(crate) trait Bell: Send + Sync + std::fmt::Debug {
    /// Makes the core's present or next wait return. Never lost; many may become one.
    fn ring(&self);
}

/// What [`Shared::new`] needs to know.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) slot_bits: u32,
    pub(crate) hash_key: HashKey,
    /// For each core the others by distance.
    pub(crate) victims: Vec<Vec<(u32, Distance)>>,
    pub(crate) policy: Policy,
    pub(crate) events_max: usize,
    pub(crate) wake_cost_ns: u64,
    /// See [`Vigil::at_once`].
    pub(crate) watch_at_once: bool,
}

impl Shared {
    pub(crate) fn new(mut setup: Setup) -> Shared {
        let cores = setup.victims.len();
        // A single core need not keep what only thieves ask for.
        setup.policy.stealing &= cores > 1;
        let map = ColorMap::new(setup.slot_bits, cores, setup.hash_key);
        let limits = Limits::new(
            STEAL_COST_PRIOR_NS.into(),
            &setup.policy,
            setup.wake_cost_ns,
            map,
        );
        // One for each core, and those of foreign threads.
        let pools = cores + makers::count(setup.events_max);
        let depot = Depot::new(setup.events_max, pools);
        Shared {
            slots: Slots::new(map),
            cores: setup
                .victims
                .into_iter()
                .map(|victims| {
                    Arc::new(CoreShared {
                        lock: CachePadded::new(CoreLock::new(Queues::new(limits))),
                        pokes: CachePadded::new(Pokes::new()),
                        hint: CachePadded::new(Hint::new()),
                        progress: CachePadded::new(Progress::new()),
                        busy: CachePadded::new(AtomicBool::new(setup.watch_at_once)),
                        stats: CachePadded::new(CoreCounters::default()),
                        counts: Counts::new(),
                        victims,
                    })
                })
                .collect(),
            profiles: Profiles::new(),
            gates: Gates::new(map.slots()),
            foreign: Makers::new(setup.events_max, &depot),
            depot,
            policy: setup.policy,
            sleepers: Sleepers::new(cores),
            vigil: CachePadded::new(Vigil::new(setup.watch_at_once)),
            searching: CachePadded::new(AtomicU32::new(0)),
            steal_cost_ns: CachePadded::new(std::array::from_fn(|_| {
                relaxed::AtomicU32::new(STEAL_COST_PRIOR_NS)
            })),
            wake_cost_ns: setup.wake_cost_ns,
            bells: (0..=cores).map(|_| RwLock::new(None)).collect(),
        }
    }

    /// Whether a core is idle: it searches, or sleeps.
    pub(crate) fn is_any_idle(&self) -> bool {
        self.searching.load(Ordering::Relaxed) > 0 || self.sleepers.any()
    }

    /// Gives a core its doorbell, once, before it first sleeps.
    pub(crate) fn hang_bell(&self, core: u32, bell: Box<dyn Bell>) {
        let before = self.bells[core as usize]
            .write()
            .unwrap()
            .replace(bell.into());
        debug_assert!(before.is_none(), "core {core} has a doorbell already");
    }

    /// Gives the doorbells' descriptors back: posters may be kept for longer than the runtime. No
    /// core is there any more.
    pub(crate) fn take_bells_down(&self) {
        for bell in &self.bells {
            *bell.write().unwrap() = None;
        }
    }

    /// The number of the watchdog's bell.
    pub(crate) fn watchdog(&self) -> u32 {
        self.cores.len() as u32
    }

    /// Rings a core's doorbell, or the watchdog's. Whoever has none has never slept, or has left.
    pub(crate) fn ring(&self, core: u32) {
        let bell = self.bells[core as usize].read().unwrap().clone();
        if let Some(bell) = bell {
            bell.ring();
        }
    }

    /// Wakes every core, after the phase or the wave changed.
    pub(crate) fn wake_all(&self) {
        // Pairs with the fence of a core on its way to sleep: it sees the change, or we see it
        // parked.
        if !fault("fence before waking all skipped") {
            fence(Ordering::SeqCst);
        }
        for (core, shared) in self.cores.iter().enumerate() {
            if shared.pokes.unpark() {
                self.ring(core as u32);
                if fault("only one woken") {
                    return;
                }
            }
        }
    }

    /// The measured cost of stealing over this distance, in ns: a moving average.
    #[inline]
    pub(crate) fn steal_cost_ns(&self, distance: Distance) -> u64 {
        self.steal_cost_ns[distance.index()]
            .load(Ordering::Relaxed)
            .into()
    }

    /// Records a successful steal: what each color of it took, in ns.
    pub(crate) fn record_steal(&self, distance: Distance, ns: u64) {
        let cell = &self.steal_cost_ns[distance.index()];
        let old = cell.load(Ordering::Relaxed);
        // A thief that lost its processor under way measured the system, not the steal.
        let ns = (ns.min(u64::from(old) * 8) as u32).clamp(STEAL_COST_MIN_NS, STEAL_COST_MAX_NS);
        let new = i64::from(old) + (i64::from(ns) - i64::from(old)) / 8;
        cell.store(new as u32, Ordering::Relaxed);
    }

    /// What the critical sections of a core judge by, as of now.
    pub(crate) fn limits(&self, core: u32) -> Limits {
        Limits::new(
            self.reference_cost_ns(core),
            &self.policy,
            self.wake_cost_ns,
            self.slots.map,
        )
    }

    /// The steal cost that decides about worth and bands on this core: that of its nearest thief.
    #[inline]
    pub(crate) fn reference_cost_ns(&self, core: u32) -> u64 {
        match self.cores[core as usize].victims.first() {
            Some(&(_, distance)) => self.steal_cost_ns(distance),
            None => STEAL_COST_PRIOR_NS.into(),
        }
    }
}

impl Shared {
    /// Drops the closures in queues and mailboxes and at gates, and tells how many there were. No
    /// core runs any more; foreign threads may still push, and look.
    pub(crate) fn discard(&self) -> u64 {
        let mut discarded = 0;
        for slot in self.slots.ids() {
            if self.slots.at(slot).was_never_used() {
                continue;
            }
            let fifo = Section::of_slot(self, slot).take_rest(slot);
            discarded += self.discard_all(fifo);
        }
        for fifo in self.gates.take_all() {
            discarded += self.discard_all(fifo);
        }
        discarded
    }

    fn discard_all(&self, mut fifo: Fifo) -> u64 {
        let mut discarded = 0;
        while let Some(mut event) = fifo.pop() {
            let (_, tag) = event.color_and_tag();
            let vtable = self.profiles.get(tag.profile()).vtable;
            // SAFETY: the vtable of the profile that the event names. No lock is held while the
            // user's `Drop` runs.
            unsafe { (vtable.discard)(event) };
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
