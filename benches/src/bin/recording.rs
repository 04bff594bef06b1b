//! What recording a run costs, per event: the same events with and without, by turns.
//!
//! ```text
//! cargo run --release -p mely-bench --bin recording [FOLDER]
//! ```
//!
//! Handlers of 0 and of 1 us, which each post the next one to their own color (`chain`) or to
//! another (`hop`), on one core and on all. The files are written to FOLDER, by default that of
//! temporary files.

use mely::runtime::OnPanic;
use mely::{Color, Cx, Runtime};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Colors of each core.
const COLORS: u64 = 16;
/// Events of each color.
const EVENTS: u64 = 20_000;
/// Runs of each sort.
const RUNS: usize = 9;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let folder = match &arguments[..] {
        [] => std::env::temp_dir(),
        [folder] if Path::new(folder).is_dir() => PathBuf::from(folder),
        _ => {
            eprintln!("recording: {arguments:?}: one folder that exists, or nothing");
            return ExitCode::from(2);
        }
    };
    let file = folder.join(format!("mely-bench-{}.rec", std::process::id()));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let turns = turns_per_us();
    println!("| | cores | ns an event | recorded | more | bytes an event |");
    println!("|---|---|---|---|---|---|");
    for (work_us, hop) in [(0, false), (0, true), (1, false), (1, true)] {
        for cores in [1, cores] {
            let run = |record| run(cores, work_us * turns, hop, record);
            let mut ns = [Vec::new(), Vec::new()];
            let mut bytes = 0;
            for _ in 0..RUNS {
                ns[0].push(run(None).0);
                let (recorded_ns, its_bytes) = run(Some(&file));
                ns[1].push(recorded_ns);
                bytes = its_bytes;
            }
            let [plain, recorded] = ns.map(median);
            let name = if hop { "hop" } else { "chain" };
            let events = COLORS * cores as u64 * EVENTS;
            println!(
                "| {name} of {work_us} us | {cores} | {plain:.1} | {recorded:.1} | {:.1} ({:.1} %) | {:.1} |",
                recorded - plain,
                (recorded - plain) * 100.0 / plain,
                bytes as f64 / events as f64,
            );
        }
    }
    // Nobody needs it.
    let _ = std::fs::remove_file(file);
    ExitCode::SUCCESS
}

/// One turn of the loop that stands for work.
#[inline(always)]
fn turn(x: u64) -> u64 {
    std::hint::black_box(x.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ x >> 7)
}

fn work(turns: u64) -> u64 {
    (0..turns).fold(1, |x, _| turn(x))
}

fn turns_per_us() -> u64 {
    const TURNS: u64 = 10_000;
    let once = || {
        let began = Instant::now();
        std::hint::black_box(work(TURNS));
        began.elapsed()
    };
    let least = (0..100)
        .map(|_| once())
        .min()
        .unwrap_or(Duration::from_micros(1));
    (u128::from(TURNS) * 1_000 / least.as_nanos().max(1)) as u64
}

fn go(cx: &mut Cx, left: u64, turns: u64, hop: bool) {
    std::hint::black_box(work(turns));
    if left > 0 {
        let (color, colors) = (cx.color().value(), COLORS);
        let next = if hop {
            // Of the same core: small values go round the cores.
            color / colors * colors + (color + 1) % colors
        } else {
            color
        };
        cx.post(Color::from(next), move |cx| go(cx, left - 1, turns, hop));
    }
}

/// Runs; ns an event and core, and the bytes of the recording.
fn run(cores: usize, turns: u64, hop: bool, record: Option<&Path>) -> (f64, u64) {
    let mut builder = Runtime::builder()
        .on_panic(OnPanic::Stop)
        .cores(cores)
        .pin(true)
        .exit_when_idle(true);
    if let Some(file) = record {
        builder = builder.record(file, 1 << 30);
    }
    let runtime = builder.build().expect("cores and a file");
    let observer = runtime.poster();
    let began = Instant::now();
    runtime
        .run(move |cx| {
            for color in 0..COLORS * cores as u64 {
                cx.post(Color::from(color + COLORS), move |cx| {
                    go(cx, EVENTS - 1, turns, hop)
                });
            }
        })
        .expect("it ends");
    let took = began.elapsed().as_nanos() as f64;
    let bytes = observer
        .stats()
        .recording
        .map_or(0, |recording| recording.bytes);
    (took / (COLORS * EVENTS) as f64, bytes)
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}
