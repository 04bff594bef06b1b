//! Colors, and the slots they map to.
//!
//! A [`Color`] is any 64-bit value. The scheduler works on *slots*, of which there are 65,536 unless
//! the builder says otherwise. Three kinds of colors map to three disjoint ranges of slots, so that
//! file descriptors and counters collide with nothing:
//!
//! ```text
//! slots 0 .. S/2        small values (< S/2), each its own slot
//!       S/2 .. 3S/4     everything else, mixed by a hash
//!       3S/4 .. S       unique colors, issued by the runtime, a slot each while any is free
//!       S .. S + cores  one control color a core: never stolen, never given out
//! ```
//!
//! Two colors in one slot share a queue. That costs parallelism, never correctness: order and
//! exclusion are kept by slot, and a slot's order contains each color's (libasync-smp's 1,024-entry
//! map did the same; checklist N1 is the gap that slots close: steal and running-check are by slot).

/// What an event is serialized by: two events of one color never run at the same time, and run in
/// the order they were posted.
///
/// Any 64-bit value makes a color: a file descriptor, a document id, an address.
///
/// ```
/// use mely::Color;
/// let document = Color::from(42);
/// assert_eq!(document.value(), 42);
/// assert_eq!(Color::default(), Color::DEFAULT);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Color(u64);

/// The upper 20 bits of colors the runtime issues. No canonical address has them, and a random
/// value has them once in a million; one that does merely shares a slot.
const ISSUED_TAG: u64 = 0xC0107 << 44;
const ISSUED_MASK: u64 = 0xFFFFF << 44;
/// Below the tag: 24 bits of generation, then 20 bits of index.
const GENERATION_SHIFT: u32 = 20;
const GENERATION_MASK: u32 = 0xFF_FFFF;
const INDEX_MASK: u64 = 0xF_FFFF;

impl Color {
    /// The color of everything that was given none: 0. Colors are never inherited
    /// (libasync-smp §3.2), so code that names no color runs serially and stays correct.
    pub const DEFAULT: Color = Color(0);

    /// A color from a value; the same as `Color::from`, in const context.
    pub const fn new(value: u64) -> Color {
        Color(value)
    }

    /// The value this color was made from.
    pub const fn value(self) -> u64 {
        self.0
    }

    /// The `index`-th color of the issued range in its `generation`-th life.
    pub(crate) fn issued(index: u32, generation: u32) -> Color {
        let generation = u64::from(generation & GENERATION_MASK) << GENERATION_SHIFT;
        Color(ISSUED_TAG | generation | (u64::from(index) & INDEX_MASK))
    }
}

impl From<u64> for Color {
    fn from(value: u64) -> Color {
        Color(value)
    }
}

/// The map from colors to slots of one runtime.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColorMap {
    /// Values below this, S/2, are their own slots.
    small: u64,
    /// log2 of the number of slots S.
    bits: u32,
    cores: u32,
}

/// Bounds of the number of slots.
pub(crate) const SLOT_BITS_MIN: u32 = 4;
pub(crate) const SLOT_BITS_MAX: u32 = 20;

impl ColorMap {
    pub(crate) fn new(bits: u32, cores: usize) -> ColorMap {
        debug_assert!((SLOT_BITS_MIN..=SLOT_BITS_MAX).contains(&bits));
        ColorMap {
            small: 1 << (bits - 1),
            bits,
            cores: cores as u32,
        }
    }

    /// Slots in all, the control slots included.
    pub(crate) fn slots(&self) -> usize {
        (1usize << self.bits) + self.cores as usize
    }

    pub(crate) fn issued_first(&self) -> u32 {
        3 << (self.bits - 2)
    }

    /// How many unique colors can have a slot to themselves.
    pub(crate) fn issued_count(&self) -> u32 {
        1 << (self.bits - 2)
    }

    /// The color whose events run on `core` and nowhere else.
    pub(crate) fn control(&self, core: usize) -> Color {
        Color::issued(self.issued_count() + core as u32, 0)
    }

    /// The first control slot; none but control slots follow.
    #[inline]
    pub(crate) fn control_first(&self) -> u32 {
        1 << self.bits
    }

    #[inline]
    pub(crate) fn is_control(&self, slot: u32) -> bool {
        slot >= self.control_first()
    }

    /// The core a slot belongs to before anyone moved it: slot mod cores, as in the papers, and for
    /// a control slot its own core.
    #[inline]
    pub(crate) fn home(&self, slot: u32) -> u32 {
        if self.is_control(slot) {
            slot - self.control_first()
        } else {
            slot % self.cores
        }
    }

    #[inline]
    pub(crate) fn slot(&self, color: Color) -> u32 {
        if color.0 < self.small {
            return color.0 as u32;
        }
        self.slot_beyond(color)
    }

    fn slot_beyond(&self, color: Color) -> u32 {
        if color.0 & ISSUED_MASK == ISSUED_TAG {
            let index = (color.0 & INDEX_MASK) as u32;
            if index < self.issued_count() + self.cores {
                return self.issued_first() + index;
            }
        }
        // Fibonacci hashing after folding the high half in: aligned addresses and multiples of
        // powers of two must not pile up.
        let folded = color.0 ^ (color.0 >> 32);
        let mixed = folded.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (1 << (self.bits - 1)) + (mixed >> (64 - (self.bits - 2))) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_ranges_are_disjoint() {
        let map = ColorMap::new(16, 4);
        for value in [0, 1, 7, 32_767] {
            assert_eq!(map.slot(Color(value)), value as u32);
        }
        let mut state = 1u64;
        for _ in 0..100_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let slot = map.slot(Color(state | 1 << 63));
            assert!(
                (32_768..49_152).contains(&slot) || (state | 1 << 63) & ISSUED_MASK == ISSUED_TAG
            );
        }
        for index in 0..map.issued_count() {
            assert_eq!(map.slot(Color::issued(index, 5)), 49_152 + index);
        }
        for core in 0..4 {
            let slot = map.slot(map.control(core));
            assert!(map.is_control(slot));
            assert_eq!(map.home(slot), core as u32);
            assert!((slot as usize) < map.slots());
        }
    }

    #[test]
    fn addresses_spread() {
        let map = ColorMap::new(16, 2);
        let mut used = std::collections::HashSet::new();
        for i in 0..4_096u64 {
            used.insert(map.slot(Color(0x7f00_1234_0000 + i * 4_096)));
        }
        assert!(
            used.len() > 3_500,
            "{} slots for 4,096 page addresses",
            used.len()
        );
    }
}
