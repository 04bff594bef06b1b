//! Holds that end by callbacks.

use super::{HELD, Log, OTHER, simulate};
use mely::runtime::{OnPanic, Stealing};
use mely::task::JoinError;
use mely::{Color, Cx, Handler, Runtime};
use std::time::Duration;

/// Blocking work, a reply and a timer each end a hold of the color that they are for.
#[test]
fn callbacks_that_resume_do_not_wait_for_their_own_hold() {
    for seed in 0..30 {
        let log = Log::default();
        let all = log.clone();
        simulate(seed, 2, move |cx| {
            let [asked, blocked, timed] = [(); 3].map(|()| cx.hold());
            cx.post(HELD, all.event("waited"));
            let its = all.clone();
            let after = timed.on(move |cx| its.add(format!("timer in {}", cx.color())));
            cx.timer(Duration::from_micros(50), after);
            let its = all.clone();
            let worked = blocked.on_value(move |cx, sum: Result<u32, JoinError>| {
                its.add(format!("blocking {} in {}", sum.unwrap(), cx.color()));
            });
            cx.try_blocking(|| 7).unwrap().then(cx, worked);
            let its = all.clone();
            let replied = asked.on_value(move |cx, reply: Result<u32, JoinError>| {
                its.add(format!("reply {} in {}", reply.unwrap(), cx.color()));
            });
            cx.ask(OTHER, |_cx| 8).then(cx, replied);
        });
        // In the order of the holds, whichever was ready first.
        log.assert(&["reply 8 in 7", "blocking 7 in 7", "timer in 7", "waited"]);
    }
}

/// No other core is needed for it.
#[test]
fn a_callback_that_resumes_runs_on_the_core_of_the_hold() {
    for core in 0..2 {
        let builder = Runtime::builder().cores(2);
        let builder = builder.stealing(Stealing::OFF).exit_when_idle(true);
        let mut simulation = builder.simulate(core).unwrap();
        let held = Color::from(core);
        let first = move |cx: &mut Cx| {
            assert_eq!(cx.core() as u64, core);
            for _ in 0..100 {
                let resumes = cx.hold().on(|_cx| ());
                cx.timer(Duration::from_micros(10), resumes);
            }
        };
        simulation.run(move |cx| cx.post(held, first)).unwrap();
        let other = &simulation.stats().cores[1 - core as usize];
        assert!(other.events < 10, "{}", other.events);
    }
}

#[test]
fn a_hold_is_resumed_by_a_callback_of_its_color() {
    static ANSWER: Handler = Handler::new("answer");
    let log = Log::default();
    let (all, told) = (log.clone(), log.clone());
    let builder = Runtime::builder().on_panic(OnPanic::DropEvent);
    let builder = builder.panic_hook(move |report| told.add(&report.message));
    let builder = builder.cores(1).exit_when_idle(true);
    let mut simulation = builder.simulate(0).unwrap();
    let first = move |cx: &mut Cx| {
        let [hold, another] = [(); 2].map(|()| cx.hold());
        cx.post(HELD, all.event("waited"));
        cx.post(OTHER, move |_cx| {
            let answer = move |cx: &mut Cx| all.add(format!("{} in {}", cx.handler(), cx.color()));
            hold.resume_callback(ANSWER.on(HELD, answer));
            another.resume_callback(ANSWER.on(OTHER, |_cx| ()));
        });
    };
    simulation.run(move |cx| cx.post(HELD, first)).unwrap();
    let refused = "a callback of color 8 resumes a hold of color 7";
    log.assert(&[refused, "answer in 7", "waited"]);
    assert_eq!(simulation.stats().cores[0].holds_dropped, 1);
}

#[test]
fn a_callback_that_is_dropped_drops_its_hold_in_the_color() {
    struct Tells(Log);
    impl Drop for Tells {
        fn drop(&mut self) {
            self.0.add("dropped");
        }
    }
    for seed in 0..30 {
        let log = Log::default();
        let all = log.clone();
        let stats = simulate(seed, 2, move |cx| {
            let tells = Tells(all.clone());
            let never = cx.hold().on(move |_cx| drop(tells));
            cx.post(HELD, all.event("waited"));
            cx.post(OTHER, move |_cx| {
                all.add("drops");
                drop(never);
                all.add("goes on");
            });
        });
        log.assert(&["drops", "goes on", "dropped", "waited"]);
        let dropped: u64 = stats.cores.iter().map(|core| core.holds_dropped).sum();
        assert_eq!(dropped, 1);
    }
}
