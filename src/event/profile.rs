//! What the runtime knows of each handler: how long its events take.
//!
//! A profile belongs to a handler and a closure type (anonymous closures: to the closure type
//! alone) and is shared by all cores: tables per core went blind whenever a color migrated. The
//! mean and the mean deviation are moving averages of sampled runs; an annotation is their prior
//! (Mely §IV-B has annotations only; measuring them is its future work).
//!
//! What is measured decides about neither ownership nor order, so its cells are `relaxed` ones, and
//! two cores that update a mean at once may lose a sample. The table does: its entries are
//! published.
//!
//! **Many cores.** Every core reads a profile for each post and each run, and a line that one core
//! writes is fetched anew by all. So a profile is two lines. The one that all read has what
//! follows from the means, stored when it differs by more than a sixteenth from what is there. The
//! *samples* are on the other, which is fetched from another core for each: so a core leaves out
//! the more runs, the more cores there are ([`super::lot`]). What is recorded always: the first
//! runs, what was not expected, and what comes while one is wary after that.
//!
//! **The long run.** A handler that is long now and then is taken by its last sixteen runs for what
//! it takes when it is short, and thousands of its events that wait would seem to be worth nothing.
//! So a second mean goes over the last 256. What an event is taken for is the larger of both: who
//! becomes slower is known for it soon, and who is slow at times is not forgotten in between.
//!
//! **Drag.** A color's data is where it ran last, so its first events after a steal take longer.
//! They have a mean of their own, so that the other one stays what an event takes at home. The
//! difference, less what chance may make of it, is the handler's *drag*. A thief pays the drag
//! beside what the steal costs. So where it chooses, an event counts its mean divided by
//! `1 + drag / cost`, with the cost of a steal, or with the mean where that is less: Mely's penalty,
//! learned (its §VII names that as future work). An annotated penalty goes before. The drag is
//! forgotten bit by bit with what runs at home, since nobody may be stealing.

use super::node::{Event, ProfileOf, Sort, Vtable, VtableOf};
use super::tag::{PROFILES_MAX, ProfileId, Tag};
use super::times::{Times, UNKNOWN_NS};
use crate::ablation::{Rule, without};
use crate::record::{Cause, Definition};
use crate::sync::atomic::{AtomicBool, AtomicPtr};
use crate::sync::relaxed::{
    AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use crate::sync::{Arc, Mutex, charge, check, fault};
use crate::{Cx, Handler};
use crossbeam_utils::CachePadded;
use std::collections::HashMap;

/// An annotation counts for as many samples.
const PRIOR_SAMPLES: u32 = 8;

/// Posts that long events of a new handler publish by themselves.
pub(crate) const LONE_POSTS: u32 = 64;

/// The weight of a new sample is one over this, once there are as many.
const WEIGHT: u32 = 16;

/// And in the mean of the long run.
const LONG_RUN_WEIGHT: u64 = 256;

/// One absurd sample moves that mean by a [`LONG_RUN_WEIGHT`]th of this at most, in ns, or of eight
/// times what is expected where that is more.
const LONG_RUN_MAX_NS: u32 = 50_000;

/// A surprise is remembered for one event for each of these ns that it took: what being wary of an
/// event costs, two looks at the clock and a quantum of its own, is then some tenth of what the
/// surprise cost.
const SURPRISE_NS_PER_EVENT: u32 = 1_024;
/// Bounds of that number.
const WARY_MIN: u32 = 16;
const WARY_MAX: u32 = 1 << 16;

/// With each run at home the mean of those that are far comes nearer by one part in this.
const FAR_KEPT: u32 = 1_024;

/// Every run is to be timed; see [`ClosureProfile::wants_timing`].
pub(crate) const WATCH_TIMES: u32 = 1;
/// Every event is to ask its color's gate; see [`Profiles::gate`].
pub(crate) const WATCH_GATE: u32 = 2;
/// Every timed run is to be recorded, whoever's turn it is.
const WATCH_EACH: u32 = 4;

/// Each timed run is recorded until there are this many samples.
const FIRST_SAMPLES: u32 = 4 * WEIGHT;

/// One handler and closure type: the line that every post and every run reads.
#[repr(align(64))]
#[derive(Debug)]
pub(crate) struct ClosureProfile {
    pub(crate) vtable: &'static Vtable,
    /// The vtable's, here to spare each event a load that the next one waits for; of a runtime
    /// that is recorded [`run_recorded`].
    run: unsafe fn(Event, &mut Cx),
    pub(crate) handler: Option<&'static Handler>,
    penalty: u32,
    // What follows from the samples, worked out when one is recorded and not for each event.
    /// [`Times`] of one event.
    estimate: AtomicU64,
    tail_ns: AtomicU32,
    /// [`WATCH_TIMES`], [`WATCH_GATE`], [`WATCH_EACH`]: what is to be done for each event.
    watch: AtomicU32,
    /// See [`ClosureProfile::lone_posts`].
    lone_posts: AtomicU32,
    /// The last event took so long, though by the mean it would have been short; else 0.
    surprise_ns: AtomicU32,
    samples: Samples,
}

/// What was measured: on a line of its own, which only those who record read and write.
#[repr(align(64))]
#[derive(Debug)]
struct Samples {
    mean_ns: AtomicU32,
    deviation_ns: AtomicU32,
    count: AtomicU32,
    /// The longest event lately that surprised, and for how many events that is remembered.
    surprise_max_ns: AtomicU32,
    wary: AtomicU32,
    /// The mean of the long run, in parts of a ns: [`LONG_RUN_WEIGHT`] each. 0 before it begins.
    long_run: AtomicU64,
    /// The mean of events in colors that were just stolen; 0 before the first.
    far_ns: AtomicU32,
    /// What a steal cost then.
    steal_cost_ns: AtomicU32,
    /// Events that panicked.
    panics: AtomicU64,
}

/// What was learned of a handler's events of one closure type, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LearnedNs {
    /// Of the last sixteen or so.
    pub(crate) mean_ns: u32,
    pub(crate) long_run_ns: u32,
    pub(crate) deviation_ns: u32,
    pub(crate) drag_ns: u32,
    /// The drag for which the penalty is 2.
    pub(crate) unit_ns: u32,
}

