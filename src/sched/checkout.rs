//! What a core has taken to run without its lock: colors, their events with them, and the order of
//! their turns.
//!
//! A color whose events ran out stays here, *held*, for as long as nobody waits and nobody else wants
//! anything of it: over many quanta, if the core has few colors to run. An event for a held color is
//! put straight in, with no lock and nothing published; a pair of colors that post to each other, say,
//! takes the lock once a quantum and not once an event.
//!
//! What is put in counts towards the quantum like what was checked out, so no more is hidden from
//! thieves than before. And nothing is overtaken:
//!
//! - What lies in the color's mailbox may have happened before. Nobody but the core's own thread empties
//!   the mailbox of a color that is checked out ([`Section::take_mail`]), and where it does, what it finds
//!   is appended here; so a look at the mailbox tells.
//! - What this thread posted to the color through the outbox comes first. Once a post was refused here,
//!   all are until the next exchange, which publishes the outbox.

use super::mail;
use super::node::Node;
use super::queue::{Chunk, Fifo};
use super::section::Section;
use super::shared::Shared;
use super::slots::Slots;
use crate::sync::fault;
use arrayvec::ArrayVec;
use std::ptr::NonNull;

/// Most colors a core takes at once.
pub(crate) const CHECKOUT_MAX: usize = 64;
/// More colors are not held beyond the quantum.
const HELD_MAX: usize = 32;
/// Most quanta from one try to hold colors to the next.
const WAIT_MAX: u8 = 63;
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
    trial: Trial,
}

/// Whether holding is worth the while, which it is where colors are posted to again soon: tried now and then.
#[derive(Debug, Default)]
struct Trial {
    /// Something was put in since the last exchange.
    hit: bool,
    /// Colors were held then.
    tried: bool,
    /// Quanta until the next try, and how many there were before the last.
    wait: u8,
    waited: u8,
}

impl Trial {
    /// At an exchange: whether to hold this time.
    #[inline(always)]
    fn holds(&mut self) -> bool {
        if self.hit {
            (self.wait, self.waited) = (0, 0);
        } else if self.tried {
            self.waited = (2 * self.waited + 1).min(WAIT_MAX);
            self.wait = self.waited;
        }
        (self.hit, self.tried) = (false, self.wait == 0);
        self.wait = self.wait.saturating_sub(1);
        self.tried
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
            trial: Trial::default(),
        }
    }

    /// Nothing is held. At the end of an exchange: there is nothing to run.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
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

    /// Takes a color with its events, if there is room.
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

    /// Where a color is that is held. Not by the index, where another may have taken its place.
    fn place(&self, slot: u32) -> usize {
        let mut places = 0..self.held.len();
        let place = places.find(|&at| self.held[at].slot == slot);
        place.expect("what is checked out is here")
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
            (header.times.raw_ns(), header.profile)
        };
        self.room_ns -= i64::from(raw_ns);
        let overtakes =
            mail::has_any(shared.slots.at(slot)) && !fault("post to a held color overtakes mail");
        // What is long, or not known yet, is not to have others wait behind it.
        if overtakes
            || self.room_ns < 0
            || self.turns.is_full()
            || shared.profiles.get(profile).wants_timing()
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

    /// Gives back a color whose events do not fit into the quantum that is about to begin. False: it has some
    /// that do, or the quantum has begun.
    #[inline(never)]
    pub(super) fn withdraw(&mut self, section: &mut Section<'_>, slot: u32) -> bool {
        if self.begun > 0 {
            return false;
        }
        let at = self.place(slot);
        if self.held[at].fifo.len() > 0 {
            return false;
        }
        section.give_back(&self.held.swap_remove(at));
        if let Some(moved) = self.held.get(at) {
            self.index[moved.slot as usize % INDEX_LEN] = at as u8;
            let (was, is) = (self.held.len() as u8, at as u8);
            if let Some(turn) = self.turns.iter_mut().find(|turn| **turn == was) {
                *turn = is;
            }
        }
        true
    }

    /// Appends a chunk, behind the color's mail, to a color that is checked out; under the lock. It gets no
    /// turn by that: what is still there at the exchange goes back.
    ///
    /// # Safety
    /// The caller gives up the chunk's nodes.
    #[inline(never)]
    pub(super) unsafe fn append_all(&mut self, slots: &Slots, slot: u32, chunk: Chunk) {
        let at = self.place(slot);
        let fifo = &mut self.held[at].fifo;
        if fifo.len() == 0 {
            *fifo = Fifo::EMPTY;
        }
        if !fault("held color's mail left") && mail::has_mail(slots.at(slot)) {
            // SAFETY: the color is checked out by the calling thread, which holds its core's lock.
            unsafe { mail::drain(slots, slot, fifo) };
        }
        // SAFETY: the chunk is the caller's.
        let totals = unsafe { Node::totals(chunk.first.as_ptr(), chunk.last.as_ptr()) };
        // SAFETY: what is held is ours, and the chunk is the caller's and given up.
        unsafe { fifo.append(chunk.first, chunk.last, totals) };
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

    /// Where the running color's events belong while it does not run.
    pub(super) fn running(&mut self) -> &mut Fifo {
        let at = self.turns[self.begun - 1];
        &mut self.held[usize::from(at)].fifo
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
        // Nothing is held behind a long handler, nor while anything waits, nor by a core that has nothing to run.
        let idle = self.held.len() > self.turns.len();
        if idle && (self.room_ns < 0 || self.turns.is_empty()) {
            self.let_go(section);
            if self.is_empty() {
                // They may have been given events.
                section.check_out(self);
                self.room_ns = section.room_ns();
            }
        }
    }

    /// Gives back the colors that have no turn. Before the quantum begins.
    #[inline(never)]
    pub(super) fn let_go(&mut self, section: &mut Section<'_>) {
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
