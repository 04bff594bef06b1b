//! Unique colors: slots that the runtime hands out.

use super::inner::Inner;
use crate::Color;
use crate::color::ColorMap;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Arc, Mutex, fault};
use std::fmt;

/// The unique colors of a runtime, in a list a core: a color goes back to the list of the core that
/// owned it last, so that the next one taken there is owned already.
#[derive(Debug)]
pub(crate) struct Issued {
    cores: Box<[Mutex<Free>]>,
    step: u32,
    count: u32,
    /// Generations of colors that share a slot: downwards, while those of the others go upwards.
    shared_generation: AtomicU32,
}

#[derive(Debug)]
struct Free {
    /// Index and generation of colors that were given back.
    back: Vec<(u32, u32)>,
    /// The next index never used that is this core's home, and what to hand out when all are taken.
    next: u32,
    shared_next: u32,
}

/// A color that was issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    index: u32,
    generation: u32,
    /// Has a slot of its own.
    exclusive: bool,
}

impl Ticket {
    pub(crate) fn color(self) -> Color {
        Color::issued(self.index, self.generation)
    }
}

impl Issued {
    pub(crate) fn new(map: &ColorMap, cores: usize) -> Issued {
        let step = cores as u32;
        let first = |core: u32| (core + step - map.issued_first() % step) % step;
        Issued {
            cores: (0..step)
                .map(|core| {
                    let next = first(core);
                    Mutex::new(Free {
                        back: Vec::new(),
                        next,
                        shared_next: next,
                    })
                })
                .collect(),
            step,
            count: map.issued_count(),
            shared_generation: AtomicU32::new(u32::MAX),
        }
    }

    /// A color, of `core`'s own if it has one left, else of another's.
    pub(crate) fn take(&self, core: usize) -> Ticket {
        let cores = self.cores.len();
        for i in 0..cores {
            let mut free = self.cores[(core + i) % cores].lock().unwrap();
            if let Some((index, generation)) = free.back.pop() {
                if fault("given out twice") {
                    free.back.push((index, generation));
                }
                return Ticket {
                    index,
                    generation,
                    exclusive: true,
                };
            }
            if free.next < self.count {
                let index = free.next;
                free.next += self.step;
                return Ticket {
                    index,
                    generation: 0,
                    exclusive: true,
                };
            }
        }
        // None is free: share a slot, in turn. Costs parallelism, never correctness.
        let mut free = self.cores[core].lock().unwrap();
        let index = free.shared_next % self.count;
        free.shared_next = free.shared_next.wrapping_add(self.step);
        // Its slot may be anybody's, its value is nobody else's: state is told apart by it.
        let generation = self.shared_generation.fetch_sub(1, Ordering::Relaxed);
        Ticket {
            index,
            generation,
            exclusive: false,
        }
    }

    pub(crate) fn give_back(&self, ticket: Ticket, owner: usize) {
        if ticket.exclusive {
            let generation = ticket
                .generation
                .wrapping_add(!fault("generation kept") as u32);
            self.cores[owner]
                .lock()
                .unwrap()
                .back
                .push((ticket.index, generation));
        }
    }
}

/// A color that nobody else has, with a color slot to itself while any is free; given back when
/// dropped.
///
/// For state that comes and goes, a connection say: unlike a file descriptor's number it is never
/// the color of something else at the same time. Events of the color that are still queued when it
/// is dropped run as usual; a later holder of the same slot then shares it for a moment.
///
/// ```
/// use mely::Runtime;
/// let is_mine = Runtime::builder().build()?.run_until(|cx, finish| {
///     let mine = cx.unique_color();
///     let color = mine.color();
///     cx.post(color, move |cx| finish.finish(cx.color() == mine.color()));
/// })?;
/// assert!(is_mine);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropped, the color is given to somebody else"]
pub struct UniqueColor {
    ticket: Ticket,
    inner: Arc<Inner>,
}

impl UniqueColor {
    /// A color of `core`'s, or one that is moved there.
    pub(crate) fn issue(inner: &Arc<Inner>, core: usize) -> UniqueColor {
        let ticket = inner.issued.take(core);
        crate::shared::remote::wishes::place(&inner.shared, ticket.color(), core);
        UniqueColor {
            ticket,
            inner: Arc::clone(inner),
        }
    }

    /// The color.
    pub fn color(&self) -> Color {
        self.ticket.color()
    }
}

