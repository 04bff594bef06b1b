//! Who waits for a line that is on its way to others: of those that wait for one, only one has a
//! turn. The seed draws which. So it takes as long to give a line to somebody if a hundred want it
//! as if two do.

/// Few lines are waited for at a time: of each its number, and who waits for it; first who has the
/// turn, then the others, in no order.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    lines: Vec<u32>,
    cores: Vec<Vec<u16>>,
}

impl Waiters {
    fn find(&self, line: u32) -> Option<usize> {
        self.lines.iter().position(|&its| its == line)
    }

    /// Who waits for a line.
    pub(crate) fn of(&self, line: u32) -> &[u16] {
        self.find(line).map_or(&[], |at| &self.cores[at])
    }

    /// Who has the turn.
    pub(crate) fn first(&self, line: u32) -> Option<usize> {
        self.of(line).first().map(|&core| core.into())
    }

    /// One more waits, and has the turn if nobody has.
    pub(crate) fn add(&mut self, line: u32, core: usize) {
        let at = self.find(line).unwrap_or_else(|| {
            self.lines.push(line);
            self.cores.push(Vec::new());
            self.lines.len() - 1
        });
        self.cores[at].push(core as u16);
    }

    /// Gives the turn to the one in this place.
    pub(crate) fn set_first(&mut self, line: u32, place: usize) {
        if let Some(at) = self.find(line) {
            self.cores[at].swap(0, place);
        }
    }

    /// Who has the turn waits no longer, and another one has it: any.
    pub(crate) fn remove_first(&mut self, line: u32) {
        if let Some(at) = self.find(line) {
            self.cores[at].swap_remove(0);
            if self.cores[at].is_empty() {
                self.lines.swap_remove(at);
                self.cores.swap_remove(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_those_that_wait_is_the_first() {
        let mut waiters = Waiters::default();
        assert_eq!((waiters.of(5), waiters.first(5)), (&[][..], None));
        for core in [3, 7, 200] {
            waiters.add(5, core);
            assert_eq!(waiters.first(5), Some(3));
        }
        waiters.add(6, 1);
        waiters.set_first(5, 2);
        assert_eq!(waiters.first(5), Some(200));
        waiters.remove_first(5);
        assert_eq!(waiters.of(5).len(), 2);
        waiters.remove_first(5);
        waiters.remove_first(5);
        waiters.remove_first(5);
        assert_eq!((waiters.first(5), waiters.first(6)), (None, Some(1)));
    }
}
