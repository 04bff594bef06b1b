//! One core's side of the scheduler: what belongs to its thread alone.
//!
//! ```text
//!     post to own color -------> FIFO of the running color      (no atomics at all)
//!     post to one checked out -> its FIFO in the checkout       (a look at its mailbox)
//!     post to any other -------> outbox ------+
//!                                             |  exchange(): the one critical section of a quantum
//!     checkout, run out ----------------------+--> return, flush, take mail, check out
//!                                             |
//!     checkout, next quantum <----------------+
//! ```
//!
//! A core takes its own lock once a quantum; besides only to flush its outbox before the quantum
//! ends, after a steal of several colors, and for levelling. In the exchange, in this order: colors
//! are returned, but for those that are [kept](super::checkout); the outbox is published in program
//! order; pokes are taken, and colors wanted elsewhere go; the next colors are checked out. Then it
//! runs them with no read-modify-write, but for turns that are timed and events that are long.
//! The exchange takes: one for the lock; one for each chunk that is pushed to a color of another
//! core; one for each row of pokes to one core; one to take the core's own pokes, and one for the
//! mailbox of each color that had a poke.
//!
//! **Causal order.** Posts to other colors leave the outbox in program order, or go to a color in
//! the checkout when nothing for it is in the outbox; only consecutive posts to one color become
//! one chunk. Every append to a FIFO comes after what is in that color's mailbox, except a
//! self-post: what lies in the mailbox of a running color was posted by events that nothing the
//! running event does can have caused, so it may come after.

use super::checkout::Checkout;
use super::ledger::Ledger;
use super::outbox::Outbox;
use super::section::Section;
use super::steal::Search;
use super::timing::Timing;
use crate::clock::Clock;
use crate::color::{CoreId, MaybeSlot, SlotId};
use crate::event::fifo::Running;
use crate::event::maker::{Maker, Place};
use crate::event::node::{Event, Sort};
use crate::event::pool::Pool;
use crate::event::profile::{Begun, WATCH_GATE, WATCH_RECORD, WATCH_TIMES};
use crate::event::tag::{ProfileId, Tag};
use crate::event::times::Times;
use crate::memory::prefetch;
#[cfg(feature = "tracing")]
use crate::notice::Notices;
use crate::policy::numbers::WARY_QUANTA;
use crate::policy::quantum;
use crate::record::Log;
use crate::shared::remote::wishes;
use crate::shared::{CoreShared, Shared};
use crate::sync::{Arc, charge};
use crate::{Color, Cx, Handler};

/// The event that runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Current {
    /// [`MaybeSlot::NONE`] between quanta.
    pub(crate) slot: MaybeSlot,
    /// The color's value.
    color: u64,
    /// [`Tag::NONE`] before the first event since the core found nothing to run, so that this event
    /// is noted whatever its handler.
    pub(super) tag: Tag,
    /// When it started, if it is timed.
    pub(super) started_ns: u64,
    /// What there is to do when it has run: [`TIMED`], [`GATHERED`], [`RECORDED`].
    pub(super) at_end: u32,
}

/// The event is timed.
pub(super) const TIMED: u32 = 1;
/// The layers above have gathered something in it.
const GATHERED: u32 = 2;
/// The event is recorded.
pub(super) const RECORDED: u32 = 4;

impl Current {
    pub(crate) fn color(&self) -> Color {
        Color::of_kind(self.tag.kind(), self.color)
    }

    pub(crate) fn profile(&self) -> ProfileId {
        self.tag.profile()
    }
}

pub(super) const NO_EVENT: Current = Current {
    slot: MaybeSlot::NONE,
    color: 0,
    tag: Tag::NONE,
    started_ns: 0,
    at_end: 0,
};

/// See the module text.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) id: CoreId,
    pub(crate) shared: Arc<Shared>,
    /// This core's part of it.
    pub(crate) own: Arc<CoreShared>,
    pub(crate) clock: Clock,
    pub(super) maker: Maker,
    pub(super) outbox: Outbox,
    pub(super) checkout: Checkout,
    pub(super) running: Running,
    pub(crate) current: Current,
    /// How many cores work, as far as this one has seen; see [`crate::shared::remote::working`].
    pub(super) working: u32,
    pub(crate) ledger: Ledger,
    pub(super) timing: Timing,
    /// Cores whose doorbells are to be rung as soon as no lock is held; see [`super::waking`].
    pub(super) bells: Vec<CoreId>,
    pub(crate) search: Search,
    /// What is to be told.
    #[cfg(feature = "tracing")]
    pub(crate) notices: Notices,
    /// Since when the core sleeps, in ns.
    #[cfg(feature = "tracing")]
    pub(super) parked_at_ns: Option<u64>,
}