impl fmt::Debug for UniqueColor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UniqueColor")
            .field("color", &self.color())
            .finish_non_exhaustive()
    }
}

impl Drop for UniqueColor {
    fn drop(&mut self) {
        let slots = &self.inner.shared.slots;
        let owner = slots.owner(slots.map.slot(self.color()));
        self.inner.issued.give_back(self.ticket, owner.index());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::color::CoreId;
    use crate::color::HashKey;
    use std::collections::HashSet;

    #[test]
    fn every_slot_once_then_shared_then_again() {
        let map = ColorMap::new(6, 3, HashKey::from_seed(0));
        let issued = Issued::new(&map, 3);
        let tickets: Vec<Ticket> = (0..map.issued_count())
            .map(|i| issued.take(i as usize % 3))
            .collect();
        assert!(tickets.iter().all(|t| t.exclusive));
        let slots: HashSet<_> = tickets.iter().map(|t| map.slot(t.color())).collect();
        assert_eq!(slots.len(), map.issued_count() as usize);
        assert_eq!(map.first_owner(map.slot(tickets[0].color())), CoreId::of(0));
        assert_eq!(map.first_owner(map.slot(tickets[1].color())), CoreId::of(1));
        let extra = issued.take(0);
        assert!(!extra.exclusive);
        assert!(!tickets.iter().any(|t| t.color() == extra.color()));
        issued.give_back(extra, 0);
        issued.give_back(tickets[5], 1);
        let again = issued.take(1);
        assert!(again.exclusive);
        assert_eq!(map.slot(again.color()), map.slot(tickets[5].color()));
        assert_ne!(again.color(), tickets[5].color(), "a new generation");
    }

    #[test]
    fn colors_are_first_of_those_whose_home_the_core_is() {
        for cores in 1..=7 {
            let map = ColorMap::new(6, cores, HashKey::from_seed(0));
            let issued = Issued::new(&map, cores);
            for round in 0..2 {
                for core in 0..cores {
                    let ticket = issued.take(core);
                    let home = map.first_owner(map.slot(ticket.color()));
                    assert_eq!(home, CoreId::of(core), "{round} of {cores} cores");
                }
            }
        }
    }

    /// Those that share a slot take turns with the slots, and again first with those of the core.
    #[test]
    fn slots_are_shared_in_turn() {
        let map = ColorMap::new(6, 3, HashKey::from_seed(0));
        let issued = Issued::new(&map, 3);
        let count = map.issued_count();
        let own: Vec<Ticket> = (0..count).map(|_| issued.take(0)).collect();
        let shared: Vec<Ticket> = (0..count).map(|_| issued.take(0)).collect();
        assert!(shared.iter().all(|ticket| !ticket.exclusive));
        let slot = |ticket: &Ticket| map.slot(ticket.color());
        let slots: HashSet<_> = shared.iter().map(slot).collect();
        assert_eq!(slots.len(), count as usize);
        let homes = shared.iter().map(|ticket| map.first_owner(slot(ticket)));
        assert_eq!(homes.take_while(|&home| home == CoreId::of(0)).count(), 6);
        // They are not given out as if they had a slot to themselves.
        issued.give_back(shared[0], 0);
        let last = issued.take(0);
        assert!(!last.exclusive);
        // A slot that was shared, and is given out anew, has a color that nobody ever had.
        let colors = own.iter().chain(&shared).chain([&last]);
        let colors: HashSet<_> = colors.map(|ticket| ticket.color()).collect();
        for &ticket in &own {
            issued.give_back(ticket, 0);
        }
        for _ in 0..count {
            let again = issued.take(0);
            assert!(again.exclusive);
            assert!(!colors.contains(&again.color()), "{again:?}");
        }
    }

    #[test]
    fn a_color_that_is_dropped_is_given_back() {
        let builder = crate::Runtime::builder().color_slots(16);
        let topology = crate::topology::Topology::flat(1).unwrap();
        let runtime = builder.topology(topology).build().unwrap();
        for round in 0..3 {
            let held: Vec<_> = (0..5)
                .map(|_| UniqueColor::issue(&runtime.inner, 0))
                .collect();
            let exclusive = held.iter().filter(|color| color.ticket.exclusive).count();
            assert_eq!(exclusive, 4, "of 16 slots, in round {round}");
        }
    }
}
