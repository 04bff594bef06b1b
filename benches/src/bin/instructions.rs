//! Instructions per event, exactly: runs itself twice under valgrind's callgrind, with two numbers
//! of events, and divides the difference, so that start-up and shutdown cancel.
//!
//! ```text
//! cargo run --release -p mely-bench --bin instructions             all tables, as Markdown
//! cargo run --release -p mely-bench --bin instructions -- chain16  some
//! cargo run --release -p mely-bench --bin instructions -- tasks    mely's tasks beside tokio's
//! ```
//!
//! **Time under valgrind.** A run is some fifty times slower there, and a runtime that measures its
//! handlers would take them for long and treat them as such. So this binary brings a clock of its
//! own, which moves by [`TICK_NS`] whenever it is read: an empty handler that is timed takes one
//! tick, as it does on a real clock. The counts become deterministic by it; what they leave out is
//! the real clock's own instructions, once per sampled event. The watchdog, a thread that looks at
//! the cores twice a millisecond, is left out: by such a clock it would look without end.
//!
//! To see where they go, run one workload under callgrind yourself:
//!
//! ```text
//! valgrind --tool=callgrind --dump-instr=yes \
//!     target/release/instructions --count chain16 --closure 24 --scheduler mely --events 1000000
//! callgrind_annotate --auto=yes callgrind.out.*
//! ```
//!
//! Of tasks: `--count-tasks yield-1 --host mely-one --batches 10`.

use mely_bench::run::Which;
use mely_bench::shape::Shape;
use mely_bench::tasks::{self, Until};
use mely_bench::{machine, rows, schedulers, workloads};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What reading the real clock takes.
const TICK_NS: u64 = 25;

/// The C library's `struct timespec` on 64-bit Linux.
#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

/// Stands in for the C library's, which the standard library reads time through; see the module
/// text.
///
/// # Safety
/// As for the C library's: `time` may be written to.
// SAFETY: meant to take the place of the symbol, and has its signature.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(_clock: i32, time: *mut Timespec) -> i32 {
    static NOW_NS: AtomicU64 = AtomicU64::new(0);
    let now_ns = NOW_NS.fetch_add(TICK_NS, Relaxed);
    // SAFETY: the caller's promise.
    unsafe {
        time.write(Timespec {
            seconds: (now_ns / 1_000_000_000) as i64,
            nanoseconds: (now_ns % 1_000_000_000) as i64,
        });
    }
    0
}

