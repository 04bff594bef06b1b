//! One core's side of the scheduler: what belongs to its thread alone.
//!
//! ```text
//!     post to own color ------> FIFO of the running color           (no atomics at all)
//!     post to another color --> outbox --+
//!                                        |  exchange(): the one critical section of a quantum
//!     checkout, run out -----------------+--> return, flush, take mail, check out
//!                                        |
//!     checkout, next quantum <-----------+
//! ```
//!
//! A core takes its own lock once a quantum. In it, in this order: finished colors are returned; the
//! outbox is published in program order; pokes are taken; the next colors are checked out. Then it
//! runs them with no atomics at all. Read-modify-writes: one to take the lock; one for each color of
//! another core that was posted to, and one more if that color had no poke under way.
//!
//! **Causal order.** Posts to other colors wait in the outbox and leave it in program order; only
//! consecutive posts to one color become one chunk. Every append to a FIFO first drains that color's
//! mailbox, except a self-post: what lies in the mailbox of a running color was posted by events
//! that nothing the running event does can have caused, so it may come after.

use super::clock::Clock;
use super::mail;
use super::node::{Node, VtableOf, fill};
use super::poke;
use super::pool::Pool;
use super::profile::{Estimate, Index, OVERFLOW};
use super::queue::{Chunk, NIL};
use super::section::{Section, Worth};
use super::shared::{Boxed, Shared};
use super::steal::Sighting;
use crate::sync::atomic::{Ordering, fence};
use crate::sync::{Arc, fault};
use crate::{Color, Cx, Handler};
use arrayvec::ArrayVec;
use std::ptr::NonNull;

/// Most colors a core takes at once.
pub(crate) const CHECKOUT_MAX: usize = 32;
/// Most chunks that wait in the outbox before it is flushed inside a handler.
const OUTBOX_MAX: usize = if cfg!(loom) { 4 } else { 256 };
/// One event in so many is timed, of those that need no closer watch: two readings of the clock are
/// several events. A prime, so that handlers that alternate are both sampled.
const SAMPLE_PERIOD: u32 = 251;
/// The batch threshold of a color while no other is waiting on its core.
const BATCH_ALONE: u32 = if cfg!(loom) { 1 } else { 256 };
/// What an event takes at least, in ns: the scheduler's own part of it.
const EVENT_MIN_NS: u64 = 10;

/// The colors a core has taken to run without its lock.
pub(crate) type Checkout = ArrayVec<u32, CHECKOUT_MAX>;

/// A chunk on its way to a color.
#[derive(Debug)]
struct Outgoing {
    slot: u32,
    chunk: Chunk,
}

/// The event that runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Current {
    /// [`NIL`] between events.
    pub(crate) slot: u32,
    pub(crate) color: u64,
    pub(crate) profile: u32,
    /// Known or feared to be long: each post is published at once. Only ever set together with
    /// `started_ns`.
    publish: bool,
    /// When it started, if it is timed.
    started_ns: Option<u64>,
}

const NO_EVENT: Current = Current {
    slot: NIL,
    color: 0,
    profile: OVERFLOW,
    publish: false,
    started_ns: None,
};

/// An event about to run.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) node: NonNull<Node>,
    pub(crate) run: unsafe fn(NonNull<Node>, &mut Cx),
}

/// See the module text.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) id: u32,
    pub(crate) shared: Arc<Shared>,
    pub(crate) clock: Clock,
    /// What reading the clock takes, in ns: several times an empty handler.
    clock_cost_ns: u64,
    pool: Pool,
    index: Index,
    outbox: Vec<Outgoing>,
    pub(super) checkout: Checkout,
    pub(crate) current: Current,
    /// What may be hidden from thieves: about a steal cost, in ns.
    quantum_ns: u32,
    /// Events posted and executed by this core since it began.
    pub(crate) posted: u64,
    pub(crate) executed: u64,
    until_sample: u32,
    /// Cores whose doorbells are to be rung as soon as no lock is held.
    pub(super) bells: Vec<u32>,
    pub(super) sightings: Vec<Sighting>,
    /// See [`Core::is_busy`].
    busy: bool,
    /// A handler of this quantum was longer than a wake-up.
    long: bool,
    /// What is left of the batch of the running color.
    batch_left: u32,
    batch_left_ns: i64,
    /// What this core last noted as running, in the words of [`super::shared::Progress::running`].
    noted: u32,
}

