//! What a core has posted and executed since it began, holds and tasks included: a runtime is at
//! its end when all cores together have executed as much as they have posted.

use crate::event::counts::{Counts, Run};
use crate::event::tag::ProfileId;

/// See the module text.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Events, holds while they last, and tasks while they wait.
    pub(crate) posted: u64,
    /// Events.
    pub(crate) executed: u64,
    /// What counted as posted and was no event, and is over: holds that a deadline has ended on
    /// this core, and tasks.
    pub(super) settled: u64,
    /// Holds made on this core.
    pub(super) holds: u64,
    /// What `executed` was when the core last looked up because it was asked.
    pub(super) looked_up_at: Option<u64>,
    /// The latest events, which are not counted for their handler yet.
    run: Run,
}

impl Ledger {
    /// What counts as posted, and what as executed.
    pub(crate) fn sums(&self) -> (u64, u64) {
        (self.posted, self.executed + self.settled)
    }

    /// Counts what was executed for its handler.
    #[inline]
    pub(super) fn count(&mut self, counts: &Counts) {
        self.run.count(counts, self.executed);
    }

    /// After this many events, those of another handler begin.
    #[inline]
    pub(super) fn change(&mut self, counts: &Counts, begun: u64, profile: ProfileId) {
        self.run.count(counts, begun);
        self.run.profile = profile;
    }
}
