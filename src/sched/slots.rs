//! The color slots: 128 bytes a color, the shared half apart from the private half.
//!
//! Nothing is allocated for a color. The table is zeroed memory that the system provides page by page
//! as colors are used, and all zero is the state of a color never used.

use super::node::Node;
use super::queue::{ColorQueue, State};
use crate::color::ColorMap;
use crate::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use crate::sync::{CellMut, UnsafeCell};

/// A slot's shared part, on its own cache line: what cores write that do not own the color.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Shared {
    /// The mailbox word: see [`super::mail`].
    pub(crate) mail: AtomicPtr<Node>,
    /// 0: the home core of the slot; else the owner plus one. Changed only by whoever holds the
    /// present owner's lock, before that lock is released.
    owner: AtomicU32,
    /// A [`State`]; changed, and relied on, only under the owner's lock.
    state: AtomicU32,
    /// 0: none; else the core, plus one, that somebody asked to place this color on.
    pub(crate) wanted: AtomicU32,
    /// Links a poked slot into the mailbox of a core: see [`super::poke`].
    pub(crate) poke_next: AtomicU32,
}

/// A color slot. For whoever needs more than one thing of a slot: each method of [`Slots`] finds the
/// slot anew.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) shared: Shared,
    queue: UnsafeCell<ColorQueue>,
}

impl Slot {
    /// The state of the color, for whoever holds its owner's lock.
    #[inline(always)]
    pub(crate) fn state(&self) -> State {
        match self.shared.state.load(Ordering::Relaxed) {
            0 => State::Idle,
            1 => State::Queued,
            _ => State::CheckedOut,
        }
    }

    /// Sets the state, by whoever holds the owner's lock.
    #[inline(always)]
    pub(crate) fn set_state(&self, state: State) {
        self.shared.state.store(state as u32, Ordering::Relaxed);
    }

    /// Writes down that `core` owns the color, which so far follows from the slot's number: to find
    /// that out takes a division. By that core, under its lock.
    #[inline(always)]
    pub(crate) fn settle(&self, core: u32) {
        if self.shared.owner.load(Ordering::Relaxed) == 0 {
            self.shared.owner.store(core + 1, Ordering::Release);
        }
    }

    /// The private part.
    ///
    /// # Safety
    /// As for [`Slots::queue`].
    #[inline(always)]
    pub(crate) unsafe fn queue(&self) -> CellMut<'_, ColorQueue> {
        // SAFETY: exclusive by the caller's promise.
        unsafe { self.queue.borrow_mut() }
    }
}

/// All slots of a runtime.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: Box<[Slot]>,
    pub(crate) map: ColorMap,
}

// SAFETY: a slot's private part is reached through `queue` only, whose callers own it by the rule
// in `super::queue`; everything else is atomic.
unsafe impl Sync for Slots {}
// SAFETY: nodes named by the queues are held by them, wherever the table is.
unsafe impl Send for Slots {}

impl Slots {
    pub(crate) fn new(map: ColorMap) -> Slots {
        #[cfg(not(loom))]
        // SAFETY: all-zero bytes are a valid `Slot`: null pointers, zero numbers and
        // `false`; and it means an idle, empty color: `State::Idle` is 0.
        let slots = unsafe { Box::<[Slot]>::new_zeroed_slice(map.slots()).assume_init() };
        #[cfg(loom)]
        let slots = (0..map.slots())
            .map(|_| Slot {
                shared: Shared {
                    mail: AtomicPtr::new(std::ptr::null_mut()),
                    owner: AtomicU32::new(0),
                    state: AtomicU32::new(0),
                    wanted: AtomicU32::new(0),
                    poke_next: AtomicU32::new(0),
                },
                queue: UnsafeCell::new(ColorQueue::new()),
            })
            .collect();
        Slots { slots, map }
    }

    #[inline(always)]
    pub(crate) fn at(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }

    #[inline(always)]
    pub(crate) fn shared(&self, slot: u32) -> &Shared {
        &self.at(slot).shared
    }

    /// The core that owns the color: stable only for whoever holds that core's lock.
    #[inline(always)]
    pub(crate) fn owner(&self, slot: u32) -> u32 {
        match self.shared(slot).owner.load(Ordering::Acquire) {
            0 => self.map.home(slot),
            owner => owner - 1,
        }
    }

    /// Publishes a new owner.
    ///
    /// The caller holds the lock of the present owner (see [`super::section`]). Release, so that who
    /// learns of the new owner also sees what the old one left in the private part.
    pub(crate) fn set_owner(&self, slot: u32, core: u32) {
        self.shared(slot).owner.store(core + 1, Ordering::Release);
    }

    /// The state of a color, for whoever holds its owner's lock.
    #[inline(always)]
    pub(crate) fn state(&self, slot: u32) -> State {
        self.at(slot).state()
    }

    /// Sets the state, by whoever holds the owner's lock.
    #[inline(always)]
    pub(crate) fn set_state(&self, slot: u32, state: State) {
        self.at(slot).set_state(state);
    }

    /// The private part of a slot.
    ///
    /// # Safety
    /// The caller owns it: it holds the owner's lock and the slot is `Idle` or `Queued`, or it is
    /// the owner's thread and the slot is `CheckedOut`, or nobody else can reach the table any
    /// more. And it has no other borrow of this slot's private part.
    #[inline(always)]
    pub(crate) unsafe fn queue(&self, slot: u32) -> CellMut<'_, ColorQueue> {
        // SAFETY: exclusive by the caller's promise.
        unsafe { self.at(slot).queue() }
    }

    pub(crate) fn len(&self) -> u32 {
        self.slots.len() as u32
    }
}
