//! What a core has taken to run without its lock: colors, their events with them, and the order of
//! their turns.
//!
//! A color whose events ran out stays here, *held*, if at the exchange nobody waits and nobody else wants
//! anything of it: over many quanta, if the core has few colors to run. An event for a color that is here
//! is put straight in, with no lock and nothing published; a pair of colors that post to each other, say,
//! takes the lock once a quantum and not once an event.
//!
//! What is put in counts towards the quantum like what was checked out, so no more is hidden from
//! thieves than before. What is long, or not known, is not put in; and before an event that is long runs,
//! and at each flush, all colors but the running one are [given back](Checkout::release), so that thieves
//! can take them and what is posted to them. Nothing is overtaken:
//!
//! - What lies in the color's mailbox may have happened before. Nobody but the core's own thread empties
//!   the mailbox of a color that is checked out ([`Section::take_mail`] leaves it), and no event is put in
//!   while the mailbox has anything.
//! - What this thread posted to the color through the outbox comes first. A post to a color that is not
//!   here is no matter: within a quantum none comes to be here, nor in the index. Once a post was refused
//!   for another reason, all are until the next exchange, which publishes the outbox.

use super::mail;
use super::node::Node;
use super::queue::{Fifo, NIL};
use super::section::Section;
use super::shared::Shared;
use crate::sync::fault;
use arrayvec::ArrayVec;
use std::ptr::NonNull;

/// Most colors a core takes at once.
const CHECKOUT_MAX: usize = 64;
/// More colors are not held beyond the quantum.
const HELD_MAX: usize = 32;
/// Holding is tried for so many quanta: a single event that goes round so many colors comes back to the first.
const TRIES_MAX: u8 = 16;
/// Most quanta from one try to the next.
const WAIT_MAX: u8 = 127;
/// Most turns in one quantum. All of what was checked out gets one.
const TURNS_MAX: usize = 2 * CHECKOUT_MAX;
/// Places in the index.
const INDEX_LEN: usize = 256;

/// A color that was taken out of its core's lists to be run, its events with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) slot: u32,
    pub(crate) fifo: Fifo,
}

/// See the module text.
#[derive(Debug)]
pub(crate) struct Checkout {
    held: ArrayVec<Taken, CHECKOUT_MAX>,
    /// Whose turn it is, one after the other, as places in `held`. A color has another turn if it is
    /// posted to when its events have run out.
    turns: ArrayVec<u8, TURNS_MAX>,
    /// How many of the turns have begun, the running color's included.
    begun: usize,
    /// Where a color may be in `held`, by its slot number's low bits; `held` says whether it is. It does not
    /// change within a quantum.
    index: [u8; INDEX_LEN],
    /// What may still be put straight in, in ns of estimated time; negative: nothing, until the next
    /// exchange.
    room_ns: i64,
    /// What is checked out alone is not put in either: see [`Limits`](super::lists::Limits).
    alone_ns: u32,
    trial: Trial,
}

/// Whether holding is worth the while, which it is where colors are posted to again soon: tried now and then.
#[derive(Debug, Default)]
struct Trial {
    /// Something was put in since this was last asked.
    hit: bool,
    /// Quanta since, in which colors were held.
    tries: u8,
    /// Quanta until the next try, and how many there were before the last.
    wait: u8,
    waited: u8,
}

impl Trial {
    /// At an exchange: whether to hold this time.
    #[inline(always)]
    fn holds(&mut self) -> bool {
        if self.hit {
            *self = Trial::default();
        } else if self.wait > 0 {
            self.wait -= 1;
            return false;
        } else if self.tries == TRIES_MAX {
            self.waited = self.waited.saturating_mul(2).clamp(TRIES_MAX, WAIT_MAX);
            (self.tries, self.wait) = (0, self.waited);
            return false;
        }
        self.tries += 1;
        true
    }
}

impl Checkout {
    pub(super) fn new() -> Checkout {
        Checkout {
            held: ArrayVec::new(),
            turns: ArrayVec::new(),
            begun: 0,
            index: [0; INDEX_LEN],
            room_ns: -1,
            alone_ns: 0,
            trial: Trial::default(),
        }
    }

    /// Nothing is held. At the end of an exchange: there is nothing to run.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// What is here, in the order of their turns.
    #[cfg(all(test, not(loom)))]
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> {
        self.turns.iter().map(|&at| self.held[usize::from(at)].slot)
    }

    /// What a color has that is here.
    #[cfg(all(test, not(loom)))]
    pub(super) fn fifo(&self, slot: u32) -> Fifo {
        let taken = self.held.iter().find(|taken| taken.slot == slot);
        taken.expect("it is here").fifo
    }

    /// Events that are here, those of a running color apart unless it is put down.
    pub(super) fn events(&self) -> u64 {
        self.held
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

    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.held.is_full()
    }

