//! What a recorded program would do on a machine that a file describes.
//!
//! | piece | owns | can never |
//! |---|---|---|
//! | `program` | the recorded events as a program: what each takes, posts and touches, and when or after what each arrival comes | have an event that would never be posted, or one that is posted twice |
//! | `taking` | what it cost a core to take each arrival | count a wait as work for long |
//! | `run` | one simulated run of it: the clock times of each event, the report | end with an event that has not run |
//! | `figures` | rates, latencies and the use of cores, of recorded and of simulated runs alike | divide by nothing |
//! | `report` | the text | know how a run is made |
//!
//! An *arrival* is an event that no event has posted: what the network, a timer or another thread
//! brought. Its *chain* is the arrival and all that is posted because of it. An arrival *answers*
//! the last event that had begun before it, of the chains that began in its color: a client's next
//! request answers the response to the one before. The first of a color answers the last event that
//! had begun at all: a first request comes after its connection. From the end of that event to the
//! arrival goes the *think time*.
//!
//! # What is kept, and what is not
//!
//! - An event's *work* is what it took in the recording, less the machine's number `post` for each
//!   of its posts, and not less than 0: so posts are not paid twice. The posts are made where they
//!   were in the event. Work is not scaled: the described processor computes as fast as the
//!   recorded one did.
//! - What the recorded run waited for its data is in the recorded times. What the described machine
//!   makes events wait for the bytes of [`mely::Handler::working_set_bytes`] comes on top.
//! - The kernel's part and the event source's, between two events, is replayed as what it cost the
//!   core to take each arrival (`taking`). What a thread that is no core posted costs no core more
//!   than the post.
//! - An arrival comes to the core to which it came in the recording if the run has as many cores,
//!   and else its color has a core by turns.
//! - Colors of the runtime's own are replayed as colors of values that the recording does not use:
//!   so control colors can be stolen.
//! - Posts that were refused, or whose events had not begun when the recording ended, are not made.
//!   Panics are not repeated.

mod figures;
mod program;
mod report;
mod run;
mod taking;

pub use figures::{CoreShare, Figures, Times};
pub use run::{Mode, Outcome};

use mely_hardware::Machine;
use mely_recording::Recording;
use program::Program;
use run::Setup;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// When arrivals come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Load {
    /// After the event that they answer, and the think time; what came before any event at its
    /// recorded time. A faster machine gets more to do.
    #[default]
    Closed,
    /// At their recorded times.
    Open,
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Load::Closed => "closed",
            Load::Open => "open",
        })
    }
}

/// What is asked.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// On how many cores; all of the machine's if none is given.
    pub cores: Option<usize>,
    /// When arrivals come.
    pub load: Load,
    /// Decides all chance.
    pub seed: u64,
    /// The virtual time after which a run is given up, in ns. By default a run has the time in
    /// which one core would do all the work several times over.
    pub give_up_ns: Option<u64>,
}

/// What a recorded program would do on a machine: the answer to a [`Question`]. With `{}` it is
/// text of at most 100 columns.
#[derive(Clone, Debug)]
pub struct Answer {
    machine: Machine,
    question: Question,
    cores: usize,
    /// The recorded run.
    pub recorded: Figures,
    /// How it stole.
    pub recorded_mode: Mode,
    /// The same run on as many cores of the described machine; none if it has not as many.
    pub again: Option<Outcome>,
    /// Each mode on the cores that were asked for.
    pub modes: Vec<(Mode, Outcome)>,
    /// What whoever reads the figures has to know, a sentence each.
    pub warnings: Vec<String>,
}

/// Most virtual seconds of a run.
pub const GIVE_UP_S_MAX: f64 = 1e6;

/// Replays a recording on a machine, in each mode.
///
/// # Errors
/// A sentence: a recording that cannot be replayed, cores that the machine has not, a run that was
/// given up.
pub fn answer(
    recording: &Recording,
    machine: &Machine,
    question: &Question,
) -> Result<Answer, String> {
    let has = machine.topology().cores().len();
    let cores = question.cores.unwrap_or(has);
    if cores == 0 {
        return Err("a run on 0 cores: at least 1 is needed (`--cores`)".into());
    }
    if cores > has {
        return Err(format!(
            "{cores} cores (`--cores`): {} has {has}",
            machine.name()
        ));
    }
    let recorded_mode = Mode::recorded(&recording.header.stealing)?;
    let program = Arc::new(Program::of(recording, machine)?);
    let give_up_ns = question.give_up_ns.unwrap_or(program.give_up_ns());
    let recorded_cores = recording.header.cores;
    let mut wanted: Vec<(Mode, usize)> = (Mode::all().into_iter())
        .map(|mode| (mode, cores))
        .collect();
    if (1..=has).contains(&recorded_cores) {
        wanted.push((recorded_mode.clone(), recorded_cores));
    }
    // Some are the same run, which is made once: the first with this key.
    let key = |(mode, cores): &(Mode, usize)| (program.is_run_as(mode.stealing), *cores);
    let same = |wish: &(Mode, usize)| wanted.iter().position(|its| key(its) == key(wish));
    let first: Vec<usize> = wanted.iter().filter_map(same).collect();
    let mut runs = first.clone();
    runs.sort_unstable();
    runs.dedup();
    let outcomes = side_by_side(runs.len(), |at| {
        let (mode, cores) = &wanted[runs[at]];
        let setup = Setup {
            machine: machine.clone(),
            cores: *cores,
            stealing: mode.stealing,
            load: question.load,
            seed: question.seed,
            give_up_ns,
            batch: recording.header.batch,
            wake_cost_ns: recording.header.wake_cost_ns,
        };
        run::once(&program, &setup).map_err(|error| format!("{}: {error}", mode.name))
    });
    let outcomes: Vec<Outcome> = outcomes.into_iter().collect::<Result<_, _>>()?;
    let outcome_of = |first: usize| outcomes[runs.partition_point(|&run| run < first)].clone();
    let mut outcomes: Vec<Outcome> = first.into_iter().map(outcome_of).collect();
    let again = outcomes.split_off(Mode::all().len()).pop();
    let modes = Mode::all().into_iter().zip(outcomes).collect();
    let recorded = Figures::recorded(recording, &program);
    Ok(Answer {
        warnings: report::warnings(
            recording,
            &program,
            machine,
            &recorded,
            (cores, question.load),
        ),
        machine: machine.clone(),
        question: question.clone(),
        cores,
        recorded,
        recorded_mode,
        again,
        modes,
    })
}

/// Calls `run` with each number below `runs`, on as many threads as there are processors: each run
/// is its thread's own, and the results are those of one thread. After an error no more begin.
fn side_by_side<T: Send>(
    runs: usize,
    run: impl Fn(usize) -> Result<T, String> + Sync,
) -> Vec<Result<T, String>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let at = next.fetch_add(1, Relaxed);
            if at >= runs {
                return;
            }
            let result = run(at);
            if result.is_err() {
                next.store(runs, Relaxed);
            }
            let mut results = results.lock().expect("nobody panics with it");
            results.push((at, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.min(runs) {
            scope.spawn(work);
        }
    });
    let mut results = results.into_inner().expect("nobody panics with it");
    results.sort_by_key(|&(at, _)| at);
    results.into_iter().map(|(_, result)| result).collect()
}
