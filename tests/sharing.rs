//! How evenly colors that go on and on are shared between cores, in the virtual time of simulated runs.

use mely::sim;
use mely::{Color, Cores, Cx, Handler, Runtime, Stealing};
use std::sync::{Arc, Mutex};
use std::time::Duration;

static SHORT: Handler = Handler::new("short").time(Duration::from_nanos(50));

/// How far each chain has come, and to where the first one runs.
struct Race {
    lengths: Mutex<Vec<u32>>,
    end: u32,
}

/// An event of 50 ns that posts the next of its chain, until one chain is at its end.
fn step(cx: &mut Cx, race: &Arc<Race>, chain: usize) {
    sim::work(cx, Duration::from_nanos(50));
    let ended = {
        let mut lengths = race.lengths.lock().unwrap();
        lengths[chain] += 1;
        lengths.contains(&race.end)
    };
    if !ended {
        let next = Arc::clone(race);
        cx.post_callback(SHORT.on(cx.color(), move |cx: &mut Cx| step(cx, &next, chain)));
    }
}

/// So many chains that all start on the first core. The longest and the shortest when one is at its end.
fn race(seed: u64, cores: usize, chains: usize, stealing: Stealing) -> (u32, u32) {
    let builder = Runtime::builder().cores(Cores::count(cores));
    let builder = builder.color_slots(8_192).stealing(stealing);
    let mut simulation = builder.exit_when_idle(true).simulate(seed).unwrap();
    let race = Arc::new(Race {
        lengths: Mutex::new(vec![0; chains]),
        end: 3_000,
    });
    let all = Arc::clone(&race);
    simulation
        .run(move |cx| {
            for chain in 0..chains {
                let color = Color::from((chain * cores) as u64);
                let race = Arc::clone(&all);
                cx.post_callback(SHORT.on(color, move |cx: &mut Cx| step(cx, &race, chain)));
            }
        })
        .unwrap();
    let lengths = race.lengths.lock().unwrap();
    (
        *lengths.iter().max().unwrap(),
        *lengths.iter().min().unwrap(),
    )
}

#[test]
fn chains_that_start_on_one_core_end_up_on_all() {
    for (cores, chains) in [(2, 4), (2, 100), (4, 16), (4, 100), (8, 64)] {
        for seed in 0..3 {
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
fn an_idle_core_that_steals_once_is_not_enough() {
    // The papers' base algorithm: who has one chain is never idle again.
    let (longest, shortest) = race(0, 2, 100, Stealing::BASE);
    assert!(shortest * 10 < longest, "{longest} and {shortest}");
}
