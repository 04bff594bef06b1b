//! The stages of an end: what a run that was asked to stop does, in which order, and for how long.
//!
//! A server is to lose nothing that it has acknowledged, and to answer each request that had
//! arrived. So its end has an order. Each stage of it has a name, a limit, and a condition:
//!
//! | stage | the run | ends early when | at its limit |
//! |---|---|---|---|
//! | [receive](Stage::Receive) | accepts the clients that wait at its listeners, closes those, and reads from each connection the bytes that had arrived | each core has read those | the bytes that are not read stay unread |
//! | [drain](Stage::Drain) | runs the events that are queued, and what those post. Sessions may write. A connection that is under way ([`Stream::set_under_way`]) is read further, no other is | nothing is left, output included: a session may go on when it is sent | it goes on, beside the next stage |
//! | [close](Stage::Close) | tells each connection the end, as `ECANCELED`. Its session may still write | nothing is left but output | it goes on, beside the next stage |
//! | [flush](Stage::Flush) | sends the output that is left | nothing is left: the run is over, and what is still open is closed | the run is cut short ([`RunError::Deadline`]) |
//!
//! # The pieces
//!
//! - **The phase word** ([`super::quiesce`]) has the stage, and is the only place that has. It goes
//!   forward only, by compare-and-swap under the lock of the decision. A core that decides, or the
//!   thread that called `run` at a limit, moves it.
//! - **Each core's worker** ([`super::worker`]) *follows*: it sees the word after a step, tells its
//!   event source each stage in order
//!   ([`Source::begin_stage`](super::source::Source::begin_stage)), and counts that. A stage ends
//!   only when all cores have followed.
//! - **Each core's driver** ([`crate::net`]) does a stage's part for the connections at home there.
//! - **The thread that called `run`** has the limits ([`StageLimits`]): it reports a stage whose
//!   limit has passed to the hook of `Builder::on_drain`, and ends that stage. In a simulation the
//!   thread that steps does.
//!
//! # How the end of a stage is decided
//!
//! *Receive.* When a core follows, its driver notes for each connection how many bytes have come in
//! all by then: those that it has received and those that the kernel (or the simulated network) has
//! for it. A connection has *arrived* when that many are received, or its stream has ended. This is
//! the moment at which a read would have blocked for the first time, but for bytes that came
//! later: so a client that sends without pause cannot put it off. It needs no answer of the kernel
//! to a read, and is the same on io_uring, epoll and the simulated network. A connection that was
//! accepted in the stage notes the number when it is first read from. Each core counts itself once
//! it has no acceptor and no connection that has not arrived; the last one ends the stage. A stream
//! that is paused and has unread bytes has not arrived, until it is resumed.
//!
//! *Drain, close and flush* end when nothing is left, by the decision of [`super::quiesce`]. In the
//! stage close, sends under way count as nothing: a peer that does not read keeps no other
//! connection from hearing of the end. Operations on files that are on a ring are work of the stage
//! drain. In the stage close they are canceled, those that are started in it at once.
//!
//! A run that never had a connection has one stage, drain, and its limit is the drain deadline.
//!
//! # A connection in the stages
//!
//! Once it has arrived, its receive is canceled, and its callbacks hear nothing until the stage
//! close. One that is under way receives on. The stream of a task
//! ([`AsyncStream`](crate::aio::AsyncStream)) is told the end when it has arrived and not in the
//! stage close: a task that waits for bytes would hold up the stage drain. A task that is to finish
//! more than it has read asks for
//! [`AsyncStream::stopping`](crate::aio::AsyncStream::stopping), which makes the stream one that is
//! under way.
//!
//! A connection that is closed with unread input *lingers*: its end is sent, and its input thrown
//! away until the peer's end, or for half a second at most (`LINGER_MAX`). A socket that is closed
//! with unread input is reset by the kernel, and the peer may lose the answer.
//!
//! # What can never happen
//!
//! - A stage begins on some core while another stage is not followed by all cores, unless a limit
//!   has passed.
//! - A session is told the end while an event is left that could write to it, unless a limit has
//!   passed.
//! - A limit keeps a run from ending before it: a stage ends as soon as its condition holds.
//! - A stage lasts beyond the drain deadline, which ends them all.
//!
//! [`Stream::set_under_way`]: crate::net::Stream::set_under_way
//! [`RunError::Deadline`]: crate::RunError::Deadline

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

/// A stage of the end of a run that was asked to stop; see
/// [`Builder::stage_limit`](crate::Builder::stage_limit).
///
/// The stages come in this order. Each ends as soon as it has nothing to wait for, and at its limit
/// in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// Clients that wait at a listener are accepted, and each connection is read until it has given
    /// all bytes that had arrived.
    #[default]
    Receive,
    /// What is under way is finished: events that are queued, tasks, holds, blocking work, operations
    /// on files, children that are waited for, and output, since a session may write more when that
    /// is sent. So a peer that does not read makes this stage last to its limit. A connection is read further only if it is under way
    /// ([`Stream::set_under_way`](crate::net::Stream::set_under_way)).
    Drain,
    /// Each connection is told the end ([`Session::end`](crate::net::Session::end)), and may still
    /// write. Operations on files that are on a ring are canceled.
    Close,
    /// Output is sent. Then the run is over, and each connection that is open is closed.
    Flush,
}

impl Stage {
    pub(crate) const ALL: [Stage; 4] = [Stage::Receive, Stage::Drain, Stage::Close, Stage::Flush];

    /// The name of the stage: `receive`, `drain`, `close` or `flush`.
    pub(crate) fn name(self) -> &'static str {
        ["receive", "drain", "close", "flush"][self as usize]
    }

    /// The obstacles to its end, in a word or two.
    pub(crate) fn waits_for(self) -> &'static str {
        [
            "for input that had arrived",
            "for work that is under way",
            "for sessions that end",
            "for output that is sent",
        ][self as usize]
    }
}

impl Display for Stage {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How long each stage may last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StageLimits([Option<Duration>; 4]);

impl StageLimits {
    pub(crate) fn set(&mut self, stage: Stage, limit: Duration) {
        self.0[stage as usize] = Some(limit);
    }

    /// The limit of a stage; by default a share of the deadline for all of them. None: only that
    /// deadline ends it.
    pub(crate) fn of(&self, stage: Stage, drain_deadline: Duration) -> Option<Duration> {
        let share = || match stage {
            Stage::Receive => Some(drain_deadline / 10 * 2),
            Stage::Drain => Some(drain_deadline / 10 * 5),
            Stage::Close => Some(drain_deadline / 10),
            Stage::Flush => None,
        };
        self.0[stage as usize].or_else(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_shares_of_the_deadline_unless_they_are_set() {
        let mut limits = StageLimits::default();
        let of = |limits: &StageLimits| {
            Stage::ALL.map(|stage| limits.of(stage, Duration::from_secs(10)))
        };
        let s = |s| Some(Duration::from_secs(s));
        assert_eq!(of(&limits), [s(2), s(5), s(1), None]);
        limits.set(Stage::Drain, Duration::ZERO);
        limits.set(Stage::Flush, Duration::from_secs(7));
        assert_eq!(of(&limits), [s(2), s(0), s(1), s(7)]);
        // No time is too long.
        assert!(limits.of(Stage::Receive, Duration::MAX).is_some());
    }

    #[test]
    fn stages_have_an_order_and_names() {
        assert!(Stage::ALL.is_sorted());
        let names = Stage::ALL.map(|stage| stage.to_string());
        assert_eq!(names, ["receive", "drain", "close", "flush"]);
    }
}
