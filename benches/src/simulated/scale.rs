//! mely on 16, 64 and 128 cores: what it does, and which lines cost most.

use super::{Setup, costly, once};
use mely::sim::{self, machine::Report};
use mely::{Color, Cores, Cx, Runtime};
use mely_hardware::charge;
use std::fmt::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Lines that are told of each.
const LINES: usize = 10;

/// What is run.
#[derive(Clone, Copy, Debug)]
enum Program {
    /// A table of the benches, and its events a core.
    Table(&'static str, u64),
    /// Four chains a core that share nothing but the handler, for 8 ms; what an event takes, in ns.
    Chains(u64),
    /// All cores but one sleep; then a handler posts four colors for each, of an event of 100 us.
    Burst,
    /// A web server's flow, for 16 connections a core: one color polls, those of the connections
    /// read, parse and write, and ask the first one for more.
    Web,
}

const PROGRAMS: [Program; 9] = [
    Program::Table("mely-3-4-unbalanced", 1_600),
    Program::Table("mely-5-penalty", 1_000),
    Program::Table("mely-6-cache-efficient", 300),
    Program::Chains(1_000),
    Program::Chains(5_000),
    Program::Chains(20_000),
    Program::Table("fan-in4096", 1_000),
    Program::Burst,
    Program::Web,
];

/// What a program came to.
struct Told {
    events: u64,
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
                worked / (ns * cores as f64),
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
                    report: outcome.report,
                    remark: String::new(),
                })
            }
            Program::Chains(ns) => {
                // 8 ms for each core: at first the chains are all on one of them.
                let (chains, length) = (4 * cores as u64, 2_000_000 / ns as u32);
                let start = move |cx: &mut Cx| {
                    for color in 1..=chains {
                        cx.post(Color::from(color), move |cx| chain(cx, color, ns, length));
                    }
                };
                told(setup, cores, chains * u64::from(length), start)
            }
            Program::Burst => burst(setup, cores),
            Program::Web => {
                let (connections, requests) = (16 * cores as u64, 20);
                let start = move |cx: &mut Cx| {
                    for connection in 1..=connections {
                        cx.post(POLLER, move |cx| poll(cx, connection, requests));
                    }
                };
                told(setup, cores, connections * u64::from(requests) * 4, start)
            }
        }
    }
}

fn told(
    setup: &Setup,
    cores: usize,
    events: u64,
    start: impl FnOnce(&mut Cx) + Send + 'static,
) -> Result<Told, String> {
    let builder = Runtime::builder()
        .cores(Cores::Count(cores))
        .exit_when_idle(true);
    let run = builder.simulate_on(&setup.machine, setup.seed);
    let mut run = run.map_err(|error| error.to_string())?;
    run.set_time_max(Duration::from_secs(60));
    if let Some(ns) = setup.ahead_ns {
        run.set_ahead_ns(ns);
    }
    let report = run.run(start).map_err(|error| error.to_string())?;
    Ok(Told {
        events,
        report,
        remark: String::new(),
    })
}

fn chain(cx: &mut Cx, color: u64, ns: u64, left: u32) {
    sim::work(cx, Duration::from_nanos(ns));
    if left > 1 {
        cx.post(Color::from(color), move |cx| chain(cx, color, ns, left - 1));
    }
}

const POLLER: Color = Color::DEFAULT;

fn poll(cx: &mut Cx, connection: u64, left: u32) {
    sim::work(cx, Duration::from_nanos(200));
    let color = Color::from(connection);
    cx.post(color, move |cx| {
        sim::work(cx, Duration::from_nanos(2_500));
        cx.post(color, move |cx| {
            sim::work(cx, Duration::from_nanos(1_000));
            cx.post(color, move |cx| {
                sim::work(cx, Duration::from_nanos(3_500));
                if left > 1 {
                    cx.post(POLLER, move |cx| poll(cx, connection, left - 1));
                }
            });
        });
    });
}

fn burst(setup: &Setup, cores: usize) -> Result<Told, String> {
    let now_ns = || charge::now_ns().unwrap_or(0);
    let posted_ns = Arc::new(Mutex::new(0));
    let first_ns = Arc::new(Mutex::new(vec![None; cores]));
    let (posted, first) = (posted_ns.clone(), first_ns.clone());
    let start = move |cx: &mut Cx| {
        // Meanwhile the others find nothing, and sleep.
        sim::work(cx, Duration::from_millis(2));
        charge::count_from_here();
        *posted.lock().expect("no panic") = now_ns();
        for color in 1..=4 * cores as u64 {
            let first = first.clone();
            cx.post(Color::from(color), move |cx| {
                let core = cx.core();
                first.lock().expect("no panic")[core].get_or_insert(now_ns());
                sim::work(cx, Duration::from_micros(100));
            });
        }
    };
    let mut told = told(setup, cores, 4 * cores as u64, start)?;
    let first_ns = first_ns.lock().expect("no panic");
    let last_ns = first_ns.iter().flatten().max().copied().unwrap_or(0);
    let busy = first_ns.iter().flatten().count();
    told.remark = format!(
        " (with the 2 ms before); {busy} cores got work, the last of them {} us after the post",
        (last_ns - *posted_ns.lock().expect("no panic")) / 1_000,
    );
    Ok(told)
}