impl Samples {
    /// How many there are, their mean and their mean deviation in ns.
    fn load(&self) -> (u32, u32, u32) {
        let cells = [&self.count, &self.mean_ns, &self.deviation_ns];
        let [count, mean_ns, deviation_ns] = cells.map(|cell| cell.load(Relaxed));
        (count, mean_ns, deviation_ns)
    }

    /// The mean of the long run; before that begins, this one of the last events.
    fn long_run_ns(&self, mean_ns: u32) -> u32 {
        match self.long_run.load(Relaxed) {
            0 => mean_ns,
            known => (known / LONG_RUN_WEIGHT) as u32,
        }
    }

    /// What an event takes, by the mean of the last ones and that of the long run.
    fn expected_ns(&self, mean_ns: u32) -> u32 {
        mean_ns.max(self.long_run_ns(mean_ns))
    }

    /// Counts a run in the long run, if that has begun. It begins with the mean of the first
    /// [`FIRST_SAMPLES`]: the very first run finds nothing in a cache.
    fn extend_long_run(&self, samples: u32, mean_ns: u32, ns: u32) {
        if samples < FIRST_SAMPLES || without(Rule::LongRun) {
            return;
        }
        let known = match self.long_run.load(Relaxed) {
            0 => u64::from(mean_ns) * LONG_RUN_WEIGHT,
            known => known,
        };
        let most_ns = self.expected_ns(mean_ns).saturating_mul(8);
        let ns = ns.min(most_ns.max(LONG_RUN_MAX_NS));
        let sum = known - known / LONG_RUN_WEIGHT + u64::from(ns);
        self.long_run.store(sum, Relaxed);
    }

    /// What an event of this mean and mean deviation takes longer right after a steal. A mean of
    /// the last sixteen is off by a quarter of the deviation by chance.
    fn drag_ns(&self, mean_ns: u32, deviation_ns: u32) -> u32 {
        let far_ns = self.far_ns.load(Relaxed);
        far_ns.saturating_sub(mean_ns.saturating_add(deviation_ns / 4))
    }

    /// The drag that makes an event of this mean count half, in ns: at least one.
    fn drag_unit_ns(&self, mean_ns: u32) -> u32 {
        self.steal_cost_ns.load(Relaxed).min(mean_ns).max(1)
    }

    fn store(&self, count: u32, mean_ns: u32, deviation_ns: u32) {
        self.count.store(count, Relaxed);
        self.mean_ns.store(mean_ns, Relaxed);
        self.deviation_ns.store(deviation_ns, Relaxed);
    }
}

impl ClosureProfile {
    fn new(
        handler: Option<&'static Handler>,
        vtable: &'static Vtable,
        recorded: bool,
    ) -> ClosureProfile {
        let time = handler.and_then(Handler::annotated_time);
        let time_ns = time.map_or(0, |t| u32::try_from(t.as_nanos()).unwrap_or(u32::MAX));
        let samples = if time.is_some() { PRIOR_SAMPLES } else { 0 };
        let profile = ClosureProfile {
            vtable,
            run: if recorded { run_recorded } else { vtable.run },
            handler,
            penalty: handler.map_or(1, Handler::annotated_penalty),
            estimate: AtomicU64::new(0),
            tail_ns: AtomicU32::new(0),
            watch: AtomicU32::new(0),
            lone_posts: AtomicU32::new(LONE_POSTS),
            surprise_ns: AtomicU32::new(0),
            samples: Samples {
                mean_ns: AtomicU32::new(time_ns),
                deviation_ns: AtomicU32::new(0),
                count: AtomicU32::new(samples),
                surprise_max_ns: AtomicU32::new(0),
                wary: AtomicU32::new(0),
                long_run: AtomicU64::new(0),
                far_ns: AtomicU32::new(0),
                steal_cost_ns: AtomicU32::new(0),
                panics: AtomicU64::new(0),
            },
        };
        profile.update_estimate(samples, time_ns, 0, 0);
        profile
    }

    /// Marks it, unless its events pass gates.
    fn gate(&self) {
        if !self.vtable.passes {
            self.watch.fetch_or(WATCH_GATE, Relaxed);
        }
    }

