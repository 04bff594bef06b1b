//! How far apart two cores are, by what they share.

use std::fmt;

use crate::Topology;
use crate::model::CacheKind;

/// How far apart two cores are: the nearest thing they share. Ordered, nearest first.
///
/// The first that holds counts, so the distance of two cores depends on nothing but the two: it is
/// the same in any [subset](Topology::restrict) of the machine. A machine with one NUMA node per
/// package (most of them) knows no pair at [`SamePackage`](Self::SamePackage).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Distance {
    /// A core and itself.
    SameCore,
    /// Hardware threads of one physical core, or cores behind the same level 1 data cache.
    SharedL1,
    /// Behind the same level 2 cache.
    SharedL2,
    /// Behind the same level 3 cache.
    SharedL3,
    /// In the same NUMA node of the same package. A cache beyond level 3 counts for nothing: where
    /// there is one, it goes with the memory.
    SameNode,
    /// In the same package, but not of the same NUMA node.
    SamePackage,
    /// In different packages.
    SameMachine,
}

impl Distance {
    /// How many distances there are.
    pub const COUNT: usize = 7;

    /// Every distance, nearest first: `ALL[d.index()] == d`.
    pub const ALL: [Distance; Distance::COUNT] = [
        Distance::SameCore,
        Distance::SharedL1,
        Distance::SharedL2,
        Distance::SharedL3,
        Distance::SameNode,
        Distance::SamePackage,
        Distance::SameMachine,
    ];

    /// `0..COUNT`, nearest first: for tables kept per distance.
    ///
    /// ```
    /// use mely_topology::Distance;
    ///
    /// let mut steals = [0_u64; Distance::COUNT];
    /// steals[Distance::SharedL2.index()] += 1;
    /// ```
    pub const fn index(self) -> usize {
        self as usize
    }

    /// A short name: `itself`, `L1`, `L2`, `L3`, `node`, `package`, `machine`.
    pub const fn name(self) -> &'static str {
        match self {
            Distance::SameCore => "itself",
            Distance::SharedL1 => "L1",
            Distance::SharedL2 => "L2",
            Distance::SharedL3 => "L3",
            Distance::SameNode => "node",
            Distance::SamePackage => "package",
            Distance::SameMachine => "machine",
        }
    }
}

/// Writes [`Distance::name`].
impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Topology {
    /// The distance between the cores with *indices* `a` and `b`. Symmetric. Costs a walk over a
    /// handful of caches: a hot loop wants the answer [stored](Self::victims).
    ///
    /// # Panics
    ///
    /// When an index is not below `self.cores().len()`.
    ///
    /// ```
    /// use mely_topology::{Distance, Shape, Topology};
    ///
    /// let machine = Topology::synthetic(Shape { threads_per_core: 2, ..Shape::default() })?;
    /// assert_eq!(machine.distance(0, 0), Distance::SameCore);
    /// assert_eq!(machine.distance(0, 1), Distance::SharedL1);
    /// # Ok::<(), mely_topology::Error>(())
    /// ```
    #[track_caller]
    pub fn distance(&self, a: usize, b: usize) -> Distance {
        let (core_a, core_b) = (&self.cores[a], &self.cores[b]);
        if a == b {
            return Distance::SameCore;
        }
        if core_a.physical == core_b.physical {
            // Also where the caches are not known: siblings share a pipeline, and with it an L1.
            return Distance::SharedL1;
        }
        match self.nearest_shared_level(a, b) {
            Some(1) => Distance::SharedL1,
            Some(2) => Distance::SharedL2,
            Some(3) => Distance::SharedL3,
            _ if core_a.package != core_b.package => Distance::SameMachine,
            _ if core_a.node != core_b.node => Distance::SamePackage,
            _ => Distance::SameNode,
        }
    }

    /// The level of the nearest cache with data that both cores see.
    fn nearest_shared_level(&self, a: usize, b: usize) -> Option<u8> {
        // Both lists are sorted by level, so the first in common is the nearest.
        let shared = |index: &&usize| self.cores[b].caches.contains(index);
        let caches = self.cores[a]
            .caches
            .iter()
            .filter(shared)
            .map(|&index| &self.caches[index]);
        caches
            .filter(|cache| cache.kind != CacheKind::Instruction)
            .map(|cache| cache.level)
            .next()
    }
}