// SAFETY: a core's nodes, in its outbox and pool, are held by it, wherever it is.
unsafe impl Send for Core {}

impl Core {
    pub(crate) fn new(shared: Arc<Shared>, id: u32, clock: Clock) -> Core {
        let sightings = vec![Sighting::default(); shared.cores[id as usize].victims.len()];
        Core {
            id,
            clock_cost_ns: clock.cost_ns(),
            clock,
            pool: Pool::new(Arc::clone(&shared.depot)),
            index: Index::new(),
            outbox: Vec::with_capacity(OUTBOX_MAX),
            checkout: Checkout::new(),
            current: NO_EVENT,
            quantum_ns: shared.reference_cost_ns(id) as u32,
            posted: 0,
            executed: 0,
            until_sample: 1,
            bells: Vec::new(),
            sightings,
            busy: false,
            long: false,
            batch_left: 0,
            batch_left_ns: 0,
            noted: 0,
            shared,
        }
    }

    /// Posts an event. The closure comes back if the runtime's limit of events is reached.
    #[inline]
    pub(crate) fn post<F>(
        &mut self,
        handler: Option<&'static Handler>,
        color: Color,
        f: F,
    ) -> Result<(), F>
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let profile = self
            .index
            .find(&self.shared.profiles, handler, VtableOf::<F>::VTABLE);
        let estimate = self.shared.profiles.get(profile).estimate(self.quantum_ns);
        let Some(node) = self.pool.alloc() else {
            return Err(f);
        };
        // SAFETY: a fresh node, held by us.
        unsafe { fill_event(node, color, profile, estimate, f) };
        self.posted += 1;
        self.enqueue(self.shared.slots.map.slot(color), node, estimate);
        Ok(())
    }

    /// Posts an event of the runtime's own, also at the limit: a connection that is not closed, or a
    /// closure that is dropped in the wrong place, would cost more than an event.
    pub(crate) fn post_own<F>(&mut self, handler: Option<&'static Handler>, color: Color, f: F)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        self.pool.reserve();
        let posted = self.post(handler, color, f);
        debug_assert!(posted.is_ok(), "reserved");
    }

    #[inline(always)]
    fn enqueue(&mut self, slot: u32, node: NonNull<Node>, estimate: Estimate) {
        if slot == self.current.slot {
            // SAFETY: the running color is checked out by this thread.
            unsafe {
                self.shared.slots.queue(slot).append(single(node, estimate));
            };
        } else {
            self.put_out(slot, node, estimate);
        }
    }

    /// Posts to another color. Apart from the self-post, the commonest post, whose few instructions
    /// would otherwise save and restore the registers that this one needs.
    #[inline(never)]
    fn put_out(&mut self, slot: u32, node: NonNull<Node>, estimate: Estimate) {
        let chunk = single(node, estimate);
        if let Some(last) = self.outbox.last_mut()
            && last.slot == slot
            && join(&mut last.chunk, chunk)
        {
            // SAFETY: the chunk's nodes are held by the outbox, which is ours.
            unsafe { Node::header(last.chunk.last.as_ptr()).next = node.as_ptr() };
            last.chunk.last = node;
        } else {
            self.outbox.push(Outgoing { slot, chunk });
        }
        if self.current.publish || self.outbox.len() >= OUTBOX_MAX {
            self.flush();
        }
    }

    /// Publishes the outbox in program order: everything posted so far is in its color's queue or
    /// mailbox when this returns.
    pub(crate) fn flush(&mut self) {
        // Borrowed, not cloned, here and in `exchange`: a reference count is a read-modify-write on a
        // line that all cores share.
        let Core {
            id,
            shared,
            outbox,
            bells,
            ..
        } = self;
        if outbox.is_empty() {
            return;
        }
        let mut section = Section::enter(shared, *id);
        publish_outbox(outbox, &mut section, shared, *id, bells);
        let worth = section.publish();
        drop(section);
        self.make_known(worth);
    }

    /// The one critical section of a quantum; see the module text. Leaves the next colors to run in
    /// the checkout.
    pub(crate) fn exchange(&mut self) {
        let Core {
            id,
            shared,
            outbox,
            checkout,
            bells,
            ..
        } = self;
        let own = &shared.cores[*id as usize];
        if checkout.is_empty() && outbox.is_empty() && own.hint.queued() == 0 && !own.pokes.any() {
            return;
        }
        own.stats.quanta.add(1);
        own.stats.posts.max(self.posted);
        let mut section = Section::enter(shared, *id);
        for &slot in checkout.iter() {
            section.give_back(slot, bells);
        }
        checkout.clear();
        publish_outbox(outbox, &mut section, shared, *id, bells);
        section.take_mail(bells);
        section.check_out(checkout, self.quantum_ns.into());
        let worth = section.publish();
        // A walk of all lists: affordable while they are short.
        #[cfg(all(debug_assertions, not(loom)))]
        if section.lists().queued <= 64 {
            section.assert_valid();
        }
        drop(section);
        self.quantum_ns = shared.reference_cost_ns(*id) as u32;
        self.make_known(worth);
    }

    /// Rings the doorbells that are due, and wakes a sleeper if there is enough to steal; see
    /// [`super::sleepers`] for the protocol. Called without any lock.
    #[inline]
    fn make_known(&mut self, worth: Worth) {
        let enough_ns = self.shared.wake_cost_ns;
        if worth.now_ns >= enough_ns {
            if worth.rises_to(enough_ns) && !fault("waker's fence skipped") {
                fence(Ordering::SeqCst);
            }
            self.wake_one();
        }
        self.ring();
    }

    /// Wakes the nearest sleeper, unless somebody is already searching.
    pub(super) fn wake_one(&mut self) {
        if self.shared.sleepers.any() && self.shared.searching.load(Ordering::Relaxed) == 0 {
            wake_nearest(&self.shared, self.id, &mut self.bells);
        }
    }

    pub(crate) fn ring(&mut self) {
        for core in self.bells.drain(..) {
            self.shared.cores[self.id as usize].stats.wakes.add(1);
            self.shared.ring(core);
        }
    }

    /// The `i`-th color of this quantum, if there is one, with its batch begun.
    #[inline]
    pub(crate) fn begin_color(&mut self, i: usize) -> Option<u32> {
        let &slot = self.checkout.get(i)?;
        let own = &self.shared.cores[self.id as usize];
        own.progress.step(false);
        self.batch_left = self.shared.policy.batch;
        if self.checkout.len() == 1 && own.hint.queued() == 0 {
            // Nobody waits behind it. The time limit still holds, so that mail is not left for
            // longer than the quantum.
            self.batch_left = self.batch_left.max(BATCH_ALONE);
        }
        self.batch_left_ns = self.quantum_ns.into();
        Some(slot)
    }

    /// The next event of the batch of `slot`, which is checked out by us.
    #[inline(always)]
    pub(crate) fn begin_event(&mut self, slot: u32) -> Option<Event> {
        if self.batch_left == 0 || self.batch_left_ns <= 0 {
            return None;
        }
        // SAFETY: checked out by this thread.
        let node = unsafe { self.shared.slots.queue(slot).pop() }?;
        let (color, profile_index, raw_ns) = {
            // SAFETY: popped, so held by us.
            let header = unsafe { Node::header(node.as_ptr()) };
            (header.color, header.profile, header.raw_ns)
        };
        self.batch_left -= 1;
        self.batch_left_ns -= i64::from(raw_ns);
        let profile = self.shared.profiles.get(profile_index);
        let run = profile.run;
        let watch = profile.wants_timing();
        self.current.slot = slot;
        self.current.color = color;
        self.current.profile = profile_index;
        if self.noted != profile_index + 1 {
            self.note(profile_index + 1);
        }
        self.until_sample -= 1;
        if watch || self.until_sample == 0 {
            self.watch(watch, raw_ns);
        }
        Some(Event { node, run })
    }

    /// Notes what runs, where others read it: only when it changes, because thieves and the watchdog
    /// look at that line.
    #[inline(never)]
    fn note(&mut self, running: u32) {
        self.noted = running;
        self.shared.cores[self.id as usize]
            .progress
            .running(running);
    }

    /// Watches the event that is about to run: takes the time, and unless it is a mere sample, makes
    /// sure beforehand that others are not left to wait for it.
    #[inline(never)]
    fn watch(&mut self, watch: bool, raw_ns: u32) {
        if watch {
            self.current.publish = raw_ns >= self.quantum_ns;
            if u64::from(raw_ns) >= self.shared.wake_cost_ns {
                self.step_long();
            }
        }
        self.until_sample = SAMPLE_PERIOD;
        self.current.started_ns = Some(self.clock.now_ns());
    }

    /// Tells thieves that a long handler begins, and makes sure that nobody's work is left to wait
    /// for it: mail that came since the exchange, or queued colors.
    fn step_long(&mut self) {
        let own = &self.shared.cores[self.id as usize];
        own.progress.step(true);
        if self.shared.policy.stealing && !fault("no look before a long handler") {
            // A read-modify-write of the word that pokers push onto: either we see the poke, or the
            // poker's push comes after and makes it see that we are long (`rescue`). A fence here
            // would need another in every push.
            let poked = if fault("plain look before a long handler") {
                own.pokes.any()
            } else {
                own.pokes.any_ordered()
            };
            if poked || own.hint.stealable() > 0 {
                // Pairs with the fence of a core on its way to sleep.
                fence(Ordering::SeqCst);
                self.wake_one();
                self.ring();
            }
        }
    }

    /// The event has run, or has panicked.
    #[inline(always)]
    pub(crate) fn end_event(&mut self) {
        self.executed += 1;
        self.current.slot = NIL;
        if let Some(started_ns) = self.current.started_ns {
            self.end_watch(started_ns);
        }
    }

    #[inline(never)]
    fn end_watch(&mut self, started_ns: u64) {
        let took_ns = self
            .clock
            .now_ns()
            .saturating_sub(started_ns + self.clock_cost_ns)
            .max(EVENT_MIN_NS);
        self.shared
            .profiles
            .get(self.current.profile)
            .record(took_ns);
        let stats = &self.shared.cores[self.id as usize].stats;
        stats.handler_ns_max.max(took_ns);
        self.long |= took_ns > self.shared.wake_cost_ns;
        if self.checkout.len() > 1 && took_ns > 4 * u64::from(self.quantum_ns) {
            stats.hostage.add(1);
        }
        self.current = NO_EVENT;
    }

    /// The colors of this quantum have had their turn.
    #[inline]
    pub(crate) fn end_quantum(&mut self, events: u64) {
        let stats = &self.shared.cores[self.id as usize].stats;
        stats.events.add(events);
        self.busy = !self.long;
        self.long = false;
        let progress = &self.shared.cores[self.id as usize].progress;
        progress.step(false);
        progress.running(0);
        self.noted = 0;
    }

    /// Whether this core ran something in its last turn: then what is queued goes before what
    /// completed. Not after a long handler.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.busy
    }

    /// Whether a post is sure to be accepted.
    pub(crate) fn has_room(&mut self) -> bool {
        self.pool.has_room()
    }

    /// Whether nothing is checked out.
    pub(crate) fn is_idle(&self) -> bool {
        self.checkout.is_empty()
    }

    /// Nothing to run: the event source is looked at in every turn.
    #[inline]
    pub(crate) fn rest(&mut self) {
        self.busy = false;
    }

    /// Whether posts wait to be published.
    pub(crate) fn has_outbox(&self) -> bool {
        !self.outbox.is_empty()
    }

    #[inline(always)]
    pub(crate) fn free(&mut self, node: NonNull<Node>) {
        self.pool.free(node);
    }
}

