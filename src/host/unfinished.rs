//! The obstacles to the end of a run, by name.
//!
//! Whether a run that was asked to stop is over is counted ([`super::quiesce`]), without names. A
//! report ([`Unfinished`]) asks each piece that knows names:
//!
//! | obstacle | known to |
//! |---|---|
//! | held colors, by which handler and since when | the gates ([`crate::gate`]): the event that holds notes both |
//! | tasks that wait | [`super::leftovers`] |
//! | blocking work | the pool |
//! | keep-alives | a count, with which no name goes |
//! | handlers that run | the progress of each core |
//! | timers, connections | each core's event source, which only that core's thread may ask |
//!
//! **Actors.** The thread that called `run` makes a report once a second while the run drains, if
//! the builder has a hook ([`DrainReports`]). It first posts an event to each core's control color.
//! That event asks the core's event source, and leaves the answer in [`Answers`]. After
//! [`ANSWER_MAX`] the thread calls the hook. When the deadline has passed, the same thread makes
//! the last report, to which each event source adds its operations when it is dropped by its core.
//! In a simulation the thread that steps does both.
//!
//! **What can never happen.**
//!
//! - An event pays for reports. A hold notes its handler, and a time that its core had read before;
//!   all else is asked when a report is made.
//! - A report waits for a core. A core that is in a handler for long has not answered, and is named
//!   by its handler; it is not asked again before it has answered.
//! - A report keeps a run from ending. Its events run as others do, and none is posted once the end
//!   is decided.
//!
//! **A color that waits for itself**: its hold is to be ended by an event of the same color, or by
//! one that waits for the color. The runtime cannot see that, since a [`Hold`](crate::Hold) may be
//! anywhere. It can see that nothing is *under way*: every core rests, all events that are left are
//! behind gates, and there is no timer, operation, blocking work or keep-alive. Then only a thread
//! outside of the runtime that has the hold could end it, and the report says that
//! ([`Unfinished::at_rest`]).

use super::inner::Inner;
use super::poster::Poster;
use super::profile_text::short;
use super::quiesce::Until;
use super::stage::Stage;
use super::watchdog::running;
use crate::color::CoreId;
#[cfg(not(loom))]
use crate::io::Addr;
use crate::sync::{Arc, Mutex};
use crate::{Color, Cx};
use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};
// There is no event source under loom.
#[cfg(loom)]
use std::net::SocketAddr as Addr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// At most this many of a kind are named: a report is read by people.
pub(crate) const NAMED_MAX: usize = 16;
/// From one report to the next.
pub(crate) const REPORT_PERIOD: Duration = Duration::from_secs(1);
/// How long before that the event sources are asked.
const ANSWER_MAX: Duration = Duration::from_millis(50);

/// Called with a report, on the thread that called `run`.
pub(crate) type DrainHook = Box<dyn Fn(&Unfinished) + Send + Sync>;

/// The obstacles to the end of a run that was asked to stop; see
/// [`Builder::on_drain`](crate::Builder::on_drain) and
/// [`RunError::Deadline`](crate::RunError::Deadline).
///
/// With `{}` it is a sentence. Each number is read on its own while the cores go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unfinished {
    /// How long ago the stop was asked for.
    pub stopping_for: Duration,
    /// The stage of the end.
    pub stage: Stage,
    /// The [limit](crate::Builder::stage_limit) of the stage has passed, and the next one begins.
    pub is_over_limit: bool,
    /// Events that were accepted and have not run: queued, or behind a hold.
    pub events: u64,
    /// Holds that are out: of [`Cx::hold`](crate::Cx::hold), readers and events of several states.
    pub holds: u64,
    /// Tasks that wait.
    pub tasks: u64,
    /// Blocking work that runs, or waits for a thread.
    pub blocking: u64,
    /// Strong [`Poster`](crate::Poster)s, but those of blocking work.
    pub strong_posters: u64,
    /// Timers that a stop does not cancel: of sleeps, and deadlines of holds.
    pub timers: u64,
    /// Sends and receives of connections that are under way.
    pub connections: u64,
    /// Each of these by name, at most 16 of a kind: held colors and blocking work those that are
    /// there for longest, timers those that are due last.
    pub named: Vec<Obstacle>,
    /// Nothing is under way: each core rests, and only holds, events behind them and tasks are
    /// left. So nothing of the runtime's will end them. If no thread outside of it does, a color
    /// waits for itself: its hold is to be ended by an event of that color, or by one that waits
    /// for it.
    pub at_rest: bool,
}

