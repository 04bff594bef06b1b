//! Colors, and the slots they map to.
//!
//! A [`Color`] is any 64-bit value, or one of the runtime's own: unique colors, and one *control
//! color* a core, which no value reaches. The scheduler works on *slots*, of which there are 65,536
//! unless the builder says otherwise. The kinds of colors map to disjoint ranges of slots, so that
//! file descriptors and counters collide with nothing:
//!
//! ```text
//! slots 0 .. S/2        small values (< S/2), each its own slot
//!       S/2 .. 3S/4     all other values, mixed by a hash with a key of the runtime's own
//!       3S/4 .. S       unique colors, issued by the runtime, a slot each while any is free
//!       S .. S + cores  one control color a core: never stolen, never given out
//! ```
//!
//! Two colors in one slot share a queue. That costs parallelism, never correctness: order and
//! exclusion are kept by slot, and a slot's order contains each color's (libasync-smp's 1,024-entry
//! map did the same; it does not say whether a steal and the check for a running color go by
//! color or by slot: here both go by slot).
//!
//! **Who chooses the keys.** Where values come from outside, a peer must not be able to choose many
//! that share a slot: their handlers would run one after the other. So the hash has a random key
//! for each runtime (of a simulation: one that follows from its seed). It is multiply-shift
//! (Dietzfelbinger 1996), by which any two values share a slot with a chance of one in S/4,
//! whatever they are. What remains: small values are their own slots, so whoever chooses those can
//! have them all start on one core, until they are stolen; and who can measure how long answers
//! take may find out which values share a slot.

use std::fmt;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};

/// What an event is serialized by: two events of one color never run at the same time, and run in
/// the order they were posted.
///
/// Any 64-bit value makes a color: a file descriptor, a document id, an address. A
/// [`UniqueColor`](crate::state::UniqueColor) is none of these, whatever its value.
///
/// ```
/// use mely::Color;
/// let document = Color::from(42);
/// assert_eq!(document.value(), 42);
/// assert_eq!(Color::default(), Color::DEFAULT);
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Color {
    kind: ColorKind,
    value: u64,
}

/// Who made a color.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ColorKind(u8);

impl ColorKind {
    /// The program, from a value.
    const GIVEN: ColorKind = ColorKind(0);
    /// The runtime; the value is [`LARGE`], generation and index, see [`Color::issued`].
    const UNIQUE: ColorKind = ColorKind(1);
    /// The runtime, for itself; the value is [`LARGE`] and the core.
    const CONTROL: ColorKind = ColorKind(2);
    /// Bits that a kind takes.
    pub(crate) const BITS: u32 = 2;

    #[inline(always)]
    pub(crate) const fn bits(self) -> u32 {
        self.0 as u32
    }

    /// The kind with these [`bits`](Self::bits).
    #[inline(always)]
    pub(crate) const fn from_bits(bits: u32) -> ColorKind {
        ColorKind(bits as u8)
    }
}

/// Set in the values of the runtime's own colors, so that what is small is known to be given.
const LARGE: u64 = 1 << 63;

/// Bits of a unique color's index, below those of its generation.
const INDEX_BITS: u32 = 20;

impl Color {
    /// The color of a run's first event, and a good one for whatever needs no other: 0. Colors are
    /// never inherited (libasync-smp §3.2): what names this one runs serially.
    pub const DEFAULT: Color = Color::new(0);

    /// A color from a value; the same as `Color::from`, in const context.
    pub const fn new(value: u64) -> Color {
        Color::of_kind(ColorKind::GIVEN, value)
    }

    /// A color from a key of any kind, by SipHash with fixed keys: equal keys make equal colors,
    /// also in another process of the same build. For integers take [`Color::from`], by which
    /// different values make different colors.
    ///
    /// Of `n` keys, two share a color with a chance of about n^2 in 2^65. A peer who chooses keys
    /// can search for such that do, some 2^32 tries for two of them. What it gains is at most that
    /// their events run one after the other, as if it had chosen one key: order and exclusion hold,
    /// and [`Colored`](crate::Colored) state is told apart by its handle.
    ///
    /// ```
    /// use mely::Color;
    /// assert_eq!(Color::of("bob"), Color::of(&"bob".to_owned()));
    /// assert_ne!(Color::of("bob"), Color::of("eve"));
    /// assert_ne!(Color::of(&("bob", 1)), Color::of(&("bob", 2)));
    /// ```
    pub fn of<K: Hash + ?Sized>(key: &K) -> Color {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        Color::new(hasher.finish())
    }

