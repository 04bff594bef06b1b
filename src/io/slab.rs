//! The table of operations under way.

use super::Op;

/// Slots with generations: a key is good for exactly one stay of one value.
///
/// That is what makes a late or doubled completion harmless: its key no longer matches the slot.
/// Grows to the largest number of operations ever under way at once and stays there; the caller
/// bounds that number, since each operation belongs to a descriptor.
#[derive(Debug)]
pub(super) struct Slab<T> {
    slots: Vec<SlabEntry<T>>,
    free: Option<u32>,
    len: usize,
}

#[derive(Debug)]
struct SlabEntry<T> {
    generation: u32,
    state: Occupancy<T>,
}

#[derive(Debug)]
enum Occupancy<T> {
    Vacant { next: Option<u32> },
    Taken(T),
}

/// The largest index, exclusive: the keys above are the ring's own (`uring/mod.rs`).
const INDEX_MAX: u32 = u32::MAX;

impl<T> Slab<T> {
    pub(super) fn new() -> Slab<T> {
        Slab {
            slots: Vec::new(),
            free: None,
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn insert(&mut self, value: T) -> Op {
        self.len += 1;
        if let Some(index) = self.free {
            let slot = &mut self.slots[index as usize];
            let Occupancy::Vacant { next } = slot.state else {
                unreachable!("slot {index} is on the free list and taken")
            };
            self.free = next;
            slot.state = Occupancy::Taken(value);
            return key(index, slot.generation);
        }
        let index = u32::try_from(self.slots.len()).unwrap_or(INDEX_MAX);
        assert!(index < INDEX_MAX, "four billion operations under way");
        self.slots.push(SlabEntry {
            generation: 0,
            state: Occupancy::Taken(value),
        });
        key(index, 0)
    }

    pub(super) fn get(&self, op: Op) -> Option<&T> {
        let (index, generation) = split(op);
        match self.slots.get(index as usize)? {
            SlabEntry {
                generation: g,
                state: Occupancy::Taken(value),
            } if *g == generation => Some(value),
            _ => None,
        }
    }

    pub(super) fn get_mut(&mut self, op: Op) -> Option<&mut T> {
        let (index, generation) = split(op);
        match self.slots.get_mut(index as usize)? {
            SlabEntry {
                generation: g,
                state: Occupancy::Taken(value),
            } if *g == generation => Some(value),
            _ => None,
        }
    }

    pub(super) fn remove(&mut self, op: Op) -> Option<T> {
        self.get(op)?;
        let (index, _) = split(op);
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        let vacant = Occupancy::Vacant { next: self.free };
        let Occupancy::Taken(value) = std::mem::replace(&mut slot.state, vacant) else {
            unreachable!("looked at just now")
        };
        self.free = Some(index);
        self.len -= 1;
        Some(value)
    }

    /// The keys of all values, in the order of their slots.
    pub(super) fn keys(&self) -> impl Iterator<Item = Op> + '_ {
        self.slots
            .iter()
            .zip(0u32..)
            .filter_map(|(slot, index)| match slot.state {
                Occupancy::Taken(_) => Some(key(index, slot.generation)),
                Occupancy::Vacant { .. } => None,
            })
    }
}

fn key(index: u32, generation: u32) -> Op {
    Op(u64::from(index) | u64::from(generation) << 32)
}

fn split(op: Op) -> (u32, u32) {
    (op.0 as u32, (op.0 >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_dies_with_its_value() {
        let mut slab = Slab::new();
        let first = slab.insert("first");
        assert_eq!(slab.remove(first), Some("first"));
        let second = slab.insert("second");
        assert_eq!(first.0 as u32, second.0 as u32, "the slot is used again");
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&"second"));
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn slots_are_reused_before_new_ones_are_made() {
        let mut slab = Slab::new();
        for round in 0..1000 {
            let ops: Vec<Op> = (0..8).map(|n| slab.insert(round * 8 + n)).collect();
            assert_eq!(slab.keys().count(), 8);
            for op in ops {
                assert!(slab.remove(op).is_some());
            }
        }
        assert!(slab.is_empty());
        assert_eq!(slab.slots.len(), 8);
    }
}