/// One core's tables.
const TABLES: [&str; 8] = [
    "chain1",
    "chain16",
    "chain1000",
    "hop16",
    "hop1000",
    "ping-pong",
    "fresh50000",
    "scattered50000",
];
/// Of closures, in bytes.
const CLOSURES: [&str; 2] = ["24", "64"];
const SCHEDULERS: [&str; 2] = ["boxes", "mely"];
/// Rows of tasks, who runs them, and how many batches.
const TASK_ROWS: [&str; 12] = [
    "spawn-join-8",
    "spawn-join-64",
    "spawn-join-200",
    "spawn-detached-8",
    "yield-1",
    "yield-16",
    "ping-pong-notify",
    "ping-pong-mpsc",
    "channel",
    "chain",
    "relay",
    "relay-bounded",
];
const TASK_HOSTS: [&str; 3] = ["tokio-current", "mely-one", "mely-each"];
const BATCHES: [u64; 2] = [10, 40];
/// Far beyond what the first samples of a handler decide, and whole rounds of every workload.
const EVENTS: [u64; 2] = [500_000, 1_500_000];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        [
            "--count",
            table,
            "--closure",
            bytes,
            "--scheduler",
            scheduler,
            "--events",
            events,
        ] => count(table, bytes, scheduler, events),
        ["--count-tasks", row, "--host", host, "--batches", batches] => {
            count_tasks(row, host, batches).map(|operations| println!("{operations}"))
        }
        ["tasks"] => tabulate_tasks(),
        _ if arguments.iter().any(|a| a.starts_with('-')) => {
            Err("usage: instructions [TABLE...]\n       \
             instructions --count TABLE --closure BYTES --scheduler NAME --events N\n       \
             instructions tasks\n       \
             instructions --count-tasks ROW --host NAME --batches N"
                .to_owned())
        }
        [] => tabulate(&TABLES),
        _ => tabulate(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs this many events on one core.
fn count(table: &str, bytes: &str, scheduler: &str, events: &str) -> Result<(), String> {
    let shape = shape(bytes)?;
    let workload = rows::workload(table, Which::Itself, shape, 1)
        .ok_or(format!("no table `{table}` of {bytes} bytes on one core"))?;
    workloads::set_closure_bytes(shape);
    let scheduler = schedulers::find(scheduler).ok_or(format!("no scheduler `{scheduler}`"))?;
    let events = events.parse().map_err(|_| format!("events: {events}"))?;
    schedulers::NO_WATCHDOG.store(true, Relaxed);
    let world = workload.world(events, 1);
    scheduler.run(workload, world, 1)?;
    world.verdict().map(drop)
}

fn shape(bytes: &str) -> Result<Shape, String> {
    Ok(Shape {
        closure_bytes: Shape::closure_of(bytes)?,
        ..Shape::default()
    })
}

fn tabulate(tables: &[&str]) -> Result<(), String> {
    let exists = |table: &str| {
        let has = |bytes| rows::workload(table, Which::Itself, shape(bytes).ok()?, 1);
        CLOSURES.into_iter().find_map(has).is_some()
    };
    if let Some(table) = tables.iter().find(|table| !exists(table)) {
        let all: Vec<_> = rows::tables().map(|table| table.name).collect();
        let all: Vec<_> = all.into_iter().filter(|table| exists(table)).collect();
        return Err(format!(
            "no table `{table}` on one core; there are {}",
            all.join(", ")
        ));
    }
    println!("| table | bytes | {} | ratio |", SCHEDULERS.join(" | "));
    println!("|---|---|{}---|", "---|".repeat(SCHEDULERS.len()));
    let rows = tables
        .iter()
        .flat_map(|table| CLOSURES.map(|bytes| (table, bytes)));
    for (table, bytes) in rows {
        // Some tables have closures of one size.
        if rows::workload(table, Which::Itself, shape(bytes)?, 1).is_none() {
            continue;
        }
        let mut per_event = Vec::new();
        for scheduler in SCHEDULERS {
            let [few, many] = EVENTS.map(|events| {
                let events = events.to_string();
                let arguments = [
                    "--count",
                    table,
                    "--closure",
                    bytes,
                    "--scheduler",
                    scheduler,
                    "--events",
                    &events,
                ];
                under_valgrind(&arguments).map(|(instructions, _)| instructions)
            });
            per_event.push((many? - few?) as f64 / (EVENTS[1] - EVENTS[0]) as f64);
        }
        let cells: Vec<String> = per_event.iter().map(|n| format!("{n:.1}")).collect();
        let ratio = per_event[1] / per_event[0];
        println!("| {table} | {bytes} | {} | {ratio:.2} |", cells.join(" | "));
    }
    Ok(())
}

/// Does a row's batches on one core; how many operations that were.
fn count_tasks(row: &str, host: &str, batches: &str) -> Result<u64, String> {
    let batches = batches.parse().map_err(|_| format!("batches: {batches}"))?;
    schedulers::NO_WATCHDOG.store(true, Relaxed);
    machine::detect();
    tasks::run(row, host, 1, Until::Batches(batches)).map(|run| run.operations)
}

fn tabulate_tasks() -> Result<(), String> {
    println!("| row | {} |", TASK_HOSTS.join(" | "));
    println!("|---|{}", "---|".repeat(TASK_HOSTS.len()));
    for row in TASK_ROWS {
        let mut cells = Vec::new();
        for host in TASK_HOSTS {
            if !tasks::runs(row, host) {
                cells.push("-".to_owned());
                continue;
            }
            let [few, many] = BATCHES.map(|batches| {
                let batches = batches.to_string();
                under_valgrind(&["--count-tasks", row, "--host", host, "--batches", &batches])
            });
            let ((few, few_done), (many, many_done)) = (few?, many?);
            let done = |text: &str| text.trim().parse::<u64>().map_err(|_| text.to_owned());
            let operations = done(&many_done)? - done(&few_done)?;
            cells.push(format!("{:.1}", (many - few) as f64 / operations as f64));
        }
        println!("| {row} | {} |", cells.join(" | "));
    }
    Ok(())
}

/// Instructions of a whole run of this program, and what it printed.
fn under_valgrind(arguments: &[&str]) -> Result<(u64, String), String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(this)
        .args(arguments)
        // One that valgrind knows; neither is used for anything but sleeping here.
        .env("MELY_BACKEND", "epoll")
        .output()
        .map_err(|error| format!("cannot run valgrind: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{}: {text}", arguments.join(" ")));
    }
    // "==pid== Collected : 123456"
    let count = text
        .lines()
        .find_map(|line| line.split_once("Collected :"))
        .and_then(|(_, count)| count.trim().parse().ok())
        .ok_or_else(|| format!("no count in what valgrind said: {text}"))?;
    Ok((count, String::from_utf8_lossy(&output.stdout).into_owned()))
}