impl Drop for Core {
    /// Leaves everything where [`Shared`]'s drop finds it.
    fn drop(&mut self) {
        self.shared.cores[self.id as usize]
            .stats
            .posts
            .max(self.posted);
        for Outgoing { slot, chunk } in self.outbox.drain(..) {
            // SAFETY: the outbox gives its nodes up. Nobody needs a poke: the core's end is the
            // runtime's.
            let _ = unsafe { mail::push(&self.shared.slots, slot, chunk) };
        }
    }
}

/// Empties an outbox in program order, under the lock of core `id`, whose thread this is.
fn publish_outbox(
    outbox: &mut Vec<Outgoing>,
    section: &mut Section<'_>,
    shared: &Shared,
    id: u32,
    bells: &mut Vec<u32>,
) {
    if fault("outbox out of order") {
        outbox.reverse();
    }
    for Outgoing { slot, chunk } in outbox.drain(..) {
        // SAFETY: the outbox gives its nodes up; we are the core's thread.
        if unsafe { section.append(slot, chunk) } {
            continue;
        }
        let stats = &shared.cores[id as usize].stats;
        stats.posts_remote.add(chunk.count.into());
        // SAFETY: as above; `join` keeps sums and counts within bounds.
        if unsafe { mail::push(&shared.slots, slot, chunk) } {
            poke::send(shared, slot, bells);
            let owner = shared.slots.owner(slot);
            rescue(shared, owner, id, bells);
        }
    }
}

