//! Finds a planted bug in a small colored program, and replays it from its seed.
//!
//! ```text
//! cargo run --example find_bug                      # tries seeds until one fails, then replays it
//! MELY_SIM_TRACE=1 cargo run --example find_bug -- 3  # that seed alone, event by event
//! ```
//!
//! A hall with a few seats is a color, and so is each customer. Colors make a data race impossible,
//! but not a mistake *between* events: `buy_blindly` asks for the seats left in one event of the
//! hall and takes a seat in a later one, and in between others do the same. On threads that goes
//! well nearly always. The simulation tries other orders, and what it found once it finds again.

use mely::{Color, Colored, Cx, Handler, Runtime, sim};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SEATS: usize = 3;
const CUSTOMERS: u64 = 4;

static COME: Handler = Handler::new("come");
static ASK: Handler = Handler::new("ask");
static ANSWER: Handler = Handler::new("answer");
static TAKE: Handler = Handler::new("take");

struct Hall {
    left: usize,
    /// Who has bought a seat: what the test looks at.
    sold: Arc<Mutex<Vec<Color>>>,
}

type Buy = fn(&Colored<Hall>, &mut Cx);

/// The planted bug: looks in one event, acts in another.
fn buy_blindly(hall: &Colored<Hall>, cx: &mut Cx) {
    let customer = cx.color();
    let same_hall = hall.clone();
    hall.via(&ASK).post(cx, move |hall, cx| {
        let left = hall.left;
        let answer = move |cx: &mut Cx| {
            // The customer thinks.
            sim::work(cx, Duration::from_nanos(300));
            if left > 0 {
                same_hall.via(&TAKE).post(cx, move |hall, _cx| {
                    hall.left = hall.left.saturating_sub(1);
                    hall.sold.lock().unwrap().push(customer);
                });
            }
        };
        ANSWER.on(customer, answer).post(cx);
    });
}

/// As it should be: looks and acts in one event.
fn buy(hall: &Colored<Hall>, cx: &mut Cx) {
    let customer = cx.color();
    hall.via(&TAKE).post(cx, move |hall, _cx| {
        if hall.left > 0 {
            hall.left -= 1;
            hall.sold.lock().unwrap().push(customer);
        }
    });
}

/// Runs the program from a seed; returns the seats sold, and what stands for the run.
fn seats_sold(seed: u64, buy: Buy) -> Result<(usize, u64), Box<dyn std::error::Error>> {
    let builder = Runtime::builder().cores(4);
    let mut simulation = builder
        .color_slots(256)
        .exit_when_idle(true)
        .simulate(seed)?;
    let sold = Arc::new(Mutex::new(Vec::new()));
    let ledger = Arc::clone(&sold);
    simulation.run(move |cx| {
        let hall = Hall {
            left: SEATS,
            sold: ledger,
        };
        let hall = Colored::new(cx, Color::from(1), hall);
        for customer in 0..CUSTOMERS {
            let hall = hall.clone();
            let come = move |cx: &mut Cx| buy(&hall, cx);
            // One after the other.
            let after = Duration::from_micros(6 * customer);
            cx.timer(after, COME.on(Color::from(10 + customer), come));
        }
    })?;
    let sold = sold.lock().unwrap().len();
    Ok((sold, simulation.fingerprint()))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Some(seed) = std::env::args().nth(1) {
        let (sold, _) = seats_sold(seed.parse()?, buy_blindly)?;
        println!("seed {seed}: {sold} of {SEATS} seats sold");
        return Ok(());
    }
    find()
}

/// Tries seeds until one fails, and replays that.
fn find() -> Result<(), Box<dyn std::error::Error>> {
    for seed in 0..10_000 {
        let (sold, run) = seats_sold(seed, buy_blindly)?;
        if sold <= SEATS {
            continue;
        }
        println!("seed {seed}: {sold} of {SEATS} seats sold, after {seed} runs that went well");
        let (again, same_run) = seats_sold(seed, buy_blindly)?;
        assert_eq!((again, same_run), (sold, run), "a seed is a run");
        println!("replayed: {again} seats sold, event by event the same run");
        println!("to see it: MELY_SIM_TRACE=1 cargo run --example find_bug -- {seed}");
        for seed in 0..1_000 {
            let (sold, _) = seats_sold(seed, buy)?;
            assert_eq!(sold, SEATS, "seed {seed} of the program as it should be");
        }
        println!("as it should be, in one event: right in 1,000 runs");
        return Ok(());
    }
    Err("no seed found the bug".into())
}

#[cfg(test)]
mod tests {
    #[test]
    fn finds_and_replays_it() {
        super::find().unwrap();
    }
}
