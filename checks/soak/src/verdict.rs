//! The end of a soak that found something.

use mely::Poster;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What the round that is going on is, for whoever has to report it.
#[derive(Debug)]
struct Now {
    seed: u64,
    draw: String,
    phase: &'static str,
    begun: Instant,
    posters: Vec<Poster>,
}

static NOW: Mutex<Option<Now>> = Mutex::new(None);
static FAILED: AtomicBool = AtomicBool::new(false);

/// Panics of handlers since the process began, as its panic hook saw them.
pub(crate) static PANICS: AtomicU64 = AtomicU64::new(0);

/// What a planted panic says.
pub(crate) const PLANTED: &str = "planted";

pub(crate) fn round_begins(seed: u64, draw: String) {
    *NOW.lock().unwrap() = Some(Now {
        seed,
        draw,
        phase: "building",
        begun: Instant::now(),
        posters: Vec::new(),
    });
}

pub(crate) fn phase(phase: &'static str) {
    if let Some(now) = &mut *NOW.lock().unwrap() {
        now.phase = phase;
    }
}

/// Whose counters to print if the round hangs.
pub(crate) fn watch(poster: Poster) {
    if let Some(now) = &mut *NOW.lock().unwrap() {
        now.posters.push(poster);
    }
}

/// Lets go of the posters: what they lead to must be freed for the round to end well.
pub(crate) fn unwatch() {
    let posters = NOW
        .lock()
        .unwrap()
        .as_mut()
        .map(|now| std::mem::take(&mut now.posters));
    drop(posters);
}

/// A promise was broken: says so, with all that is known, and ends the process.
pub(crate) fn fail(what: &str) -> ! {
    // One voice: what others find in the same round comes of the same.
    if FAILED.swap(true, Ordering::SeqCst) {
        loop {
            std::thread::park();
        }
    }
    eprintln!("VIOLATION: {what}");
    report();
    std::process::exit(1);
}

fn report() {
    let Ok(now) = NOW.try_lock() else { return };
    let Some(now) = &*now else { return };
    let Now {
        seed,
        draw,
        phase,
        begun,
        posters,
    } = now;
    eprintln!("seed {seed}, {phase} after {:?}\n{draw}", begun.elapsed());
    for (runtime, poster) in posters.iter().enumerate() {
        let stats = poster.stats();
        eprintln!("runtime {runtime}: {} foreign posts", stats.posts_foreign);
        for (core, stats) in stats.cores.iter().enumerate() {
            let steals: u64 = stats.steals.iter().map(|steals| steals.won).sum();
            eprintln!(
                "  core {core}: {} events, {} posts here, {} elsewhere, {} quanta, {} colors and {} \
                 events queued, {steals} steals, {} parks, {} wakes, {} panics",
                stats.events,
                stats.posts_local,
                stats.posts_remote,
                stats.quanta,
                stats.colors_queued,
                stats.events_queued,
                stats.parks,
                stats.wakes,
                stats.panics,
            );
        }
    }
    eprintln!("again: cargo run --release -p mely-soak -- --seed {seed} --rounds 1");
}

/// Ends the process when a round takes longer than this; one thread, for good.
pub(crate) fn start_watchdog(patience: Duration) {
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(patience.min(Duration::from_secs(1)));
            let begun = NOW.lock().unwrap().as_ref().map(|now| now.begun);
            if begun.is_some_and(|begun| begun.elapsed() > patience)
                && !FAILED.swap(true, Ordering::SeqCst)
            {
                eprintln!("VIOLATION: the round hangs");
                report();
                std::process::abort();
            }
        }
    });
}

/// Panics that were planted are counted and not printed; any other is a violation, also if the
/// runtime would catch it.
pub(crate) fn set_panic_hook() {
    std::panic::set_hook(Box::new(|info| {
        let text = info.payload_as_str().unwrap_or("(not text)");
        if text == PLANTED || text == mely::Reason::Poisoned.to_string() {
            PANICS.fetch_add(1, Ordering::Relaxed);
        } else {
            fail(&format!("a panic: {info}"));
        }
    }));
}