/// Fills a node with an event.
///
/// # Safety
/// The caller holds the node and it holds no closure.
#[inline(always)]
unsafe fn fill_event<F>(node: NonNull<Node>, color: Color, profile: u32, estimate: Estimate, f: F)
where
    F: FnOnce(&mut Cx) + Send + 'static,
{
    let Estimate {
        raw_ns,
        penalized_ns,
        ..
    } = estimate;
    if profile == OVERFLOW {
        let boxed: Boxed = Box::new(f);
        // SAFETY: the caller's promise; the overflow profile's vtable is that of `Boxed`.
        unsafe { fill(node, color.value(), profile, raw_ns, penalized_ns, boxed) };
    } else {
        // SAFETY: the caller's promise; the profile's vtable is that of `F`.
        unsafe { fill(node, color.value(), profile, raw_ns, penalized_ns, f) };
    }
}

#[inline(always)]
fn single(node: NonNull<Node>, estimate: Estimate) -> Chunk {
    Chunk {
        first: node,
        last: node,
        count: 1,
        solo: estimate.solo,
        raw_ns: estimate.raw_ns.into(),
        penalized_ns: estimate.penalized_ns.into(),
    }
}

/// Most events in a chunk.
const CHUNK_MAX: u32 = 1 << 20;

/// Adds the counts and times of `more` to `chunk`; false, and nothing changed, if the sums would not
/// fit into a mailbox's node.
#[inline(always)]
fn join(chunk: &mut Chunk, more: Chunk) -> bool {
    let (raw_ns, penalized_ns) = (
        chunk.raw_ns + more.raw_ns,
        chunk.penalized_ns + more.penalized_ns,
    );
    if raw_ns > u32::MAX.into() || penalized_ns > u32::MAX.into() || chunk.count >= CHUNK_MAX {
        return false;
    }
    chunk.raw_ns = raw_ns;
    chunk.penalized_ns = penalized_ns;
    chunk.count += more.count;
    chunk.solo |= more.solo;
    true
}