    /// The value this color was made from. A unique color has a value too, which no other unique
    /// color of its runtime has, but which may be that of a color made from it: compare colors, not
    /// values.
    pub const fn value(self) -> u64 {
        self.value
    }

    #[inline(always)]
    pub(crate) const fn of_kind(kind: ColorKind, value: u64) -> Color {
        Color { kind, value }
    }

    #[inline(always)]
    pub(crate) const fn kind(self) -> ColorKind {
        self.kind
    }

    /// The `index`-th unique color in its `generation`-th life.
    pub(crate) fn issued(index: u32, generation: u32) -> Color {
        let value = u64::from(generation) << INDEX_BITS | u64::from(index);
        Color::of_kind(ColorKind::UNIQUE, LARGE | value)
    }

    /// The color whose events run on `core` and nowhere else.
    pub(crate) fn control(core: usize) -> Color {
        Color::of_kind(ColorKind::CONTROL, LARGE | core as u64)
    }
}

impl fmt::Display for Color {
    /// The value; of the runtime's own colors with a word before it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ColorKind::GIVEN => {}
            ColorKind::UNIQUE => f.write_str("unique ")?,
            _ => f.write_str("control ")?,
        }
        let own = self.kind != ColorKind::GIVEN;
        let value = if own { self.value & !LARGE } else { self.value };
        fmt::Display::fmt(&value, f)
    }
}

impl fmt::Debug for Color {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Color({self})")
    }
}

impl From<u64> for Color {
    fn from(value: u64) -> Color {
        Color::new(value)
    }
}

/// A core of a runtime, by its number from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub(crate) struct CoreId(u32);

impl CoreId {
    /// The core of this number.
    #[inline(always)]
    pub(crate) const fn of(number: usize) -> CoreId {
        CoreId(number as u32)
    }

    #[inline(always)]
    pub(crate) const fn number(self) -> u32 {
        self.0
    }

    /// Its place where there is one for each core.
    #[inline(always)]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for CoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A color slot, by its number in the table of a runtime's slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub(crate) struct SlotId(u32);

impl SlotId {
    /// The slot of this number.
    #[inline(always)]
    pub(crate) const fn of(number: u32) -> SlotId {
        SlotId(number)
    }

    #[inline(always)]
    pub(crate) const fn number(self) -> u32 {
        self.0
    }
}

/// A slot or none, in the room of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct MaybeSlot(u32);

impl MaybeSlot {
    /// No table has a slot of this number.
    pub(crate) const NONE: MaybeSlot = MaybeSlot(u32::MAX);

    #[inline(always)]
    pub(crate) fn get(self) -> Option<SlotId> {
        self.is_some().then_some(SlotId(self.0))
    }

    #[inline(always)]
    pub(crate) fn is_some(self) -> bool {
        self != MaybeSlot::NONE
    }

    /// Whether it is this slot.
    #[inline(always)]
    pub(crate) fn is(self, slot: SlotId) -> bool {
        self.0 == slot.0
    }
}

impl Default for MaybeSlot {
    fn default() -> MaybeSlot {
        MaybeSlot::NONE
    }
}

impl From<SlotId> for MaybeSlot {
    #[inline(always)]
    fn from(slot: SlotId) -> MaybeSlot {
        MaybeSlot(slot.0)
    }
}

impl From<Option<SlotId>> for MaybeSlot {
    #[inline(always)]
    fn from(slot: Option<SlotId>) -> MaybeSlot {
        slot.map_or(MaybeSlot::NONE, MaybeSlot::from)
    }
}

impl fmt::Display for SlotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.number(), f)
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
    key: HashKey,
}

/// What makes one runtime's hash differ from another's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HashKey {
    factor: u128,
    addend: u128,
}

impl HashKey {
    /// A key that nobody knows.
    pub(crate) fn random() -> HashKey {
        // The standard library's hash tables have random keys of the system's; no more than that is
        // asked of a dependency.
        HashKey::from_words(std::array::from_fn(|i| RandomState::new().hash_one(i)))
    }

