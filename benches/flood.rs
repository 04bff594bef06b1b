//! What a flood from one source costs the others.
//! `cargo bench -p mely-bench --bench flood -- --help`
//!
//! One source posts as fast as it can to a color with a bound of `FLOOD_BOUND` events: a thread by
//! `post_wait`, or a task by `reserve`. Meanwhile `OTHERS` colors have one of these loads:
//! - *steady*: each has an event every `PERIOD`, by a timer. Its delay is from when it was due;
//! - *full*: each posts to itself, without an end. Its delay is from the event before it;
//! - *same*: as steady, and all of these events are of the flood's own color.
//!
//! Every event, the flood's as well, takes `WORK`. The share of the flood is what one more color
//! takes of a full load, and what waits before an event of its own color.

use mely::runtime::OnPanic;
use mely::state::Bounded;
use mely::task::with_cx;
use mely::{Color, Colored, Cx, Handler, Poster, Runtime};
use mely_bench::measure::Spread;
use mely_bench::options::Options;
use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const OTHERS: u64 = 16;
const PERIOD: Duration = Duration::from_micros(500);
const WORK: Duration = Duration::from_micros(1);
const FLOOD_BOUND: usize = 64;
const FLOOD: Color = Color::new(50);
/// Until then nothing is counted.
const WARM_UP: Duration = Duration::from_millis(50);

static OTHER: Handler = Handler::new("other");
static FLOODS: Handler = Handler::new("flood");

const HELP: &str = "\
Options, after `--`:
  --cores N      only on N cores
  --seconds S    how long to measure each figure, in all rounds together; 1 by default
  --rounds N     interleaved rounds of each figure; 7, or fewer if there is little time
  --help         this";

const OPTIONS: [&str; 3] = ["--cores", "--seconds", "--rounds"];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Load {
    Steady,
    Full,
    Same,
}

#[derive(Clone, Copy, Debug)]
enum Flood {
    None,
    Thread,
    Task,
}

/// What the events of the others, and of the flood, have come to.
#[derive(Default)]
struct Sums {
    delays_ns: Mutex<Vec<u64>>,
    flood: AtomicU64,
}

/// What a color of the others has seen; told when it is dropped.
struct Log {
    delays_ns: Vec<u64>,
    last: Duration,
    sums: Arc<Sums>,
}

