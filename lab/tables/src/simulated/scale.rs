//! mely on 16, 64 and 128 cores: what it does, and which lines cost most.

use super::{Setup, costly, once};
use mely::sim;
use mely::{Color, Cx, Runtime};
use mely_hardware::{Report, SimulateOn, charge};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Lines that are told of each.
const LINES: usize = 10;

/// What is run.
#[derive(Clone, Copy, Debug)]
enum Program {
    /// A table of the benches, and its events a core.
    Table(&'static str, u64),
    /// One core makes 200 events for each, of colors of their own; what the longest takes, in us.
    /// The shortest takes a twentieth of that.
    Uneven(u64),
    /// Four chains a core that share nothing but the handler, for 8 ms; what an event takes, in ns.
    /// All of them begin on one core.
    Chains(u64),
    /// All cores but one sleep; then a handler posts four colors for each, of an event of 100 us.
    Burst,
    /// A web server's flow, for 16 connections a core: a color for each core polls, those of the
    /// connections read, parse and write, and ask the one that polls for more.
    Web,
    /// The same with one color that polls for all, as in the papers' servers.
    WebOfOnePoller,
}

const PROGRAMS: [Program; 12] = [
    Program::Table("mely-3-4-unbalanced", 1_600),
    Program::Uneven(50),
    Program::Uneven(200),
    Program::Table("mely-5-penalty", 1_000),
    Program::Table("mely-6-cache-efficient", 300),
    Program::Chains(1_000),
    Program::Chains(5_000),
    Program::Chains(20_000),
    Program::Table("fan-in4096", 1_000),
    Program::Burst,
    Program::Web,
    Program::WebOfOnePoller,
];

/// What a program came to.
struct Told {
    events: u64,
    /// What handlers worked before it was counted.
    before: Duration,
    report: Report,
    remark: String,
}

/// A section for each program, on each number of cores.
///
/// # Errors
/// A run that was given up.
pub fn sections(setup: &Setup, cores: &[usize]) -> Result<String, String> {
    let mut text = String::new();
    for program in PROGRAMS {
        for &cores in cores {
            let told = program.run(setup, cores)?;
            let ns = told.report.ns;
            let worked: f64 = told.report.cores.iter().map(|core| core.worked_ns).sum();
            writeln!(
                text,
                "## {program:?}, {cores} cores: {:.0} K events/s, efficiency {:.2}{}\n",
                1e6 * told.events as f64 / ns,
                (worked - told.before.as_nanos() as f64) / (ns * cores as f64),
                told.remark,
            )
            .expect("a string takes everything");
            text += &costly(&told.report, told.events, LINES);
            text += "\n";
        }
    }
    Ok(text)
}

impl Program {
    fn run(self, setup: &Setup, cores: usize) -> Result<Told, String> {
        match self {
            Program::Table(table, each) => {
                let outcome = once(setup.clone(), table, "mely", cores, each * cores as u64)?;
                Ok(Told {
                    events: outcome.ran,
                    before: Duration::ZERO,
                    report: outcome.report,
                    remark: String::new(),
                })
            }
            Program::Uneven(us_max) => uneven(setup, cores, us_max),
            Program::Chains(ns) => chains(setup, cores, ns),
            Program::Burst => burst(setup, cores),
            Program::Web => web(setup, cores, cores as u64),
            Program::WebOfOnePoller => web(setup, cores, 1),
        }
    }
}

fn told(
    setup: &Setup,
    cores: usize,
    start: impl FnOnce(&mut Cx) + Send + 'static,
    events: impl FnOnce() -> u64,
) -> Result<Told, String> {
    let builder = Runtime::builder().cores(cores).exit_when_idle(true);
    // SAFETY: no program of these lends anything by a thread-local variable.
    let run = unsafe { builder.simulate_on(&setup.machine, setup.seed) };
    let mut run = run.map_err(|error| error.to_string())?;
    run.set_time_max(Duration::from_secs(60));
    if let Some(ns) = setup.ahead_ns {
        run.set_ahead_ns(ns);
    }
    let report = run.run(start).map_err(|error| error.to_string())?;
    Ok(Told {
        events: events(),
        before: Duration::ZERO,
        report,
        remark: String::new(),
    })
}

fn uneven(setup: &Setup, cores: usize, us_max: u64) -> Result<Told, String> {
    let (events, us_min) = (200 * cores as u64, us_max / 20);
    let start = move |cx: &mut Cx| {
        for number in 0..events {
            // Spread, the same for any number of cores.
            let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
            let took = Duration::from_micros(us_min + mixed % (us_max - us_min));
            cx.post(Color::from(1 + number), move |cx| {
                sim::work(cx, took);
                charge::count_to_here();
            });
        }
    };
    told(setup, cores, start, || events)
}

/// Runs chains for 8 ms, and until the event of each that runs or waits by then is over.
fn chains(setup: &Setup, cores: usize, ns: u64) -> Result<Told, String> {
    let all: Vec<_> = (0..4 * cores).map(|_| AtomicU64::new(0)).collect();
    let all = Arc::new(all);
    let chains = Arc::clone(&all);
    let start = move |cx: &mut Cx| {
        let end_ns = charge::now_ns().unwrap_or(0) + 8_000_000;
        for number in 0..chains.len() {
            let chains = Arc::clone(&chains);
            cx.post(color(number), move |cx| {
                chain(cx, chains, number, ns, end_ns)
            });
        }
    };
    let lengths = || all.iter().map(|length| length.load(Relaxed));
    let mut told = told(setup, cores, start, || lengths().sum())?;
    let share =
        |length: Option<u64>| length.unwrap_or(0) as f64 * all.len() as f64 / told.events as f64;
    told.remark = format!(
        " (the least chain ran {:.2} of the mean, the greatest {:.2})",
        share(lengths().min()),
        share(lengths().max()),
    );
    Ok(told)
}

/// Of a chain: not the color of what starts them.
fn color(chain: usize) -> Color {
    Color::from(1 + chain as u64)
}

fn chain(cx: &mut Cx, chains: Arc<Vec<AtomicU64>>, number: usize, ns: u64, end_ns: u64) {
    sim::work(cx, Duration::from_nanos(ns));
    chains[number].fetch_add(1, Relaxed);
    charge::count_to_here();
    if charge::now_ns().is_some_and(|now_ns| now_ns < end_ns) {
        cx.post(color(number), move |cx| {
            chain(cx, chains, number, ns, end_ns)
        });
    }
}

/// The colors below the number of pollers poll. Connections have those from the number of cores on;
/// with a poller for each core, they begin on that of theirs.
fn web(setup: &Setup, cores: usize, pollers: u64) -> Result<Told, String> {
    let (first, connections, requests) = (cores as u64, 16 * cores as u64, 20);
    let start = move |cx: &mut Cx| {
        for connection in first..first + connections {
            let poller = Color::from(connection % pollers);
            cx.post(poller, move |cx| poll(cx, poller, connection, requests));
        }
    };
    told(setup, cores, start, || {
        connections * u64::from(requests) * 4
    })
}

fn poll(cx: &mut Cx, poller: Color, connection: u64, left: u32) {
    sim::work(cx, Duration::from_nanos(200));
    let color = Color::from(connection);
    cx.post(color, move |cx| {
        sim::work(cx, Duration::from_nanos(2_500));
        cx.post(color, move |cx| {
            sim::work(cx, Duration::from_nanos(1_000));
            cx.post(color, move |cx| {
                sim::work(cx, Duration::from_nanos(3_500));
                charge::count_to_here();
                if left > 1 {
                    cx.post(poller, move |cx| poll(cx, poller, connection, left - 1));
                }
            });
        });
    });
}

fn burst(setup: &Setup, cores: usize) -> Result<Told, String> {
    let before = Duration::from_millis(2);
    let now_ns = || charge::now_ns().unwrap_or(0);
    // On which core, and when.
    let posted = Arc::new(Mutex::new((0, 0)));
    let first_ns = Arc::new(Mutex::new(vec![None; cores]));
    let (post, first) = (posted.clone(), first_ns.clone());
    let start = move |cx: &mut Cx| {
        // Meanwhile the others find nothing, and sleep.
        sim::work(cx, before);
        charge::count_from_here();
        *post.lock().expect("no panic") = (cx.core(), now_ns());
        for color in 1..=4 * cores as u64 {
            let first = first.clone();
            cx.post(Color::from(color), move |cx| {
                let core = cx.core();
                first.lock().expect("no panic")[core].get_or_insert(now_ns());
                sim::work(cx, Duration::from_micros(100));
                charge::count_to_here();
            });
        }
    };
    let mut told = told(setup, cores, start, || 4 * cores as u64)?;
    let first_ns = first_ns.lock().expect("no panic");
    let (core, posted_ns) = *posted.lock().expect("no panic");
    let slept = || {
        first_ns[..core]
            .iter()
            .chain(&first_ns[core + 1..])
            .flatten()
    };
    told.before = before;
    told.remark = format!(
        "; {} cores that slept got work, the last of them {} us after the post",
        slept().count(),
        (slept().max().copied().unwrap_or(posted_ns) - posted_ns) / 1_000,
    );
    Ok(told)
}