    /// The same key each time.
    #[cfg(any(test, loom, feature = "sim"))]
    pub(crate) fn from_seed(seed: u64) -> HashKey {
        // SplitMix64.
        let mut state = seed;
        HashKey::from_words(std::array::from_fn(|_| {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            mixed ^ (mixed >> 31)
        }))
    }

    fn from_words(words: [u64; 4]) -> HashKey {
        let [a, b, c, d] = words.map(u128::from);
        HashKey {
            factor: a << 64 | b,
            addend: c << 64 | d,
        }
    }

    /// `bits` bits: any two values have the same by a chance of one in 2 to `bits`.
    #[inline(always)]
    fn hash(&self, value: u64, bits: u32) -> u32 {
        let product = self.factor.wrapping_mul(value.into());
        (product.wrapping_add(self.addend) >> (128 - bits)) as u32
    }
}

/// Bounds of the number of slots.
pub(crate) const SLOT_BITS_MIN: u32 = 4;
pub(crate) const SLOT_BITS_MAX: u32 = INDEX_BITS;

impl ColorMap {
    pub(crate) fn new(bits: u32, cores: usize, key: HashKey) -> ColorMap {
        debug_assert!((SLOT_BITS_MIN..=SLOT_BITS_MAX).contains(&bits));
        ColorMap {
            small: 1 << (bits - 1),
            bits,
            cores: cores as u32,
            key,
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

    /// The first control slot; none but control slots follow.
    #[inline]
    pub(crate) fn control_first(&self) -> SlotId {
        SlotId::of(1 << self.bits)
    }

    /// All slots but the control slots.
    pub(crate) fn of_users(&self) -> impl Iterator<Item = SlotId> + use<> {
        (0..1 << self.bits).map(SlotId::of)
    }

    #[inline]
    pub(crate) fn is_control(&self, slot: SlotId) -> bool {
        slot >= self.control_first()
    }

    /// The core a slot belongs to before anyone moved it: slot mod cores, as in the papers, and for
    /// a control slot its own core.
    #[inline]
    pub(crate) fn first_owner(&self, slot: SlotId) -> CoreId {
        CoreId(if self.is_control(slot) {
            slot.number() - self.control_first().number()
        } else {
            slot.number() % self.cores
        })
    }

    /// The one color that has this slot, if there is but one.
    pub(crate) fn only_color(&self, slot: SlotId) -> Option<Color> {
        let number = slot.number();
        (u64::from(number) < self.small).then(|| Color::new(number.into()))
    }

    #[inline]
    pub(crate) fn slot(&self, color: Color) -> SlotId {
        // Only what was given is small.
        if color.value < self.small {
            return SlotId::of(color.value as u32);
        }
        self.slot_beyond(color)
    }

    fn slot_beyond(&self, color: Color) -> SlotId {
        SlotId::of(match color.kind {
            ColorKind::GIVEN => self.small as u32 + self.key.hash(color.value, self.bits - 2),
            // One of another runtime may have an index that this one has not.
            ColorKind::UNIQUE => self.issued_first() + color.value as u32 % self.issued_count(),
            _ => self.control_first().number() + color.value as u32 % self.cores,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn map(bits: u32, cores: usize, seed: u64) -> ColorMap {
        ColorMap::new(bits, cores, HashKey::from_seed(seed))
    }

    /// What a program could use as keys: counters, addresses, and the values of the runtime's own
    /// colors.
    fn values() -> impl Iterator<Item = u64> {
        let counters = 0..1_000;
        let addresses = (0..1_000).map(|i| 0x7f00_1234_0000 + i * 4_096);
        let own = (0..1_000).map(|i| Color::issued(i, i % 7).value());
        let high = (0..64).map(|bit| u64::MAX << bit);
        counters.chain(addresses).chain(own).chain(high)
    }

    #[test]
    fn keys_have_their_colors() {
        let colors: std::collections::BTreeSet<u64> =
            (0..1_000).map(|key| Color::of(&key).value()).collect();
        assert_eq!(colors.len(), 1_000);
        assert_eq!(Color::of("bob"), Color::of(&"bob".to_owned()));
    }

    #[test]
    fn no_value_is_one_of_the_runtimes_own_colors() {
        for (bits, cores) in [(4, 1), (16, 3), (20, 512)] {
            let map = map(bits, cores, 1);
            for value in values().chain(u64::MAX - 1_000..=u64::MAX) {
                let (color, slot) = (Color::from(value), map.slot(Color::from(value)).number());
                assert!(slot < map.issued_first(), "{value} has slot {slot}");
                let is_small = value < map.small;
                assert_eq!(is_small, u64::from(slot) < map.small, "{value}");
                let only = is_small.then_some(color);
                assert_eq!(map.only_color(SlotId::of(slot)), only, "{value}");
                assert!(!is_small || u64::from(slot) == value);
                assert_ne!(color, Color::of_kind(ColorKind::UNIQUE, value));
                assert_ne!(color, Color::of_kind(ColorKind::CONTROL, value));
            }
            for index in 0..map.issued_count() {
                let slot = map.slot(Color::issued(index, 5)).number();
                assert_eq!(slot, map.issued_first() + index);
            }
            for core in 0..cores {
                let slot = map.slot(Color::control(core));
                assert!(map.is_control(slot));
                assert_eq!(map.first_owner(slot), CoreId::of(core));
                assert!((slot.number() as usize) < map.slots());
            }
            // One of a runtime with more slots.
            let foreign = map
                .slot(Color::issued((1 << INDEX_BITS) - 1, u32::MAX))
                .number();
            assert!((map.issued_first()..map.control_first().number()).contains(&foreign));
        }
    }

    /// The first value that is hashed has no slot of its own.
    #[test]
    fn small_values_end_with_the_lower_half() {
        let slot = |seed| map(16, 2, seed).slot(Color::from(1 << 15)).number();
        assert!((0..10).any(|seed| slot(seed) != 1 << 15));
        assert_eq!(
            map(16, 2, 0).slot(Color::from((1 << 15) - 1)).number(),
            (1 << 15) - 1
        );
    }

    /// The top of `factor * value + addend`, each of them of two words, the upper one first.
    #[test]
    fn the_hash_is_the_top_of_a_product_and_a_sum() {
        let key = HashKey::from_words([1 << 62, 3, 1 << 61, 5]);
        assert_eq!((key.factor, key.addend), ((1 << 126) + 3, (1 << 125) + 5));
        // In eighths: 2 * value + 1.
        let eighths = [0, 1, 2, 3, 4].map(|value| key.hash(value, 3));
        assert_eq!(eighths, [1, 3, 5, 7, 1]);
    }

    #[test]
    fn addresses_spread() {
        let map = map(16, 2, 1);
        let mut used = std::collections::HashSet::new();
        for i in 0..4_096u64 {
            used.insert(map.slot(Color::from(0x7f00_1234_0000 + i * 4_096)));
        }
        assert!(
            used.len() > 3_500,
            "{} slots for 4,096 page addresses",
            used.len()
        );
    }

    /// 200 values that share a slot under one key are spread under any other.
    #[test]
    fn keys_chosen_for_one_runtime_do_not_collide_in_another() {
        let known = map(16, 8, 1);
        let shares = |value: &u64| known.slot(Color::from(*value)) == SlotId::of(40_000);
        let chosen: Vec<u64> = (1 << 40..).filter(shares).take(200).collect();
        let most = |other: ColorMap| {
            let mut sizes = HashMap::<SlotId, usize>::new();
            for &value in &chosen {
                *sizes.entry(other.slot(Color::from(value))).or_default() += 1;
            }
            sizes.into_values().max()
        };
        assert_eq!(most(known), Some(200));
        for seed in 2..100 {
            assert!(most(map(16, 8, seed)) <= Some(5), "seed {seed}");
        }
        // Two random keys are two.
        assert!(most(ColorMap::new(16, 8, HashKey::random())) < Some(200));
    }

    #[test]
    fn colors_say_who_made_them() {
        let all = [Color::from(7), Color::issued(7, 0), Color::control(7)];
        assert_eq!(all.map(|c| c.to_string()), ["7", "unique 7", "control 7"]);
        assert_eq!(format!("{:?}", Color::issued(7, 0)), "Color(unique 7)");
        assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2]);
    }
}