    /// The handler's name, or the closure's type: of a task, the future's.
    pub(crate) fn name(&self) -> &'static str {
        self.handler
            .map_or_else(|| unwrapped((self.vtable.type_name)()), Handler::name)
    }

    /// What a recording says of it.
    pub(crate) fn definition(&self) -> Definition {
        let time = self.handler.and_then(Handler::annotated_time);
        Definition {
            name: self.name().to_owned(),
            is_handler: self.handler.is_some(),
            time_ns: time.map_or(0, |time| time.as_nanos() as u64),
            penalty: self.penalty.into(),
            touches_bytes: self.handler.and_then(Handler::annotated_bytes),
        }
    }

    /// An event of it has panicked.
    pub(crate) fn count_panic(&self) {
        self.samples.panics.fetch_add(1, Relaxed);
    }

    /// Events that panicked so far.
    pub(crate) fn panics(&self) -> u64 {
        self.samples.panics.load(Relaxed)
    }

    /// What was learned, if anything was measured.
    pub(crate) fn learned(&self) -> Option<LearnedNs> {
        let time = self.handler.and_then(Handler::annotated_time);
        let prior = if time.is_some() { PRIOR_SAMPLES } else { 0 };
        let (samples, mean_ns, deviation_ns) = self.samples.load();
        (samples > prior).then(|| LearnedNs {
            mean_ns,
            long_run_ns: self.samples.long_run_ns(mean_ns),
            deviation_ns,
            drag_ns: self.samples.drag_ns(mean_ns, deviation_ns),
            unit_ns: self.samples.drag_unit_ns(self.samples.expected_ns(mean_ns)),
        })
    }

    /// What one event will take, as far as is known.
    #[inline(always)]
    pub(crate) fn estimate(&self) -> Times {
        Times::from_bits(self.estimate.load(Relaxed))
    }

    /// What hardly any event will exceed, in ns; `u32::MAX` before the first has run.
    #[inline(always)]
    pub(crate) fn tail_ns(&self) -> u32 {
        self.tail_ns.load(Relaxed)
    }

    /// Whether every run is to be timed and not only a sample: it is long, so the clock costs
    /// nothing in proportion, or too little is known.
    #[inline(always)]
    pub(crate) fn wants_timing(&self) -> bool {
        self.watch.load(Relaxed) & WATCH_TIMES != 0
    }

    /// What is to be done before each event.
    #[inline(always)]
    pub(crate) fn watch(&self) -> u32 {
        self.watch.load(Relaxed)
    }

    /// How many posts of its long events are still to be published by themselves. The scheduler
    /// says so (`sched::row`).
    pub(crate) fn lone_posts(&self) -> u32 {
        self.lone_posts.load(Relaxed)
    }

    pub(crate) fn set_lone_posts(&self, posts: u32) {
        // Every post reads this line: what is unchanged is not stored.
        if posts != self.lone_posts() {
            self.lone_posts.store(posts, Relaxed);
        }
    }

    /// What the last event took, if it is to be expected of the next one though the mean says less,
    /// in ns.
    pub(crate) fn surprise_ns(&self) -> u32 {
        self.surprise_ns.load(Relaxed)
    }

    /// Some events that were not timed, one of them this handler's, took so long together: more
    /// than `long_ns`. It is taken for the one that did, unless it is known for that.
    pub(crate) fn suspect(&self, ns: u64, long_ns: u64) {
        let (ns, long_ns) = (clamped(ns), clamped(long_ns));
        let (samples, mean_ns, deviation_ns) = self.samples.load();
        if samples > 0 && self.tail_ns() <= long_ns {
            self.expect_the_same(ns, long_ns);
            let wary_ns = self.note_surprise(ns, long_ns, tail_ns(mean_ns, deviation_ns));
            self.update_estimate(samples, mean_ns, deviation_ns, wary_ns);
        }
    }

    /// The next event is expected to take as long as this one, if the mean says less. After a few
    /// of those the tail is as long, and the mean still short.
    fn expect_the_same(&self, ns: u32, long_ns: u32) {
        let now_ns =
            if !without(Rule::Surprise) && ns > long_ns && self.estimate().raw_ns() <= long_ns {
                ns
            } else {
                0
            };
        let seen_ns = self.surprise_ns();
        if (now_ns == 0) != (seen_ns == 0) || differs(seen_ns, now_ns) {
            self.surprise_ns.store(now_ns, Relaxed);
        }
    }

    /// Remembers an event that took longer than `long_ns` though hardly any was expected to, by the
    /// tail of the samples: cache hits and misses, say, or data that has grown. A mean would take
    /// long to show that, and forget it soon. Returns what to be wary of, in ns.
    fn note_surprise(&self, ns: u32, long_ns: u32, tail_ns: u32) -> u32 {
        let surprises = ns > long_ns && tail_ns <= long_ns && !without(Rule::Surprise);
        let wary = self.samples.wary.load(Relaxed);
        let max_ns = self.samples.surprise_max_ns.load(Relaxed);
        let (wary, max_ns) = if surprises {
            let events = (ns / SURPRISE_NS_PER_EVENT).clamp(WARY_MIN, WARY_MAX);
            (wary.max(events), max_ns.max(ns))
        } else if wary > 1 {
            (wary - 1, max_ns)
        } else {
            (0, 0)
        };
        self.samples.wary.store(wary, Relaxed);
        self.samples.surprise_max_ns.store(max_ns, Relaxed);
        max_ns
    }

    /// Works out what events are judged by. `wary_ns`: what one has to be wary of, or 0.
    fn update_estimate(&self, samples: u32, mean_ns: u32, deviation_ns: u32, wary_ns: u32) {
        let (raw_ns, tail_ns) = if samples == 0 {
            (UNKNOWN_NS, u32::MAX)
        } else {
            let expected_ns = self.samples.expected_ns(mean_ns);
            (expected_ns, tail_ns(mean_ns, deviation_ns))
        };
        let tail_ns = tail_ns.max(wary_ns);
        let known = self.estimate();
        let penalized_ns = self.penalized_ns(raw_ns, self.samples.drag_ns(mean_ns, deviation_ns));
        let learned = self.penalty == 1 && differs(known.penalized_ns(), penalized_ns);
        if samples <= 1 || differs(known.raw_ns(), raw_ns) || learned {
            let estimate = Times::new(raw_ns, penalized_ns);
            self.estimate.store(estimate.to_bits(), Relaxed);
        }
        if differs(self.tail_ns(), tail_ns) {
            self.tail_ns.store(tail_ns, Relaxed);
        }
        let wary = wary_ns > 0;
        // By the estimate, which does not go to and fro at the limit.
        let times = samples < PRIOR_SAMPLES
            || self.estimate().raw_ns()
                > if without(Rule::Coarse) {
                    u32::MAX - 1
                } else {
                    2_000
                }
            || wary;
        self.set_watch(WATCH_TIMES, times);
        self.set_watch(WATCH_EACH, samples < FIRST_SAMPLES || wary);
    }

    /// What an event of this time counts where a thief chooses, by what was learned of its drag.
    fn penalized_ns(&self, raw_ns: u32, drag_ns: u32) -> u32 {
        if self.penalty > 1 {
            return raw_ns / self.penalty;
        }
        let unit_ns = u64::from(self.samples.drag_unit_ns(raw_ns));
        // At most the time itself.
        (u64::from(raw_ns) * unit_ns / (unit_ns + u64::from(drag_ns))) as u32
    }

    /// A read-modify-write, since another thread may set another bit; and a rare one.
    fn set_watch(&self, bit: u32, on: bool) {
        if on == (self.watch() & bit != 0) {
            return;
        }
        if on {
            self.watch.fetch_or(bit, Relaxed);
        } else {
            self.watch.fetch_and(!bit, Relaxed);
        }
    }

    /// Records a run of `ns` far from its color's data. False if it says nothing of that and is to
    /// be recorded as any other: too little is known, or it would surprise anywhere.
    /// `steal_cost_ns`: what a steal costs, if it is the core's turn to record.
    pub(crate) fn record_far(&self, ns: u64, long_ns: u64, steal_cost_ns: Option<u64>) -> bool {
        let (ns, long_ns) = (clamped(ns), clamped(long_ns));
        let (samples, mean_ns, deviation_ns) = self.samples.load();
        let surprises = ns > mean_ns.saturating_mul(8).saturating_add(long_ns);
        if samples < FIRST_SAMPLES || surprises || without(Rule::LearnedDrag) {
            return false;
        }
        if let Some(steal_cost_ns) = steal_cost_ns {
            let far_ns = match self.samples.far_ns.load(Relaxed) {
                0 => mean_ns,
                known_ns => known_ns,
            };
            let far = &self.samples.far_ns;
            far.store(nearer(far_ns, ns, WEIGHT), Relaxed);
            let cost = &self.samples.steal_cost_ns;
            cost.store(clamped(steal_cost_ns), Relaxed);
            let wary_ns = self.samples.surprise_max_ns.load(Relaxed);
            self.update_estimate(samples, mean_ns, deviation_ns, wary_ns);
        }
        true
    }

    /// Records a run of `ns`; one of more than `long_ns` should have been expected. `due`: it is
    /// the core's turn to record what is usual, too.
    pub(crate) fn record(&self, ns: u64, long_ns: u64, due: bool) {
        let (ns, long_ns) = (clamped(ns), clamped(long_ns));
        let surprises = ns > long_ns && self.tail_ns() <= long_ns && !without(Rule::Surprise);
        let each = self.watch() & WATCH_EACH != 0;
        if !(due || each || surprises) {
            return self.expect_the_same(ns, long_ns);
        }
        let (samples, mean_ns, deviation_ns) = self.samples.load();
        if samples == 0 {
            self.samples.store(1, ns, 0);
            self.update_estimate(1, ns, 0, 0);
            return;
        }
        self.expect_the_same(ns, long_ns);
        let wary_ns = self.note_surprise(ns, long_ns, tail_ns(mean_ns, deviation_ns));
        let far = &self.samples.far_ns;
        let far_ns = far.load(Relaxed);
        if far_ns > mean_ns {
            far.store(nearer(far_ns, mean_ns, FAR_KEPT), Relaxed);
        }
        // What is recorded out of turn, a surprise and what follows it, would weigh too much there.
        if due {
            self.samples.extend_long_run(samples, mean_ns, ns);
        }
        // A thread that the system took off its processor shows as one absurd sample. A handler
        // that really became so long gets there in a few samples all the same.
        let ns = ns.min(mean_ns.saturating_mul(8).saturating_add(2_000));
        let weight = samples.min(WEIGHT - 1) + 1;
        let deviation_ns = nearer(deviation_ns, ns.abs_diff(mean_ns), weight);
        let mean_ns = nearer(mean_ns, ns, weight);
        let samples = samples.saturating_add(1);
        self.samples.store(samples, mean_ns, deviation_ns);
        self.update_estimate(samples, mean_ns, deviation_ns, wary_ns);
    }
}

