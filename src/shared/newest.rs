//! Newest first: a color to which an event has just posted goes to the head of the core-queue.
//!
//! What an event has just made for another color is in this core's caches. At the tail, the color
//! would wait for all others there, and what is in the caches gives way to theirs; or a thief takes
//! it to where it must be fetched. So the core runs the newest, while thieves take the oldest, as
//! from the deque of a work-stealing scheduler. It is done for what is worth a steal, and where
//! time counts: what is shorter is run with others at once, and keeps the order in which it was
//! posted.
//!
//! **What drags memory along goes on.** A color whose turn ends with the quantum, and whose events
//! together have a penalty of ten or more, goes to the head too, whatever they are worth. What its
//! next events work on is in the caches of this core, and may not be when all others have had their
//! turns. (Mely §III-C, for the core that has the color: there a penalty keeps thieves away.) For
//! the same reason it is checked out alone from then on, and each such turn takes a whole quantum,
//! however many events that is (`Section::fits`, `Core::next_color`). A color of which nobody said
//! so goes to the tail.
//!
//! **Nothing starves.** A quantum in which a turn was waited for, from the tail, pays for [`EACH`]
//! newer ones, of whatever color the posts come from; they pay for none. So who waits is passed by
//! [`EACH`] turns for each that was before it, and by those that were paid for already; and colors
//! that post to each other without an end are at the tail again after that many. Of those turns
//! [`EACH`] at most are of colors that go on, and a quantum that has one of the newest pays for
//! none of these: so such a color has [`EACH`] turns more than its own.
//!
//! **What it costs**: among chains that go on without an end, each event of which posts to a color
//! that has nothing to do, an event from outside waits longer: on two cores with 64 chains of 2 us
//! each, 1.8 times as long in the median, and three times in the hundredth case. Among chains with
//! such a penalty all that wait have five quanta before it, where others have a turn of ten events.
//!
//! **Who was put first stays first**: what somebody asked for ([`super::wish`]), what a flush
//! returns that had been taken for its turn, and what a busy core takes from another. While such a
//! color is at the head, all else goes to the tail. It pays for nothing: a flush for each event
//! would pay again and again with the same turn.
//!
//! At the head of a core-queue are so first those that were put there, then the newest, then those
//! that wait. It is counted only how many there are: what a thief has taken of them is missed, and
//! so is a color that is put first while it is one of the newest. Then a turn that was waited for
//! counts as one of them, and does not pay.

/// Newer turns that a quantum pays for in which one was waited for: as many as the rest of a
/// request takes that is split in two halves and put together again.
const EACH: u32 = 4;

/// What a core has paid for, and who is at the head of its core-queue.
#[derive(Debug)]
pub(crate) struct Newest {
    /// How many more may go before those that wait.
    room: u32,
    /// How many of those may be colors that go on.
    again: u32,
    /// Colors that were put at the head for another reason.
    put_first: u32,
    /// Behind them, those that went before others by a post, or went on.
    newer: u32,
}

impl Newest {
    pub(crate) const NONE: Newest = Newest {
        room: 0,
        again: 0,
        put_first: 0,
        newer: 0,
    };

    /// Whether a color that was posted to goes to the head. It is put there then.
    #[inline(always)]
    pub(crate) fn goes_first(&mut self) -> bool {
        let may = self.room > 0 && self.put_first == 0;
        self.room -= u32::from(may);
        self.newer += u32::from(may);
        may
    }

    /// Whether a color whose turn is over goes on, and to the head. It is put there then.
    pub(crate) fn goes_on(&mut self) -> bool {
        let may = self.again > 0 && self.goes_first();
        self.again -= u32::from(may);
        may
    }

    /// This many colors were put at the head for another reason.
    pub(crate) fn put_first(&mut self, colors: u32) {
        self.put_first += colors;
    }

    /// This many colors were taken from the head, to have their turn. `waits`: others are left.
    #[inline(always)]
    pub(crate) fn take(&mut self, colors: u32, waits: bool) {
        let first = colors.min(self.put_first);
        let newer = (colors - first).min(self.newer);
        let waited = colors - first - newer;
        if waits {
            self.put_first -= first;
            self.newer -= newer;
        } else {
            (self.put_first, self.newer) = (0, 0);
        }
        if waited > 0 {
            self.room = EACH;
            // Where many turns fit into a quantum, those that went on before are returned first:
            // they would go on for ever.
            if newer == 0 {
                self.again = EACH;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn granted(newest: &mut Newest) -> u32 {
        (0..100).map(|_| u32::from(newest.goes_first())).sum()
    }

    #[test]
    fn each_turn_that_was_waited_for_pays_for_as_many() {
        let mut newest = Newest::NONE;
        assert_eq!(granted(&mut newest), 0);
        newest.take(1, true);
        assert_eq!(granted(&mut newest), EACH);
        // Those pay for nothing, and nothing is saved up.
        newest.take(EACH, true);
        assert_eq!(granted(&mut newest), 0);
        newest.take(1, true);
        newest.take(1, true);
        assert_eq!(granted(&mut newest), EACH);
        newest.take(EACH + 64, true);
        assert_eq!(granted(&mut newest), EACH);
        // The last of them, and one that has waited.
        newest.take(EACH + 1, true);
        assert_eq!(granted(&mut newest), EACH);
    }

    #[test]
    fn who_goes_on_is_paid_for_by_a_quantum_of_others() {
        let mut newest = Newest::NONE;
        let goes_on = |newest: &mut Newest| (0..100).filter(|_| newest.goes_on()).count();
        newest.take(12, true);
        assert_eq!(goes_on(&mut newest), EACH as usize);
        // The same again, and others; posts are paid for all the same.
        newest.take(12, true);
        assert_eq!(goes_on(&mut newest), 0);
        assert_eq!(granted(&mut newest), EACH);
        newest.take(EACH, true);
        newest.take(1, true);
        assert_eq!(goes_on(&mut newest), EACH as usize);
        assert_eq!(granted(&mut newest), 0);
    }

    #[test]
    fn who_was_put_first_is_not_passed_and_does_not_pay() {
        let mut newest = Newest::NONE;
        newest.take(1, true);
        assert!(newest.goes_first());
        newest.put_first(2);
        assert_eq!(granted(&mut newest), 0);
        newest.take(1, true);
        assert_eq!(granted(&mut newest), 0);
        newest.take(1, true);
        assert_eq!(granted(&mut newest), EACH - 1);
        newest.take(EACH, true);
        assert_eq!(granted(&mut newest), 0);
    }

    #[test]
    fn what_a_thief_has_taken_is_not_waited_for() {
        let mut newest = Newest::NONE;
        newest.take(1, true);
        assert_eq!(granted(&mut newest), EACH);
        newest.put_first(3);
        newest.take(1, false);
        newest.take(1, false);
        assert_eq!(granted(&mut newest), EACH);
    }
}
