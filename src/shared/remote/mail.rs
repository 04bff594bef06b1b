//! A color's mailbox: the word that every core may push events onto.
//!
//! Order lives in the color, never in a per-core inbox: whoever owns the color, its events arrive
//! in this one word, in the order of the pushes. A push is one compare-and-swap for a whole chunk.
//!
//! ```text
//! mail word:   last node of the newest chunk | POKED
//!                     |  link.older -> last node of the chunk before, ...
//!                     |  next -> first node of this chunk -> ... -> last node
//! ```
//!
//! A chunk is a ring through its last node, so that pushing and draining write one node a chunk and
//! not each node. The first node carries the chunk's length and summed times; if it is also the
//! last its own times are the sums.
//!
//! `POKED` is set with the first push and says that a *poke* for this color is on its way to its
//! owner ([`super::poke`]). Only who consumes that poke clears it. So at most one poke exists for a
//! color, and a mailbox that is not empty has one.

use super::poke;
use crate::Color;
use crate::color::{CoreId, SlotId};
use crate::event::fifo::{Chunk, Fifo};
use crate::event::node::{Event, Node};
use crate::shared::Shared;
use crate::shared::idle::{Why, notify};
use crate::shared::queue::slots::{Colors, Slot, Slots};
use crate::sync::atomic::Ordering;
use crate::sync::{check, fault, first_look};
use std::ptr::NonNull;

/// The flag in the mailbox word; nodes are aligned to more.
const POKED: usize = 1;
const _: () = assert!(align_of::<Node>() > POKED);

fn split(word: *mut Node) -> (*mut Node, bool) {
    (word.map_addr(|a| a & !POKED), word.addr() & POKED != 0)
}

fn poked(node: *mut Node) -> *mut Node {
    node.map_addr(|a| a | POKED)
}

/// Pushes a chunk. True if the caller must now poke the color's owner.
#[must_use]
pub(crate) fn push(slots: &Slots, slot: SlotId, mut chunk: Chunk) -> bool {
    let mail = &slots.at(slot).mail;
    let mut word = first_look(|| mail.load(Ordering::Relaxed), std::ptr::null_mut());
    loop {
        let (older, was_poked) = split(word);
        // Ours until the compare-and-swap succeeds.
        let last = chunk.close(older);
        // Release: the nodes' content, and everything before this post, is visible to who drains.
        match mail.compare_exchange_weak(word, poked(last), Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return !was_poked,
            Err(now) => word = now,
        }
    }
}

/// Publishes an event without an outbox: of a thread that is no core of the runtime.
pub(crate) fn publish(shared: &Shared, color: Color, event: Event) {
    let mut bells = Vec::new();
    post(shared, shared.slots.map.slot(color), event, &mut bells);
    shared.idle.bells.ring_all(&bells);
}

/// Pushes an event into its color's mailbox, and sees to it that it is looked at. A core does so
/// with what it posts to several colors at once.
pub(crate) fn post(shared: &Shared, slot: SlotId, event: Event, bells: &mut Vec<CoreId>) {
    if push(&shared.slots, slot, event.into()) {
        announce(shared, slot, bells);
    }
}

/// Sends a color's poke, which is the caller's to send, and sees to it that it is looked at.
pub(crate) fn announce(shared: &Shared, slot: SlotId, bells: &mut Vec<CoreId>) {
    poke::send(shared, slot, bells);
    let owner = shared.slots.owner(slot);
    notify(shared, owner, Why::Mail { by: None }, bells);
}

/// Sets `POKED` on a color without pushing. True if the caller must now poke its owner.
#[must_use]
pub(crate) fn mark_poked(slots: &Slots, slot: SlotId) -> bool {
    // A read-modify-write even if the mark is there: who consumes the poke must see what we wrote
    // before.
    if fault("mark only looked at") && split(slots.at(slot).mail.load(Ordering::Relaxed)).1 {
        return false;
    }
    !split(update(slots, slot, poked)).1
}

/// Whether events wait in the mailbox, or a poke is on its way.
#[inline(always)]
pub(crate) fn has_mail_or_poke(slot: &Slot) -> bool {
    !slot.mail.load(Ordering::Acquire).is_null()
}

