//! In which order a thief looks at the others.
//!
//! Nearest first. Among victims at one distance the order matters too: if all thieves began with the
//! same victim they would meet there, and rob one core while others overflow. So each thief begins
//! somewhere else.
//!
//! Rotating by the thief's own number is not enough. Take two packages, cores 0-3 and 4-7: counting
//! up from itself, every thief of the first package reaches core 4 first. What works is to rotate at
//! two levels. Cores that are nearer to each other than the distance in question form a *group* (at
//! the distance "machine", the packages). The thief visits the other groups from the one after its
//! own on, and enters each at the member that has the thief's own *rank* within its group:
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

use crate::{Distance, Topology};

impl Topology {
    /// All other cores as *indices*, in the order in which the core with index `thief` should try to
    /// take work from them, each with its distance: nearest first, and equal distances rotated so
    /// that different thieves begin with different victims.
    ///
    /// Meant to be called once per core and kept: it takes a few microseconds on a small machine and
    /// grows with the square of the cores.
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
    pub fn victims(&self, thief: usize) -> Vec<(usize, Distance)> {
        let distances: Vec<Distance> = (0..self.cores.len())
            .map(|core| self.distance(thief, core))
            .collect();
        let mut order = Vec::with_capacity(distances.len() - 1);
        for distance in Distance::ALL {
            if distance != Distance::SameCore {
                self.visit(thief, distance, &distances, &mut order);
            }
        }
        order
    }

    /// Appends the victims at exactly this distance.
    fn visit(
        &self,
        thief: usize,
        distance: Distance,
        distances: &[Distance],
        order: &mut Vec<(usize, Distance)>,
    ) {
        let own: Vec<usize> = cores_where(distances, |other| other < distance);
        let rank = own.partition_point(|&member| member < thief);

        let mut groups = self.group(cores_where(distances, |other| other == distance), distance);
        // Ascending by first member; begin after the group that the thief itself belongs to.
        let after_own = groups.partition_point(|group| group[0] < own[0]);
        groups.rotate_left(after_own);
        for mut group in groups {
            let entry = rank % group.len();
            group.rotate_left(entry);
            order.extend(group.into_iter().map(|victim| (victim, distance)));
        }
    }

    /// Splits cores into groups nearer to each other than `distance`, ascending by first member.
    ///
    /// "Nearer than" is an equivalence on any sane machine. Where a broken one makes it something
    /// else, each core still ends up in exactly one group.
    fn group(&self, mut cores: Vec<usize>, distance: Distance) -> Vec<Vec<usize>> {
        let mut groups = Vec::new();
        while let Some(&first) = cores.first() {
            let (group, rest) = cores
                .into_iter()
                .partition(|&core| self.distance(first, core) < distance);
            groups.push(group);
            cores = rest;
        }
        groups
    }
}

fn cores_where(distances: &[Distance], accept: impl Fn(Distance) -> bool) -> Vec<usize> {
    (0..distances.len())
        .filter(|&core| accept(distances[core]))
        .collect()
}
