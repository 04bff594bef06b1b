//! How much may wait, why an event was not accepted, and what is known of one that was shed.

use std::time::Duration;

/// How much may wait in a bounded color, and when waiting events are *shed*: dropped in the color
/// instead of run, when their turn comes. See [`Bounded`](crate::state::Bounded).
///
/// ```
/// use mely::state::Backlog;
/// use std::time::Duration;
/// let backlog = Backlog::events(64).shed_older_than(Duration::from_millis(200));
/// assert_eq!(backlog.events_max(), 64);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    events_max: usize,
    line_max: usize,
    age_max: Option<Duration>,
    depth_max: Option<usize>,
}

impl Backlog {
    /// At most this many events wait. None is shed.
    ///
    /// # Panics
    /// If `max` is 0, because then nothing could ever be posted; or above `u32::MAX`.
    #[track_caller]
    pub const fn events(max: usize) -> Backlog {
        assert!(
            max > 0,
            "a backlog of 0 events: nothing could ever be posted, use 1 or more"
        );
        assert!(
            max <= u32::MAX as usize,
            "a backlog of more than `u32::MAX` events: use a `Colored`, which has no bound"
        );
        Backlog {
            events_max: max,
            line_max: 1 << 16,
            age_max: None,
            depth_max: None,
        }
    }

    /// An event that was posted longer ago than `age` when its turn comes is shed. By the
    /// runtime's clock ([`Cx::now`](crate::Cx::now)), which is virtual in simulations.
    #[must_use]
    pub const fn shed_older_than(self, age: Duration) -> Backlog {
        Backlog {
            age_max: Some(age),
            ..self
        }
    }

    /// An event behind which more than `depth` others wait when its turn comes is shed: the oldest
    /// go first. Counted are events posted by handles of the same [`Bounded`](crate::state::Bounded), and
    /// no room that was promised. Has an effect below [`events_max`](Self::events_max)` - 1` only.
    #[must_use]
    pub const fn shed_deeper_than(self, depth: usize) -> Backlog {
        Backlog {
            depth_max: Some(depth),
            ..self
        }
    }

    /// A callback that finds no room is refused when this many stand in the line already
    /// ([`Bounded::on_room`](crate::state::Bounded::on_room)); 65,536 unless set, and with 0 no callback
    /// waits. Tasks and threads are never refused: how many wait is up to whoever made them.
    #[must_use]
    pub const fn line(self, max: usize) -> Backlog {
        Backlog {
            line_max: max,
            ..self
        }
    }

    /// With how many in the line a callback is refused.
    pub const fn line_max(&self) -> usize {
        self.line_max
    }

    /// How many events may wait.
    pub const fn events_max(&self) -> usize {
        self.events_max
    }

    /// Whether events are ever shed.
    pub(super) const fn sheds(&self) -> bool {
        self.age_max.is_some() || self.depth_max.is_some()
    }

    /// Whether this event is shed.
    pub(super) fn refuses(&self, event: &Shed) -> bool {
        self.age_max.is_some_and(|age| event.waited > age)
            || self.depth_max.is_some_and(|depth| event.behind > depth)
    }
}

/// An event that is shed: what its drop callback is given. See
/// [`Bounded::try_post_or`](crate::state::Bounded::try_post_or).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shed {
    /// For how long the event has waited, by the runtime's clock.
    pub waited: Duration,
    /// How many events wait behind it that were posted by handles of the same bound.
    pub behind: usize,
}
