//! One simulated run of a recorded program.

use super::Load;
use super::figures::{Figures, Times};
use super::program::{Event, Program};
use mely::runtime::Stealing;
use mely::sim;
use mely::{Callback, Cx, Poster, Runtime};
use mely_hardware::{LineCost, Machine, Outside, Report, SimulateOn, Unfinished, charge};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Lines that are kept of a run.
const LINES: usize = 10;

/// How cores steal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mode {
    /// What it is called.
    pub name: String,
    /// How.
    pub stealing: Stealing,
}

impl Mode {
    /// mely, without stealing, and each combination of the heuristics.
    pub fn all() -> Vec<Mode> {
        let mut modes = vec![Mode::of(Stealing::default()), Mode::of(Stealing::OFF)];
        let some = (0..7).map(|bits: u8| Stealing {
            enabled: true,
            locality: bits & 1 != 0,
            time_left: bits & 2 != 0,
            penalty: bits & 4 != 0,
        });
        modes.extend(some.map(Mode::of));
        modes
    }

    /// The mode of this setting.
    pub fn of(stealing: Stealing) -> Mode {
        let name = match stealing {
            Stealing { enabled: false, .. } => "no stealing".to_owned(),
            Stealing::ALL => "mely".to_owned(),
            Stealing::BASE => "base".to_owned(),
            some => {
                let names = [
                    (some.locality, "locality"),
                    (some.time_left, "time-left"),
                    (some.penalty, "penalty"),
                ];
                let on = names.iter().filter(|(on, _)| *on);
                let on: Vec<&str> = on.map(|(_, name)| *name).collect();
                on.join("+")
            }
        };
        Mode { name, stealing }
    }

    /// That of a recording, as mely writes it there.
    ///
    /// # Errors
    /// If mely writes no such thing.
    pub fn recorded(text: &str) -> Result<Mode, String> {
        let mut some = Stealing::BASE;
        if text == "off" {
            return Ok(Mode::of(Stealing::OFF));
        }
        for name in text.split(", ").filter(|_| text != "base") {
            match name {
                "locality" => some.locality = true,
                "time-left" => some.time_left = true,
                "penalty" => some.penalty = true,
                _ => return Err(format!("the recording's cores stole by {text:?}: unknown")),
            }
        }
        Ok(Mode::of(some))
    }
}

/// How a run is made.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// The machine, of which the cores that keep best company are used.
    pub(super) machine: Machine,
    /// How many of them.
    pub(super) cores: usize,
    /// How they steal.
    pub(super) stealing: Stealing,
    /// When arrivals come.
    pub(super) load: Load,
    /// Decides all chance.
    pub(super) seed: u64,
    /// After this much virtual time the run is given up, in ns.
    pub(super) give_up_ns: u64,
    /// The batch threshold.
    pub(super) batch: u32,
    /// What a wake-up is taken to cost, in ns; 0: it is measured.
    pub(super) wake_cost_ns: u64,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Rates, latencies, the use of cores.
    pub figures: Figures,
    /// When each event was posted, began and ended, by its place in the recording.
    pub times: Vec<Times>,
    /// The costliest lines of memory.
    pub lines: Vec<LineCost>,
    /// Steals that brought something.
    pub steals: u64,
}

/// Runs a program once.
///
/// # Errors
/// What mely cannot be built with; a run that was given up, with what each core waited for and the
/// seed.
pub(super) fn once(program: &Arc<Program>, setup: &Setup) -> Result<Outcome, String> {
    let builder = Runtime::builder()
        .cores(setup.cores)
        .stealing(setup.stealing)
        .batch(setup.batch);
    let builder = match setup.wake_cost_ns {
        0 => builder,
        ns => builder.wake_cost(Duration::from_nanos(ns)),
    };
    // SAFETY: a replayed event works and posts: it lends nothing by a thread-local variable.
    let run = unsafe { builder.simulate_on(&setup.machine, setup.seed) };
    let mut run = run.map_err(|error| error.to_string())?;
    run.set_time_max(Duration::from_nanos(setup.give_up_ns));
    let observer = run.poster();
    let play = Arc::new(Play::new(program, setup, run.outside()));
    for (place, arrival) in program.arrivals.iter().enumerate() {
        if setup.load == Load::Open || arrival.answers.is_none() {
            play.arrive(place, arrival.at_ns);
        }
    }
    let its = Arc::clone(&play);
    let ended = run.run(move |cx| {
        if its.left.load(Relaxed) == 0 {
            cx.stop();
        }
    });
    let report = ended.map_err(|error| given_up(&error, play.left.load(Relaxed)))?;
    Ok(play.outcome(&report, &observer))
}

/// In one sentence.
fn given_up(error: &Unfinished, left: usize) -> String {
    let mut text = error.to_string();
    if matches!(error, Unfinished::Stopped(_)) {
        let _ = write!(text, "; {left} events had not run (`--give-up-after`)");
    }
    text
}

/// A program while it runs. All cores are on one thread.
struct Play {
    program: Arc<Program>,
    outside: Outside,
    cores: usize,
    load: Load,
    posted_ns: Vec<AtomicU64>,
    began_ns: Vec<AtomicU64>,
    ended_ns: Vec<AtomicU64>,
    /// How late an arrival was taken, by its place.
    late_ns: Vec<AtomicU64>,
    /// What each core was in events for.
    busy_ns: Vec<AtomicU64>,
    /// The data of a color has got its name.
    named: Vec<AtomicBool>,
    /// Events that have not run.
    left: AtomicUsize,
}