// SAFETY: the nodes in checkout, outbox, running color and pool are reached through this core only,
// whichever thread has it; the closures in them are `Send` (the bound of `Maker::make`).
unsafe impl Send for Core {}

impl Core {
    pub(crate) fn new(shared: Arc<Shared>, id: CoreId, clock: Clock) -> Core {
        let mut maker = Maker::new(&shared.depot);
        if let Some(recorder) = &shared.recorder {
            maker.record(Log::of_core(recorder, id.index()));
        }
        let timing = Timing::new(&clock, id, shared.idle.vigil.at_once);
        let is_fresh = timing.fresh_since_ns.is_some();
        shared.core(id).progress.set_fresh(is_fresh);
        Core {
            id,
            own: Arc::clone(shared.core(id)),
            timing,
            search: Search::new(shared.core(id).victims.len()),
            clock,
            maker,
            outbox: Outbox::new(),
            checkout: Checkout::new(shared.limits(id).quantum_ns(&shared), shared.policy.batch),
            running: Running::NONE,
            current: NO_EVENT,
            working: shared.working.latest(),
            ledger: Ledger::default(),
            bells: Vec::new(),
            #[cfg(feature = "tracing")]
            notices: Notices::default(),
            #[cfg(feature = "tracing")]
            parked_at_ns: None,
            shared,
        }
    }

