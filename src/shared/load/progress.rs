//! What a core's thread tells between its critical sections.

#[cfg(feature = "tracing")]
use crate::color::{Color, ColorKind};
use crate::event::tag::ProfileId;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::relaxed;

/// How a core is getting on: a thief that sees it unchanged for a steal's cost knows that the core
/// is inside one turn, without a clock on the core's side. And what it is asked for meanwhile.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Why the core does something before its next event: [`Progress::SAMPLE`],
    /// [`Progress::LOOK_UP`], [`Progress::LEAVE`].
    attention: relaxed::AtomicU32,
    /// Counts turns begun, long handlers begun and ended, and rests.
    turns: AtomicU64,
    /// In a handler known or feared to be long. A hint of the core's own, which spares thieves the
    /// wait to find out.
    long: AtomicU32,
    /// See [`Progress::set_very_long`].
    very_long: AtomicBool,
    /// See [`Progress::set_stuck`].
    stuck: relaxed::AtomicU64,
    /// See [`Progress::set_fresh`].
    fresh: relaxed::AtomicBool,
    /// The color of the event that runs: its value, and its kind.
    #[cfg(feature = "tracing")]
    color: (relaxed::AtomicU64, relaxed::AtomicU32),
    /// The profile of the event that runs, plus one; 0 once the core found nothing to run. For
    /// reports and the watchdog.
    running: relaxed::AtomicU32,
}

impl Progress {
    /// The events of this turn are timed.
    const SAMPLE: u32 = 1;
    /// Somebody asks the core to *look up*: to end its quantum, and to look at its event source and
    /// at how far the runtime is.
    const LOOK_UP: u32 = 2;
    /// The runtime was ended by force: no further event begins.
    const LEAVE: u32 = 4;

    pub(crate) fn new() -> Progress {
        Progress {
            attention: relaxed::AtomicU32::new(0),
            turns: AtomicU64::new(0),
            long: AtomicU32::new(0),
            very_long: AtomicBool::new(false),
            stuck: relaxed::AtomicU64::new(u64::MAX),
            fresh: relaxed::AtomicBool::new(false),
            #[cfg(feature = "tracing")]
            color: Default::default(),
            running: relaxed::AtomicU32::new(0),
        }
    }

    /// Whether there is anything to be done before the next event.
    #[inline(always)]
    pub(crate) fn wants_attention(&self) -> bool {
        self.attention.load(Ordering::Relaxed) != 0
    }

    /// Says whether the events of this turn are to be timed.
    pub(crate) fn set_sampled(&self, sample: bool) {
        if sample {
            self.attention.fetch_or(Progress::SAMPLE, Ordering::Relaxed);
        } else {
            self.attention
                .fetch_and(!Progress::SAMPLE, Ordering::Relaxed);
        }
    }

    /// Asks the core to look up. What the caller wrote before, the core sees when it does.
    pub(crate) fn ask_to_look_up(&self) {
        self.attention
            .fetch_or(Progress::LOOK_UP, Ordering::Release);
    }

    /// Asks the core to look up, and to begin nothing before.
    pub(crate) fn ask_to_leave(&self) {
        let leave = Progress::LEAVE | Progress::LOOK_UP;
        self.attention.fetch_or(leave, Ordering::Release);
    }

    pub(crate) fn is_asked_to_leave(&self) -> bool {
        self.attention.load(Ordering::Relaxed) & Progress::LEAVE != 0
    }

    pub(crate) fn is_asked_to_look_up(&self) -> bool {
        self.attention.load(Ordering::Relaxed) & Progress::LOOK_UP != 0
    }

    /// The core does look up: whoever asks from now on asks anew. Returns whether anybody had
    /// asked.
    #[inline(always)]
    pub(crate) fn answer_look_up(&self) -> bool {
        // A read-modify-write, so that a question that comes at this moment is either answered now,
        // with what was written before it, or left.
        self.is_asked_to_look_up()
            && self
                .attention
                .fetch_and(!Progress::LOOK_UP, Ordering::AcqRel)
                & Progress::LOOK_UP
                != 0
    }

    /// Notes what runs.
    #[inline]
    pub(crate) fn set_running(&self, profile: Option<ProfileId>) {
        let noted = profile.map_or(0, |profile| profile.index() as u32 + 1);
        self.running.store(noted, Ordering::Relaxed);
    }

    /// The profile of the event that runs.
    pub(crate) fn profile(&self) -> Option<ProfileId> {
        let place = self.running.load(Ordering::Relaxed).checked_sub(1)?;
        ProfileId::new(place as usize)
    }

    /// Notes the color of what runs.
    #[cfg(feature = "tracing")]
    #[inline(always)]
    pub(crate) fn set_color(&self, color: Color) {
        self.color.0.store(color.value(), Ordering::Relaxed);
        self.color.1.store(color.kind().bits(), Ordering::Relaxed);
    }

    /// The color of the event that runs. (Of one that has just begun, the value may be the one
    /// before.)
    #[cfg(feature = "tracing")]
    pub(crate) fn color(&self) -> Color {
        let kind = ColorKind::from_bits(self.color.1.load(Ordering::Relaxed));
        Color::of_kind(kind, self.color.0.load(Ordering::Relaxed))
    }

    /// Counts one more; see `turns`.
    #[inline(always)]
    pub(crate) fn advance(&self) {
        // One writer: a load and a store.
        self.turns.store(
            self.turns.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Relaxed,
        );
    }

    /// A handler known or feared to be long begins, or ends.
    pub(crate) fn set_long(&self, long: bool) {
        self.advance();
        self.long.store(long.into(), Ordering::Release);
    }

    /// A handler begins, or ends, that is so long that the core's event source is
    /// [watched](crate::shared::idle::lookout).
    pub(crate) fn set_very_long(&self, very_long: bool) {
        self.very_long.store(very_long, Ordering::Release);
    }

    pub(crate) fn is_very_long(&self) -> bool {
        self.very_long.load(Ordering::Acquire)
    }

    /// The watchdog has found the core inside this turn for that long.
    pub(crate) fn set_stuck(&self, turn: u64) {
        self.stuck.store(turn, relaxed::Ordering::Relaxed);
    }

    /// The core has just woken, and the watchdog does not look at it: see
    /// [`crate::shared::idle::vigil`].
    pub(crate) fn set_fresh(&self, fresh: bool) {
        self.fresh.store(fresh, relaxed::Ordering::Relaxed);
    }

    /// Whether the core is inside an event that is known to take as long as is worth watching its
    /// event source.
    pub(crate) fn is_known_long(&self) -> bool {
        self.is_very_long() || self.stuck.load(relaxed::Ordering::Relaxed) == self.turns()
    }

    /// Whether the core is inside an event in which its event source is
    /// [watched](crate::shared::idle::lookout).
    pub(crate) fn is_watched(&self) -> bool {
        self.is_known_long()
            || self.fresh.load(relaxed::Ordering::Relaxed) && self.profile().is_some()
    }

    pub(crate) fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    pub(crate) fn is_long(&self) -> bool {
        self.long.load(Ordering::Acquire) != 0
    }
}
