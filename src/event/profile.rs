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
//! writes is fetched anew by all. So a profile is two lines. The one that all read has what follows
//! from the means, stored when it differs by more than a sixteenth from what is there. The
//! *samples* are on the other, which is fetched from another core for each: so a core records one
//! run in as many as there are cores, drawn by chance, so that no regular program evades it. The
//! first runs are recorded always.
//!
//! **The long run.** A handler that is long now and then is taken by its last sixteen runs for what
//! it takes when it is short, and thousands of its events that wait would seem to be worth nothing.
//! So a second mean goes over the last 256. What an event is taken for is the larger of both: who
//! becomes slower is known for it soon, and who is slow at times is not forgotten in between.

use super::node::{Event, ProfileOf, Sort};
use super::tag::{PROFILES_MAX, ProfileId, Tag};
use super::times::Times;
use super::vtable::{Vtable, VtableOf};
use crate::ablation::{Rule, without};
use crate::policy::estimate::{believed, differs, nearer};
use crate::policy::numbers::{
    COARSE_NS, LONG_RUN_SAMPLES, MEAN_SAMPLES, OUTLIER_TIMES, TRIAL_EVENTS, UNKNOWN_NS,
};
use crate::record::{Cause, Definition};
use crate::sync::atomic::{AtomicBool, AtomicPtr};
use crate::sync::relaxed::{
    AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use crate::sync::{Arc, Mutex, charge, check, fault};
use crate::{Cx, Handler};
use crossbeam_utils::CachePadded;
use std::collections::HashMap;

/// Every run is to be timed; see [`ClosureProfile::wants_timing`].
pub(crate) const WATCH_TIMES: u32 = 1;
/// Every event is to ask its color's gate; see [`Profiles::gate`].
pub(crate) const WATCH_GATE: u32 = 2;
/// Every event is to be recorded.
pub(crate) const WATCH_RECORD: u32 = 4;

/// One handler and closure type: the line that every post and every run reads.
#[repr(align(64))]
#[derive(Debug)]
pub(crate) struct ClosureProfile {
    pub(crate) vtable: &'static Vtable,
    /// The vtable's, here to spare each event a load that the next one waits for.
    run: unsafe fn(Event, &mut Cx),
    pub(crate) handler: Option<&'static Handler>,
    penalty: u32,
    // What follows from the samples, worked out when one is recorded and not for each event.
    /// [`Times`] of one event.
    estimate: AtomicU64,
    /// [`WATCH_TIMES`], [`WATCH_GATE`], [`WATCH_RECORD`]: what is to be done for each event.
    watch: AtomicU32,
    /// See [`ClosureProfile::lone_posts`].
    lone_posts: AtomicU32,
    samples: Samples,
}

/// What was measured: on a line of its own, which only those who record read and write.
#[repr(align(64))]
#[derive(Debug)]
struct Samples {
    mean_ns: AtomicU32,
    deviation_ns: AtomicU32,
    count: AtomicU32,
    /// The mean of the long run, in parts of a ns: [`LONG_RUN_SAMPLES`] each. 0 before it begins.
    long_run: AtomicU64,
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
            known => (known / LONG_RUN_SAMPLES) as u32,
        }
    }

    /// What an event takes, by the mean of the last ones and that of the long run.
    fn expected_ns(&self, mean_ns: u32) -> u32 {
        mean_ns.max(self.long_run_ns(mean_ns))
    }

    /// Counts a run in the long run, if that has begun. It begins with the mean of the first
    /// [`TRIAL_EVENTS`]: the very first run finds nothing in a cache.
    fn extend_long_run(&self, samples: u32, mean_ns: u32, ns: u64) {
        if samples < TRIAL_EVENTS || without(Rule::LongRun) {
            return;
        }
        let known = match self.long_run.load(Relaxed) {
            0 => u64::from(mean_ns) * LONG_RUN_SAMPLES,
            known => known,
        };
        let most_ns = self.expected_ns(mean_ns).saturating_mul(OUTLIER_TIMES);
        // One absurd sample moves the mean by little.
        let ns = ns.min(most_ns.max(UNKNOWN_NS).into());
        let sum = known - known / LONG_RUN_SAMPLES + ns;
        self.long_run.store(sum, Relaxed);
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
        let samples = if time.is_some() { MEAN_SAMPLES } else { 0 };
        let profile = ClosureProfile {
            vtable,
            run: vtable.run,
            handler,
            penalty: handler.map_or(1, Handler::annotated_penalty),
            estimate: AtomicU64::new(0),
            watch: AtomicU32::new(if recorded { WATCH_RECORD } else { 0 }),
            lone_posts: AtomicU32::new(TRIAL_EVENTS),
            samples: Samples {
                mean_ns: AtomicU32::new(time_ns),
                deviation_ns: AtomicU32::new(0),
                count: AtomicU32::new(samples),
                long_run: AtomicU64::new(0),
                panics: AtomicU64::new(0),
            },
        };
        profile.update_estimate(samples, time_ns);
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
            working_set_bytes: self.handler.and_then(Handler::annotated_bytes),
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
        let prior = if time.is_some() { MEAN_SAMPLES } else { 0 };
        let (samples, mean_ns, deviation_ns) = self.samples.load();
        (samples > prior).then(|| LearnedNs {
            mean_ns,
            long_run_ns: self.samples.long_run_ns(mean_ns),
            deviation_ns,
        })
    }

    /// What one event will take, as far as is known.
    #[inline(always)]
    pub(crate) fn estimate(&self) -> Times {
        Times::from_bits(self.estimate.load(Relaxed))
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

    /// Works out what events are judged by.
    fn update_estimate(&self, samples: u32, mean_ns: u32) {
        let raw_ns = if samples == 0 {
            UNKNOWN_NS
        } else {
            self.samples.expected_ns(mean_ns)
        };
        if samples <= 1 || differs(self.estimate().raw_ns().into(), raw_ns.into()) {
            let estimate = Times::new(raw_ns, raw_ns / self.penalty);
            self.estimate.store(estimate.to_bits(), Relaxed);
        }
        // By the estimate, which does not go to and fro at the limit.
        let is_coarse = self.estimate().raw_ns() >= COARSE_NS;
        self.set_watch(WATCH_TIMES, samples < MEAN_SAMPLES || is_coarse);
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

    /// Records a run of `ns`. `due`: it is the core's turn to record what is usual, too.
    pub(crate) fn record(&self, ns: u64, due: bool) {
        let (samples, mean_ns, deviation_ns) = self.samples.load();
        if !due && samples >= TRIAL_EVENTS {
            return;
        }
        if samples == 0 {
            let ns = u32::try_from(ns).unwrap_or(u32::MAX);
            self.samples.store(1, ns, 0);
            self.update_estimate(1, ns);
            return;
        }
        if due {
            self.samples.extend_long_run(samples, mean_ns, ns);
        }
        let ns = believed(mean_ns, ns);
        let weight = samples.min(MEAN_SAMPLES - 1) + 1;
        let deviation_ns = nearer(deviation_ns, ns.abs_diff(mean_ns), weight);
        let mean_ns = nearer(mean_ns, ns, weight);
        let samples = samples.saturating_add(1);
        self.samples.store(samples, mean_ns, deviation_ns);
        self.update_estimate(samples, mean_ns);
    }
}

/// A closure that found no profile left.
pub(super) type Boxed = Box<dyn FnOnce(&mut Cx) + Send>;

impl ProfileOf<Boxed> {
    /// That of closures that found no profile left, for events of this sort.
    #[inline(always)]
    pub(super) fn overflow(sort: Sort) -> ProfileOf<Boxed> {
        let id = match sort.passes {
            false => ProfileId::OVERFLOW,
            true => ProfileId::OVERFLOW_PASSING,
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
    ///
    /// Behind the profiles are as many entries for events in reserved nodes: the same profile but
    /// for how an event is run. What is learned of these is learned of the first.
    pub(crate) table: Box<[AtomicPtr<ClosureProfile>; 2 * PROFILES_MAX]>,
    /// Apart from the table, which each core reads for each event.
    pub(crate) known: CachePadded<Mutex<Known>>,
    /// Set under that lock, once all profiles are marked.
    gated: AtomicBool,
    recorded: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Known {
    ids: HashMap<Key, ProfileId>,
    /// What the table leads to.
    pub(crate) profiles: Vec<Arc<ClosureProfile>>,
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
        const fn boxed(sort: Sort) -> Vtable {
            Vtable {
                is_boxed: true,
                ..*VtableOf::<Boxed>::of(sort)
            }
        }
        const BOXED: [&Vtable; ProfileId::FIRST] = [&boxed(Sort::ORDINARY), &boxed(Sort::PASSING)];
        let table: Box<[AtomicPtr<ClosureProfile>]> = (0..2 * PROFILES_MAX)
            .map(|_| AtomicPtr::new(std::ptr::null_mut()))
            .collect();
        let profiles = Profiles {
            table: table.try_into().expect("as many as collected"),
            known: CachePadded::default(),
            gated: AtomicBool::new(false),
            recorded,
        };
        let mut known = profiles.known.lock().unwrap();
        for (id, vtable) in (0..).map_while(ProfileId::new).zip(BOXED) {
            profiles.make(&mut known, id, None, vtable);
        }
        drop(known);
        profiles
    }

    /// Makes the profile of this number: its entry for events in reserved nodes, and its own.
    fn make(
        &self,
        known: &mut Known,
        id: ProfileId,
        handler: Option<&'static Handler>,
        vtable: &'static Vtable,
    ) {
        for (id, run) in [(id.reserved(), vtable.run_reserved), (id, vtable.run)] {
            // On the stack so far.
            let mut profile =
                charge::uncharged(|| ClosureProfile::new(handler, vtable, self.recorded));
            profile.run = run;
            if self.gated.load(Relaxed) && !fault("new profile not marked") {
                profile.gate();
            }
            self.table[id.entry()].store(known.keep(profile), Release);
        }
    }

    /// The profile an event names.
    #[inline(always)]
    pub(crate) fn get(&self, id: ProfileId) -> &ClosureProfile {
        self.entry(id.index())
    }

    #[inline(always)]
    fn entry(&self, at: usize) -> &ClosureProfile {
        let profile = self.table[at].load(Acquire);
        check!(!profile.is_null(), "{at} is not there");
        // SAFETY: a `ProfileId` is handed out by `intern` after its entries were stored, and comes
        // to other threads with an event, by a lock or what is like it. `known` keeps what entries
        // lead to.
        unsafe { &*profile }
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
        let profile = self.entry(tag.entry());
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
        let known = self.known.lock().unwrap();
        if !fault("profiles not marked") {
            known.profiles.iter().for_each(|profile| profile.gate());
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
        if fault("registered before it is there") {
            known.ids.insert(key, next);
            drop(known);
            known = self.known.lock().unwrap();
        }
        self.make(&mut known, next, handler, vtable);
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
        "mely::ask::blocking::resume<",
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
    use crate::event::vtable::VtableOf;
    use std::sync::LazyLock;
    use std::time::Duration;

    static ANNOTATED: Handler = Handler::new("annotated")
        .time(Duration::from_nanos(800))
        .penalty(8);

    fn vtable<F: FnOnce(&mut Cx) + Send + 'static>(_: F) -> &'static Vtable {
        VtableOf::<F>::of(Sort::ORDINARY)
    }

    /// Mean and mean deviation, in ns.
    fn learned(profile: &ClosureProfile) -> Option<[u32; 2]> {
        let learned = profile.learned()?;
        Some([learned.mean_ns, learned.deviation_ns])
    }

    #[test]
    fn nothing_is_learned_before_it_is_measured() {
        let annotated = ClosureProfile::new(Some(&ANNOTATED), vtable(|_| ()), false);
        assert_eq!(annotated.learned(), None);
        let unknown = ClosureProfile::new(None, vtable(|_| ()), false);
        assert_eq!(unknown.learned(), None);
        for profile in [&annotated, &unknown] {
            profile.record(500, true);
        }
        // From 800 to 500 by a sixteenth, and so for the deviation.
        assert_eq!(learned(&annotated), Some([781, 19]));
        assert_eq!(learned(&unknown), Some([500, 0]));
    }

    #[test]
    fn means_move_by_a_sixteenth() {
        let profile = ClosureProfile::new(Some(&ANNOTATED), vtable(|_| ()), false);
        (0..20).for_each(|_| profile.record(800, true));
        for (ns, mean, deviation) in [(1_600, 850, 50), (0, 796, 100), (796, 796, 93)] {
            profile.record(ns, true);
            assert_eq!(learned(&profile), Some([mean, deviation]));
        }
    }

    #[test]
    fn what_hardly_changes_is_not_stored() {
        let profile = ClosureProfile::new(Some(&ANNOTATED), vtable(|_| ()), false);
        for (ns, seen_ns) in [
            (840, 800),
            (840, 800),
            (840, 800),
            (840, 800),
            (10, 800),
            (10, 713),
        ] {
            profile.record(ns, true);
            assert_eq!(profile.estimate().raw_ns(), seen_ns);
        }
    }

    #[test]
    fn what_is_usual_is_recorded_in_its_turn() {
        let profile = ClosureProfile::new(Some(&ANNOTATED), vtable(|_| ()), false);
        // The first ones, the annotation among them, whoever's turn it is.
        let left = TRIAL_EVENTS - MEAN_SAMPLES;
        (0..left).for_each(|_| profile.record(800, false));
        let known = profile.samples.load();
        assert_eq!(known, (TRIAL_EVENTS, 800, 0));
        // Then in its turn.
        for ns in [800, 2_000, 9_000] {
            profile.record(ns, false);
            assert_eq!(profile.samples.load(), known);
        }
        profile.record(2_000, true);
        assert_eq!(profile.samples.load(), (TRIAL_EVENTS + 1, 875, 75));
    }

    #[test]
    fn whole_sixteenths_are_not_rounded() {
        let profile = ClosureProfile::new(Some(&ANNOTATED), vtable(|_| ()), false);
        (0..20).for_each(|_| profile.record(800, true));
        profile.record(784, true);
        assert_eq!(learned(&profile), Some([799, 1]));
        profile.record(815, true);
        assert_eq!(learned(&profile), Some([800, 2]));
    }

    #[test]
    fn annotation_is_the_prior_and_samples_move_it() {
        let profile = ClosureProfile::new(Some(&ANNOTATED), vtable(|_| ()), false);
        let estimate = profile.estimate();
        assert_eq!((estimate.raw_ns(), estimate.penalized_ns()), (800, 100));
        for _ in 0..200 {
            profile.record(1_600, true);
        }
        let estimate = profile.estimate();
        assert!((1_590..=1_600).contains(&estimate.raw_ns()), "{estimate:?}");
    }

    /// One in fifty takes 12.5 us, the others 50 ns: 300 on average.
    #[test]
    fn who_is_long_at_times_is_not_forgotten_in_between() {
        let profile = ClosureProfile::new(None, vtable(|_| ()), false);
        (0..TRIAL_EVENTS).for_each(|_| profile.record(50, true));
        assert_eq!(profile.estimate().raw_ns(), 50);
        let mut seen_ns = Vec::new();
        for i in 0..2_000 {
            profile.record(if i % 50 == 0 { 12_500 } else { 50 }, true);
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
            profile.record(ns, i % 32 == 0);
        }
        let learned = profile.learned().unwrap();
        assert!((200..=420).contains(&learned.long_run_ns), "{learned:?}");
        // It is forgotten when it is over.
        (0..3_000).for_each(|_| profile.record(50, true));
        assert!(profile.estimate().raw_ns() < 55);
    }

    /// Of a thread that the system took off its processor.
    #[test]
    fn an_absurd_sample_moves_the_long_run_by_little() {
        let profile = ClosureProfile::new(None, vtable(|_| ()), false);
        (0..5_000).for_each(|_| profile.record(50, true));
        profile.record(1_000_000_000, true);
        (0..100).for_each(|_| profile.record(50, true));
        assert!(profile.estimate().raw_ns() < 250);
        // What has really become so long is soon known for it.
        (0..60).for_each(|_| profile.record(1_000_000, true));
        assert!(profile.estimate().raw_ns() > 500_000);
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
