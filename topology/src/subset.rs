//! Fewer cores of the same machine.

use crate::draft::{DraftCache, DraftCore, assemble};
use crate::{Error, Topology};

impl Topology {
    /// The same machine with only the cores of these CPU *numbers* (not indices), in ascending
    /// order whatever the order given; a number may be given twice. Distances between the cores
    /// that remain are what they were.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownCpu`] for a number the topology does not have, [`Error::NoCores`] for none.
    ///
    /// ```
    /// use mely_topology::{Error, Topology};
    ///
    /// let four = Topology::flat(4)?;
    /// let two = four.restrict(&[3, 1])?;
    /// assert_eq!(two.cores().iter().map(|core| core.cpu).collect::<Vec<_>>(), [1, 3]);
    /// assert_eq!(four.restrict(&[7]), Err(Error::UnknownCpu(7)));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn restrict(&self, cpus: &[u32]) -> Result<Topology, Error> {
        let mut keep = vec![false; self.cores.len()];
        for &cpu in cpus {
            let index = self.index_of(cpu).ok_or(Error::UnknownCpu(cpu))?;
            keep[index] = true;
        }
        self.keep(&keep)
    }

    /// The same machine with the `n` cores that keep best company, or all of them when there are no
    /// more than `n`: one hardware thread of each physical core before any second one, and among
    /// those the nearest to the first core.
    ///
    /// So the threads share as much cache as they can without sharing pipelines. Work limited by
    /// memory bandwidth may prefer to spread over packages: choose with
    /// [`restrict`](Self::restrict) then.
    ///
    /// # Errors
    ///
    /// [`Error::NoCores`] when `n` is 0.
    ///
    /// ```
    /// use mely_topology::{Shape, Topology};
    ///
    /// // Two packages of two cores of two hardware threads.
    /// let shape = Shape { packages: 2, cores_per_l2: 2, threads_per_core: 2, ..Shape::default() };
    /// let machine = Topology::synthetic(shape)?;
    /// let cpus = |n| -> Result<Vec<u32>, mely_topology::Error> {
    ///     Ok(machine.take(n)?.cores().iter().map(|core| core.cpu).collect())
    /// };
    /// assert_eq!(cpus(2)?, [0, 2]); // both cores of the first package
    /// assert_eq!(cpus(4)?, [0, 2, 4, 6]); // all four physical cores
    /// assert_eq!(cpus(5)?, [0, 1, 2, 4, 6]);
    /// # Ok::<(), mely_topology::Error>(())
    /// ```
    pub fn take(&self, n: usize) -> Result<Topology, Error> {
        let mut order: Vec<usize> = (0..self.cores.len()).collect();
        order.sort_by_key(|&core| (self.thread_rank(core), self.distance(0, core), core));
        let mut keep = vec![false; self.cores.len()];
        for &core in order.iter().take(n) {
            keep[core] = true;
        }
        self.keep(&keep)
    }

    /// 0 for the first hardware thread of a physical core, 1 for the second, and so on.
    fn thread_rank(&self, core: usize) -> usize {
        let siblings = &self.physical_cores[self.cores[core].physical].cores;
        siblings.partition_point(|&sibling| sibling < core)
    }

    fn keep(&self, keep: &[bool]) -> Result<Topology, Error> {
        let kept = (0..self.cores.len()).filter(|&core| keep[core]);
        let mut subset = assemble(
            kept.map(|core| self.draft(core)).collect(),
            self.warnings.clone(),
        )?;
        subset.usable_parallelism = self.usable_parallelism.min(subset.cores.len());
        Ok(subset)
    }

    fn draft(&self, core: usize) -> DraftCore {
        let core = &self.cores[core];
        DraftCore {
            cpu: core.cpu,
            physical: self.physical_cores[core.physical].first_cpu,
            node: self.nodes[core.node].id,
            package: self.packages[core.package].id,
            caches: core
                .caches
                .iter()
                .map(|&index| {
                    let cache = &self.caches[index];
                    DraftCache {
                        level: cache.level,
                        kind: cache.kind,
                        shared_cpus: cache.shared_cpus.clone(),
                        size_bytes: cache.size_bytes,
                        line_bytes: cache.line_bytes,
                    }
                })
                .collect(),
        }
    }
}
