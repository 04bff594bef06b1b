//! What a core has taken to run without its lock: colors, their events with them, and the order of
//! their turns.
//!
//! A color whose events ran out stays here, *kept*, if at the exchange nobody waits and nobody else
//! wants anything of it: over many quanta, if the core has few colors to run. An event for a color
//! that is here is put straight in, with no lock and nothing published; a pair of colors that post
//! to each other, say, takes the lock once a quantum and not once an event.
//!
//! What is put in counts towards the quantum like what was checked out, so no more is hidden from
//! thieves than before. What is long, or not known, is not put in; and before an event that is long
//! runs, and at each flush, all colors but the running one are [given back](Checkout::release), so
//! that thieves can take them and what is posted to them. Nothing is overtaken:
//!
//! - What lies in the color's mailbox may have happened before. Nobody but the core's own thread
//!   empties the mailbox of a color that is checked out (`Section::deliver` leaves it), and no
//!   event is put in while the mailbox has anything.
//! - What this thread posted to the color through the outbox comes first. Within a quantum no color
//!   joins the checkout: so a color with events in the outbox is not here, or its post was refused;
//!   and after a refusal nothing is put in until the exchange has published the outbox.

use crate::ablation::{Rule, without};
use crate::color::SlotId;
use crate::event::fifo::Fifo;
use crate::event::node::Event;
use crate::event::prefetch::{self, Ahead};
use crate::shared::Shared;
use crate::shared::queue::color_queue::Taken;
use crate::shared::remote::mail;
use crate::sync::{check, fault};
use arrayvec::ArrayVec;

/// Most colors a core takes at once.
const CHECKOUT_MAX: usize = 64;
/// If there are more colors than this, none is kept beyond the quantum: what is checked out besides
/// needs room.
const KEPT_MAX: usize = 32;
/// Most turns in one quantum. All of what was checked out gets one.
const TURNS_MAX: usize = 2 * CHECKOUT_MAX;
/// Places in the index.
const INDEX_LEN: usize = 256;

/// Where a color may be in the index.
#[inline(always)]
fn place(slot: SlotId) -> usize {
    slot.number() as usize % INDEX_LEN
}

/// See the module text.
#[derive(Debug)]
pub(crate) struct Checkout {
    colors: ArrayVec<Taken, CHECKOUT_MAX>,
    /// Whose turn it is, one after the other, as places in `colors`. A color has another turn if it
    /// is posted to when its events have run out.
    turns: ArrayVec<u8, TURNS_MAX>,
    /// How many of the turns have begun, the running color's included.
    begun: usize,
    /// Where a color may be in `colors`, by its slot number's low bits; `colors` says whether it
    /// is. It does not change within a quantum.
    index: [u8; INDEX_LEN],
    /// What may still be put straight in, in ns of estimated time; negative: nothing, until the
    /// next exchange.
    room_ns: i64,
    ahead: Ahead,
    /// What may be hidden from thieves: about a steal cost, in ns.
    pub(super) quantum_ns: u32,
    /// [`Policy::batch`](crate::policy::Policy).
    pub(super) batch: u32,
}

impl Checkout {
    pub(super) fn new(quantum_ns: u32, batch: u32) -> Checkout {
        Checkout {
            colors: ArrayVec::new(),
            turns: ArrayVec::new(),
            begun: 0,
            index: [0; INDEX_LEN],
            room_ns: -1,
            ahead: Ahead::new(),
            quantum_ns,
            batch,
        }
    }

