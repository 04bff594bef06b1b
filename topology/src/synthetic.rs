//! Machines made up from numbers, for tests, simulation, and those who want no topology at all.

use crate::draft::{DraftCache, DraftCore, assemble};
use crate::model::CacheKind;
use crate::{CPUS_MAX, CpuList, Error, Topology};

/// A regular machine, from the outside in: how many of each part the part around it has.
///
/// The default is 1 of everything, so name only what matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Packages in the machine.
    pub packages: usize,
    /// NUMA nodes in each package.
    pub nodes_per_package: usize,
    /// L3 caches in each NUMA node.
    pub l3_per_node: usize,
    /// L2 caches behind each L3.
    pub l2_per_l3: usize,
    /// Physical cores, each with an L1 of its own, behind each L2.
    pub cores_per_l2: usize,
    /// Hardware threads (SMT) of each physical core.
    pub threads_per_core: usize,
}

impl Default for Shape {
    fn default() -> Self {
        Shape {
            packages: 1,
            nodes_per_package: 1,
            l3_per_node: 1,
            l2_per_l3: 1,
            cores_per_l2: 1,
            threads_per_core: 1,
        }
    }
}

impl Topology {
    /// A regular machine of the given shape. CPU numbers run from 0 without holes, hardware threads
    /// of one physical core next to each other; cache sizes are unknown.
    ///
    /// A machine *without* an L3 is not a shape. It makes no difference to the victims when the
    /// shape then has one L2 per L3, or (as in the Mely paper's machine) one L3 per package: all
    /// that changes is the name of the distance.
    ///
    /// # Errors
    ///
    /// [`Error::NoCores`] when a number is 0, [`Error::TooManyCores`] when they make more than
    /// [`CPUS_MAX`] cores.
    ///
    /// ```
    /// use mely_topology::{Distance, Shape, Topology};
    ///
    /// let shape = Shape { packages: 2, l3_per_node: 8, l2_per_l3: 8, ..Shape::default() };
    /// let epyc = Topology::synthetic(shape)?;
    /// assert_eq!(epyc.cores().len(), 128);
    /// assert_eq!(epyc.distance(0, 7), Distance::SharedL3);
    /// assert_eq!(epyc.distance(0, 63), Distance::SameNode);
    /// assert_eq!(epyc.distance(0, 64), Distance::SameMachine);
    /// # Ok::<(), mely_topology::Error>(())
    /// ```
    pub fn synthetic(shape: Shape) -> Result<Topology, Error> {
        let factors = [
            shape.threads_per_core,
            shape.cores_per_l2,
            shape.l2_per_l3,
            shape.l3_per_node,
            shape.nodes_per_package,
            shape.packages,
        ];
        if factors.contains(&0) {
            return Err(Error::NoCores);
        }
        // How many cores one part of each kind holds, from the physical core to the machine.
        let mut sizes = [0_u32; 6];
        let mut size = 1_usize;
        for (slot, factor) in sizes.iter_mut().zip(factors) {
            size = size
                .checked_mul(factor)
                .filter(|&size| size <= CPUS_MAX)
                .ok_or(Error::TooManyCores)?;
            *slot = size as u32;
        }
        let [physical, l2, l3, node, package, machine] = sizes;

        let cache = |level, kind, cpu: u32, cores: u32| DraftCache {
            level,
            kind,
            shared_cpus: (cpu / cores * cores..(cpu / cores + 1) * cores).collect::<CpuList>(),
            size_bytes: None,
            line_bytes: None,
        };
        let drafts = (0..machine).map(|cpu| DraftCore {
            cpu,
            physical: cpu / physical * physical,
            node: cpu / node,
            package: (cpu / package) as i32,
            caches: vec![
                cache(1, CacheKind::Data, cpu, physical),
                cache(2, CacheKind::Unified, cpu, l2),
                cache(3, CacheKind::Unified, cpu, l3),
            ],
        });
        assemble(drafts.collect(), Vec::new())
    }

    /// `n` equal cores, numbered from 0, in one package, of which no caches are known: every pair
    /// is at [`Distance::SameNode`](crate::Distance::SameNode).
    ///
    /// # Errors
    ///
    /// [`Error::NoCores`] when `n` is 0, [`Error::TooManyCores`] beyond [`CPUS_MAX`].
    ///
    /// ```
    /// use mely_topology::{Distance, Topology};
    ///
    /// let flat = Topology::flat(3)?;
    /// let victims: Vec<usize> = flat.victims(1).iter().map(|&(victim, _)| victim).collect();
    /// assert_eq!(victims, [2, 0]); // each thief starts right after itself
    /// assert_eq!(flat.distance(0, 2), Distance::SameNode);
    /// # Ok::<(), mely_topology::Error>(())
    /// ```
    pub fn flat(n: usize) -> Result<Topology, Error> {
        if n > CPUS_MAX {
            return Err(Error::TooManyCores);
        }
        assemble((0..n as u32).map(DraftCore::unknown).collect(), Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_numbers_are_errors() {
        let shape = |packages, threads_per_core| Shape {
            packages,
            threads_per_core,
            ..Shape::default()
        };
        assert_eq!(Topology::synthetic(shape(0, 1)), Err(Error::NoCores));
        assert_eq!(Topology::synthetic(shape(1, 0)), Err(Error::NoCores));
        assert_eq!(
            Topology::synthetic(shape(CPUS_MAX, 2)),
            Err(Error::TooManyCores)
        );
        assert_eq!(
            Topology::synthetic(shape(usize::MAX, usize::MAX)),
            Err(Error::TooManyCores)
        );
        assert_eq!(Topology::flat(0), Err(Error::NoCores));
        assert_eq!(Topology::flat(CPUS_MAX + 1), Err(Error::TooManyCores));
        assert_eq!(Topology::flat(CPUS_MAX).unwrap().cores().len(), CPUS_MAX);
    }

    #[test]
    fn parts_are_counted_as_described() {
        let machine = Topology::synthetic(Shape {
            packages: 2,
            nodes_per_package: 3,
            l3_per_node: 2,
            l2_per_l3: 4,
            cores_per_l2: 2,
            threads_per_core: 2,
        })
        .unwrap();
        assert_eq!(machine.packages().len(), 2);
        assert_eq!(machine.nodes().len(), 6);
        assert_eq!(machine.physical_cores().len(), 96);
        assert_eq!(machine.cores().len(), 192);
        let caches_at = |level| {
            machine
                .caches()
                .iter()
                .filter(|cache| cache.level == level)
                .count()
        };
        assert_eq!([1, 2, 3].map(caches_at), [96, 48, 12]);
    }
}