/// Whether events wait in the mailbox.
#[inline]
pub(crate) fn has_mail(slot: &Slot) -> bool {
    !split(slot.mail.load(Ordering::Acquire)).0.is_null()
}

/// Moves what waits in the mailbox to the end of the color's FIFO, leaving `POKED` as it is. The
/// caller holds the owner's lock, or the order would be lost.
#[inline(never)]
pub(crate) fn drain(slots: &Slots, slot: SlotId, fifo: &mut Fifo) {
    let word = update(slots, slot, |word| keep_mark(std::ptr::null_mut(), word));
    Mail(word).append_to(fifo);
}

/// `node` with the mark of `word`.
fn keep_mark(node: *mut Node, word: *mut Node) -> *mut Node {
    if split(word).1 { poked(node) } else { node }
}

/// Replaces the mailbox word by a function of itself and returns what it was.
fn update(slots: &Slots, slot: SlotId, f: impl Fn(*mut Node) -> *mut Node) -> *mut Node {
    let mail = &slots.at(slot).mail;
    let mut word = first_look(|| mail.load(Ordering::Relaxed), std::ptr::null_mut());
    loop {
        match mail.compare_exchange_weak(word, f(word), Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return word,
            Err(now) => word = now,
        }
    }
}

/// Consumes the color's poke, which the caller took from a core's pokes: clears `POKED` and moves
/// what waits to the end of the FIFO. As for [`drain`], the caller holds the
/// owner's lock.
pub(crate) fn consume(slots: &Slots, slot: SlotId, fifo: &mut Fifo) {
    let taken = Mail::of(slots.at(slot), Ordering::AcqRel);
    check!(split(taken.0).1, "a poke without its mark");
    taken.append_to(fifo);
}

/// How many events are in the mailbox, and the color of the latest.
///
/// # Panics
/// If the color is not one of these.
pub(crate) fn count(colors: &mut Colors<'_>, slot: SlotId) -> (u64, Option<Color>) {
    assert!(colors.owns(slot), "slot {slot} is another core's");
    let word = colors.slot(slot).mail.load(Ordering::Acquire);
    let (newest, _) = split(word);
    let (mut events, mut color) = (0, None);
    let mut last = newest;
    while let Some(node) = NonNull::new(last) {
        // SAFETY: what is in a mailbox is taken out under the owner's lock only, which is beside
        // `colors` (asserted), and whoever pushes touches nothing but what is pushed: so these
        // nodes stay where they are, and nobody else looks at them. The chunk is only looked at,
        // and stays where it is.
        let (mut chunk, older) = unsafe { Chunk::open(node) };
        events += u64::from(chunk.totals().count);
        color = color.or_else(|| Some(chunk.color()));
        last = older;
    }
    (events, color)
}

/// A mailbox word that was taken out of its mailbox, and all chunks with it: whoever has it owns
/// them. Made by the operation that takes the word out, and not copied.
#[must_use]
struct Mail(*mut Node);

impl Mail {
    /// What is in the mailbox, which is empty and has no mark then.
    fn of(slot: &Slot, order: Ordering) -> Mail {
        Mail(slot.mail.swap(std::ptr::null_mut(), order))
    }

    /// Appends the chunks, oldest first.
    fn append_to(self, fifo: &mut Fifo) {
        let (newest, _) = split(self.0);
        let mut all = Fifo::EMPTY;
        let mut last = newest;
        while let Some(node) = NonNull::new(last) {
            // SAFETY: `push` closed the chunks in the mailbox, and they are ours.
            let (chunk, older) = unsafe { Chunk::open(node) };
            all.prepend(chunk);
            last = older;
        }
        if !all.is_empty() {
            fifo.append_all(all);
        }
    }
}

/// Takes everything out of a mailbox whose poke nobody will want any more.
pub(crate) fn take_rest(slots: &Slots, slot: SlotId, fifo: &mut Fifo) {
    let at = slots.at(slot);
    // Looked at before it is written: most slots were never used, and their memory is not there.
    if at.mail.load(Ordering::Acquire).is_null() {
        return;
    }
    Mail::of(at, Ordering::Acquire).append_to(fifo);
}
