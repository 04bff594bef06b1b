//! The colors of one core, for whoever holds its lock: the only door to the private parts of slots.
//!
//! Borrows come from a [`Colors`], one at a time, which is made with the lock's guard and stays
//! beside it, in a [`Guarded`], until both are dropped.
//! So the compiler sees to it that no private part is borrowed twice, or without the lock. That a
//! color is this core's is checked where it comes in ([`Colors::owns`]); members of the core's
//! lists are its colors, and what it has checked out stays its color.

use super::color_queue::ColorQueue;
use super::list::{Links, Members};
use super::queues::Queues;
use super::shared::Shared;
use super::slots::{Slot, Slots, Table};
use crate::color::SlotId;
use crate::sync::CellMut;
use crate::sync::lock::Guard;

/// The lock of a core, held: its queues, and its colors.
#[derive(Debug)]
pub(super) struct Guarded<'a> {
    pub(super) colors: Colors<'a>,
    pub(super) queues: Guard<'a, Queues>,
}

impl<'a> Guarded<'a> {
    /// Waits for the lock of `core`.
    #[inline(always)]
    pub(super) fn lock(shared: &'a Shared, core: u32) -> Guarded<'a> {
        Guarded::with(shared, core, shared.cores[core as usize].lock.lock())
    }

    /// The lock of `core`, if it is free.
    #[inline(always)]
    pub(super) fn try_lock(shared: &'a Shared, core: u32) -> Option<Guarded<'a>> {
        let queues = shared.cores[core as usize].lock.try_lock()?;
        Some(Guarded::with(shared, core, queues))
    }

    #[inline(always)]
    fn with(shared: &'a Shared, core: u32, queues: Guard<'a, Queues>) -> Guarded<'a> {
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

/// See the module text.
#[derive(Debug)]
pub(super) struct Colors<'a> {
    slots: &'a Slots,
    table: Table<'a>,
    core: u32,
}

impl<'a> Colors<'a> {
    /// The public part of any slot.
    #[inline(always)]
    pub(super) fn slot(&self, id: SlotId) -> &'a Slot {
        self.table.at(id)
    }

    /// Whether the color belongs to this core: stable while the lock is held.
    #[inline(always)]
    pub(super) fn owns(&self, id: SlotId) -> bool {
        self.slots.owner_of(id, self.slot(id)) == self.core
    }

    /// The private part of a color of this core.
    #[inline(always)]
    pub(super) fn at(&mut self, id: SlotId) -> CellMut<'_, ColorQueue> {
        // Not in models, where one more look at the owner would hide that another is missing.
        debug_assert!(self.owns(id), "slot {id} is not core {}'s", self.core);
        // SAFETY: beside this is the lock of the core that owns the color, held, which nobody
        // else can make another core's meanwhile (`Slots::set_owner`). No other borrow lives: this
        // one borrows all of the core's colors.
        unsafe { self.slot(id).queue.borrow_mut() }
    }

    /// The colors as members of the core-queue.
    #[inline(always)]
    pub(super) fn in_core_queue(&mut self) -> InCoreQueue<'_, 'a> {
        InCoreQueue(self)
    }

    /// The colors as members of a band.
    #[inline(always)]
    pub(super) fn in_band(&mut self) -> InBand<'_, 'a> {
        InBand(self)
    }
}

/// See [`Colors::in_core_queue`].
#[derive(Debug)]
pub(super) struct InCoreQueue<'c, 'a>(&'c mut Colors<'a>);

impl Members for InCoreQueue<'_, '_> {
    #[inline(always)]
    fn links<R>(&mut self, id: SlotId, f: impl FnOnce(&mut Links) -> R) -> R {
        f(&mut self.0.at(id).core)
    }
}

/// See [`Colors::in_band`].
#[derive(Debug)]
pub(super) struct InBand<'c, 'a>(&'c mut Colors<'a>);

impl Members for InBand<'_, '_> {
    #[inline(always)]
    fn links<R>(&mut self, id: SlotId, f: impl FnOnce(&mut Links) -> R) -> R {
        f(&mut self.0.at(id).in_band)
    }
}
