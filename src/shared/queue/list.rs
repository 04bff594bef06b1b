//! A doubly linked list of colors, linked through the colors themselves: nothing is allocated, and
//! a color is put in, or taken out from anywhere, in constant time.

use crate::color::{MaybeSlot, SlotId};
use crate::sync::charge;

/// A color's neighbors in a list. At an end of the list the outer one means nothing: a color that
/// is taken out at the head need not be followed by a write to the next one.
#[derive(Debug, Default)]
pub(crate) struct Links {
    /// The number of a slot, and the same for `next`.
    prev: u32,
    next: u32,
}

impl Links {
    /// A color that is in no list may keep a number here.
    pub(crate) fn note(number: u32) -> Links {
        Links {
            prev: number,
            next: 0,
        }
    }

    /// The number that such a color keeps.
    pub(crate) fn noted(&self) -> u32 {
        self.prev
    }
}

/// Where the links of a list's members are.
pub(crate) trait Members {
    /// To read them.
    fn look<R>(&mut self, id: SlotId, f: impl FnOnce(&Links) -> R) -> R;
    /// To write them.
    fn links<R>(&mut self, id: SlotId, f: impl FnOnce(&mut Links) -> R) -> R;
}

/// See the module text. Each operation is told where the links are; always the same members for one
/// list.
#[derive(Debug, Default)]
pub(crate) struct List {
    head: MaybeSlot,
    tail: MaybeSlot,
}

impl List {
    #[inline(always)]
    pub(crate) fn head(&self) -> Option<SlotId> {
        charge::reach(self);
        self.head.get()
    }

    /// The member after this one.
    #[inline(always)]
    pub(crate) fn next(&self, members: &mut impl Members, id: SlotId) -> Option<SlotId> {
        members.look(id, |links| self.after(id, links))
    }

    /// The member after this one, for a caller that has its links.
    #[inline(always)]
    pub(crate) fn after(&self, id: SlotId, links: &Links) -> Option<SlotId> {
        (!self.tail.is(id)).then_some(SlotId::of(links.next))
    }

    /// Puts a color at the end.
    #[inline(always)]
    pub(crate) fn push_back(&mut self, members: &mut impl Members, id: SlotId) {
        match self.tail.get() {
            None => self.head = id.into(),
            Some(tail) => {
                members.links(id, |links| links.prev = tail.number());
                members.links(tail, |links| links.next = id.number());
            }
        }
        self.tail = id.into();
    }

    /// Puts a color at the head.
    pub(crate) fn push_front(&mut self, members: &mut impl Members, id: SlotId) {
        match self.head.get() {
            None => self.tail = id.into(),
            Some(head) => {
                members.links(id, |links| links.next = head.number());
                members.links(head, |links| links.prev = id.number());
            }
        }
        self.head = id.into();
    }

    /// Takes a member out.
    #[inline(always)]
    pub(crate) fn remove(&mut self, members: &mut impl Members, id: SlotId) {
        let (is_head, is_tail) = (self.head.is(id), self.tail.is(id));
        let neighbors = members.look(id, |links| (links.prev, links.next));
        let prev = (!is_head).then_some(SlotId::of(neighbors.0));
        let next = (!is_tail).then_some(SlotId::of(neighbors.1));
        match (prev, next) {
            (Some(prev), _) => members.links(prev, |links| links.next = neighbors.1),
            (None, next) => self.head = next.into(),
        }
        match (next, prev) {
            (Some(next), _) => members.links(next, |links| links.prev = neighbors.0),
            (None, prev) => self.tail = prev.into(),
        }
    }

    /// Takes all members out before `head`, or all if there is none: at once, for a caller that
    /// went through them.
    #[inline(always)]
    pub(crate) fn begin_at(&mut self, head: Option<SlotId>) {
        self.head = head.into();
        if head.is_none() {
            self.tail = MaybeSlot::NONE;
        }
    }

    /// The members in order. Walks the list and checks that it is one.
    #[cfg(any(test, debug_assertions, loom))]
    pub(crate) fn members(&self, members: &mut impl Members) -> Vec<SlotId> {
        let mut all: Vec<SlotId> = Vec::new();
        assert_eq!(self.head.is_some(), self.tail.is_some());
        let mut next = self.head();
        while let Some(id) = next {
            if let Some(before) = all.last() {
                let prev = members.look(id, |links| links.prev);
                assert_eq!(prev, before.number(), "slot {id}: back link");
            }
            all.push(id);
            next = self.next(members, id);
        }
        assert_eq!(all.last().copied(), self.tail.get(), "the last is the tail");
        all
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const COLORS: u32 = 6;

    /// Links of lists whose members are numbered.
    struct Numbered(Vec<Links>);

    impl Members for Numbered {
        fn look<R>(&mut self, id: SlotId, f: impl FnOnce(&Links) -> R) -> R {
            f(&self.0[id.number() as usize])
        }

        fn links<R>(&mut self, id: SlotId, f: impl FnOnce(&mut Links) -> R) -> R {
            f(&mut self.0[id.number() as usize])
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Back(u32),
        Front(u32),
        Remove(u32),
        /// Takes this many out at the head, at once.
        Head(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..COLORS).prop_map(Step::Back),
            (0..COLORS).prop_map(Step::Front),
            (0..COLORS).prop_map(Step::Remove),
            (0..3usize).prop_map(Step::Head),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            cases: if cfg!(miri) { 4 } else { 256 },
            ..ProptestConfig::default()
        })]

        #[test]
        fn a_list_is_a_queue_that_anything_may_leave(
            steps in proptest::collection::vec(step(), 0..60),
        ) {
            let mut members = Numbered((0..COLORS).map(|_| Links::note(u32::MAX)).collect());
            let (mut list, mut model) = (List::default(), VecDeque::new());
            for step in steps {
                match step {
                    Step::Back(id) if !model.contains(&id) => {
                        list.push_back(&mut members, SlotId::of(id));
                        model.push_back(id);
                    }
                    Step::Front(id) if !model.contains(&id) => {
                        list.push_front(&mut members, SlotId::of(id));
                        model.push_front(id);
                    }
                    Step::Back(id) | Step::Front(id) | Step::Remove(id) => {
                        if let Some(at) = model.iter().position(|&other| other == id) {
                            list.remove(&mut members, SlotId::of(id));
                            model.remove(at);
                            // What a color that is in no list keeps is no list's matter.
                            members.0[id as usize] = Links::note(u32::MAX);
                        }
                    }
                    Step::Head(n) => {
                        model.drain(..n.min(model.len()));
                        list.begin_at(model.front().map(|&id| SlotId::of(id)));
                    }
                }
                let expected: Vec<SlotId> = model.iter().map(|&id| SlotId::of(id)).collect();
                prop_assert_eq!(list.members(&mut members), expected);
                prop_assert_eq!(list.head(), model.front().map(|&id| SlotId::of(id)));
            }
        }
    }

    #[test]
    fn a_color_in_no_list_keeps_a_number() {
        assert_eq!(Links::note(7).noted(), 7);
        assert_eq!(Links::default().noted(), 0);
    }
}
