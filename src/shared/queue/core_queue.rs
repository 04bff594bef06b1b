//! The core-queue: the colors of one core that have events to run, the next one first (Mely section
//! IV-A).

use super::color_queue::ColorQueue;
#[cfg(any(test, debug_assertions, loom))]
use super::color_queue::State;
use super::list::List;
use super::slots::Colors;
use crate::ablation::{Rule, without};
use crate::color::{MaybeSlot, SlotId};
use crate::memory::{PREFETCH_LEAD, prefetch};
use crate::policy::numbers::DEEP_EVENTS;

/// See the module text. What is summed here is kept up by the section that links
/// ([`crate::sched::section`]).
#[derive(Debug, Default)]
pub(crate) struct CoreQueue {
    list: List,
    /// Colors in it.
    pub(crate) len: u32,
    /// Control colors among them, which no thief may take.
    pub(crate) controls: u32,
    /// Events of all but the control colors.
    pub(crate) events: u64,
    /// Colors that last ([`super::color_queue::Endurance::lasts`]).
    pub(crate) lasting: u32,
    scout: Scout,
}

/// Goes some way before the head of a long queue, and asks for memory. Each color is on a line of
/// its own, which says where its first event is, and the next color: without a scout they would be
/// waited for one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scout {
    /// The first color that was not asked for. None: no scout is on its way.
    at: MaybeSlot,
    /// How many colors there are from the head to it. There may be fewer, where thieves have taken
    /// some that were not the head.
    lead: u32,
}

impl Scout {
    /// A color leaves; `next` is the one after it. If it is the scout's own, and not the head, then
    /// by a thief, which takes what is before it as well.
    #[inline(always)]
    pub(crate) fn leaves(&mut self, id: SlotId, is_head: bool, next: impl FnOnce() -> MaybeSlot) {
        self.lead = self.lead.saturating_sub(is_head.into());
        if self.at == MaybeSlot::from(id) {
            let at = next();
            *self = Scout { at, lead: 0 };
        }
    }

    /// Asks for more, until the lead is as long as it should be, but for two colors at most.
    #[inline(always)]
    pub(crate) fn go_on(&mut self, queue: &CoreQueue, colors: &mut Colors<'_>) {
        for _ in 0..2 {
            if let Some(at) = self.at.get()
                && self.lead < PREFETCH_LEAD
            {
                self.at = queue.ask_for(colors, at).into();
                self.lead += 1;
            }
        }
    }
}

/// Where a color is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueEnd {
    Head,
    Tail,
}

impl QueueEnd {
    #[inline(always)]
    pub(crate) fn head_if(first: bool) -> QueueEnd {
        if first {
            QueueEnd::Head
        } else {
            QueueEnd::Tail
        }
    }
}

impl CoreQueue {
    /// Colors that a thief may take.
    #[inline(always)]
    pub(crate) fn stealable(&self) -> u32 {
        self.len - self.controls
    }

    #[inline(always)]
    pub(crate) fn head(&self) -> Option<SlotId> {
        self.list.head()
    }

    /// The color after this one, for a caller that has its queue.
    #[inline(always)]
    pub(crate) fn after(&self, id: SlotId, queue: &ColorQueue) -> Option<SlotId> {
        self.list.after(id, &queue.in_core_queue)
    }

    /// Links a color.
    #[inline(always)]
    pub(crate) fn push(&mut self, colors: &mut Colors<'_>, id: SlotId, end: QueueEnd) {
        let mut members = colors.in_core_queue();
        match end {
            QueueEnd::Tail => self.list.push_back(&mut members, id),
            QueueEnd::Head => {
                self.list.push_front(&mut members, id);
                self.scout.lead += 1;
            }
        }
        self.len += 1;
    }

    /// Unlinks a color.
    pub(crate) fn remove(&mut self, colors: &mut Colors<'_>, id: SlotId) {
        let mut members = colors.in_core_queue();
        let is_head = self.list.head() == Some(id);
        let next = || self.list.next(&mut members, id).into();
        self.scout.leaves(id, is_head, next);
        self.list.remove(&mut members, id);
        self.len -= 1;
    }

    /// Unlinks all colors before `head`, this many, and leaves the scout there.
    #[inline(always)]
    pub(crate) fn begin_at(&mut self, head: Option<SlotId>, taken: u32, scout: Scout) {
        self.list.begin_at(head);
        self.len -= taken;
        self.scout = scout;
    }

    /// The first color that `f` wants, control colors included.
    pub(crate) fn find(
        &self,
        colors: &mut Colors<'_>,
        mut f: impl FnMut(SlotId, &ColorQueue) -> bool,
    ) -> Option<SlotId> {
        let mut next = self.head();
        while let Some(id) = next {
            let queue = colors.linked(id);
            if f(id, &queue) {
                return next;
            }
            next = self.after(id, &queue);
        }
        None
    }

    /// The scout. It is sent if the queue is long enough.
    #[inline(always)]
    pub(crate) fn scout(&self) -> Scout {
        if self.events < DEEP_EVENTS || without(Rule::Scout) || self.scout.at.is_some() {
            return self.scout;
        }
        Scout {
            at: self.list.head().into(),
            lead: 0,
        }
    }

    /// Asks for the first event of this color, and for the next color, which it returns.
    #[inline(always)]
    fn ask_for(&self, colors: &mut Colors<'_>, id: SlotId) -> Option<SlotId> {
        let queue = colors.linked(id);
        prefetch(queue.fifo.at());
        let next = self.after(id, &queue);
        queue.end();
        if let Some(next) = next {
            prefetch(colors.slot(next));
        }
        next
    }

    /// Checks what is counted here against the list, whose members it returns.
    #[cfg(any(test, debug_assertions, loom))]
    pub(crate) fn assert_valid(
        &self,
        colors: &mut Colors<'_>,
        is_control: impl Fn(SlotId) -> bool,
    ) -> Vec<SlotId> {
        let all = self.list.members(&mut colors.in_core_queue());
        let mut sums = (0, 0, 0);
        for &id in &all {
            assert!(
                colors.owns(id),
                "slot {id} is queued on a core that does not own it"
            );
            let queue = colors.at(id);
            assert_eq!(queue.state, State::Queued, "slot {id}");
            assert!(!queue.fifo.is_empty(), "slot {id} is queued and empty");
            if is_control(id) {
                sums.0 += 1;
            } else {
                sums.1 += u64::from(queue.fifo.len());
                sums.2 += u32::from(queue.endurance.lasts());
            }
        }
        assert_eq!(self.len as usize, all.len(), "colors queued");
        assert_eq!(
            (self.controls, self.events, self.lasting),
            sums,
            "control colors, events, and colors that last, queued"
        );
        let scout = self.scout.at.get();
        assert!(
            scout.is_none_or(|scout| all.contains(&scout)),
            "the scout is in the core-queue"
        );
        all
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn scouted(&self) -> Option<SlotId> {
        self.scout.at.get()
    }
}
