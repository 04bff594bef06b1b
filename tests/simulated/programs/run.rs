//! Runs a program.

mod acts;

use super::model::{Bound, HoldId, Id, Model, Way};
use super::program::{Act, BOUNDS, HANDLERS, Outside, Program};
use mely::Reason;
use mely::net::Timer;
use mely::runtime::{OnPanic, PanicReport};
use mely::sim::SimError;
use mely::sim::Step;
use mely::state::{Bounded, Permit};
use mely::topology::{Shape, Topology};
use mely::{
    Color, Colored, Cx, Handler, Hold, JoinHandle, Post, Poster, Rejected, RunError, Runtime,
};
use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// More than any program takes.
const STEPS_MAX: u64 = 3_000_000;

/// What a program panics with.
pub(crate) const ON_PURPOSE: &str = "part of the program";

/// From none to long, and annotations that are lies.
static TABLE: [Handler; HANDLERS] = [
    Handler::new("unknown"),
    Handler::new("short").time(Duration::from_nanos(50)),
    Handler::new("medium").time(Duration::from_micros(3)),
    Handler::new("long").time(Duration::from_micros(200)),
    Handler::new("heavy")
        .time(Duration::from_micros(3))
        .penalty(50),
    Handler::new("heavier")
        .time(Duration::from_micros(20))
        .penalty(1_000),
];

type Room = Arc<Mutex<Option<(usize, Permit<()>)>>>;
type Timers = Arc<Mutex<Vec<(Id, Color, Timer)>>>;
type Works = Arc<Mutex<Vec<(Color, Vec<Act>, JoinHandle<()>)>>>;
type Tasks = Arc<Mutex<Vec<(Stage, JoinHandle<()>)>>>;
type Holds = Arc<Mutex<Vec<(HoldId, Hold)>>>;

#[derive(Clone)]
struct Judge {
    model: Arc<Mutex<Model>>,
    timers: Timers,
    /// Those that are out.
    holds: Holds,
    kept: Arc<Mutex<Vec<Poster>>>,
    /// Works whose results are not wanted before they are canceled.
    works: Works,
    tasks: Tasks,
    /// Where a number of events may wait; empty if a post that finds the runtime full panics, which
    /// would poison their states.
    bounds: Arc<Vec<Bounded<()>>>,
    /// Room that the event that begins next was given.
    room: Room,
}

/// A bounded color: one is as wide as its number says, and the last sheds.
fn bound(which: usize) -> Bound {
    Bound::new(which + 1, (which + 1 == BOUNDS).then_some(1))
}

fn bounded(by: &impl Post, which: usize) -> Bounded<()> {
    let bound = bound(which);
    let bounded = Colored::new(by, Color::from(which as u64), ()).bounded(bound.events_max);
    match bound.depth_max {
        Some(depth) => bounded.shed_deeper_than(depth),
        None => bounded,
    }
}

/// How far a task is.
#[derive(Clone)]
struct Stage {
    /// Its latest event.
    id: Arc<Mutex<Id>>,
    /// Its handle was dropped: what is offered from now on may not run.
    canceled: Arc<AtomicBool>,
}

impl Judge {
    fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap()
    }

    /// Drops all holds: nobody else would, and the run would not end.
    fn let_all_go(&self) {
        let holds = std::mem::take(&mut *self.holds.lock().unwrap());
        for (id, hold) in holds {
            self.model().let_go(id);
            drop(hold);
        }
    }

    /// Posts an event to a bounded color, with room if there is some.
    fn try_bounded<P: Post + ?Sized>(
        &self,
        (by, poster): (Option<Id>, &P),
        which: usize,
        room: Option<Permit<()>>,
        mut acts: Vec<Act>,
    ) {
        let Some(bounded) = self.bounds.get(which) else {
            return;
        };
        // It would poison the state.
        acts.retain(|act| !matches!(act, Act::Panic));
        let body = self.offer(by, bounded.state().color(), Way::Posted, acts);
        let id = body.id;
        let body = Arc::new(Mutex::new(Some(body)));
        let its = Arc::clone(&body);
        let take = |body: &Mutex<Option<Body>>| body.lock().unwrap().take().expect("taken once");
        let run = move |(): &mut (), cx: &mut Cx| take(&body).run(cx);
        let shed = move |(): &mut (), cx: &mut Cx| {
            let body = take(&its);
            body.judge.model().shed(body.id, cx.color());
        };
        let has_room = bounded.waiting() < bound(which).events_max && bounded.in_line() == 0;
        let expected = room.is_some() || has_room;
        let posted = match room {
            Some(room) => room.try_post_or(poster, run, shed),
            None => bounded.via(&TABLE[0]).try_post_or(poster, run, shed),
        };
        match posted {
            Ok(()) if expected => self.model().accept_bounded(by, id, which),
            Err(Rejected {
                reason: Reason::NoRoom,
                value: refused,
            }) if !expected => {
                self.model().bounds[which].refused += 1;
                drop(refused);
            }
            Err(Rejected {
                reason: Reason::Ended,
                value: refused,
            }) => drop(refused),
            posted => {
                let what = format!("bound {which} says {posted:?}, expected room: {expected}");
                self.model().fail(what);
            }
        }
    }

    /// An event that `by`, or somebody outside, is about to post.
    fn offer(&self, by: Option<Id>, color: Color, way: Way, acts: Vec<Act>) -> Body {
        let id = self.model().offer(by, color, way);
        let judge = self.clone();
        Body {
            id,
            parts: Vec::new(),
            acts,
            judge,
        }
    }
}