    /// Takes a color with its events, which has its turn after all that are here.
    ///
    /// # Safety
    /// There is room.
    #[inline(always)]
    pub(super) unsafe fn push_unchecked(&mut self, taken: Taken) {
        debug_assert!(taken.fifo.len() > 0 && self.turns.len() < TURNS_MAX);
        let at = self.held.len() as u8;
        self.index[taken.slot as usize % INDEX_LEN] = at;
        // SAFETY: the caller saw that there is room. Each color that is held has at most one turn before
        // the quantum begins, and within it there are as many more.
        unsafe {
            self.held.push_unchecked(taken);
            self.turns.push_unchecked(at);
        }
    }

    /// Takes a stolen color with its events, for a quantum of its own.
    pub(super) fn push(&mut self, taken: Taken) {
        assert!(!self.is_full());
        // SAFETY: just looked.
        unsafe { self.push_unchecked(taken) };
    }

    /// Where a color is held, if it is and has its place in the index.
    #[inline(always)]
    pub(super) fn find(&self, slot: u32) -> Option<usize> {
        let at = usize::from(self.index[slot as usize % INDEX_LEN]);
        (self.held.get(at)?.slot == slot).then_some(at)
    }

    /// Appends an event to the color at this place, which gets a turn if it had no events.
    ///
    /// # Safety
    /// The caller gives up the node, and there is room for a turn.
    #[inline(always)]
    pub(super) unsafe fn append(&mut self, at: usize, node: NonNull<Node>) {
        // SAFETY: `find` found it there.
        let fifo = &mut unsafe { self.held.get_unchecked_mut(at) }.fifo;
        // SAFETY: what is held is ours, and the node is the caller's and given up.
        let alone = unsafe { fifo.append_one(node) };
        debug_assert!(!self.turns.is_full());
        // A turn that is not counted is overwritten.
        let turns = self.turns.len() + usize::from(alone);
        // SAFETY: the caller's promise.
        unsafe {
            self.turns.push_unchecked(at as u8);
            self.turns.set_len(turns);
        }
    }

    /// Puts an event for a color that is held straight in; false if it has to take the outbox.
    ///
    /// # Safety
    /// The caller gives up the node if this returns true.
    #[inline(always)]
    pub(super) unsafe fn put(&mut self, shared: &Shared, slot: u32, node: NonNull<Node>) -> bool {
        if self.room_ns < 0 {
            return false;
        }
        let Some(at) = self.find(slot) else {
            return false;
        };
        let (raw_ns, profile) = {
            // SAFETY: the node is the caller's.
            let header = unsafe { Node::header(node.as_ptr()) };
            (
                header.times.raw_ns(),
                shared.profiles.get(header.tag.profile()),
            )
        };
        self.room_ns -= i64::from(raw_ns);
        let overtakes =
            mail::has_any(shared.slots.at(slot)) && !fault("post to a held color overtakes mail");
        // What is long, or not known yet, is not to have others wait behind it.
        if overtakes
            || self.room_ns < 0
            || self.turns.is_full()
            || profile.wants_timing()
            || profile.tail_ns() > self.alone_ns
        {
            self.close();
            return false;
        }
        // SAFETY: the node is the caller's and given up, and there is room.
        unsafe { self.append(at, node) };
        self.trial.hit = true;
        true
    }

    /// From now on nothing is put straight in, until the next exchange.
    #[inline(always)]
    pub(super) fn close(&mut self) {
        self.room_ns = -1;
    }

    /// Gives back a color, before the quantum begins: there is an event for it that does not fit, and what it
    /// has already is not to have that one run in its turn.
    #[inline(never)]
    pub(super) fn withdraw(&mut self, section: &mut Section<'_>, slot: u32) {
        debug_assert_eq!(self.begun, 0);
        let mut places = 0..self.held.len();
        let at = places.find(|&at| self.held[at].slot == slot);
        // Not by the index, where another may have taken its place.
        let at = at.expect("what is checked out is here");
        let taken = self.held.swap_remove(at);
        if taken.fifo.len() > 0 {
            section.adopt(&taken);
        } else {
            section.give_back(&taken);
        }
        let (is, was) = (at as u8, self.held.len() as u8);
        self.turns.retain(|turn| *turn != is);
        if let Some(moved) = self.held.get(at) {
            self.index[moved.slot as usize % INDEX_LEN] = is;
            if let Some(turn) = self.turns.iter_mut().find(|turn| **turn == was) {
                *turn = is;
            }
        }
    }

    /// Whether this color is running: then it alone is here, as after [`release`](Self::release).
    #[inline(always)]
    pub(super) fn is_running(&self, slot: u32) -> bool {
        self.begun > 0 && self.held[0].slot == slot
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
        // SAFETY: turns are places in `held`.
        Some(unsafe { self.held.get_unchecked_mut(usize::from(at)) })
    }

