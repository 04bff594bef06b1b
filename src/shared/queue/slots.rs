//! The color slots: one cache line a color.
//!
//! Nothing is allocated for a color. The table is zeroed memory that the system provides page by
//! page as colors are used, and all zero is the state of a color never used.
//!
//! ```text
//! 0      8           12      14       16              44      45     46          48           64
//! | mail | poke_next | owner |  wish  | FIFO, its sums | state | band | endurance | four links |
//! |  any core writes | (lock)|any core|             whoever holds the owner's lock            |
//! ```
//!
//! The owner is read by any core, and written under the present owner's lock.
//!
//! Both halves share the line on purpose: whoever touches one is about to touch the other. A color
//! that runs is not affected by cores that post to it, because its events were moved out of the
//! slot when it was checked out.
//!
//! The only door to the private parts are the [`Colors`] of a core, for whoever holds its lock.
//! They are made with the lock's guard and stay beside it, in a [`Guarded`], until both are
//! dropped; and they lend one private part at a time. So the compiler sees to it that none is
//! borrowed twice, or without the lock. That a color is this core's is checked where it comes in
//! ([`Colors::owns`]); members of the core's lists are its colors, and what it has checked out
//! stays its color.

use super::color_queue::ColorQueue;
use super::list::{Links, Members};
use super::queues::Queues;
use super::wish::Wish;
use crate::color::{ColorMap, CoreId, SlotId};
use crate::event::node::Node;
#[cfg(not(loom))]
use crate::memory::{self, Zeroed};
use crate::shared::Shared;
use crate::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, Ordering};
use crate::sync::lock::Guard;
use crate::sync::{CellMut, UnsafeCell, charge};

/// A color slot.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Slot {
    /// The mailbox word: see [`crate::shared::remote::mail`].
    pub(crate) mail: AtomicPtr<Node>,
    /// Links a poked slot into the pokes of a core: see [`crate::shared::remote::poke`].
    pub(crate) poke_next: AtomicU32,
    /// 0: the first owner of the slot ([`ColorMap::first_owner`]); else the owner plus one (a
    /// runtime has at most 512 cores). Changed only by whoever holds the present owner's lock,
    /// before that lock is released.
    owner: AtomicU16,
    /// What was asked of the color: see [`super::wish`].
    pub(crate) wish: Wish,
    /// The private part: see [`Colors`].
    queue: UnsafeCell<ColorQueue>,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == 64);

impl Slot {
    /// Writes down that `core` owns the color, which so far follows from the slot's number: to find
    /// that out takes a division. By that core, under its lock.
    #[inline(always)]
    pub(crate) fn settle(&self, core: CoreId) {
        if self.owner.load(Ordering::Relaxed) == 0 {
            self.owner
                .store(core.number() as u16 + 1, Ordering::Release);
        }
    }

    /// Whether nothing was ever posted to the color. Such a line is not even there.
    pub(crate) fn was_never_used(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == 0 && self.mail.load(Ordering::Relaxed).is_null()
    }
}

// SAFETY: null pointers and zero numbers; and they mean an idle, empty color: `State::Idle` is 0.
#[cfg(not(loom))]
unsafe impl Zeroed for Slot {}

/// The slots, at hand: reached through the runtime's shared part, the table's address would be read
/// anew after each store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table<'a>(&'a [Slot]);

impl<'a> Table<'a> {
    #[inline(always)]
    pub(crate) fn at(self, slot: SlotId) -> &'a Slot {
        debug_assert!((slot.number() as usize) < self.0.len());
        // SAFETY: slots come from `ColorMap`, whose `slots` is the length of the table; lists,
        // pokes and checkouts hold such slots only.
        unsafe { self.0.get_unchecked(slot.number() as usize) }
    }
}

/// All slots of a runtime.
#[derive(Debug)]
pub(crate) struct Slots {
    pub(crate) slots: Box<[Slot]>,
    pub(crate) map: ColorMap,
}

// SAFETY: a slot's private part is reached through `Colors` only, which lives while the lock of the
// owner is held; everything else is atomic.
unsafe impl Sync for Slots {}
// SAFETY: nodes named by the queues are held by them, wherever the table is, and the closures in
// them are `Send` (the bound of `Maker::make`).
unsafe impl Send for Slots {}

impl Slots {
    pub(crate) fn new(map: ColorMap) -> Slots {
        #[cfg(not(loom))]
        let slots = memory::zeroed(map.slots());
        #[cfg(loom)]
        let slots = (0..map.slots())
            .map(|_| Slot {
                mail: AtomicPtr::new(std::ptr::null_mut()),
                poke_next: AtomicU32::new(0),
                owner: AtomicU16::new(0),
                wish: Wish::new(),
                queue: UnsafeCell::new(ColorQueue::new()),
            })
            .collect();
        Slots { slots, map }
    }

    #[inline(always)]
    pub(crate) fn at(&self, slot: SlotId) -> &Slot {
        self.table().at(slot)
    }