    /// Nothing is checked out. At the end of an exchange: there is nothing to run.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.colors.is_empty()
    }

    /// What is here, in the order of their turns.
    #[cfg(all(test, not(loom)))]
    pub(super) fn slots(&self) -> impl Iterator<Item = SlotId> {
        self.turns
            .iter()
            .map(|&at| self.colors[usize::from(at)].slot)
    }

    /// What a color has that is here.
    #[cfg(all(test, not(loom)))]
    pub(super) fn fifo(&self, slot: SlotId) -> &Fifo {
        let taken = self.colors.iter().find(|taken| taken.slot == slot);
        &taken.expect("it is here").fifo
    }

    /// Events that are here, those of a running color apart unless it is put down.
    pub(super) fn events(&self) -> u64 {
        self.colors
            .iter()
            .map(|taken| u64::from(taken.fifo.len()))
            .sum()
    }

    /// Whether colors wait here for their turn.
    pub(super) fn has_more_turns(&self) -> bool {
        self.turns.len() > self.begun
    }

    /// Turns of this quantum, past and future.
    #[inline(always)]
    pub(super) fn turns(&self) -> usize {
        self.turns.len()
    }

    /// How many more colors there is room for.
    #[inline(always)]
    pub(super) fn room(&self) -> usize {
        self.colors.remaining_capacity()
    }

    /// Takes a color with its events, which has its turn after all that are here.
    #[inline(always)]
    pub(super) fn push(&mut self, taken: Taken) {
        debug_assert!(!taken.fifo.is_empty());
        let at = self.colors.len() as u8;
        self.index[place(taken.slot)] = at;
        self.colors.push(taken);
        // SAFETY: without colors there are no turns, since `end_turns` clears them before any
        // color goes; each color that is pushed adds one, and there is room for twice as many turns
        // as colors.
        unsafe { self.turns.push_unchecked(at) };
    }

    /// The place of a color that is here, if the index has it.
    #[inline(always)]
    pub(super) fn find(&self, slot: SlotId) -> Option<usize> {
        let at = usize::from(self.index[place(slot)]);
        (self.colors.get(at)?.slot == slot).then_some(at)
    }

    /// Puts an event for a color that is here straight in; it comes back if it has to take the
    /// outbox.
    #[inline(always)]
    pub(super) fn put(
        &mut self,
        shared: &Shared,
        slot: SlotId,
        mut event: Event,
    ) -> Result<(), Event> {
        if self.room_ns < 0 || without(Rule::Straight) {
            return Err(event);
        }
        let Some(at) = self.find(slot) else {
            return Err(event);
        };
        let raw_ns = event.times().raw_ns();
        let profile = shared.profiles.get(event.color_and_tag().1.profile());
        self.room_ns -= i64::from(raw_ns);
        let overtakes = mail::has_mail_or_poke(shared.slots.at(slot))
            && !fault("post to a kept color overtakes mail");
        // What is long, or not known yet, is not to have others wait behind it.
        if overtakes || self.room_ns < 0 || self.turns.is_full() || profile.wants_timing() {
            self.close();
            return Err(event);
        }
        // SAFETY: `find` found it there.
        let fifo = &mut unsafe { self.colors.get_unchecked_mut(at) }.fifo;
        let alone = fifo.push(event);
        // The write is unconditional; the length decides whether it counts: the color has another
        // turn if its events had run out.
        let turns = self.turns.len() + usize::from(alone);
        // SAFETY: there is room for one more, as was just seen.
        unsafe {
            self.turns.push_unchecked(at as u8);
            self.turns.set_len(turns);
        }
        Ok(())
    }

    /// From now on nothing is put straight in, until the next exchange.
    #[inline(always)]
    pub(super) fn close(&mut self) {
        self.room_ns = -1;
    }

    /// Gives back a kept color, before the quantum begins: there is an event for it.
    #[inline(never)]
    pub(super) fn withdraw(&mut self, slot: SlotId) -> Taken {
        let begun = !self.turns.is_empty();
        check!(!begun, "slot {slot} is withdrawn inside a quantum");
        // Not by the index, where another may have taken its place.
        let at = self.colors.iter().position(|taken| taken.slot == slot);
        let at = at.expect("what is checked out is here");
        let taken = self.colors.swap_remove(at);
        if let Some(moved) = self.colors.get(at) {
            self.index[place(moved.slot)] = at as u8;
        }
        taken
    }

    /// Whether this color is running: then it alone is here, as after [`release`](Self::release).
    #[inline(always)]
    pub(super) fn is_running(&self, slot: SlotId) -> bool {
        self.begun > 0 && self.colors[0].slot == slot
    }

    /// The color whose turn is next, if there is any.
    #[inline(always)]
    pub(super) fn begin(&mut self) -> Option<&mut Taken> {
        let Some(&at) = self.turns.get(self.begun) else {
            // What is posted between quanta is for the exchange to judge.
            self.close();
            return None;
        };
        self.begun += 1;
        // SAFETY: `push` and `put` write places in `colors`; where `colors` shrinks, there are no
        // turns (`withdraw`, `end_turns`) or they are made anew (`release`,
        // `give_back_those_kept`).
        Some(unsafe { self.colors.get_unchecked_mut(usize::from(at)) })
    }

    /// Whether the core's queue is deep, which has this many events besides; see
    /// [`prefetch`].
    #[inline(always)]
    pub(super) fn is_deep(&self, queued: u64) -> bool {
        let first = self.colors.first().map_or(0, |first| first.fifo.len());
        prefetch::is_deep(queued, self.colors.len(), first)
    }

    /// Asks for an event of a turn to come.
    #[inline]
    pub(super) fn look_ahead(&mut self) {
        let (turns, colors) = (&self.turns, &self.colors);
        let fifo = |turn| Some(&colors[usize::from(*turns.get::<usize>(turn)?)].fifo);
        // SAFETY: a color has at most one turn that has not begun, since `put` adds one only if its
        // events had run out. Until then it is appended to only. `running` gives out the FIFO of
        // the turn that has begun last. `release` and `end_turns` end the walks; `withdraw` and
        // `give_back_those_kept` are called between `end_turns` and the next event, when there are
        // none.
        unsafe { self.ahead.go_on(self.begun, self.batch, fifo) };
    }

    /// The turns are about to change.
    #[inline(always)]
    fn end_walks(&mut self) {
        if self.ahead.is_walking() && !fault("walks outlive their turns") {
            self.ahead.end();
        }
    }

    /// Where the running color's events are while it is put down.
    pub(super) fn running(&mut self) -> &mut Fifo {
        let at = self.turn();
        &mut self.colors[at].fifo
    }

    /// How many colors are here besides the running one.
    #[inline(always)]
    pub(super) fn others(&self, in_turn: bool) -> usize {
        self.colors.len() - usize::from(in_turn)
    }

    /// Lets all colors go but the running one, which is put down: first those that wait for their
    /// turn, the next one last, so that each of them can go to the front of the core-queue;
    /// `waited` tells them apart.
    #[inline(never)]
    pub(super) fn release(&mut self, in_turn: bool, mut give_back: impl FnMut(Taken, bool)) {
        self.end_walks();
        let running = in_turn.then(|| self.turn());
        let mut waits = [false; CHECKOUT_MAX];
        for &at in self.turns[self.begun..].iter().rev() {
            let at = usize::from(at);
            waits[at] = true;
            let Taken { slot, fifo } = &mut self.colors[at];
            let (slot, fifo) = (*slot, fifo.take());
            give_back(Taken { slot, fifo }, true);
        }
        let mut turn = None;
        for (at, taken) in self.colors.drain(..).enumerate() {
            if Some(at) == running {
                turn = Some(taken);
            } else if !waits[at] {
                give_back(taken, false);
            }
        }
        self.turns.clear();
        self.begun = 0;
        if let Some(taken) = turn {
            self.colors.push(taken);
            self.turns.push(0);
            self.begun = 1;
        }
    }

    /// Where the color is whose turn it is.
    fn turn(&self) -> usize {
        self.turns[self.begun - 1].into()
    }

    /// Ends the quantum: lets the colors go, but may keep those that have no events.
    #[inline(always)]
    pub(super) fn end_turns(&mut self, may_keep: bool, mut give_back: impl FnMut(Taken)) {
        self.end_walks();
        self.turns.clear();
        self.begun = 0;
        if may_keep && !without(Rule::Keep) && self.colors.len() <= KEPT_MAX {
            self.part(give_back, |taken| taken.fifo.is_empty());
        } else {
            self.colors.drain(..).for_each(&mut give_back);
        }
    }

    /// The colors that are kept, once the quantum has ended.
    #[inline(always)]
    pub(super) fn kept(&self) -> impl Iterator<Item = SlotId> {
        self.colors.iter().map(|taken| taken.slot)
    }

    /// Begins a quantum with what is here. True if nothing is to be kept.
    #[inline(always)]
    pub(super) fn begin_turns(&mut self, room_ns: i64) -> bool {
        debug_assert!(!self.ahead.is_walking(), "walks end with their turns");
        self.room_ns = room_ns;
        room_ns < 0 || self.turns.is_empty()
    }

    /// Lets the kept colors go, if there are any. Before the quantum begins.
    #[inline(always)]
    pub(super) fn give_back_kept(&mut self, give_back: impl FnMut(Taken)) {
        if self.colors.len() > self.turns.len() {
            self.give_back_those_kept(give_back);
        }
    }

    #[inline(never)]
    fn give_back_those_kept(&mut self, give_back: impl FnMut(Taken)) {
        self.part(give_back, |taken| !taken.fifo.is_empty());
        // Those that stay are in the order of their turns, as before.
        self.turns = (0..self.turns.len() as u8).collect();
    }

    /// Lets the colors go that do not stay.
    #[inline(always)]
    fn part(&mut self, mut give_back: impl FnMut(Taken), stays: impl Fn(&Taken) -> bool) {
        let (index, mut kept) = (&mut self.index, 0);
        self.colors.retain(|taken| {
            if stays(taken) {
                index[place(taken.slot)] = kept;
                kept += 1;
                return true;
            }
            give_back(Taken {
                slot: taken.slot,
                fifo: taken.fifo.take(),
            });
            false
        });
    }
}