/// One thing that a run waits for; see [`Unfinished`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Obstacle {
    /// A handler runs.
    #[non_exhaustive]
    Handler {
        /// The core it runs on.
        core: usize,
        /// The handler's name, or the closure's type.
        handler: &'static str,
    },
    /// A color is held.
    #[non_exhaustive]
    Hold {
        /// The color.
        color: Color,
        /// The handler whose event holds it; of several holds the oldest.
        handler: &'static str,
        /// For how long, by the time of the core when it last looked at the clock before.
        held_for: Duration,
        /// Events that wait for it, and for other holds of the color.
        behind: u64,
        /// How many holds of it are out.
        holds: u64,
        /// By readers of a state ([`Cx::read`](crate::Cx::read)): the latest of them.
        by_readers: bool,
    },
    /// A task waits to be woken.
    #[non_exhaustive]
    Task {
        /// Its color.
        color: Color,
        /// Its handler's name, or the future's type.
        handler: &'static str,
    },
    /// Blocking work goes on.
    #[non_exhaustive]
    Blocking {
        /// The handler of its callback, or the closure's type.
        handler: &'static str,
        /// For how long it runs, or waits for a thread.
        lasts: Duration,
        /// It has begun.
        begun: bool,
    },
    /// A timer is set.
    #[non_exhaustive]
    Timer {
        /// The color of its event.
        color: Color,
        /// `mely: sleep` for a sleep, else the deadline of a hold.
        handler: &'static str,
        /// When it is due.
        due_in: Duration,
    },
    /// A connection sends, or receives through the stop.
    #[non_exhaustive]
    Connection {
        /// Its color.
        color: Color,
        /// The handler that will be told.
        handler: &'static str,
        /// The other end, if it is known.
        peer: Option<Addr>,
        /// It waits for the peer to read; else for the peer to send.
        sends: bool,
    },
    /// A child has not ended.
    #[non_exhaustive]
    Child {
        /// The number of its process.
        id: u32,
        /// The color that will be told of its end.
        color: Color,
        /// The handler that will be told.
        handler: &'static str,
    },
    /// A core's ring reads, writes or syncs a file. (A thread that does so is named as blocking
    /// work.)
    #[non_exhaustive]
    File {
        /// The path that it was opened by.
        path: PathBuf,
    },
}

impl Display for Obstacle {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Handler { core, handler } => {
                write!(f, "core {core} is in handler `{handler}`")
            }
            Obstacle::Hold {
                color,
                handler,
                held_for,
                behind,
                holds,
                by_readers,
            } => {
                let how = if *by_readers { "read" } else { "held" };
                let time = short(*held_for);
                write!(
                    f,
                    "color {color} is {how} by handler `{handler}` for {time}"
                )?;
                if *holds > 1 {
                    write!(f, ", the oldest of {holds} holds")?;
                }
                match behind {
                    0 => Ok(()),
                    1 => f.write_str(", and 1 event waits for it"),
                    behind => write!(f, ", and {behind} events wait for it"),
                }
            }
            Obstacle::Task { color, handler } => {
                write!(f, "task `{handler}` of color {color} waits")
            }
            Obstacle::Blocking {
                handler,
                lasts,
                begun,
            } => {
                let state = if *begun { "runs" } else { "waits for a thread" };
                let time = short(*lasts);
                write!(
                    f,
                    "blocking work for handler `{handler}` {state} for {time}"
                )
            }
            Obstacle::Timer {
                color,
                handler,
                due_in,
            } => {
                let time = short(*due_in);
                write!(f, "timer `{handler}` of color {color} is due in {time}")
            }
            Obstacle::Connection {
                color,
                handler,
                peer,
                sends,
            } => {
                f.write_str("the connection ")?;
                if let Some(peer) = peer {
                    write!(f, "to {peer} ")?;
                }
                let waits = if *sends { "read" } else { "send" };
                write!(
                    f,
                    "of color {color} waits for its peer to {waits} (handler `{handler}`)"
                )
            }
            Obstacle::Child { id, color, handler } => write!(
                f,
                "child {id} has not ended (handler `{handler}` of color {color})"
            ),
            Obstacle::File { path } => {
                write!(f, "file {} is read, written or synced", path.display())
            }
        }
    }
}

impl Unfinished {
    /// The names of those that are to be told here, and the conclusion if nothing is under way;
    /// after a semicolon each.
    pub(crate) fn write_names(
        &self,
        f: &mut Formatter<'_>,
        is_told: fn(&Obstacle) -> bool,
    ) -> fmt::Result {
        for obstacle in self.named.iter().filter(|named| is_told(named)) {
            write!(f, "; {obstacle}")?;
        }
        if !self.at_rest || self.holds + self.tasks == 0 {
            return Ok(());
        }
        f.write_str("; nothing is under way: unless a thread outside of the runtime goes on, ")?;
        let color = |obstacle: &Obstacle| match obstacle {
            Obstacle::Hold { color, .. } => Some(*color),
            _ => None,
        };
        match self.named.iter().find_map(color) {
            Some(color) => write!(f, "color {color} waits for itself"),
            None => f.write_str("the tasks wait for themselves"),
        }
    }
}

