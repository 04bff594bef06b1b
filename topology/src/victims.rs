//! In which order a thief looks at the others.
//!
//! Nearest first. Among victims at one distance the order matters too: if all thieves began with
//! the same victim they would meet there, and rob one core while others overflow. So each thief
//! begins somewhere else.
//!
//! Rotating by the thief's own number is not enough. Take two packages, cores 0-3 and 4-7: counting
//! up from itself, every thief of the first package reaches core 4 first. What works is to rotate
//! at two levels. Cores that are nearer to each other than the distance in question form a *group*
//! (at the distance "machine", the packages). The thief visits the other groups from the one after
//! its own on, and enters each at the member that has the thief's own *rank* within its group:
//!
//! ```text
//! groups   A = 0 1 2    B = 3 4 5    C = 6 7 8
//!
//! thief 0 visits  3 4 5  6 7 8
//! thief 1 visits  4 5 3  7 8 6
//! thief 2 visits  5 3 4  8 6 7
//! thief 3 visits  6 7 8  0 1 2
//! thief 4 visits  7 8 6  1 2 0
//! ```
//!
//! On a regular machine every position of the order, read over all thieves, then names every core
//! exactly once. With groups of one core each it is the plain rotation "right after myself".

use std::mem;

use crate::model::Core;
use crate::{Distance, Topology};

impl Topology {
    /// All other cores as *indices*, in the order in which the core with index `thief` should try
    /// to take work from them, each with its distance: nearest first, and equal distances rotated
    /// so that different thieves begin with different victims.
    ///
    /// Meant to be called once per core and kept: it allocates, and takes a microsecond or more.
    ///
    /// # Panics
    ///
    /// When `thief` is not below `self.cores().len()`.
    ///
    /// ```
    /// use mely_topology::{Distance::*, Shape, Topology};
    ///
    /// let shape = Shape { packages: 2, cores_per_l2: 2, ..Shape::default() };
    /// let machine = Topology::synthetic(shape)?;
    /// assert_eq!(machine.victims(0), [(1, SharedL2), (2, SameMachine), (3, SameMachine)]);
    /// assert_eq!(machine.victims(1), [(0, SharedL2), (3, SameMachine), (2, SameMachine)]);
    /// # Ok::<(), mely_topology::Error>(())
    /// ```
    #[track_caller]
    pub fn victims(&self, thief: usize) -> Vec<(usize, Distance)> {
        let mut at: [Vec<usize>; Distance::COUNT] = Default::default();
        for core in 0..self.cores.len() {
            at[self.distance(thief, core).index()].push(core);
        }
        let mut order = Vec::with_capacity(self.cores.len() - 1);
        for (distance, cores) in Distance::ALL.into_iter().zip(at).skip(1) {
            let visits = self.visits(thief, distance, cores);
            order.extend(visits.map(|victim| (victim, distance)));
        }
        order
    }

    /// The victims at one distance, ascending, put in the order of their visits.
    fn visits(
        &self,
        thief: usize,
        distance: Distance,
        victims: Vec<usize>,
    ) -> impl Iterator<Item = usize> {
        let own = self.nearer(thief, distance);
        let rank = own.partition_point(|&member| member < thief);

        let mut groups = self.group(victims, distance);
        // Ascending by first member; begin after the group that the thief itself belongs to.
        let after_own = groups.partition_point(|group| group[0] < own[0]);
        groups.rotate_left(after_own);
        groups.into_iter().flat_map(move |mut group| {
            let entry = rank % group.len();
            group.rotate_left(entry);
            group
        })
    }

    /// Splits cores, ascending, into groups nearer to each other than `distance`, ascending by
    /// first member.
    ///
    /// "Nearer than" is an equivalence on any sane machine. Where a broken one makes it something
    /// else, each core still ends up in exactly one group.
    fn group(&self, cores: Vec<usize>, distance: Distance) -> Vec<Vec<usize>> {
        let mut waiting = vec![false; self.cores.len()];
        for &core in &cores {
            waiting[core] = true;
        }
        let mut groups = Vec::new();
        for first in cores {
            if waiting[first] {
                let mut group = self.nearer(first, distance);
                group.retain(|&core| mem::take(&mut waiting[core]));
                groups.push(group);
            }
        }
        groups
    }

    /// The cores nearer to `core` than `distance`, itself included, ascending.
    fn nearer(&self, core: usize, distance: Distance) -> Vec<usize> {
        let Core {
            physical,
            node,
            package,
            ref caches,
            ..
        } = self.cores[core];
        // Only parts that `core` belongs to are searched: a scan of all cores, for each group of a
        // large flat machine, would take the cube of their number over all thieves.
        let mut near = self.physical_cores[physical].cores.clone();
        near.extend(caches.iter().flat_map(|&cache| &self.caches[cache].cores));
        if distance > Distance::SameNode {
            near.extend(&self.nodes[node].cores);
        }
        if distance > Distance::SamePackage {
            near.extend(&self.packages[package].cores);
        }
        near.sort_unstable();
        near.dedup();
        near.retain(|&other| self.distance(core, other) < distance);
        near
    }
}