/// Tells the model that a hold is over when it is dropped.
struct LetGo(Judge, HoldId);

impl Drop for LetGo {
    fn drop(&mut self) {
        self.0.model().let_go(self.1);
    }
}

/// An event's closure: tells the model when it is gone.
struct Body {
    id: Id,
    /// Of an event of several colors, what it is in each of them: `id` is the first. Else none.
    parts: Vec<Id>,
    acts: Vec<Act>,
    judge: Judge,
}

impl Drop for Body {
    fn drop(&mut self) {
        let mut model = self.judge.model();
        self.each(|id| model.dropped(id));
    }
}

/// The event that runs: ends also by a panic.
struct Running<'a>(&'a Body);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut model = self.0.judge.model();
        model.share(&self.0.parts);
        let panicked = std::thread::panicking();
        self.0.each(|id| model.end(id, panicked && id == self.0.id));
    }
}

/// Whatever panics must be part of the program, or its limit: not an assertion of the runtime's
/// own.
fn panic_hook(judge: &Judge, program: &Program) -> impl Fn(&PanicReport) + Send + Sync + 'static {
    let model = Arc::clone(&judge.model);
    let limited = program.events_max == 1;
    move |report| {
        let meant = report.message == ON_PURPOSE
            || limited && report.message.contains("limit of queued events");
        if !meant {
            model.lock().unwrap().fail(report.to_string());
        }
    }
}