/// A mean after one more sample: nearer to it by one part in `weight` of the difference, rounded up,
/// else a small mean would never move.
fn nearer(mean: u32, sample: u32, weight: u32) -> u32 {
    let step = sample.abs_diff(mean).div_ceil(weight);
    if sample > mean {
        mean + step
    } else {
        mean - step
    }
}

/// Whether this is another time, in ns, than the one that all cores know of: by more than a
/// sixteenth of that.
fn differs(known_ns: u32, ns: u32) -> bool {
    known_ns.abs_diff(ns) > known_ns / 16
}

/// Runs an event of a runtime that is recorded: what its vtable's `run` does, between two records.
///
/// # Safety
/// The event's profile, which has the vtable of its closure, is one of the runtime's whose context
/// this is.
unsafe fn run_recorded(mut event: Event, cx: &mut Cx) {
    let (color, tag) = event.color_and_tag();
    let run = cx.worker().core.begin_recorded(color, tag);
    // SAFETY: `run` is that of the profile which the event names, as the caller promises.
    unsafe { run(event, cx) };
    cx.worker().core.end_recorded(false);
}

/// What hardly any event will exceed that has this mean and mean deviation, in ns.
fn tail_ns(mean_ns: u32, deviation_ns: u32) -> u32 {
    deviation_ns.saturating_mul(4).saturating_add(mean_ns)
}

fn clamped(ns: u64) -> u32 {
    u32::try_from(ns).unwrap_or(u32::MAX)
}

/// A closure that found no profile left.
pub(super) type Boxed = Box<dyn FnOnce(&mut Cx) + Send>;

impl ProfileOf<Boxed> {
    /// That of closures that found no profile left, for events of this sort.
    #[inline(always)]
    pub(super) fn overflow(sort: Sort) -> ProfileOf<Boxed> {
        let id = match (sort.passes, sort.reserved) {
            (false, false) => ProfileId::OVERFLOW,
            (false, true) => ProfileId::OVERFLOW_RESERVED,
            (true, reserved) => ProfileId::OVERFLOW_PASSING[usize::from(reserved)],
        };
        // SAFETY: `Profiles::new` makes them with vtables of `Boxed`.
        unsafe { ProfileOf::new(id) }
    }
}

/// An event that has begun: its closure is to be run, once.
#[derive(Debug)]
#[must_use]
pub(crate) struct Begun {
    event: Event,
    run: unsafe fn(Event, &mut Cx),
}

impl Begun {
    /// Runs the closure.
    #[inline(always)]
    pub(crate) fn run(self, cx: &mut Cx) {
        // SAFETY: of the profile that the event names (`Profiles::begin`, which alone makes one).
        unsafe { (self.run)(self.event, cx) };
    }

    /// It is not to run now.
    pub(crate) fn into_event(self) -> Event {
        self.event
    }
}

/// A handler and the vtable of a closure type, by their addresses.
pub(super) type Key = (usize, usize);

/// A profile, and what it is of. Made by [`Profiles::intern`] alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interned {
    key: Key,
    id: ProfileId,
}

impl Interned {
    /// Of no handler and closure type.
    pub(super) const NONE: Interned = Interned {
        key: (0, 0),
        id: ProfileId::OVERFLOW,
    };

    #[inline(always)]
    pub(super) fn key(self) -> Key {
        self.key
    }

    pub(super) fn is_none(self) -> bool {
        self.key == Interned::NONE.key
    }

    /// The same, for an event of this post.
    pub(super) fn caused_by(self, cause: Cause) -> Interned {
        Interned {
            id: self.id.caused_by(cause),
            ..self
        }
    }

