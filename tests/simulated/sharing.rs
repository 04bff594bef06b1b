//! How evenly colors that go on and on are shared between cores, in the virtual time of simulated
//! runs.

use mely::runtime::Stealing;
use mely::sim::{self, Simulation};
use mely::{Color, Cx, Handler, Runtime};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

static SHORT: Handler = Handler::new("short").time(Duration::from_micros(2));

/// To where the first chain runs.
const END: u32 = 2_000;

/// How far each chain has come.
struct Race {
    lengths: Mutex<Vec<u32>>,
    /// One of them is at its end.
    ended: AtomicBool,
    /// The first chain starts the others when it has come so far; none: all are started.
    starts_others_at: Option<u32>,
}

impl Race {
    fn new(chains: usize, starts_others_at: Option<u32>) -> Arc<Race> {
        Arc::new(Race {
            lengths: Mutex::new(vec![0; chains]),
            ended: AtomicBool::new(false),
            starts_others_at,
        })
    }

    /// The longest and the shortest.
    fn ends(&self) -> (u32, u32) {
        let lengths = self.lengths.lock().unwrap();
        let (longest, shortest) = (lengths.iter().max(), lengths.iter().min());
        (*longest.unwrap(), *shortest.unwrap())
    }
}

/// An event of 2 us that posts the next of its chain, until one chain is at its end.
fn step(cx: &mut Cx, race: &Arc<Race>, chain: usize) {
    sim::work(cx, Duration::from_micros(2));
    let (length, chains) = {
        let mut lengths = race.lengths.lock().unwrap();
        lengths[chain] += 1;
        (lengths[chain], lengths.len())
    };
    if length == END {
        race.ended.store(true, Ordering::Relaxed);
    }
    if chain == 0 && Some(length) == race.starts_others_at {
        for other in 1..chains {
            start(cx, Color::from(2 * other as u64), race, other);
        }
    }
    if !race.ended.load(Ordering::Relaxed) {
        start(cx, cx.color(), race, chain);
    }
}

fn start(cx: &mut Cx, color: Color, race: &Arc<Race>, chain: usize) {
    let race = Arc::clone(race);
    SHORT.on(color, move |cx| step(cx, &race, chain)).post(cx);
}

fn simulation(seed: u64, cores: usize, stealing: Stealing) -> Simulation {
    let builder = Runtime::builder().cores(cores);
    let builder = builder.color_slots(8_192).stealing(stealing);
    builder.exit_when_idle(true).simulate(seed).unwrap()
}

/// This many chains that all start on the first core.
fn race(seed: u64, cores: usize, chains: usize, stealing: Stealing) -> (u32, u32) {
    let race = Race::new(chains, None);
    let all = Arc::clone(&race);
    simulation(seed, cores, stealing)
        .run(move |cx| {
            for chain in 0..chains {
                start(cx, Color::from((chain * cores) as u64), &all, chain);
            }
        })
        .unwrap();
    race.ends()
}

/// On two cores: one chain has the second to itself, and when it has come some way starts the
/// others on the first.
fn race_against_one(seed: u64, chains: usize) -> (u32, u32) {
    let race = Race::new(chains, Some(500));
    let all = Arc::clone(&race);
    simulation(seed, 2, Stealing::default())
        .run(move |cx| start(cx, Color::from(1), &all, 0))
        .unwrap();
    race.ends()
}

#[test]
fn chains_that_start_on_one_core_end_up_on_all() {
    for (cores, chains) in [(2, 4), (2, 100), (4, 16), (4, 100), (8, 64)] {
        // What many chains do is much the same for every seed, and takes long.
        let seeds = if chains >= 64 { 0..1 } else { 0..3 };
        for seed in seeds {
            let (longest, shortest) = race(seed, cores, chains, Stealing::default());
            // All of them are on the first core for the time it takes to see that they go on.
            assert!(
                shortest * 2 > longest,
                "seed {seed}, {chains} chains on {cores} cores: {longest} and {shortest}"
            );
        }
    }
}

#[test]
fn chains_are_shared_while_no_core_is_idle() {
    // All that are on the first core fit into one quantum: nobody ever sees them queued.
    for (chains, seed) in [(5, 0), (7, 0), (9, 1)] {
        let (longest, shortest) = race_against_one(seed, chains);
        assert!(
            shortest * 3 > longest,
            "{chains} chains: {longest} and {shortest}"
        );
    }
}

#[test]
fn an_idle_core_that_steals_once_is_not_enough() {
    // The papers' base algorithm: who has one chain is never idle again.
    let (longest, shortest) = race(0, 2, 100, Stealing::BASE);
    assert!(shortest * 10 < longest, "{longest} and {shortest}");
}