fn zeros(length: usize) -> Vec<AtomicU64> {
    (0..length).map(|_| AtomicU64::new(0)).collect()
}

fn now_ns() -> u64 {
    charge::now_ns().expect("on a virtual core")
}

impl Play {
    fn new(program: &Arc<Program>, setup: &Setup, outside: Outside) -> Play {
        let events = program.events.len();
        let unnamed = program.colors.iter().map(|_| AtomicBool::new(false));
        Play {
            program: Arc::clone(program),
            outside,
            cores: setup.cores,
            load: setup.load,
            posted_ns: zeros(events),
            began_ns: zeros(events),
            ended_ns: zeros(events),
            late_ns: zeros(program.arrivals.len()),
            busy_ns: zeros(setup.cores),
            named: unnamed.collect(),
            left: AtomicUsize::new(events),
        }
    }

    /// An arrival is to come at this time.
    fn arrive(self: &Arc<Play>, place: usize, at_ns: u64) {
        let arrival = self.program.arrivals[place];
        let core = self.program.core_of(&arrival, self.cores);
        let its = Arc::clone(self);
        self.outside.post_at(core, at_ns, move |taken_ns| {
            its.late_ns[place].store(taken_ns.saturating_sub(at_ns), Relaxed);
            charge::work_ns(arrival.taking_ns);
            its.callback(arrival.event, now_ns())
        });
    }

    /// An event that is posted now.
    fn callback(self: Arc<Play>, event: u32, now_ns: u64) -> Callback<impl FnOnce(&mut Cx) + Send> {
        self.posted_ns[event as usize].store(now_ns, Relaxed);
        let its = &self.program.events[event as usize];
        let handler = self.program.handlers[its.handler as usize];
        let color = self.program.colors[its.color as usize].color;
        handler.on(color, move |cx: &mut Cx| self.play(cx, event as usize))
    }

    /// The event runs.
    fn play(self: &Arc<Play>, cx: &mut Cx, place: usize) {
        let began_ns = now_ns();
        let event = self.program.events[place];
        self.touch(&event);
        let mut done_ns = 0;
        for post in &self.program.posts[event.posts()] {
            work(cx, post.after_ns - done_ns);
            done_ns = post.after_ns;
            Arc::clone(self).callback(post.event, now_ns()).post(cx);
        }
        work(cx, event.work_ns - done_ns);
        let ended_ns = now_ns();
        self.began_ns[place].store(began_ns, Relaxed);
        self.ended_ns[place].store(ended_ns, Relaxed);
        self.busy_ns[cx.core()].fetch_add(ended_ns - began_ns, Relaxed);
        if self.load == Load::Closed {
            for &follower in self.program.followers(place) {
                let follower = follower as usize;
                let answers = self.program.arrivals[follower].answers;
                let (_, think_ns) = answers.expect("who follows answers");
                self.arrive(follower, ended_ns.saturating_add(think_ns));
            }
        }
        let before = self.left.fetch_sub(1, Relaxed);
        if before == 1 {
            cx.stop();
        }
    }

    /// The event reads and writes what of its color's data its handler says.
    fn touch(&self, event: &Event) {
        if event.working_set_bytes == 0 {
            return;
        }
        let color = &self.program.colors[event.color as usize];
        let at: *const u8 = std::ptr::without_provenance(color.data_at);
        if !self.named[event.color as usize].swap(true, Relaxed) {
            charge::name_bytes(at, color.data_bytes, "data", event.color as usize);
        }
        charge::read_bytes(at, event.working_set_bytes);
        charge::write_bytes(at, event.working_set_bytes);
    }

    fn outcome(&self, report: &Report, observer: &Poster) -> Outcome {
        let get = |of: &[AtomicU64], place: usize| of[place].load(Relaxed);
        let times: Vec<Times> = (0..self.program.events.len())
            .map(|place| Times {
                posted_ns: Some(get(&self.posted_ns, place)),
                began_ns: get(&self.began_ns, place),
                ended_ns: get(&self.ended_ns, place),
            })
            .collect();
        let stats = observer.stats();
        let mut figures = Figures::of(&self.program, &times);
        figures.late_ns(self.late_ns.iter().map(|ns| ns.load(Relaxed)).collect());
        for (core, used) in report.cores.iter().enumerate() {
            let steals = stats.cores[core].steals.iter();
            let stealing_ns: u128 = steals.map(|steals| steals.cost.as_nanos()).sum();
            let busy_ns = get(&self.busy_ns, core) as f64;
            figures.add_core(busy_ns, stealing_ns as f64, used.slept_ns, report.all_ns);
        }
        Outcome {
            figures,
            times,
            lines: report.lines.iter().take(LINES).cloned().collect(),
            steals: stats.steals(),
        }
    }
}

/// None takes no time, not even to be asked for.
fn work(cx: &mut Cx, ns: u64) {
    if ns > 0 {
        sim::work(cx, Duration::from_nanos(ns));
    }
}