    pub(super) fn id(self) -> ProfileId {
        self.id
    }

    /// The profile, if it is one of events of this sort with closures of type `F`.
    #[inline(always)]
    pub(super) fn of<F>(self, sort: Sort) -> Option<ProfileOf<F>>
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let is_of_f = self.key.1 == std::ptr::from_ref(VtableOf::<F>::of(sort)).addr();
        // SAFETY: `intern` made the profile with the vtable of the key, which is one of `F`'s.
        is_of_f.then(|| unsafe { ProfileOf::new(self.id) })
    }
}

/// All profiles of a runtime.
#[derive(Debug)]
pub(crate) struct Profiles {
    /// An array, not a slice: a place is masked instead of checked, which spares the load of a
    /// length.
    table: Box<[AtomicPtr<ClosureProfile>; PROFILES_MAX]>,
    /// Apart from the table, which each core reads for each event.
    known: CachePadded<Mutex<Known>>,
    /// Set under that lock, once all profiles are marked.
    gated: AtomicBool,
    recorded: bool,
}

#[derive(Debug, Default)]
struct Known {
    ids: HashMap<Key, ProfileId>,
    /// What the table leads to.
    profiles: Vec<Arc<ClosureProfile>>,
}

impl Known {
    /// Keeps a profile for as long as the table.
    fn keep(&mut self, profile: ClosureProfile) -> *mut ClosureProfile {
        let profile = Arc::new(profile);
        let at = Arc::as_ptr(&profile).cast_mut();
        charge::name_next(at.cast(), size_of::<ClosureProfile>(), "profile");
        self.profiles.push(profile);
        at
    }
}

impl Profiles {
    /// With those of closures that find no profile left. `recorded`: events are.
    pub(crate) fn new(recorded: bool) -> Profiles {
        // Whatever the size of what is in the box.
        const fn boxed(reserved: bool, passes: bool) -> Vtable {
            Vtable {
                is_boxed: true,
                ..*VtableOf::<Boxed>::of(Sort { reserved, passes })
            }
        }
        const BOXED: [&Vtable; ProfileId::FIRST] = [
            &boxed(false, false),
            &boxed(true, false),
            &boxed(false, true),
            &boxed(true, true),
        ];
        let table: Box<[AtomicPtr<ClosureProfile>]> = (0..PROFILES_MAX)
            .map(|_| AtomicPtr::new(std::ptr::null_mut()))
            .collect();
        let table: Box<[_; PROFILES_MAX]> = table.try_into().expect("as many as collected");
        let mut known = Known::default();
        for (entry, vtable) in table.iter().zip(BOXED) {
            entry.store(
                known.keep(ClosureProfile::new(None, vtable, recorded)),
                Release,
            );
        }
        Profiles {
            table,
            known: CachePadded::new(Mutex::new(known)),
            gated: AtomicBool::new(false),
            recorded,
        }
    }

    /// The profile an event names.
    #[inline(always)]
    pub(crate) fn get(&self, id: ProfileId) -> &ClosureProfile {
        let profile = self.table[id.index()].load(Acquire);
        check!(!profile.is_null(), "{id:?} is not there");
        // SAFETY: a `ProfileId` is handed out by `intern` after its entry was stored, and comes to
        // other threads with an event, by a lock or what is like it. `known` keeps what entries
        // lead to.
        unsafe { &*profile }
    }

    #[cfg(feature = "machine")]
    pub(crate) fn name_lines(&self) {
        charge::name(&self.table[..], "profiles", 0);
        let known = self.known.lock().unwrap();
        for (at, profile) in known.profiles.iter().enumerate() {
            charge::name(&**profile, "profile", at);
        }
    }

    /// The profile of an id that was not handed over with an event but read from a report of
    /// another core's: none if this thread does not see it yet.
    pub(crate) fn find(&self, id: ProfileId) -> Option<&ClosureProfile> {
        let is_there = !self.table[id.index()].load(Acquire).is_null();
        is_there.then(|| self.get(id))
    }

    /// Begins an event, which was made with these profiles. With it come the color's value, its
    /// tag, and what is to be done before it runs ([`ClosureProfile::watch`]).
    #[inline(always)]
    pub(crate) fn begin(&self, mut event: Event) -> (Begun, u64, Tag, u32) {
        let (color, tag) = event.color_and_tag();
        let profile = self.get(tag.profile());
        let run = profile.run;
        (Begun { event, run }, color, tag, profile.watch())
    }

    /// Drops the closure of an event, which was made with these profiles.
    pub(crate) fn discard(&self, mut event: Event) {
        let (_, tag) = event.color_and_tag();
        let discard = self.get(tag.profile()).vtable.discard;
        // SAFETY: of the profile that the event names.
        unsafe { discard(event) };
    }

    /// From now on all events ask their color's gate before they begin, but for those that pass.
    ///
    /// An event that begins after the caller's, in the same color, knows of it: what this wrote
    /// comes before that event by whatever lock the color moved by.
    #[inline]
    pub(crate) fn gate(&self) {
        if !self.gated.load(Acquire) {
            self.gate_all();
        }
    }

    #[cold]
    fn gate_all(&self) {
        // Nobody makes a profile meanwhile.
        let _known = self.known.lock().unwrap();
        if !fault("profiles not marked") {
            self.iter().for_each(|(_, profile)| profile.gate());
        }
        self.gated.store(true, Release);
    }

    /// All there are.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ProfileId, &ClosureProfile)> {
        (0..)
            .map_while(ProfileId::new)
            .map_while(|id| Some((id, self.find(id)?)))
    }

    /// The profile of a handler and closure type; none if the table is full.
    #[cold]
    pub(super) fn intern(
        &self,
        handler: Option<&'static Handler>,
        vtable: &'static Vtable,
    ) -> Interned {
        let key = key(handler, vtable);
        let id = self.intern_key(key, handler, vtable);
        id.map_or(Interned::NONE, |id| Interned { key, id })
    }

    fn intern_key(
        &self,
        key: Key,
        handler: Option<&'static Handler>,
        vtable: &'static Vtable,
    ) -> Option<ProfileId> {
        let mut known = self.known.lock().unwrap();
        if let Some(&id) = known.ids.get(&key)
            && !fault("registered anew")
        {
            return Some(id);
        }
        // Else it is not noted down: the program may go on making handlers for ever.
        let next = ProfileId::new(known.ids.len() + ProfileId::FIRST)?;
        // On the stack so far.
        let profile = charge::uncharged(|| ClosureProfile::new(handler, vtable, self.recorded));
        if self.gated.load(Relaxed) && !fault("new profile not marked") {
            profile.gate();
        }
        let profile = known.keep(profile);
        if fault("registered before it is there") {
            known.ids.insert(key, next);
            drop(known);
            self.table[next.index()].store(profile, Release);
            return Some(next);
        }
        self.table[next.index()].store(profile, Release);
        known.ids.insert(key, next);
        Some(next)
    }
}