    #[inline(always)]
    pub(crate) fn table(&self) -> Table<'_> {
        Table(&self.slots)
    }

    /// The core that owns the color: stable only for whoever holds that core's lock.
    #[inline(always)]
    pub(crate) fn owner(&self, slot: SlotId) -> CoreId {
        self.owner_of(slot, self.at(slot))
    }

    /// As [`owner`](Self::owner), for a caller that has the slot.
    #[inline(always)]
    pub(crate) fn owner_of(&self, slot: SlotId, at: &Slot) -> CoreId {
        match at.owner.load(Ordering::Acquire) {
            0 => self.map.first_owner(slot),
            owner => CoreId::of(usize::from(owner) - 1),
        }
    }

    /// Publishes a new owner.
    ///
    /// The caller holds the lock of the present owner (see [`crate::sched::section`]) and has done
    /// with the private part, which from now on belongs to the new owner's lock. Release, so that
    /// who learns of the new owner also sees what the old one left there.
    pub(crate) fn set_owner(&self, slot: SlotId, core: CoreId) {
        self.at(slot)
            .owner
            .store(core.number() as u16 + 1, Ordering::Release);
    }

    /// All of them.
    pub(crate) fn ids(&self) -> impl Iterator<Item = SlotId> + use<> {
        (0..self.map.slots() as u32).map(SlotId::of)
    }
}

/// The lock of a core, held: its queues, and its colors.
#[derive(Debug)]
pub(crate) struct Guarded<'a> {
    pub(crate) colors: Colors<'a>,
    pub(crate) queues: Guard<'a, Queues>,
}

impl<'a> Guarded<'a> {
    /// Waits for the lock of `core`.
    #[inline(always)]
    pub(crate) fn lock(shared: &'a Shared, core: CoreId) -> Guarded<'a> {
        Guarded::with(shared, core, shared.core(core).lock.lock())
    }

    /// The lock of `core`, if it is free.
    #[inline(always)]
    pub(crate) fn try_lock(shared: &'a Shared, core: CoreId) -> Option<Guarded<'a>> {
        let queues = shared.core(core).lock.try_lock()?;
        Some(Guarded::with(shared, core, queues))
    }

    /// Waits for the lock of the core that owns a color.
    pub(crate) fn of_slot(shared: &'a Shared, slot: SlotId) -> Guarded<'a> {
        loop {
            let guarded = Guarded::lock(shared, shared.slots.owner(slot));
            if guarded.colors.owns(slot) {
                return guarded;
            }
        }
    }

    #[inline(always)]
    fn with(shared: &'a Shared, core: CoreId, queues: Guard<'a, Queues>) -> Guarded<'a> {
        let colors = Colors {
            slots: &shared.slots,
            table: shared.slots.table(),
            core,
        };
        Guarded { colors, queues }
    }
}

// So that the compiler lets nobody take the colors out of it.
impl Drop for Guarded<'_> {
    fn drop(&mut self) {}
}

/// The colors of one core; see the module text.
#[derive(Debug)]
pub(crate) struct Colors<'a> {
    slots: &'a Slots,
    table: Table<'a>,
    pub(crate) core: CoreId,
}

impl<'a> Colors<'a> {
    /// The public part of any slot.
    #[inline(always)]
    pub(crate) fn slot(&self, id: SlotId) -> &'a Slot {
        self.table.at(id)
    }

    /// Whether the color belongs to this core: stable while the lock is held.
    #[inline(always)]
    pub(crate) fn owns(&self, id: SlotId) -> bool {
        self.slots.owner_of(id, self.slot(id)) == self.core
    }

    /// The private part of a color of this core.
    #[inline(always)]
    pub(crate) fn at(&mut self, id: SlotId) -> CellMut<'_, ColorQueue> {
        // Not in models, where one more look at the owner would hide that another is missing.
        debug_assert!(self.owns(id), "slot {id} is not core {}'s", self.core);
        // SAFETY: beside this is the lock of the core that owns the color, held, which nobody
        // else can make another core's meanwhile (`Slots::set_owner`). No other borrow lives: this
        // one borrows all of the core's colors.
        unsafe { self.slot(id).queue.borrow_mut() }
    }

    /// The same of a color that a link led to.
    #[inline(always)]
    pub(crate) fn linked(&mut self, id: SlotId) -> CellMut<'_, ColorQueue> {
        charge::reach(self.slot(id));
        self.at(id)
    }

    /// The colors as members of the core-queue.
    #[inline(always)]
    pub(crate) fn in_core_queue(&mut self) -> InCoreQueue<'_, 'a> {
        InCoreQueue(self)
    }

    /// The colors as members of a band.
    #[inline(always)]
    pub(crate) fn in_band(&mut self) -> InBand<'_, 'a> {
        InBand(self)
    }
}

/// See [`Colors::in_core_queue`].
#[derive(Debug)]
pub(crate) struct InCoreQueue<'c, 'a>(&'c mut Colors<'a>);

impl Members for InCoreQueue<'_, '_> {
    #[inline(always)]
    fn look<R>(&mut self, id: SlotId, f: impl FnOnce(&Links) -> R) -> R {
        f(&self.0.linked(id).in_core_queue)
    }

    #[inline(always)]
    fn links<R>(&mut self, id: SlotId, f: impl FnOnce(&mut Links) -> R) -> R {
        f(&mut self.0.at(id).in_core_queue)
    }
}

/// See [`Colors::in_band`].
#[derive(Debug)]
pub(crate) struct InBand<'c, 'a>(&'c mut Colors<'a>);

impl Members for InBand<'_, '_> {
    #[inline(always)]
    fn look<R>(&mut self, id: SlotId, f: impl FnOnce(&Links) -> R) -> R {
        f(&self.0.linked(id).in_band)
    }

    #[inline(always)]
    fn links<R>(&mut self, id: SlotId, f: impl FnOnce(&mut Links) -> R) -> R {
        f(&mut self.0.at(id).in_band)
    }
}