impl Display for Unfinished {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let is_child = |named: &&Obstacle| matches!(named, Obstacle::Child { .. });
        let children = self.named.iter().filter(is_child).count() as u64;
        let is_file = |named: &&Obstacle| matches!(named, Obstacle::File { .. });
        let files = self.named.iter().filter(is_file).count() as u64;
        let counts = [
            (self.events, "event", "events"),
            (self.holds, "hold", "holds"),
            (self.tasks, "task", "tasks"),
            (
                self.blocking,
                "piece of blocking work",
                "pieces of blocking work",
            ),
            (self.strong_posters, "strong poster", "strong posters"),
            (self.timers, "timer", "timers"),
            (self.connections, "connection", "connections"),
            (children, "child", "children"),
            (files, "operation on a file", "operations on files"),
        ];
        let counts = counts.iter().filter(|(count, ..)| *count > 0);
        let counts: Vec<_> = counts
            .map(|(count, one, many)| format!("{count} {}", if *count == 1 { one } else { many }))
            .collect();
        let counts = match counts.is_empty() {
            true => "nothing but handlers that run".to_owned(),
            false => counts.join(", "),
        };
        let time = short(self.stopping_for);
        write!(
            f,
            "{time} after the stop the end is in stage {}",
            self.stage
        )?;
        if self.is_over_limit {
            f.write_str(", over its limit")?;
        }
        let waits = self.stage.waits_for();
        write!(f, ", which waits {waits}: {counts}")?;
        self.write_names(f, |_| true)
    }
}

/// What the event source of a core has under way.
#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    pub(crate) timers: u64,
    pub(crate) connections: u64,
    pub(crate) named: Vec<Obstacle>,
}

impl Unfinished {
    pub(crate) fn add(&mut self, under_way: UnderWay) {
        self.timers += under_way.timers;
        self.connections += under_way.connections;
        for kind in [
            |obstacle: &Obstacle| matches!(obstacle, Obstacle::Timer { .. }),
            |obstacle: &Obstacle| matches!(obstacle, Obstacle::Connection { .. }),
            |obstacle: &Obstacle| matches!(obstacle, Obstacle::Child { .. }),
            |obstacle: &Obstacle| matches!(obstacle, Obstacle::File { .. }),
        ] {
            let named = self.named.iter().filter(|its| kind(its)).count();
            let more = under_way.named.iter().filter(|its| kind(its));
            let more: Vec<_> = more.take(NAMED_MAX - named).cloned().collect();
            self.named.extend(more);
        }
    }
}

/// What the event sources have answered.
#[derive(Debug)]
pub(crate) struct Answers(Mutex<Box<[Answer]>>);

#[derive(Debug, Default)]
enum Answer {
    #[default]
    None,
    /// The core has not come to it.
    Asked,
    Given(UnderWay),
}

impl Answers {
    pub(crate) fn new(cores: usize) -> Answers {
        Answers(Mutex::new((0..cores).map(|_| Answer::None).collect()))
    }

    /// Whether the core is to be asked, which then it was.
    fn ask(&self, core: usize) -> bool {
        let mut answers = self.0.lock().unwrap();
        !matches!(
            std::mem::replace(&mut answers[core], Answer::Asked),
            Answer::Asked
        )
    }

    pub(crate) fn give(&self, core: CoreId, under_way: UnderWay) {
        self.0.lock().unwrap()[core.index()] = Answer::Given(under_way);
    }

    /// Adds what was answered since the last report.
    pub(crate) fn take_into(&self, unfinished: &mut Unfinished) {
        for answer in &mut *self.0.lock().unwrap() {
            match std::mem::take(answer) {
                Answer::Given(under_way) => unfinished.add(under_way),
                unanswered => *answer = unanswered,
            }
        }
    }

    /// Drops all answers so far.
    pub(crate) fn forget(&self) {
        self.0.lock().unwrap().fill_with(Answer::default);
    }
}

impl Inner {
    /// A report without the timers and connections, which the event sources add.
    pub(crate) fn unfinished(&self, stopping_for: Duration) -> Unfinished {
        let (holds, tasks) = (self.holds_out(), self.tasks_waiting());
        let left = self.events_left();
        let mut named = Vec::new();
        for core in 0..self.shared.cores.len() {
            if let Some(handler) = running(self, core)
                && named.len() < NAMED_MAX
            {
                named.push(Obstacle::Handler { core, handler });
            }
        }
        named.extend(self.holds_by_name());
        let leftovers = self.leftovers.some(NAMED_MAX).into_iter();
        named.extend(leftovers.map(|(color, handler)| Obstacle::Task { color, handler }));
        #[cfg(not(loom))]
        let blocking = self.pool.name(NAMED_MAX, &mut named);
        #[cfg(loom)]
        let blocking = 0;
        let keep_alives = self.quiesce.keep_alives();
        let behind = holds + tasks + self.shared.gates.waiting();
        Unfinished {
            stopping_for,
            stage: self.quiesce.phase().stage().unwrap_or_default(),
            is_over_limit: false,
            events: left.saturating_sub(holds + tasks),
            holds,
            tasks,
            blocking,
            strong_posters: keep_alives.saturating_sub(blocking),
            timers: 0,
            connections: 0,
            named,
            at_rest: keep_alives == 0 && self.quiesce.all_rest() && left == behind,
        }
    }