#[inline(always)]
pub(super) fn key(handler: Option<&'static Handler>, vtable: &'static Vtable) -> Key {
    (
        handler.map_or(0, |h| std::ptr::from_ref(h).addr()),
        std::ptr::from_ref(vtable).addr(),
    )
}

/// The name of a type, without the wrappers of tasks ([`crate::task`]) and of a run's first event.
fn unwrapped(name: &'static str) -> &'static str {
    let wrappers = [
        "mely::task::body::Body<",
        "mely::task::body::event<",
        "mely::task::body::boxed_event<",
        "mely::runtime::first_event<",
    ];
    let inner = wrappers.iter().find_map(|wrapper| {
        let (_, inner) = name.split_once(wrapper)?;
        let (mut depth, mut before) = (1, ' ');
        let end = inner.find(|c| {
            match c {
                '<' => depth += 1,
                // No bracket in `fn() -> T`.
                '>' if before != '-' => depth -= 1,
                _ => {}
            }
            before = c;
            depth == 0
        });
        Some(&inner[..end?])
    });
    inner.unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_named_after_their_futures() {
        let later = "mely::task::body::Body<a::main::{{closure}}>::schedule::{{closure}}";
        let first =
            "mely::task::body::event<a::f<fn(u8) -> u8, b::C<d>>::{{closure}}>::{{closure}}";
        assert_eq!(unwrapped(later), "a::main::{{closure}}");
        assert_eq!(unwrapped(first), "a::f<fn(u8) -> u8, b::C<d>>::{{closure}}");
        let run = "mely::runtime::first_event<a::main::{{closure}}>::{{closure}}";
        assert_eq!(unwrapped(run), "a::main::{{closure}}");
        assert_eq!(unwrapped("a::main::{{closure}}"), "a::main::{{closure}}");
    }
    use crate::Cx;
    use crate::event::node::VtableOf;
    use std::sync::LazyLock;
    use std::time::Duration;

    static ANNOTATED: Handler = Handler::new("annotated")
        .time(Duration::from_nanos(800))
        .penalty(8);

    fn vtable<F: FnOnce(&mut Cx) + Send + 'static>(_: F) -> &'static Vtable {
        VtableOf::<F>::of(Sort::ORDINARY)
    }

    /// Mean, mean deviation and drag, in ns.
    fn learned(profile: &ClosureProfile) -> Option<[u32; 3]> {
        let learned = profile.learned()?;
        Some([learned.mean_ns, learned.deviation_ns, learned.drag_ns])
    }

    #[test]
    fn nothing_is_learned_before_it_is_measured() {
        let annotated = ClosureProfile::new(Some(&ANNOTATED), vtable(|_| ()), false);
        assert_eq!(annotated.learned(), None);
        let unknown = ClosureProfile::new(None, vtable(|_| ()), false);
        assert_eq!(unknown.learned(), None);
        for profile in [&annotated, &unknown] {
            profile.record(500, 10_000, true);
        }
        // From 800 to 500 by a ninth, and so for the deviation.
        assert_eq!(learned(&annotated), Some([766, 34, 0]));
        assert_eq!(learned(&unknown), Some([500, 0, 0]));
    }

    #[test]
    fn means_move_by_a_sixteenth() {
        let profile = ClosureProfile::new(Some(&ANNOTATED), vtable(|_| ()), false);
        (0..20).for_each(|_| profile.record(800, 10_000, true));
        for (ns, mean, deviation, tail_ns) in [
            (1_600, 850, 50, 850 + 4 * 50),
            (0, 796, 100, 796 + 4 * 100),
            // By less than a sixteenth from the one before, so that stays.
            (796, 796, 93, 796 + 4 * 100),
        ] {
            profile.record(ns, 10_000, true);
            assert_eq!(learned(&profile), Some([mean, deviation, 0]));
            assert_eq!(profile.tail_ns(), tail_ns);
        }
    }

    #[test]
    fn what_hardly_changes_is_not_stored() {
        let profile = ClosureProfile::new(Some(&ANNOTATED), vtable(|_| ()), false);
        let seen = || (profile.estimate().raw_ns(), profile.tail_ns());
        for ns in [840, 840, 840, 840, 840, 840] {
            profile.record(ns, 10_000, true);
            assert_eq!(profile.estimate().raw_ns(), 800);
        }
        let before = seen();
        for (ns, same) in [(840, true), (100, false)] {
            profile.record(ns, 10_000, true);
            assert_eq!(seen() == before, same, "{ns}");
        }
    }

    #[test]
    fn what_is_usual_is_recorded_in_its_turn() {
        let profile = ClosureProfile::new(Some(&ANNOTATED), vtable(|_| ()), false);
        // The first ones, the annotation among them, whoever's turn it is.
        let left = FIRST_SAMPLES - PRIOR_SAMPLES;
        (0..left).for_each(|_| profile.record(800, 10_000, false));
        let known = (profile.samples.load(), profile.tail_ns());
        assert_eq!(known.0, (FIRST_SAMPLES, 800, 0));
        // Then in its turn.
        for ns in [800, 2_000, 9_000] {
            profile.record(ns, 10_000, false);
            assert_eq!((profile.samples.load(), profile.tail_ns()), known);
        }
        profile.record(2_000, 10_000, true);
        assert_eq!(profile.samples.load(), (FIRST_SAMPLES + 1, 875, 75));
        // A surprise at once, and what comes while one is wary.
        profile.record(20_000, 10_000, false);
        assert_eq!(profile.surprise_ns(), 20_000);
        let wary = 20_000 / SURPRISE_NS_PER_EVENT;
        (0..wary).for_each(|_| profile.record(800, 10_000, false));
        assert_eq!(profile.samples.load().0, FIRST_SAMPLES + 2 + wary);
        profile.record(800, 10_000, false);
        assert_eq!(profile.samples.load().0, FIRST_SAMPLES + 2 + wary);
    }

    /// Events that are long now and then: known for it, they are expected to go on, and not
    /// recorded for that.
    #[test]
    fn what_goes_on_is_expected_whoever_records() {
        let profile = ClosureProfile::new(None, vtable(|_| ()), false);
        for i in 0..1_000 {
            profile.record(if i % 8 == 0 { 30_000 } else { 1_000 }, 10_000, true);
        }
        assert!(profile.estimate().raw_ns() <= 10_000 && profile.tail_ns() > 10_000);
        (0..200).for_each(|_| profile.record(1_000, 10_000, false));
        let samples = profile.samples.load();
        for (ns, expected_ns) in [
            (30_000, 30_000),
            (31_000, 30_000),
            (60_000, 60_000),
            (20, 0),
        ] {
            profile.record(ns, 10_000, false);
            assert_eq!(profile.surprise_ns(), expected_ns);
        }
        assert_eq!(profile.samples.load(), samples);
    }

    #[test]
    fn whole_sixteenths_are_not_rounded() {
        let profile = ClosureProfile::new(Some(&ANNOTATED), vtable(|_| ()), false);
        (0..20).for_each(|_| profile.record(800, 10_000, true));
        profile.record(784, 10_000, true);
        assert_eq!(learned(&profile), Some([799, 1, 0]));
        profile.record(815, 10_000, true);
        assert_eq!(learned(&profile), Some([800, 2, 0]));
    }

    #[test]
    fn what_is_known_to_be_long_does_not_surprise() {
        // Nothing is known, so nothing surprises.
        let unknown = ClosureProfile::new(None, vtable(|_| ()), false);
        unknown.suspect(50_000, 10_000);
        assert_eq!(unknown.surprise_ns(), 0);
        static TEN: Handler = Handler::new("ten").time(Duration::from_micros(10));
        for (long_ns, surprises) in [(9_999, false), (10_000, true)] {
            let profile = ClosureProfile::new(Some(&TEN), vtable(|_| ()), false);
            profile.suspect(50_000, long_ns);
            assert_eq!(profile.surprise_ns(), if surprises { 50_000 } else { 0 });
        }
        // One surprise after the other: by the first it is known.
        let profile = ClosureProfile::new(Some(&ANNOTATED), vtable(|_| ()), false);
        profile.suspect(50_000, 10_000);
        profile.suspect(90_000, 10_000);
        assert_eq!((profile.surprise_ns(), profile.tail_ns()), (50_000, 50_000));
        let profile = ClosureProfile::new(Some(&ANNOTATED), vtable(|_| ()), false);
        profile.record(10_000, 10_000, true);
        assert_eq!(profile.surprise_ns(), 0);
        profile.record(10_001, 10_000, true);
        assert_eq!(profile.surprise_ns(), 10_001);
    }

    #[test]
    fn annotation_is_the_prior_and_samples_move_it() {
        let profile = ClosureProfile::new(Some(&ANNOTATED), vtable(|_| ()), false);
        let estimate = profile.estimate();
        assert_eq!((estimate.raw_ns(), estimate.penalized_ns()), (800, 100));
        assert!(profile.tail_ns() <= 1_000);
        for _ in 0..200 {
            profile.record(1_600, 10_000, true);
        }
        let estimate = profile.estimate();
        assert!((1_590..=1_600).contains(&estimate.raw_ns()), "{estimate:?}");
        assert!(profile.tail_ns() <= 10_000);
    }

    #[test]
    fn what_is_dragged_along_divides_the_time_and_is_forgotten() {
        let profile = ClosureProfile::new(None, vtable(|_| ()), false);
        let far = |ns| profile.record_far(ns, 10_000, Some(400));
        assert!(!far(800), "nothing is known to be home");
        (0..FIRST_SAMPLES).for_each(|_| profile.record(800, 10_000, true));
        assert!(!far(16_401), "it surprises");
        assert!(profile.record_far(2_400, 10_000, None));
        assert_eq!(learned(&profile), Some([800, 0, 0]), "not its turn");
        (0..200).for_each(|_| assert!(far(2_400)));
        assert_eq!(learned(&profile), Some([800, 0, 1_600]));
        // A fifth, and what all cores know of is within a sixteenth.
        let times = profile.estimate();
        assert!((160..=170).contains(&times.penalized_ns()), "{times:?}");
        assert_eq!(times.raw_ns(), 800);
        // As long as at home is no drag, and shorter no gain.
        (0..200).for_each(|_| assert!(far(100)));
        assert_eq!(learned(&profile), Some([800, 0, 0]));
        assert!(profile.estimate().penalized_ns() > 750);
        (0..200).for_each(|_| assert!(far(2_400)));
        (0..20 * FAR_KEPT).for_each(|_| profile.record(800, 10_000, true));
        assert_eq!(learned(&profile), Some([800, 0, 0]));
        assert!(profile.estimate().penalized_ns() > 750);
    }

    /// In units of what a steal costs, or of what the event takes if that is less.
    #[test]
    fn a_thief_counts_the_drag_beside_the_steal() {
        for (steal_cost_ns, unit_ns) in [(0, 1), (400, 400), (800, 800), (5_000, 800)] {
            let profile = ClosureProfile::new(None, vtable(|_| ()), false);
            (0..FIRST_SAMPLES).for_each(|_| profile.record(800, 10_000, true));
            (0..200).for_each(|_| assert!(profile.record_far(1_600, 10_000, Some(steal_cost_ns))));
            assert_eq!(profile.learned().unwrap().unit_ns, unit_ns);
            let exact_ns = 800 * unit_ns / (unit_ns + 800);
            let ns = profile.estimate().penalized_ns();
            assert!((exact_ns..=exact_ns + exact_ns / 15).contains(&ns), "{ns}");
        }
    }

    #[test]
    fn chance_is_no_drag() {
        let profile = ClosureProfile::new(None, vtable(|_| ()), false);
        for i in 0..1_000u64 {
            let ns = 500 + i * 7_919 % 1_000;
            profile.record(ns, 10_000, true);
            if profile.samples.load().0 > FIRST_SAMPLES {
                profile.record_far(1_999 - ns, 10_000, Some(400));
            }
            let drag_ns = profile.learned().unwrap().drag_ns;
            assert!(drag_ns <= 100, "{drag_ns} after {i}");
        }
    }

    /// One in fifty takes 12.5 us, the others 50 ns: 300 on average.
    #[test]
    fn who_is_long_at_times_is_not_forgotten_in_between() {
        let profile = ClosureProfile::new(None, vtable(|_| ()), false);
        (0..FIRST_SAMPLES).for_each(|_| profile.record(50, 10_000, true));
        assert_eq!(profile.estimate().raw_ns(), 50);
        let mut seen_ns = Vec::new();
        for i in 0..2_000 {
            profile.record(if i % 50 == 0 { 12_500 } else { 50 }, 10_000, true);
            if i >= 1_000 {
                seen_ns.push(profile.estimate().raw_ns());
            }
        }
        let least_ns = *seen_ns.iter().min().unwrap();
        assert!((250..=300).contains(&least_ns), "{least_ns}");
        let learned = profile.learned().unwrap();
        assert!((270..=330).contains(&learned.long_run_ns), "{learned:?}");
        // Among 128 cores, where what is usual is recorded one time in 32 and what is not always.
        for i in 0..100_000 {
            let ns = if i % 49 == 0 { 12_500 } else { 50 };
            profile.record(ns, 10_000, i % 32 == 0);
        }
        let learned = profile.learned().unwrap();
        assert!((200..=420).contains(&learned.long_run_ns), "{learned:?}");
        // It is forgotten when it is over.
        (0..3_000).for_each(|_| profile.record(50, 10_000, true));
        assert!(profile.estimate().raw_ns() < 55);
    }

    /// Of a thread that the system took off its processor.
    #[test]
    fn an_absurd_sample_moves_the_long_run_by_little() {
        let profile = ClosureProfile::new(None, vtable(|_| ()), false);
        (0..5_000).for_each(|_| profile.record(50, 10_000, true));
        profile.record(1_000_000_000, 10_000, true);
        (0..100).for_each(|_| profile.record(50, 10_000, true));
        assert!(profile.estimate().raw_ns() < 250);
        // What has really become so long is soon known for it.
        (0..60).for_each(|_| profile.record(1_000_000, 10_000, true));
        assert!(profile.estimate().raw_ns() > 500_000);
    }

    #[test]
    fn an_annotated_penalty_goes_before_the_learned_one() {
        let profile = ClosureProfile::new(Some(&ANNOTATED), vtable(|_| ()), false);
        (0..FIRST_SAMPLES).for_each(|_| profile.record(800, 10_000, true));
        (0..200).for_each(|_| assert!(profile.record_far(2_400, 10_000, Some(400))));
        assert_eq!(learned(&profile), Some([800, 0, 1_600]));
        assert_eq!(profile.estimate().penalized_ns(), 100);
    }

    #[test]
    fn unknown_and_varying_handlers_have_a_long_tail() {
        let profile = ClosureProfile::new(None, vtable(|_| ()), false);
        assert!(profile.tail_ns() > 1_000);
        profile.record(50, 10_000, true);
        assert!(profile.tail_ns() <= 1_000);
        for i in 0..100 {
            profile.record(if i % 2 == 0 { 50 } else { 2_000 }, 10_000, true);
        }
        assert!(profile.tail_ns() > 1_000);
    }

    #[test]
    fn a_surprise_is_remembered_for_as_long_as_it_took() {
        const LONG_NS: u64 = 10_000;
        let known = || {
            let profile = ClosureProfile::new(None, vtable(|_| ()), false);
            (0..5_000).for_each(|_| profile.record(50, LONG_NS, true));
            assert!(!profile.wants_timing() && profile.tail_ns() < 100);
            profile
        };
        let timed = |profile: &ClosureProfile| profile.record(1_000_000, LONG_NS, true);
        let suspected = |profile: &ClosureProfile| profile.suspect(1_000_000, LONG_NS);
        for surprise in [&timed as &dyn Fn(&ClosureProfile), &suspected] {
            let profile = known();
            surprise(&profile);
            assert_eq!(profile.surprise_ns(), 1_000_000);
            let mut events = 0;
            while profile.tail_ns() >= 1_000_000 {
                assert!(profile.wants_timing());
                profile.record(50, LONG_NS, true);
                assert_eq!(profile.surprise_ns(), 0, "the last one was short");
                events += 1;
            }
            assert_eq!(events, 1_000_000 / SURPRISE_NS_PER_EVENT);
            assert!(!profile.wants_timing());
        }
        // What is known to be long surprises nobody. The tail knows of it before the mean does:
        // until then the next one is expected to be as long.
        let profile = known();
        for _ in 0..100 {
            let short = u64::from(profile.estimate().raw_ns()) <= LONG_NS;
            timed(&profile);
            assert_eq!(profile.surprise_ns(), if short { 1_000_000 } else { 0 });
        }
        assert!(profile.estimate().raw_ns() > 900_000);
        suspected(&profile);
        assert_eq!(profile.surprise_ns(), 0);
    }

    #[test]
    fn a_full_table_shares_the_last_resort_and_does_not_grow() {
        static HANDLERS: LazyLock<Vec<Handler>> = LazyLock::new(|| {
            (0..PROFILES_MAX + 10)
                .map(|_| Handler::new("made at run time"))
                .collect()
        });
        let vtable = vtable(|_| ());
        let profiles = Profiles::new(false);
        let interned = |h| profiles.intern(Some(h), vtable).id();
        let ids: Vec<ProfileId> = HANDLERS.iter().map(interned).collect();
        assert_eq!(
            ids[PROFILES_MAX - ProfileId::FIRST - 1].index(),
            PROFILES_MAX - 1
        );
        let beyond = &ids[PROFILES_MAX - ProfileId::FIRST..];
        assert!(beyond.iter().all(|&id| id == ProfileId::OVERFLOW));
        assert_eq!(
            profiles.known.lock().unwrap().ids.len(),
            PROFILES_MAX - ProfileId::FIRST
        );
        assert_eq!(interned(&HANDLERS[5]), ids[5]);
    }
}