/// Wakes the sleeper nearest to `core`.
pub(super) fn wake_nearest(shared: &Shared, core: u32, bells: &mut Vec<u32>) {
    for &(other, _) in &shared.cores[core as usize].victims {
        if shared.sleepers.contains(other) && shared.cores[other as usize].pokes.unpark() {
            bells.push(other);
            return;
        }
    }
}

/// A color was poked whose owner may be inside a long handler: wakes somebody to take it from there.
fn rescue(shared: &Shared, owner: u32, waker: u32, bells: &mut Vec<u32>) {
    if !shared.policy.stealing || owner == waker || fault("nobody sent to the rescue") {
        return;
    }
    let progress = &shared.cores[owner as usize].progress;
    if progress.is_long() {
        // Pairs with the fence of a core on its way to sleep: it sees poke and handler, or we see it
        // asleep.
        fence(Ordering::SeqCst);
        if shared.sleepers.any() {
            wake_nearest(shared, owner, bells);
        }
    }
}

/// What a foreign thread posts with: nodes, and the way to profiles.
#[derive(Debug)]
pub(crate) struct Maker {
    pool: Pool,
    index: Index,
}

impl Maker {
    pub(crate) fn new(shared: &Shared) -> Maker {
        Maker {
            pool: Pool::new(Arc::clone(&shared.depot)),
            index: Index::new(),
        }
    }