    fn holds_by_name(&self) -> impl Iterator<Item = Obstacle> {
        let mut held = self.shared.gates.held();
        held.sort_by_key(|hold| hold.by.since_ns);
        // Many holds of one color are one name.
        let mut count: HashMap<Color, u64> = HashMap::new();
        held.retain(|hold| {
            let holds = count.entry(hold.color).or_default();
            *holds += 1;
            *holds == 1
        });
        let now_ns = self.now_ns();
        held.into_iter().take(NAMED_MAX).map(move |hold| {
            let profile = self.shared.profiles.find(hold.by.profile);
            Obstacle::Hold {
                color: hold.color,
                handler: profile.map_or("(unknown)", |profile| profile.name()),
                held_for: Duration::from_nanos(now_ns.saturating_sub(hold.by.since_ns)),
                behind: hold.behind,
                holds: count[&hold.color],
                by_readers: hold.shared,
            }
        })
    }
}

/// When to report; for a run on threads.
#[derive(Debug, Default)]
pub(crate) struct DrainReports {
    /// Reports so far.
    told: u32,
    /// The event sources were asked for the next one.
    asked: bool,
    /// When the stage that the end is in has its limit.
    limit_at: Option<Instant>,
}

impl DrainReports {
    /// The end is in a stage whose limit is then.
    pub(crate) fn set_limit(&mut self, limit_at: Option<Instant>) {
        if std::mem::replace(&mut self.limit_at, limit_at) != limit_at {
            self.asked = false;
        }
    }

    /// When the next report is due, by when the stop was asked for.
    fn due(&self, stop_at: Instant) -> Instant {
        let due = stop_at + REPORT_PERIOD * (self.told + 1);
        self.limit_at.map_or(due, |limit_at| limit_at.min(due))
    }

    /// How long until there is something to do.
    pub(crate) fn next_look(
        &self,
        inner: &Inner,
        stop_at: Option<Instant>,
        now: Instant,
    ) -> Option<Duration> {
        inner.config.drain_hook.as_ref()?;
        let due = self.due(stop_at?);
        let at = if self.asked { due } else { due - ANSWER_MAX };
        Some(at.saturating_duration_since(now))
    }

    /// Asks, or tells, if that is due; of a run that has not ended.
    pub(crate) fn look(&mut self, inner: &Arc<Inner>, stop_at: Option<Instant>, now: Instant) {
        let Some(stop_at) = stop_at.filter(|_| inner.config.drain_hook.is_some()) else {
            return;
        };
        let due = self.due(stop_at);
        if !self.asked && now >= due - ANSWER_MAX {
            self.asked = true;
            ask(inner);
        } else if self.asked && now >= due && self.limit_at.is_none_or(|at| now < at) {
            self.tell(inner, Some(stop_at), now, false);
        }
    }

    /// Tells. `is_over_limit`: since a stage has lasted to its limit.
    pub(crate) fn tell(
        &mut self,
        inner: &Inner,
        stop_at: Option<Instant>,
        now: Instant,
        is_over_limit: bool,
    ) {
        let (Some(hook), Some(stop_at)) = (&inner.config.drain_hook, stop_at) else {
            return;
        };
        // This thread may have been late by several periods.
        let periods = (now - stop_at).as_secs_f64() / REPORT_PERIOD.as_secs_f64();
        (self.asked, self.told) = (false, periods as u32);
        let mut unfinished = inner.unfinished(now - stop_at);
        unfinished.is_over_limit = is_over_limit;
        inner.answers.take_into(&mut unfinished);
        hook(&unfinished);
    }
}

/// Asks the event source of each core that has answered the last time.
fn ask(inner: &Arc<Inner>) {
    let poster = Poster::of(inner);
    for core in 0..inner.shared.cores.len() {
        if inner.answers.ask(core) {
            let answer = |cx: &mut Cx| {
                let worker = cx.worker();
                let now_ns = worker.core.clock.now_ns();
                let under_way = worker.with_source(|source, _| source.under_way(now_ns));
                worker.inner.answers.give(worker.core.id, under_way);
            };
            // Refused if the run has ended meanwhile.
            let _ = poster.post_own_until(Until::End, None, Color::control(core), answer);
        }
    }
}
