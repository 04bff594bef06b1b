//! Round after round.

use crate::draw::Draw;
use crate::options::Options;
use crate::round::{self, Sums};
use crate::verdict;
use mely::net::Backend;
use mely::{RunError, Runtime};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const SPEAKS_EVERY: Duration = Duration::from_secs(5);

pub(crate) fn run(options: &Options) -> ExitCode {
    let backends = backends(options);
    verdict::set_panic_hook();
    verdict::start_watchdog(options.patience);
    println!("seed {}, on {backends:?}", options.seed);
    let begun = Instant::now();
    let mut spoken = begun;
    let mut sums = Sums::default();
    while begun.elapsed() < options.time && sums.rounds < options.rounds {
        let seed = options.seed.wrapping_add(sums.rounds);
        round::run(Draw::new(seed, &backends), options.plant, &mut sums);
        if spoken.elapsed() >= SPEAKS_EVERY {
            spoken = Instant::now();
            println!("{}", line(&sums, begun.elapsed(), options.seed));
        }
    }
    println!("{}", line(&sums, begun.elapsed(), options.seed));
    println!("no violation");
    ExitCode::SUCCESS
}

fn line(sums: &Sums, time: Duration, first: u64) -> String {
    let Sums {
        rounds,
        events,
        steals,
        panics,
        refused,
        left,
        connections,
    } = sums;
    format!(
        "{:4.0} s: seeds {first} to {}: {rounds} rounds, {events} events, {steals} steals, \
         {panics} panics, {refused} posts refused, {left} events left, {connections} connections",
        time.as_secs_f64(),
        first.wrapping_add(rounds.saturating_sub(1)),
    )
}

/// What was asked for, or what this machine has.
pub(crate) fn backends(options: &Options) -> Vec<Backend> {
    if let Some(backend) = &options.backend {
        return vec![backend.clone()];
    }
    let works = |choice: &Backend| {
        let builder = Runtime::builder().cores(1);
        let built = builder.backend(choice.clone()).build();
        match built.map(|runtime| runtime.run(|cx| cx.stop())) {
            Ok(Ok(())) => true,
            Ok(Err(RunError::Start(error))) => {
                println!("left out: {error}");
                false
            }
            other => panic!("{other:?}"),
        }
    };
    [Backend::IoUring, Backend::Epoll]
        .into_iter()
        .filter(works)
        .collect()
}