    /// Makes an event; the closure comes back if the limit of events is reached.
    pub(crate) fn make<F>(
        &mut self,
        shared: &Shared,
        handler: Option<&'static Handler>,
        color: Color,
        f: F,
    ) -> Result<Chunk, F>
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let profile = self
            .index
            .find(&shared.profiles, handler, VtableOf::<F>::VTABLE);
        let estimate = shared.profiles.get(profile).estimate(0);
        let Some(node) = self.pool.alloc() else {
            return Err(f);
        };
        // SAFETY: a fresh node, held by us.
        unsafe { fill_event(node, color, profile, estimate, f) };
        Ok(single(node, estimate))
    }
}

impl Maker {
    /// Makes an event of the runtime's own, also at the limit.
    pub(crate) fn make_own<F>(&mut self, shared: &Shared, color: Color, f: F) -> Result<Chunk, F>
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        self.pool.reserve();
        self.make(shared, None, color, f)
    }
}

/// Publishes an event made by a foreign thread.
pub(crate) fn publish_foreign(shared: &Shared, color: Color, chunk: Chunk) {
    let slot = shared.slots.map.slot(color);
    // SAFETY: the chunk is the caller's and given up here.
    if unsafe { mail::push(&shared.slots, slot, chunk) } {
        let mut bells = Vec::new();
        poke::send(shared, slot, &mut bells);
        let owner = shared.slots.owner(slot);
        rescue(shared, owner, NIL, &mut bells);
        bells.into_iter().for_each(|core| shared.ring(core));
    }
}

/// Asks for a color to be moved to a core; see [`Cx::place`].
pub(crate) fn place(shared: &Shared, color: Color, core: usize) {
    let cores = shared.cores.len();
    assert!(core < cores, "core {core} of a runtime with {cores} cores");
    let core = core as u32;
    let slot = shared.slots.map.slot(color);
    if shared.slots.map.is_control(slot) {
        return;
    }
    let wanted = &shared.slots.shared(slot).wanted;
    if shared.slots.owner(slot) == core {
        // It is there already; but it must not leave for an earlier wish.
        if wanted.load(Ordering::Relaxed) != 0 {
            wanted.store(0, Ordering::Relaxed);
        }
        return;
    }
    wanted.store(core + 1, Ordering::Release);
    if mail::mark_poked(&shared.slots, slot) {
        let mut bells = Vec::new();
        poke::send(shared, slot, &mut bells);
        bells.into_iter().for_each(|core| shared.ring(core));
    }
}
