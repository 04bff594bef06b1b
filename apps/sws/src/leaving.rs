//! Connections that had their last answer and are only waited for.

use std::collections::{HashMap, VecDeque};

/// Members by number, in the order in which they came, and a limit to how many there are.
#[derive(Debug)]
pub(crate) struct Leaving<T> {
    members: HashMap<u64, T>,
    /// Numbers of members, the oldest first, and of some that are none any more.
    order: VecDeque<u64>,
    members_max: usize,
}

impl<T> Leaving<T> {
    /// None yet, and never more than `members_max`.
    pub(crate) fn new(members_max: usize) -> Leaving<T> {
        Leaving {
            members: HashMap::new(),
            order: VecDeque::new(),
            members_max,
        }
    }

    /// Adds one. If there are too many now, the oldest is given back.
    #[must_use]
    pub(crate) fn add(&mut self, number: u64, member: T) -> Option<T> {
        self.members.insert(number, member);
        self.order.push_back(number);
        if self.members.len() > self.members_max {
            while let Some(oldest) = self.order.pop_front() {
                if let Some(member) = self.members.remove(&oldest) {
                    return Some(member);
                }
            }
        }
        // So that looking through it costs each addition no more than a few steps.
        if self.order.len() > 2 * self.members.len() + 64 {
            let members = &self.members;
            self.order.retain(|number| members.contains_key(number));
        }
        None
    }

    /// Removes one, if it is there.
    pub(crate) fn remove(&mut self, number: u64) {
        self.members.remove(&number);
    }

    /// No limit any more.
    pub(crate) fn let_all_in(&mut self) {
        self.members_max = usize::MAX;
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// All of them, in any order.
    pub(crate) fn members(&self) -> impl Iterator<Item = &T> {
        self.members.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_makes_room() {
        let mut leaving = Leaving::new(3);
        for number in [7, 5, 6] {
            assert_eq!(leaving.add(number, number), None);
        }
        assert_eq!(leaving.add(1, 1), Some(7));
        leaving.remove(5);
        assert_eq!(leaving.add(2, 2), None);
        assert_eq!(leaving.add(3, 3), Some(6));
        leaving.let_all_in();
        assert_eq!(leaving.add(4, 4), None);
        assert_eq!(leaving.len(), 4);
        assert_eq!(leaving.members().sum::<u64>(), 1 + 2 + 3 + 4);
    }

    #[test]
    fn one_that_stays_does_not_keep_the_numbers_of_all_that_left() {
        let mut leaving = Leaving::new(10);
        assert_eq!(leaving.add(0, ()), None);
        for number in 1..10_000 {
            assert_eq!(leaving.add(number, ()), None);
            leaving.remove(number);
            assert!(leaving.order.len() < 100);
        }
        assert_eq!(leaving.len(), 1);
    }
}