    /// Where the running color's events are while it is put down.
    pub(super) fn running(&mut self) -> &mut Fifo {
        let at = self.turn();
        &mut self.held[at].fifo
    }

    /// How many colors are here besides the running one.
    #[inline(always)]
    pub(super) fn others(&self, in_turn: bool) -> usize {
        self.held.len() - usize::from(in_turn)
    }

    /// Gives back all colors but the running one, which is put down; those that wait for their turn to where
    /// they were taken from.
    #[inline(never)]
    pub(super) fn release(&mut self, section: &mut Section<'_>, in_turn: bool) {
        let running = in_turn.then(|| self.turn());
        let kept = running.map(|at| std::mem::replace(&mut self.held[at].slot, NIL));
        for &at in self.turns[self.begun..].iter().rev() {
            let taken = &mut self.held[usize::from(at)];
            section.give_back_first(taken);
            taken.slot = NIL;
        }
        for taken in self.held.iter().filter(|taken| taken.slot != NIL) {
            section.give_back(taken);
        }
        let fifo = running.map(|at| self.held[at].fifo);
        self.held.clear();
        self.turns.clear();
        self.begun = 0;
        section.out_only(kept);
        if let Some((slot, fifo)) = kept.zip(fifo) {
            self.held.push(Taken { slot, fifo });
            self.turns.push(0);
            self.begun = 1;
        }
    }

    /// Where the color is whose turn it is.
    fn turn(&self) -> usize {
        self.turns[self.begun - 1].into()
    }

    /// Ends the quantum: gives the colors back, at most without those that have no events, if nothing and
    /// nobody waits.
    #[inline(always)]
    pub(super) fn give_back(&mut self, section: &mut Section<'_>, may_hold: bool) {
        self.turns.clear();
        self.begun = 0;
        if may_hold && self.held.len() <= HELD_MAX && self.trial.holds() {
            return self.hold(section);
        }
        for taken in &self.held {
            section.give_back(taken);
        }
        self.held.clear();
    }

    /// Gives back the colors that have events, and holds the others.
    #[inline(always)]
    fn hold(&mut self, section: &mut Section<'_>) {
        let index = &mut self.index;
        let mut held = 0;
        self.held.retain(|taken| {
            if taken.fifo.len() > 0 {
                section.give_back(taken);
                return false;
            }
            section.finished(taken.slot);
            index[taken.slot as usize % INDEX_LEN] = held;
            held += 1;
            true
        });
    }

    /// Begins a quantum with what went straight here in this section, and with what fits besides.
    #[inline(always)]
    pub(super) fn begin_quantum(&mut self, section: &mut Section<'_>) {
        section.check_out(self);
        self.room_ns = section.room_ns();
        self.alone_ns = section.limits.alone_ns;
        // Nothing is held behind a handler that is known to be long, nor while anything waits, nor by a core
        // that has nothing to run.
        if self.room_ns < 0 || self.turns.is_empty() {
            self.let_go(section);
        }
        section.count_out(self, true);
    }

    /// Gives back the colors that have no turn, if there are any. Before the quantum begins.
    #[inline(never)]
    pub(super) fn let_go(&mut self, section: &mut Section<'_>) {
        // Until then none has two.
        if self.held.len() == self.turns.len() {
            return;
        }
        let with_turn = self.turns.iter().fold(0_u64, |all, &at| all | 1 << at);
        let mut places = [0; CHECKOUT_MAX];
        let (index, mut at, mut kept) = (&mut self.index, 0, 0);
        self.held.retain(|taken| {
            let keep = with_turn & 1 << at != 0;
            if keep {
                places[at] = kept;
                index[taken.slot as usize % INDEX_LEN] = kept;
                kept += 1;
            } else {
                section.give_back(taken);
            }
            at += 1;
            keep
        });
        for at in &mut self.turns {
            *at = places[usize::from(*at)];
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn holding_is_tried_for_a_while_and_then_less_and_less_often() {
        fn next(trial: &mut Trial, quanta: u8, holds: bool) {
            for i in 0..quanta {
                assert_eq!(trial.holds(), holds, "quantum {i} of {quanta}");
            }
        }
        let mut trial = Trial::default();
        for waits in [16, 32, 64, 127, 127] {
            next(&mut trial, TRIES_MAX, true);
            // The quantum that ends the try, and so many more.
            next(&mut trial, 1 + waits, false);
        }
        // Until something is put in: then as in the beginning, in a try or between two.
        next(&mut trial, 3, true);
        trial.hit = true;
        next(&mut trial, TRIES_MAX, true);
        next(&mut trial, 9, false);
        trial.hit = true;
        next(&mut trial, TRIES_MAX, true);
        next(&mut trial, 1 + 16, false);
        next(&mut trial, 1, true);
    }
}