/// Runs `program` in the order of `seed`.
///
/// # Errors
/// The first promise that was not kept.
pub(crate) fn run(program: &Program, seed: u64) -> Result<(), String> {
    let shape = Shape {
        packages: program.packages,
        cores_per_l2: program.cores.div_ceil(program.packages),
        ..Shape::default()
    };
    let topology = Topology::synthetic(shape).expect("a machine");
    let mut judge = Judge {
        model: Arc::default(),
        timers: Arc::default(),
        holds: Arc::default(),
        kept: Arc::default(),
        works: Arc::default(),
        tasks: Arc::default(),
        bounds: Arc::default(),
        room: Arc::default(),
    };
    let mut simulation = Runtime::builder()
        .topology(topology)
        .cores(program.cores)
        .stealing(program.stealing)
        .batch(program.batch)
        .color_slots(program.slots)
        .events_max(program.events_max)
        .on_panic(program.on_panic)
        .exit_when_idle(program.exit_when_idle)
        .blocking_threads_max(2)
        .blocking_queue_max(2)
        .drain_deadline(Duration::MAX)
        .panic_hook(panic_hook(&judge, program))
        .simulate(seed)
        .expect("what a program asks for can be built");
    let poster = simulation.poster();
    if program.events_max > 1 {
        let bounds = (0..BOUNDS).map(|which| bounded(&poster, which));
        judge.bounds = Arc::new(bounds.collect());
    }
    judge.model().bounds.extend((0..BOUNDS).map(bound));
    let offer =
        |color: u64, acts: &[Act]| judge.offer(None, color.into(), Way::Posted, acts.to_vec());
    let accepted = |id: Id| judge.model().accept(None, id);
    let first = offer(0, &program.start);
    let id = first.id;
    judge.model().start = Some(id);
    simulation
        .start(move |cx| first.run(cx))
        .map_err(|error| error.to_string())?;
    accepted(id);
    let mut outside: VecDeque<_> = program.outside.iter().collect();
    let panics_matter = || {
        let model = judge.model();
        model.start_panicked || model.panics > 0 && program.on_panic == OnPanic::Stop
    };
    let latest_kept = || judge.kept.lock().unwrap().pop();
    let mut stopped = false;
    let mut gap = 0;
    loop {
        let step = simulation.step();
        if let Some(broken) = judge.model().broken.clone() {
            return Err(broken);
        }
        if simulation.steps() > STEPS_MAX {
            return Err("goes on for ever".into());
        }
        let stalled = step == Step::Stalled;
        match step {
            Step::Ended if !panics_matter() && latest_kept().is_some() => {
                return Err("ended in spite of a keep-alive".into());
            }
            Step::Ended => break,
            Step::Stalled if !judge.holds.lock().unwrap().is_empty() => judge.let_all_go(),
            // First it is asked to stop, and then nothing keeps it any more.
            Step::Stalled if outside.is_empty() && stopped => drop(latest_kept()),
            Step::Stalled if outside.is_empty() => {
                stopped = true;
                poster.stop();
            }
            _ => {}
        }
        if judge.model().stopped {
            judge.let_all_go();
        }
        gap += 1;
        let is_due = outside.front().is_some_and(|(at, _)| gap >= *at);
        if !is_due && !stalled {
            continue;
        }
        let Some((_, what)) = outside.pop_front() else {
            continue;
        };
        gap = 0;
        match what {
            Outside::Post(handler, color, acts) => {
                let body = offer(*color, acts);
                let id = body.id;
                let run = move |cx: &mut Cx| body.run(cx);
                let callback = TABLE[*handler].on(Color::from(*color), run);
                match callback.try_post(&poster) {
                    Ok(()) => accepted(id),
                    Err(refused) => drop(refused),
                }
            }
            Outside::TryBounded(which, acts) => {
                judge.try_bounded((None, &poster), *which, None, acts.clone());
            }
            Outside::PostKept(handler, color, acts) => {
                let Some(keep_alive) = latest_kept() else {
                    continue;
                };
                let body = offer(*color, acts);
                let id = body.id;
                let run = move |cx: &mut Cx| body.run(cx);
                let callback = TABLE[*handler].on(Color::from(*color), run);
                match callback.try_post(&keep_alive) {
                    Ok(()) => accepted(id),
                    Err(Rejected {
                        reason: Reason::Ended,
                        ..
                    }) if !panics_matter() => {
                        return Err("refused in spite of a keep-alive".into());
                    }
                    Err(refused) => drop(refused),
                }
            }
            Outside::LetGo => drop(latest_kept()),
            Outside::Place(color, core) => {
                poster.place(Color::from(*color), core % program.cores);
            }
            Outside::Hurry(color) => poster.hurry(Color::from(*color)),
            Outside::Working(cores) => {
                let cores = 1 + cores % program.cores;
                poster.set_working_cores(cores).expect("there are as many");
            }
            Outside::Stop => {
                judge.model().stopped = true;
                poster.stop();
            }
        }
    }
    let result = simulation.end();
    let stats = simulation.stats();
    drop(simulation);
    judge.timers.lock().unwrap().clear();
    judge.let_all_go();
    judge.kept.lock().unwrap().clear();
    judge.works.lock().unwrap().clear();
    judge.tasks.lock().unwrap().clear();
    let panics_matter = panics_matter();
    let mut model = judge.model();
    for (which, bounded) in judge.bounds.iter().enumerate() {
        let (waiting, in_line) = (bounded.waiting(), bounded.in_line());
        if (waiting, in_line) != (0, 0) {
            model.fail(format!(
                "bound {which} has {waiting} permits out at the end, and {in_line} in its line"
            ));
        }
        let (told, counted) = (
            (bounded.shed(), bounded.refused()),
            (model.bounds[which].shed, model.bounds[which].refused),
        );
        if told != counted {
            model.fail(format!(
                "bound {which} counts {told:?}, which were {counted:?}"
            ));
        }
    }
    let sum = |of: fn(&Bound) -> u64| -> u64 { model.bounds.iter().map(of).sum() };
    let counted = (sum(|bound| bound.shed), sum(|bound| bound.refused));
    let told = (stats.events_shed, stats.events_refused);
    if told != counted {
        model.fail(format!(
            "the runtime counts {told:?}, which were {counted:?}"
        ));
    }
    let left = model.judge(result.is_ok());
    match result {
        Ok(()) if panics_matter => return Err("a panic did not stop the runtime".into()),
        Ok(()) => {}
        Err(SimError::Run(RunError::Panicked { events_left, .. })) if panics_matter => {
            // To cancel a timer from elsewhere is an event of the runtime's own, and so is to drop
            // it; a thread of a simulation consists of such events. A hold counts as one event
            // until it is over.
            let more = 2 * model.others() + model.holds();
            if !(left..=left + more).contains(&events_left) {
                return Err(format!(
                    "{events_left} events are said to be left of {left}"
                ));
            }
        }
        Err(error) => return Err(format!("ended by {error}")),
    }
    model.broken.take().map_or(Ok(()), Err)
}
