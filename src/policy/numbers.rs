//! All numbers by which the scheduler is tuned: each with its unit last, what it bounds, and where
//! it comes from: a paper, a row of a bench, or a bound of `lab/tables/ablation.md`. Sizes of arrays
//! and layouts of words are with what they size.

// What is learned of handlers, steals and wake-ups.

/// An event of a handler that has neither run nor been annotated: worth a wake-up, whatever is
/// measured of those, because until it has run once no core can say that it is not. No cost of a
/// steal or a wake-up is believed beyond it; so an idle core searches for no longer, unless the
/// builder says otherwise, and is busy once it has been awake for longer. Bound 5.
pub(crate) const UNKNOWN_NS: u32 = 50_000;
/// From here on every run of a handler is timed: it may take as long as a wake-up, of which less
/// than this is not believed, and no core searches for less. Bound 4.
pub(crate) const COARSE_NS: u32 = 5_000;
/// What an event is taken for at least: the scheduler's own part of it.
pub(crate) const EVENT_MIN_NS: u64 = 10;
/// What is added for each event where loads are compared, and allowed for each post of a row, and
/// the least that a steal is believed to cost: what one costs the scheduler, with memory that has
/// gone cold.
pub(crate) const EVENT_NS: u32 = 100;
/// The weight of a new sample in the mean of a handler, or of a core's steals, is one over this,
/// and an annotation counts for as many. Others are told of what was measured when it differs by
/// more than such a part.
pub(crate) const MEAN_SAMPLES: u32 = 16;
/// The weight in the mean of the long run: a handler that is long now and then is not forgotten in
/// between. Row: `penalty-512`.
pub(crate) const LONG_RUN_SAMPLES: u64 = 256;
/// A sample counts for at most this many times the mean and an [`EVENT_NS`]: a thread that the
/// system took off its processor shows as one absurd sample.
pub(crate) const OUTLIER_TIMES: u32 = 8;
/// Of a new handler so many runs are all recorded, and so many posts of long events are published
/// by themselves. Bound 4.
pub(crate) const TRIAL_EVENTS: u32 = 64;
/// One turn in this number has its events timed: two readings of the clock cost as much as several
/// events. A prime, so that no regular program evades it. Row: `hop16`.
pub(crate) const SAMPLE_TURNS: u32 = 251;
/// Quanta whose events are all timed after a core was found in one for too long. Bound 5.
pub(crate) const WARY_QUANTA: u32 = 4;

// Turns.

/// Most events of a color in a row, unless the builder says otherwise (Mely section IV-A).
pub(crate) const BATCH_EVENTS: u32 = 10;
/// The same while no other color waits. Row: `chain1`.
pub(crate) const BATCH_ALONE_EVENTS: u32 = if cfg!(loom) { 1 } else { 256 };
/// A steal before any was measured; the least quantum while a core is idle: some ten times what
/// returning, flushing and checking out take; and the time that a long event may take beside its
/// posts, if these are to wait for each other. Row: `hop1000`.
pub(crate) const STEAL_NS: u32 = 600;
/// Turns of the newest that a turn pays for which was waited for: as many as the rest of a request
/// takes that is split in two halves and put together again. Row: sort and merge.
pub(crate) const NEWEST_TURNS: u32 = 4;
/// Colors that hurry which a core grants the next turn together. Bound 1.
pub(crate) const HURRIES_MAX: u64 = 64;
/// Quanta that it takes until one more is granted: every second one is without. Bound 1.
pub(crate) const HURRY_QUANTA: u64 = 2;
/// A penalty from which on a color stays where its memory is. Row: `penalty-512`.
pub(crate) const DRAGS_PENALTY: u32 = 10;
/// Quanta from one look at the event source, or renewal of a core's limits, to the next. Bound 6.
pub(crate) const LOOK_QUANTA: u64 = 16;

// Stealing.

/// A band begins where this many times the worth is of the one below (Mely section IV-B).
pub(crate) const BAND_TIMES: u64 = 4;
/// From one comparison of a busy core with the others to the next: as many steals as this takes are
/// a thousandth of a core's time. Row: `cross1000`.
pub(crate) const LEVEL_NS: u64 = 2_000_000;
/// A core gives colors to a busy one if it has more by one in so many. Bound 8.
pub(crate) const LEVEL_PART: u32 = 4;

// Waking and sleeping.

/// A wake-up before any was measured.
pub(crate) const WAKE_NS: u64 = 10_000;
/// Pauses of an idle core between two searches, so that victims keep their lines.
pub(crate) const PAUSES: u32 = 16;
/// Rings that a core gives by itself; and that a core gives for others once it is awake. Bound
/// 3, on 128 simulated cores.
pub(crate) const RINGS: usize = if cfg!(loom) { 1 } else { 4 };

// Long events.

/// An event that is expected to take as long has its core's source watched: that costs a
/// microsecond, and to be told of what comes some tens. Bound 6.
pub(crate) const WATCHED_NS: u32 = 100_000;
/// From one look of the watchdog to the next, unless the builder says otherwise. Bounds
/// 5 and 6.
pub(crate) const WATCH_NS: u64 = 500_000;
/// Looks at cores of which none is busy before the watchdog sleeps: one that becomes busy has to
/// wake it.
pub(crate) const WATCH_LOOKS: u32 = 20;

// Prefetching.

/// With fewer events a core-queue stays in the second cache, its colors too. Row:
/// `fan-in64` with 65,536 waiting.
pub(crate) const DEEP_EVENTS: u64 = 4_096;
