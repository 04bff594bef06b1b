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
//! however many events that is ([`super::quantum`]). A color of which nobody said
//! so goes to the tail.
//!
//! **Nothing starves.** A quantum in which a turn was waited for, from the tail, pays for
//! [`NEWEST_TURNS`] newer ones, of whatever color the posts come from; they pay for none. So who
//! waits is passed by [`NEWEST_TURNS`] turns for each that was before it, and by those that were
//! paid for already; and colors that post to each other without an end are at the tail again after
//! that many. Of those turns [`NEWEST_TURNS`] at most are of colors that go on, and a quantum that
//! has one of the newest pays for none of these: so such a color has [`NEWEST_TURNS`] turns more
//! than its own.
//!
//! **What it costs**: among chains that go on without an end, each event of which posts to a color
//! that has nothing to do, an event from outside waits longer: on two cores with 64 chains of 2 us
//! each, 1.8 times as long in the median, and three times in the hundredth case. Among chains with
//! such a penalty all that wait have five quanta before it, where others have a turn of ten events.
//!
//! **Who was put first stays first**: what somebody asked for ([`crate::shared::remote::wishes`]),
//! what a flush returns that had been taken for its turn, and what a busy core takes from another.
//! While such a color is at the head, all else goes to the tail. It pays for nothing: a flush for
//! each event would pay again and again with the same turn.
//!
//! At the head of a core-queue are so first those that were put there, then the newest, then those
//! that wait. It is counted only how many there are: what a thief has taken of them is missed, and
//! so is a color that is put first while it is one of the newest. Then a turn that was waited for
//! counts as one of them, and does not pay.

use super::numbers::{HURRIES_MAX, HURRY_QUANTA, NEWEST_TURNS};

/// What a core has paid for, and which colors are at the head of its core-queue.
#[derive(Debug, Default)]
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
            self.room = NEWEST_TURNS;
            // Where many turns fit into a quantum, those that went on before are returned first:
            // they would go on for ever.
            if newer == 0 {
                self.again = NEWEST_TURNS;
            }
        }
    }
}

/// What a core has granted lately to colors that hurry. One is granted in [`HURRY_QUANTA`]; those
/// that were not are saved up, at most [`HURRIES_MAX`]. So of any two quanta in a row that come
/// after a burst, one takes the colors as if nobody had asked.
#[derive(Debug, Default)]
pub(crate) struct Granted {
    /// The quantum by which all that was granted is paid for.
    paid_at: u64,
}

impl Granted {
    /// Whether a wish for the next turn is granted, after this many quanta of the core.
    pub(crate) fn grant(&mut self, quanta: u64) -> bool {
        let paid_at = self.paid_at.max(quanta) + HURRY_QUANTA;
        let is_granted = paid_at <= quanta + HURRIES_MAX * HURRY_QUANTA;
        if is_granted {
            self.paid_at = paid_at;
        }
        is_granted
    }
}