impl Log {
    fn add(&mut self, delay: Duration, now: Duration) {
        if now > WARM_UP {
            self.delays_ns.push(delay.as_nanos() as u64);
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let mut all = self.sums.delays_ns.lock().expect("nobody panics");
        all.append(&mut self.delays_ns);
    }
}

fn work() {
    let begun = Instant::now();
    while begun.elapsed() < WORK {
        std::hint::spin_loop();
    }
}

fn tick(cx: &mut Cx, log: &Colored<Log>, due: Duration) {
    let next = log.clone();
    let event = log.on(&OTHER, move |log, cx| {
        let now = cx.now();
        log.add(now.saturating_sub(due), now);
        work();
        tick(cx, &next, due + PERIOD);
    });
    cx.timer(due.saturating_sub(cx.now()), event);
}

fn go_on(cx: &Cx, log: &Colored<Log>) {
    let next = log.clone();
    log.via(&OTHER).post(cx, move |log, cx| {
        let now = cx.now();
        log.add(now - log.last, now);
        log.last = now;
        work();
        if !cx.stopping() {
            go_on(cx, &next);
        }
    });
}

fn flood_event(sums: &Arc<Sums>) -> impl FnOnce(&mut Log, &mut Cx) + Send + use<> {
    let sums = Arc::clone(sums);
    move |_: &mut Log, cx: &mut Cx| {
        if cx.now() > WARM_UP {
            sums.flood.fetch_add(1, Relaxed);
        }
        work();
    }
}

fn begin_flood(cx: &mut Cx, kind: Flood, bounded: Bounded<Log>, sums: Arc<Sums>) {
    match kind {
        Flood::None => {}
        Flood::Thread => {
            let poster = cx.poster();
            thread::spawn(move || flood_by_thread(&poster, &bounded, &sums));
        }
        Flood::Task => {
            let post = async move {
                while !with_cx(|cx| cx.stopping()) {
                    let room = bounded.reserve().await;
                    let event = flood_event(&sums);
                    // At the end it is refused.
                    with_cx(|cx| drop(room.try_post(cx, event)));
                }
            };
            cx.spawn(Color::from(51), post);
        }
    }
}

fn flood_by_thread(poster: &Poster, bounded: &Bounded<Log>, sums: &Arc<Sums>) {
    let minute = Duration::from_secs(60);
    while bounded.post_wait(poster, minute, flood_event(sums)).is_ok() {}
}

/// Events of the others in a second, the median and the 99th percentile of their delays in ns, and
/// the flood's events in a second.
type Figures = [f64; 4];

fn run(cores: usize, load: Load, kind: Flood, time: Duration) -> Result<Figures, Box<dyn Error>> {
    let sums = Arc::new(Sums::default());
    let builder = Runtime::builder().on_panic(OnPanic::Stop).pin(true);
    let runtime = builder.cores(cores).build()?;
    let poster = runtime.poster();
    let log = |color| {
        let log = Log {
            delays_ns: Vec::new(),
            last: Duration::ZERO,
            sums: Arc::clone(&sums),
        };
        Colored::new(&poster, color, log)
    };
    let flood = log(FLOOD);
    let others: Vec<_> = (0..OTHERS)
        .map(|other| match load {
            Load::Same => flood.clone(),
            Load::Steady | Load::Full => log(Color::from(100 + other)),
        })
        .collect();
    let bounded = flood.via(&FLOODS).bounded(FLOOD_BOUND);
    let stops = poster.clone();
    thread::spawn(move || {
        thread::sleep(WARM_UP + time);
        stops.stop();
    });
    let its = Arc::clone(&sums);
    runtime.run(move |cx| {
        for (number, other) in (0..).zip(&others) {
            // Spread over the period.
            let due = cx.now() + PERIOD * number / OTHERS as u32;
            match load {
                Load::Steady | Load::Same => tick(cx, other, due),
                Load::Full => go_on(cx, other),
            }
        }
        begin_flood(cx, kind, bounded, its);
    })?;
    // The flooding thread has the last handle of its color for a moment longer.
    while Arc::strong_count(&sums) > 1 {
        thread::yield_now();
    }
    let mut delays_ns = std::mem::take(&mut *sums.delays_ns.lock().expect("nobody panics"));
    delays_ns.sort_unstable();
    let at = |part: f64| delays_ns[((delays_ns.len() - 1) as f64 * part) as usize] as f64;
    let per_second = |events: f64| events / time.as_secs_f64();
    Ok([
        per_second(delays_ns.len() as f64),
        at(0.5),
        at(0.99),
        per_second(sums.flood.load(Relaxed) as f64),
    ])
}

fn measure_all(options: &Options) -> Result<(), Box<dyn Error>> {
    let rounds = options.rounds();
    // Before a runtime pins anybody.
    mely_bench::machine::detect();
    let most = mely_bench::machine::cores().min(2);
    let all = match options.cores {
        Some(cores) if cores > most => {
            return Err(format!("--cores {cores}: at most {most}, here").into());
        }
        Some(cores) => cores..=cores,
        None => 1..=most,
    };
    let time = options.time() / rounds as u32;
    println!("| cores | load | flood | others, in 1 s | p50, us | p99, us | flood, in 1 s |");
    println!("|---|---|---|---|---|---|---|");
    for cores in all {
        for load in [Load::Steady, Load::Full, Load::Same] {
            let floods = [Flood::None, Flood::Thread, Flood::Task];
            let mut figures = floods.map(|_| [const { Vec::new() }; 4]);
            for _ in 0..rounds {
                for (kind, figures) in floods.iter().zip(&mut figures) {
                    let round = run(cores, load, *kind, time)?;
                    figures
                        .iter_mut()
                        .zip(round)
                        .for_each(|(all, one)| all.push(one));
                }
            }
            for (kind, figures) in floods.iter().zip(figures) {
                let [others, p50, p99, flood] = figures.map(|all| Spread::of(all).median);
                let (p50, p99) = (p50 / 1e3, p99 / 1e3);
                let name = format!("{cores} | {load:?} | {kind:?}");
                println!("| {name} | {others:.0} | {p50:.1} | {p99:.1} | {flood:.0} |");
            }
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match Options::from_args(std::env::args().skip(1), &OPTIONS) {
        Ok(Some(options)) => match measure_all(&options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        },
        Ok(None) => {
            println!("{HELP}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