    /// Posts an event. The closure comes back if the runtime's limit of events is reached.
    #[cfg(test)]
    pub(crate) fn post<F>(
        &mut self,
        handler: Option<&'static Handler>,
        color: Color,
        f: F,
    ) -> Result<(), F>
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        self.post_sort(handler, color, f, Sort::ORDINARY, |f| f)
    }

    /// Posts `wrap(f)` as an event of this sort, which is made once the event has its memory: until
    /// then `f` can come back. `wrap` runs no user code.
    #[inline]
    pub(crate) fn post_sort<F, G>(
        &mut self,
        handler: Option<&'static Handler>,
        color: Color,
        f: F,
        sort: Sort,
        wrap: impl FnOnce(F) -> G,
    ) -> Result<(), F>
    where
        G: FnOnce(&mut Cx) + Send + 'static,
    {
        let profiles = &self.shared.profiles;
        let made = self.maker.make(profiles, handler, color, f, sort, wrap);
        #[cfg(feature = "tracing")]
        if made.is_err() {
            self.tell_refused(color, "events_max");
        }
        let (event, times) = made?;
        self.put(color, event, times);
        Ok(())
    }

    /// Memory for an event of this sort whose closure is boxed; none at the limit of events. It is
    /// to be filled and [put](Self::put_placed) before anything else is posted.
    pub(crate) fn place<F>(
        &mut self,
        handler: Option<&'static Handler>,
        color: Color,
        sort: Sort,
    ) -> Option<Place<F>>
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let profiles = &self.shared.profiles;
        let place = self
            .maker
            .place_if(profiles, handler, color, sort, || true)
            .ok();
        #[cfg(feature = "tracing")]
        if place.is_none() {
            self.tell_refused(color, "events_max");
        }
        place
    }

    /// Posts what was put into memory that this core has made.
    pub(crate) fn put_placed(&mut self, color: Color, (event, times): (Event, Times)) {
        self.put(color, event, times);
    }

    /// Posts an event that cannot be refused, also at the limit of events: see [`Maker::make_own`].
    pub(crate) fn post_own<F>(&mut self, handler: Option<&'static Handler>, color: Color, f: F)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        self.post_own_sort(handler, color, f, Sort::ORDINARY);
    }

    /// The same for an event of this sort.
    pub(crate) fn post_own_sort<F>(
        &mut self,
        handler: Option<&'static Handler>,
        color: Color,
        f: F,
        sort: Sort,
    ) where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let (event, times) = self
            .maker
            .make_own(&self.shared.profiles, handler, color, f, sort);
        self.put(color, event, times);
    }

    /// Posts an event of the runtime's own on behalf of an event source. Inside an event of its
    /// color it goes behind what is in the color's mailbox, which another core may have found at
    /// the same source before ([`crate::host::sources`]).
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn post_home<F>(&mut self, handler: Option<&'static Handler>, color: Color, f: F)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let slot = self.shared.slots.map.slot(color);
        if !self.current.slot.is(slot) {
            return self.post_own(handler, color, f);
        }
        let (event, _times) =
            self.maker
                .make_own(&self.shared.profiles, handler, color, f, Sort::ORDINARY);
        self.ledger.posted += 1;
        self.outbox.put(slot, event);
        self.flush_due();
    }

    /// Puts a new event, whose times these are, on its way to its color.
    #[inline(always)]
    pub(super) fn put(&mut self, color: Color, event: Event, times: Times) {
        self.ledger.posted += 1;
        self.put_counted(color, event, times);
    }

    /// The same for an event that counts as posted already.
    #[inline(always)]
    pub(super) fn put_counted(&mut self, color: Color, event: Event, times: Times) {
        let slot = self.shared.slots.map.slot(color);
        if self.current.slot.is(slot) {
            self.running.push(event, times);
        } else {
            self.put_out(slot, event);
        }
    }

    /// Posts to another color. Out of line: the self-post, which is the commonest, would otherwise
    /// save and restore the registers that this one needs. The rarer ways on from here are tail
    /// calls for the same reason.
    #[inline(never)]
    fn put_out(&mut self, slot: SlotId, event: Event) {
        let Err(event) = self.checkout.put(&self.shared, slot, event) else {
            return;
        };
        if self.outbox.last() == Some(slot) {
            return self.join(event);
        }
        // By the time it is published the line will be here.
        prefetch(self.shared.slots.at(slot));
        self.outbox.put(slot, event);
        if self.outbox.is_due() {
            self.flush_due();
        }
    }

    /// Posts to the color of the last post, which waits in the outbox.
    #[inline(never)]
    fn join(&mut self, event: Event) {
        if self.outbox.join(event) {
            self.flush_due();
        }
    }

    /// See [`Cx::hurry`].
    pub(crate) fn hurry(&mut self, color: Color) {
        // The wish may be found at once, by a thief or another core: what was posted goes first.
        self.publish();
        wishes::hurry(&self.shared, color);
    }

    /// Publishes what was posted to other colors, if anything waits for that.
    //
    // What was put into the checkout needs nothing: it is in its color already, before any mail.
    pub(crate) fn publish(&mut self) {
        if self.has_outbox() && !self.publish_outbox() {
            self.flush();
        }
    }

    #[inline(never)]
    fn flush_due(&mut self) {
        if self.outbox.is_hasty() || self.timing.row.is_some() {
            self.publish_long();
        } else {
            self.flush();
        }
    }

    /// Whether the running color's events are finished, or its batch is over.
    #[inline(always)]
    pub(crate) fn is_turn_over(&self) -> bool {
        self.running.is_over()
    }

    /// Ends the turn of the color that ran and begins the next one's batch; false if all have had
    /// their turn.
    #[inline(always)]
    pub(crate) fn next_color(&mut self) -> bool {
        if !self.running.is_empty() {
            self.end_turn();
        }
        self.ledger.executed += self.running.begun();
        let is_only = self.checkout.turns() == 1;
        let (mut batch, quantum_ns) = (self.checkout.batch, self.checkout.quantum_ns);
        let Some(taken) = self.checkout.begin() else {
            self.current.slot = MaybeSlot::NONE;
            self.running.end();
            return false;
        };
        if is_only {
            let times = taken.fifo.times();
            let drags = self
                .shared
                .policy
                .drags(times.raw_ns(), times.penalized_ns());
            batch = quantum::turn_events(batch, self.own.hint.queued() > 0, drags);
        }
        debug_assert!(!taken.fifo.is_empty(), "a turn begins with events only");
        charge::turn();
        self.current.slot = taken.slot.into();
        self.running.begin(&mut taken.fifo, batch, quantum_ns);
        self.own.progress.advance();
        self.timing.until_sample -= 1;
        if self.timing.until_sample == 0 {
            self.sample();
        }
        true
    }

    /// Whether the queue is deep, before the quantum's first event; see
    /// [`crate::event::prefetch`].
    #[inline(always)]
    pub(super) fn is_deep(&self) -> bool {
        self.checkout.is_deep(self.own.hint.events())
    }

    /// Asks for an event of a turn to come.
    #[inline(always)]
    pub(super) fn look_ahead(&mut self) {
        self.checkout.look_ahead();
    }

    /// Ends the turn after the event that runs, and the quantum with it. After a flush, which
    /// leaves no other turn.
    pub(super) fn cut(&mut self) {
        self.running.cut();
    }

    /// Ends the quantum after the event that runs, or before the one that was to run next: the
    /// other colors go back, for others to take.
    pub(super) fn look_up(&mut self) {
        self.flush();
        self.cut();
        // Somebody found this core in its quantum for too long: not by handlers known to be long,
        // then it would have looked up by itself.
        self.timing.wary = WARY_QUANTA;
        self.timing.until_sample = 1;
    }

    /// The turn is over, and the color has events left, which are put down.
    #[inline(never)]
    fn end_turn(&mut self) {
        *self.checkout.running() = self.running.put_down();
    }

    /// The next event of the running color, which has one. None: the quantum ends before it, or its
    /// color's gate has put it aside.
    #[inline(always)]
    pub(crate) fn begin_event(&mut self) -> Option<Begun> {
        // SAFETY: `run_quantum`, the only caller in code that ships, saw that the turn is not over
        // or, by `next_color`, that it goes on with events that are left or that the next color has
        // begun; and a turn begins with events only: `Checkout::push` takes no color without, and
        // `Checkout::put` adds one.
        let (event, times) = unsafe { self.running.pop() };
        charge::run();
        let (mut begun, color, tag, watch) = self.shared.profiles.begin(event);
        self.current.color = color;
        #[cfg(feature = "tracing")]
        self.own
            .progress
            .set_color(Color::of_kind(tag.kind(), color));
        if self.current.tag != tag {
            self.note(tag);
        }
        if (watch != 0) | self.own.progress.wants_attention() {
            if watch == 0 && !self.own.progress.is_asked_to_look_up() {
                // A mere sample.
                self.begin_timing(false);
            } else {
                begun = self.begin_watched(begun, times, watch)?;
            }
        }
        Some(begun)
    }

    /// An event of which something is to be done before it runs. Out of line, for the others' sake.
    #[inline(never)]
    fn begin_watched(&mut self, mut begun: Begun, times: Times, watch: u32) -> Option<Begun> {
        if self.own.progress.is_asked_to_look_up() && self.must_look_up() {
            return self.do_not_begin(begun.into_event(), times);
        }
        if watch & WATCH_GATE != 0 && self.is_gated() {
            let event = self.admit(begun.into_event())?;
            (begun, ..) = self.shared.profiles.begin(event);
        }
        let wanted = watch & WATCH_TIMES != 0;
        if wanted || self.own.progress.wants_attention() {
            self.begin_timing(wanted);
        }
        if watch & WATCH_RECORD != 0 {
            self.begin_recorded();
        }
        Some(begun)
    }

    /// Whether a core that is asked to look up does so before the event that was just taken. Not if
    /// none has run since it did last: it would get nowhere if it were asked more often than it
    /// takes steps.
    #[cold]
    fn must_look_up(&self) -> bool {
        Some(self.begun_before()) != self.ledger.looked_up_at
            || self.own.progress.is_asked_to_leave()
    }

    /// Events that began before the one that was just taken.
    #[inline(always)]
    fn begun_before(&self) -> u64 {
        self.ledger.executed + self.running.begun() - 1
    }

    /// Puts an event back, and ends the quantum.
    #[cold]
    fn do_not_begin(&mut self, event: Event, times: Times) -> Option<Begun> {
        self.running.unpop(event, times);
        self.look_up();
        None
    }

    /// Notes what runs, where others read it: only when it changes, because thieves and the
    /// watchdog look at that line.
    #[inline(never)]
    fn note(&mut self, tag: Tag) {
        self.current.tag = tag;
        let profile = tag.profile();
        self.own.progress.set_running(Some(profile));
        // All that began before this one were of the handler noted before.
        let begun = self.begun_before();
        self.ledger.change(&self.own.counts, begun, profile);
    }

    /// The event that runs has panicked.
    pub(crate) fn count_panic(&mut self) {
        self.end_recorded(true);
        self.own.stats.panics.add(1);
        self.shared
            .profiles
            .get(self.current.profile())
            .count_panic();
    }

    /// The event has run, or has panicked. True: first the layers above have something to do, and
    /// this is to be called again.
    #[inline(always)]
    #[must_use]
    pub(crate) fn end_event(&mut self) -> bool {
        self.current.at_end != 0 && self.end_noted()
    }

    #[inline(never)]
    fn end_noted(&mut self) -> bool {
        self.end_recorded(false);
        if self.current.at_end & GATHERED != 0 {
            self.current.at_end &= !GATHERED;
            return true;
        }
        if std::mem::take(&mut self.current.at_end) == TIMED {
            self.end_timing();
        }
        false
    }

    /// The layers above have something to do when the event that runs is over.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn note_gathered(&mut self) {
        self.current.at_end |= GATHERED;
    }

    /// A number that no other event of this runtime has.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn event_number(&self) -> (CoreId, u64) {
        (self.id, self.ledger.executed + self.running.begun())
    }

    /// Whether the event that runs is known or feared to be long.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn is_in_long(&self) -> bool {
        self.own.progress.is_long()
    }

    /// The colors of this quantum have had their turn.
    #[inline]
    pub(crate) fn end_quantum(&mut self, events: u64) {
        self.own.stats.events.add(events);
        self.outbox.end_turns();
        self.timing.end_quantum();
        if let Some(rank) = self.search.levelling {
            self.level(rank);
        }
    }

    /// Between two quanta: if somebody asked the core to look up, it does. Before the caller reads
    /// how far the runtime is. True if another number of cores works than before.
    #[inline(always)]
    pub(crate) fn looks_up(&mut self) -> bool {
        if self.own.progress.answer_look_up() {
            self.timing.ran = false;
            self.ledger.looked_up_at = Some(self.ledger.executed);
            return self.work_with(self.shared.working.latest());
        }
        false
    }

    /// The event source was looked at.
    pub(crate) fn looked(&self) {
        self.own.stats.looks.add(1);
    }

    /// Whether somebody has sent this core something since it found nothing. Cheap to ask often:
    /// the answer is on lines of its own that rarely change.
    #[inline]
    pub(crate) fn is_called(&self) -> bool {
        self.own.pokes.any() || self.own.hint.queued() > 0
    }

    /// Whether this core's last step ran events, none of them long: then what is queued goes before
    /// what completed.
    #[inline]
    pub(crate) fn has_run(&self) -> bool {
        self.timing.ran
    }

    /// Whether a post is sure to be accepted.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn has_room(&mut self) -> bool {
        self.maker.has_room()
    }

    /// Events beyond the limit that there are, in the whole runtime; at least those of them that
    /// wait for no hold.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn reserved(&self) -> usize {
        let reserved = self.maker.reserved();
        reserved.saturating_sub(self.shared.gates.waiting() as usize)
    }

    /// Whether the checkout is empty.
    pub(crate) fn has_empty_checkout(&self) -> bool {
        self.checkout.is_empty()
    }

    /// Nothing to run: the event source is looked at in every step.
    pub(crate) fn note_idle(&mut self) {
        self.ledger.count(&self.own.counts);
        self.timing.ran = false;
        if self.current.tag != Tag::NONE {
            self.current.tag = Tag::NONE;
            self.own.progress.advance();
            self.own.progress.set_running(None);
        }
    }

    /// Whether posts wait to be published.
    pub(crate) fn has_outbox(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Ends an event that has begun without running it.
    #[cfg(all(test, not(loom)))]
    pub(super) fn skip(&self, begun: Begun) {
        self.shared.profiles.discard(begun.into_event());
    }

    /// Where the nodes go whose events begin.
    #[inline(always)]
    pub(crate) fn pool(&mut self) -> &mut Pool {
        self.maker.pool()
    }
}

impl Drop for Core {
    /// Leaves everything where [`Shared`]'s drop finds it.
    fn drop(&mut self) {
        self.ledger.count(&self.own.counts);
        let shared = &self.shared;
        self.own.stats.posts.max(self.ledger.posted);
        self.outbox.abandon(shared);
        if !self.checkout.is_empty() {
            let mut section = Section::enter(shared, self.id);
            self.checkout
                .end_turns(false, |taken| section.give_back(taken));
        }
    }
}
