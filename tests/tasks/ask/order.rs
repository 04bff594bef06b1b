//! The order of posts before and after a reply.

use super::{SHORT, THERE};
use crate::common::{Bound, cores};
use mely::Post;
use mely::sim::Step;
use mely::{Color, Colored, Cx, JoinHandle, Runtime};
use std::future::Future;
use std::pin::pin;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

/// Whoever has the reply posts after the event that was asked, though nobody has flushed.
#[test]
fn what_the_asked_event_posted_comes_before_what_the_asker_posts() {
    const LAST: Color = Color::new(9);
    for seed in 0..200 {
        let order = Arc::new(Mutex::new(Vec::new()));
        let push = |what: &'static str| {
            let order = Arc::clone(&order);
            move |_cx: &mut Cx| order.lock().unwrap().push(what)
        };
        let builder = Runtime::builder().cores(2);
        let mut simulation = builder.simulate(seed).unwrap();
        simulation.start(|_cx| ()).unwrap();
        let poster = simulation.poster();
        let asked = push("asked");
        // Of one core, and the last color of the other one.
        let state = Colored::new(&poster, THERE, ());
        let ask = move |_: &mut (), cx: &mut Cx| SHORT.on(LAST, asked).post(cx);
        let mut handle = state.via(&SHORT).try_ask(&poster, ask).unwrap();
        // More to do, before the posts are published.
        for color in (20..60).step_by(2) {
            let more = SHORT.on(Color::from(color), |_cx| ());
            more.try_post(&poster).unwrap();
        }
        let mut came = false;
        while simulation.step() != Step::Stalled {
            if !came && handle.try_recv().is_some() {
                came = true;
                poster.try_post(LAST, push("asker")).unwrap();
            }
        }
        let order = order.lock().unwrap().clone();
        assert_eq!(order, ["asked", "asker"], "with seed {seed}");
    }
}

/// A task that waits for several results is woken by the first; what the event of the last one has
/// posted comes first all the same.
#[test]
fn posts_of_joined_events_come_before_those_of_the_task() {
    let _bound = Bound::new("posts_of_joined_events");
    for seed in 0..400 {
        let mut simulation = cores(4).exit_when_idle(true).simulate(seed).unwrap();
        simulation
            .run(|cx| {
                let log = Colored::new(cx, Color::from(50), Vec::new());
                let ask = |cx: &mut Cx, n: u64| {
                    let log = log.clone();
                    cx.place(Color::from(n), n as usize % 4);
                    cx.ask(Color::from(n), move |cx| {
                        (0..3).for_each(|_| log.post(cx, move |log, _cx| log.push(n)));
                    })
                };
                let asked: Vec<_> = (1..7).map(|n| ask(cx, n)).collect();
                let log = log.clone();
                cx.spawn(Color::from(60), async move {
                    futures::future::join_all(asked).await;
                    mely::task::with_cx(|cx| {
                        log.post(cx, |log, _cx| assert_eq!(log.len(), 18, "{log:?}"));
                    });
                });
            })
            .unwrap();
    }
}

/// A handle that a task has polled, and that a thread takes the result of.
#[test]
fn posts_of_an_event_come_before_those_of_a_thread_that_takes_over_the_handle() {
    let _bound = Bound::new("a_thread_takes_over");
    let (give, take) = channel();
    let (begin, begins) = channel::<()>();
    let runtime = cores(2).build().unwrap();
    let poster = runtime.poster();
    let thread = std::thread::spawn(move || {
        let (mut handle, log): (JoinHandle<()>, Colored<Vec<u32>>) = take.recv().unwrap();
        begin.send(()).unwrap();
        handle.recv().unwrap();
        let mut all = log.try_ask(&poster, |log, _cx| log.clone()).unwrap();
        assert_eq!(all.recv().unwrap(), [1]);
        poster.stop();
    });
    runtime
        .run(move |cx| {
            let log = Colored::new(cx, Color::from(50), Vec::new());
            let its = log.clone();
            let mut handle = cx.ask(THERE, move |cx| {
                begins.recv().unwrap();
                its.post(cx, |log, _cx| log.push(1));
            });
            cx.spawn(Color::from(60), async move {
                let waker = std::task::Waker::noop();
                let mut context = std::task::Context::from_waker(waker);
                assert!(pin!(&mut handle).poll(&mut context).is_pending());
                give.send((handle, log)).unwrap();
            });
        })
        .unwrap();
    thread.join().unwrap();
}
