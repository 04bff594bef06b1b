//! The simulation: a run follows from its seed, on as many cores as asked for.

mod threads;

use crate::common::calls::Calls;
use mely::Post;
use mely::Reason;
use mely::net::{Acceptors, Stream, Timer};
use mely::runtime::OnPanic;
use mely::sim::{self, SimError, Simulation, Step};
use mely::topology::{Distance, Shape, Topology};
use mely::{Callback, Color, Colored, Cx, Handler, Rejected, RunError, Runtime};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

static CHAIN: Handler = Handler::new("chain");

/// Chains of events over colors, by handlers of all sizes.
fn chain(cx: &mut Cx, left: u64) {
    if left == 0 {
        return;
    }
    sim::work(cx, Duration::from_nanos(100 << (left % 8)));
    let color = Color::from(cx.color().value() * 7 % 101);
    CHAIN.on(color, move |cx| chain(cx, left - 1)).post(cx);
}

fn chains(seed: u64, cores: usize) -> Simulation {
    let builder = Runtime::builder().cores(cores);
    let mut simulation = builder.exit_when_idle(true).simulate(seed).unwrap();
    let start = |cx: &mut Cx| {
        for color in 1..60u64 {
            cx.post(Color::from(color), |cx| chain(cx, 40));
        }
    };
    simulation.run(start).unwrap();
    simulation
}

#[test]
fn the_same_seed_is_the_same_run() {
    let mut fingerprints = BTreeSet::new();
    for seed in 0..20 {
        let (one, other) = (chains(seed, 4), chains(seed, 4));
        assert_eq!(one.fingerprint(), other.fingerprint(), "seed {seed}");
        assert_eq!((one.now(), one.steps()), (other.now(), other.steps()));
        assert_eq!(one.stats().events(), 1 + 59 * 41);
        fingerprints.insert(one.fingerprint());
    }
    assert_eq!(fingerprints.len(), 20, "each seed is another run");
}

#[test]
fn work_spreads_over_cores_nobody_has() {
    for cores in [1, 2, 16, 128] {
        let simulation = chains(1, cores);
        let stats = simulation.stats();
        assert_eq!(stats.events(), 1 + 59 * 41);
        let used = stats.cores.iter().filter(|core| core.events > 0).count();
        assert!(used >= cores.min(32), "{used} of {cores} cores ran events");
        assert_eq!(stats.steals() > 0, cores > 1, "on {cores} cores");
    }
}

#[test]
fn the_nearest_first_on_a_machine_nobody_has() {
    // Two packages of two cores; one core of each has work.
    let shape = Shape {
        packages: 2,
        cores_per_l2: 2,
        ..Shape::default()
    };
    let (mut near, mut far) = (0, 0);
    for seed in 0..20 {
        let topology = Topology::synthetic(shape).unwrap();
        let builder = Runtime::builder().topology(topology).exit_when_idle(true);
        let mut simulation = builder.simulate(seed).unwrap();
        simulation
            .run(|cx| {
                for i in 1..200 {
                    cx.post(Color::from(2 * i), |cx| {
                        sim::work(cx, Duration::from_micros(30));
                    });
                }
            })
            .unwrap();
        let stats = simulation.stats();
        assert_eq!(stats.cores.len(), 4);
        for steals in stats.cores.iter().flat_map(|core| &core.steals) {
            if steals.distance <= Distance::SharedL3 {
                near += steals.colors;
            } else {
                far += steals.colors;
            }
        }
    }
    assert!(
        near > 3 * far,
        "{near} colors stolen inside a package, {far} from the other"
    );
}

#[test]
fn what_waits_for_nothing_is_told() {
    let mut simulation = Runtime::builder().simulate(1).unwrap();
    let error = simulation.run(|_cx| ()).unwrap_err();
    assert!(matches!(error, SimError::Stalled), "{error}");
    let mut simulation = Runtime::builder().simulate(1).unwrap();
    simulation.set_steps_max(1_000);
    fn for_ever(cx: &mut Cx) {
        cx.post(Color::from(1), for_ever);
    }
    let error = simulation.run(for_ever).unwrap_err();
    assert!(matches!(error, SimError::Endless(1_000..)), "{error}");
}

#[test]
fn panics_and_deadlines_end_a_run_as_on_threads() {
    let mut simulation = Runtime::builder().simulate(1).unwrap();
    let error = simulation.run(|_cx| panic!("on purpose")).unwrap_err();
    let SimError::Run(RunError::Panicked { panic, .. }) = error else {
        panic!("{error}");
    };
    assert_eq!(panic.message, "on purpose");

    let builder = Runtime::builder().on_panic(OnPanic::DropEvent);
    let mut simulation = builder.simulate(1).unwrap();
    let value = simulation.run_until(|cx, finish| {
        cx.post(Color::DEFAULT, |_cx| panic!("on purpose"));
        cx.post(Color::DEFAULT, move |_cx| finish.finish(5));
    });
    assert_eq!(value.unwrap(), 5);
    assert_eq!(
        simulation
            .stats()
            .cores
            .iter()
            .map(|core| core.panics)
            .sum::<u64>(),
        1
    );

    fn for_ever(cx: &mut Cx) {
        cx.post(Color::from(1), for_ever);
    }
    let builder = Runtime::builder().drain_deadline(Duration::from_millis(1));
    let mut simulation = builder.simulate(1).unwrap();
    let error = simulation
        .run(|cx| {
            for_ever(cx);
            cx.stop();
        })
        .unwrap_err();
    let SimError::Run(RunError::Deadline {
        events_left, stuck, ..
    }) = error
    else {
        panic!("{error}");
    };
    assert_eq!((events_left, stuck.len()), (1, 0));
    assert!(simulation.now() >= Duration::from_millis(1));
}

#[test]
fn timers_take_no_time_to_wait_for() {
    let mut simulation = Runtime::builder().exit_when_idle(true).simulate(9).unwrap();
    let fired = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&fired);
    simulation
        .run(move |cx| {
            for hours in [3, 1, 2] {
                let log = Arc::clone(&log);
                let callback = Callback::anonymous(Color::from(hours), move |_cx| {
                    log.lock().unwrap().push(hours);
                });
                let _: Timer = cx.timer(Duration::from_hours(hours), callback);
            }
        })
        .unwrap();
    assert_eq!(*fired.lock().unwrap(), [1, 2, 3]);
    assert!(simulation.now() >= Duration::from_hours(3));
}

/// A server and clients, some of them inside the runtime.
fn echo(seed: u64) -> u64 {
    static ECHO: Handler = Handler::new("echo");
    static CLIENT: Handler = Handler::new("client");
    let mut simulation = Runtime::builder().cores(3).simulate(seed).unwrap();
    let address = Arc::new(Mutex::new(None));
    let told = Arc::clone(&address);
    simulation
        .start(move |cx| {
            let on_accept = Callback::anonymous_each(Color::from(1), |_: &mut Cx, incoming| {
                let incoming: mely::net::Incoming = Result::unwrap(incoming);
                let echo = |cx: &mut Cx, stream: &Stream, data: std::io::Result<_>| {
                    // At the end receives are canceled.
                    let Ok(Some(data)): Result<Option<mely::net::RecvBuf>, _> = data else {
                        return;
                    };
                    stream.write(cx, data.to_vec()).unwrap();
                };
                Calls::new(echo).serve(incoming.open_unique(), &ECHO);
            });
            let any = "127.0.0.1:0";
            let listener = cx.listen(any, Acceptors::PerCore, on_accept).unwrap();
            *told.lock().unwrap() = Some(listener.local_addr());
            // A connection of its own, which is there for as long as the runtime.
            let address = told.lock().unwrap().clone().unwrap();
            let connected = Callback::anonymous_value(Color::from(2), |_: &mut Cx, incoming| {
                let incoming: mely::net::Incoming = Result::unwrap(incoming);
                Calls::none().serve(incoming.open(Color::from(2)), &CLIENT);
            });
            cx.connect(address, crate::common::LONG, connected).unwrap();
        })
        .unwrap();
    while simulation.step() != Step::Stalled {}
    let address = address.lock().unwrap().clone().unwrap();
    simulation.network().set_move_bytes_max(7);
    let mut client = simulation.network().connect(address).unwrap();
    let sent: Vec<u8> = (0..200).collect();
    client
        .write_all(&sent[..100])
        .unwrap_or_else(|_| unreachable!());
    let mut got = Vec::new();
    let mut space = [0; 64];
    let mut rest = &sent[100..];
    while got.len() < sent.len() {
        if simulation.step() == Step::Stalled {
            assert!(
                !rest.is_empty(),
                "the rest does not come: {} of 200",
                got.len()
            );
        }
        if !rest.is_empty() {
            let some = client.write(rest).unwrap_or(0);
            rest = &rest[some..];
        }
        if let Ok(some) = client.read(&mut space) {
            got.extend_from_slice(&space[..some]);
        }
    }
    assert_eq!(got, sent);
    simulation.poster().stop();
    while simulation.step() != Step::Ended {}
    simulation.end().unwrap();
    drop(client);
    assert_eq!(simulation.network().open_count(), 0);
    simulation.fingerprint()
}

#[test]
fn a_server_and_its_clients_follow_from_the_seed() {
    let fingerprints: BTreeSet<u64> = (0..30).map(echo).collect();
    assert!(fingerprints.len() > 20, "the seed decides nothing");
    assert_eq!(echo(4), echo(4));
}

#[test]
fn what_is_left_of_a_run_is_dropped() {
    let alive = Arc::new(());
    for steps in 0..60 {
        let mut simulation = Runtime::builder().cores(3).simulate(steps).unwrap();
        let held = Arc::clone(&alive);
        simulation
            .start(move |cx| {
                let state = Colored::new(cx, Color::from(1), held);
                for color in 2..30u64 {
                    let state = state.clone();
                    cx.post(Color::from(color), move |cx| {
                        sim::pause(cx);
                        state.post(cx, |_state, _cx| ());
                    });
                }
            })
            .unwrap();
        for _ in 0..steps {
            simulation.step();
        }
        drop(simulation);
        assert_eq!(Arc::strong_count(&alive), 1, "after {steps} steps");
    }
}

#[test]
fn a_failing_seed_is_named_and_replayed() {
    // Cannot be seen from inside but for the panic that goes on.
    let tried = Mutex::new(Vec::new());
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        sim::check(|seed| {
            tried.lock().unwrap().push(seed);
            assert!(seed != 7, "seven");
        });
    }));
    let payload = result.unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"seven"));
    if std::env::var_os("MELY_SIM_SEED").is_none() {
        assert_eq!(*tried.lock().unwrap(), (0..=7).collect::<Vec<_>>());
    }
}

/// A handler that could step a simulation would block its core.
#[test]
fn what_steps_is_refused_inside_a_handler() {
    let new = || Runtime::builder().cores(1).simulate(1);
    let mut other = new().unwrap();
    other
        .start(|cx| {
            sim::pause(cx);
            cx.stop();
        })
        .unwrap();
    let other = Arc::new(Mutex::new(other));
    let its = Arc::clone(&other);
    let inside = move |_cx: &mut Cx| {
        // Not poisoned by the panic below.
        let mut other = its.lock().unwrap();
        let inside = SimError::Run(RunError::Inside).to_string();
        assert_eq!(other.start(|_cx| ()).unwrap_err().to_string(), inside);
        assert_eq!(other.end().unwrap_err().to_string(), inside);
        let steps = std::panic::AssertUnwindSafe(|| other.step());
        let payload = std::panic::catch_unwind(steps).unwrap_err();
        drop(other);
        std::panic::resume_unwind(payload);
    };
    let error = new().unwrap().run(inside).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("a simulation is not stepped inside a handler"),
        "{text}"
    );
    // The other one is as it was.
    let mut other = other.lock().unwrap();
    while other.step() != Step::Ended {}
    other.end().unwrap();
}

/// A simulation whose handler is in the middle, and whether that handler has gone on to its end.
fn in_the_middle() -> (Simulation, Arc<AtomicBool>) {
    let ended = Arc::new(AtomicBool::new(false));
    let tells = Arc::clone(&ended);
    let builder = Runtime::builder().cores(2);
    let mut simulation = builder.simulate(1).unwrap();
    let event = move |cx: &mut Cx| {
        sim::work(cx, Duration::from_millis(1));
        tells.store(true, Ordering::Relaxed);
    };
    simulation.start(event).unwrap();
    while simulation.stats().events() == 0 && simulation.now() < Duration::from_micros(500) {
        simulation.step();
    }
    assert!(!ended.load(Ordering::Relaxed));
    (simulation, ended)
}

#[test]
fn a_simulation_is_dropped_wherever_it_is() {
    // Inside a handler of another one.
    let (dropped, ended) = in_the_middle();
    let mut simulation = Runtime::builder().simulate(1).unwrap();
    let drops = move |cx: &mut Cx| {
        drop(dropped);
        cx.stop();
    };
    simulation.run(drops).unwrap();
    assert!(ended.load(Ordering::Relaxed));
    // While its thread unwinds.
    let (dropped, ended) = in_the_middle();
    let unwinds = move || {
        let _dropped = dropped;
        std::panic::resume_unwind(Box::new(5));
    };
    let unwinds = std::panic::AssertUnwindSafe(unwinds);
    assert!(std::panic::catch_unwind(unwinds).is_err());
    assert!(ended.load(Ordering::Relaxed));
    // With the variables of a thread that ends.
    thread_local! {
        static LAST: RefCell<Option<Simulation>> = const { RefCell::new(None) };
    }
    let (dropped, ended) = in_the_middle();
    let thread = std::thread::spawn(|| LAST.set(Some(dropped)));
    thread.join().unwrap();
    assert!(ended.load(Ordering::Relaxed));
}

/// Work that blocks is outside of any handler, though its thread is a virtual core's.
#[test]
fn a_simulation_runs_inside_blocking_work_of_another() {
    let builder = Runtime::builder().cores(2);
    let mut simulation = builder.exit_when_idle(true).simulate(1).unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&ran);
    let expected = chains(1, 2).fingerprint();
    simulation
        .run(move |cx| {
            let work = || chains(1, 2).fingerprint();
            let done = Callback::anonymous_value(Color::from(1), move |cx: &mut Cx, found| {
                assert_eq!(found, Ok(expected));
                sim::work(cx, Duration::from_millis(1));
                counts.fetch_add(1, Ordering::Relaxed);
            });
            cx.try_blocking(work).unwrap().then(cx, done);
        })
        .unwrap();
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    assert!(simulation.now() >= Duration::from_millis(1));
}

#[test]
fn a_handler_that_pauses_for_ever_is_stuck() {
    let spin = |cx: &mut Cx| {
        loop {
            sim::pause(cx);
        }
    };
    let builder = || Runtime::builder().cores(2).color_slots(64);
    // Given up, and dropped.
    let mut simulation = builder().simulate(1).unwrap();
    simulation.set_steps_max(1_000);
    let error = simulation.run(spin).unwrap_err();
    assert!(matches!(error, SimError::Endless(_)), "{error}");
    drop(simulation);
    // Past its deadline.
    let builder = builder().drain_deadline(Duration::from_millis(1));
    let mut simulation = builder.simulate(1).unwrap();
    let error = simulation
        .run(move |cx| {
            cx.stop();
            spin(cx);
        })
        .unwrap_err();
    let SimError::Run(RunError::Deadline { stuck, .. }) = error else {
        panic!("{error}");
    };
    assert_eq!(stuck.len(), 1, "{stuck:?}");
}

#[test]
fn handlers_that_wait_for_each_other_end_before_a_drop() {
    let flag = Arc::new(AtomicBool::new(false));
    let mut simulation = Runtime::builder().cores(2).simulate(1).unwrap();
    let (sets, waits) = (Arc::clone(&flag), Arc::clone(&flag));
    simulation
        .start(move |cx| {
            cx.post(Color::from(1), move |cx| {
                sim::work(cx, Duration::from_millis(1));
                sets.store(true, Ordering::Relaxed);
            });
            cx.flush();
            while !waits.load(Ordering::Relaxed) {
                sim::pause(cx);
            }
        })
        .unwrap();
    for _ in 0..20 {
        simulation.step();
    }
    assert!(!flag.load(Ordering::Relaxed));
    drop(simulation);
    assert!(flag.load(Ordering::Relaxed));
}

#[test]
fn other_threads_may_post() {
    let mut simulation = Runtime::builder().simulate(1).unwrap();
    simulation.start(|_cx| ()).unwrap();
    let poster = simulation.poster();
    let posting = std::thread::spawn(move || {
        for i in 0..5_000u64 {
            assert!(poster.try_post(Color::from(i % 7), |_cx| ()).is_ok());
        }
    });
    while !posting.is_finished() {
        simulation.step();
    }
    posting.join().unwrap();
    while simulation.step() != Step::Stalled {}
    assert_eq!(simulation.stats().events(), 5_001);
}

#[test]
fn an_end_is_told_once_and_truly() {
    let mut simulation = Runtime::builder().simulate(1).unwrap();
    simulation
        .start(|cx| {
            for color in 1..50u64 {
                cx.post(Color::from(color), |_cx| ());
            }
        })
        .unwrap();
    while simulation.stats().events() == 0 {
        simulation.step();
    }
    let ran = simulation.stats().events();
    let error = simulation.end().unwrap_err();
    let SimError::Run(RunError::Deadline {
        events_left, stuck, ..
    }) = error
    else {
        panic!("{error}");
    };
    assert_eq!((events_left, stuck.len()), (50 - ran, 0));
    assert!(matches!(simulation.end(), Err(SimError::Again)));
    assert_eq!(simulation.step(), Step::Ended);

    let mut simulation = Runtime::builder().simulate(1).unwrap();
    simulation.end().unwrap();
    let error = simulation.run(|_cx| unreachable!()).unwrap_err();
    assert!(matches!(error, SimError::Again), "{error}");
}

#[test]
fn times_beyond_all_reckoning() {
    let builder = Runtime::builder().cores(2);
    let mut simulation = builder.exit_when_idle(true).simulate(1).unwrap();
    let stalled = simulation.run(|cx| {
        for after in [Duration::MAX, Duration::from_nanos(u64::MAX)] {
            cx.timer(after, Callback::anonymous(Color::from(1), |_cx| ()));
        }
        sim::work(cx, Duration::MAX);
        sim::work(cx, Duration::MAX);
    });
    // The timers never fire, and the run waits for them.
    assert!(matches!(stalled, Err(SimError::Stalled)));
    assert_eq!(simulation.stats().events(), 1);
}

#[test]
fn once_a_stop_was_asked_for_nothing_comes_from_outside() {
    let mut simulation = Runtime::builder().simulate(1).unwrap();
    simulation
        .start(|cx| {
            cx.stop();
            // What it posts itself is still run.
            cx.post(Color::from(1), |cx| {
                sim::work(cx, Duration::from_micros(50))
            });
        })
        .unwrap();
    let poster = simulation.poster();
    while simulation.stats().events() == 0 {
        simulation.step();
    }
    let refused = poster.try_post(Color::from(1), |_cx| unreachable!());
    assert!(
        matches!(
            refused,
            Err(Rejected {
                reason: Reason::Ended,
                ..
            })
        ),
        "{refused:?}"
    );
    while simulation.step() != Step::Ended {}
    simulation.end().unwrap();
    assert_eq!(simulation.stats().events(), 2);
}

/// Posts when it is dropped, in the middle of whatever the runtime is doing then.
struct Posts(mely::Poster, Arc<Mutex<u32>>);

impl Drop for Posts {
    fn drop(&mut self) {
        let dropped = Arc::clone(&self.1);
        let event = move |_cx: &mut Cx| *dropped.lock().unwrap() += 1;
        let _ = self.0.try_post(Color::from(3), event);
        self.0.place(Color::from(3), 1);
    }
}

/// Two colors post to each other, each time an event that is timed, because little is known of its
/// handler yet, and then one that need not be.
#[test]
fn a_handler_that_is_not_known_yet_is_not_overtaken() {
    static KNOWN: Handler = Handler::new("known").time(Duration::from_nanos(50));
    type Order = Arc<Mutex<Vec<(u64, bool)>>>;
    fn known(cx: &mut Cx, order: &Order, left: u32) {
        let color = cx.color().value();
        order.lock().unwrap().push((color, true));
        if left > 0 {
            let to = Color::from(3 - color);
            let (its, order) = (Arc::clone(order), Arc::clone(order));
            let new = move |cx: &mut Cx| its.lock().unwrap().push((cx.color().value(), false));
            cx.post(to, new);
            let next = move |cx: &mut Cx| known(cx, &order, left - 1);
            KNOWN.on(to, next).post(cx);
        }
    }
    let builder = Runtime::builder().cores(1);
    let mut simulation = builder.exit_when_idle(true).simulate(1).unwrap();
    let order = Order::default();
    let its = Arc::clone(&order);
    let start = move |cx: &mut Cx| known(cx, &its, 20);
    let start = |cx: &mut Cx| KNOWN.on(Color::from(1), start).post(cx);
    simulation.run(start).unwrap();
    let order = order.lock().unwrap();
    for color in [1, 2] {
        let its = order.iter().filter(|ran| ran.0 == color).map(|ran| ran.1);
        // The first event of color 1 had none before it.
        let its: Vec<bool> = its.skip(2 - color as usize).collect();
        assert_eq!(its, [false, true].repeat(10), "color {color}");
    }
}

#[test]
fn what_is_dropped_may_post() {
    let dropped = Arc::new(Mutex::new(0));
    let builder = Runtime::builder().cores(2).color_slots(64);
    let builder = builder.on_panic(OnPanic::DropEvent).events_max(1);
    let mut simulation = builder.exit_when_idle(true).simulate(5).unwrap();
    let (poster, counts) = (simulation.poster(), Arc::clone(&dropped));
    simulation
        .run(move |cx| {
            let posts = || Posts(poster.clone(), Arc::clone(&counts));
            // By an event that runs, by one that panics, by a timer that is canceled, by state that
            // goes.
            let held = posts();
            cx.post(Color::from(1), move |_cx| drop(held));
            let held = posts();
            cx.post(Color::from(2), move |_cx| {
                let _held = held;
                panic!("on purpose");
            });
            let held = posts();
            let callback = Callback::anonymous(Color::from(4), move |_cx| drop(held));
            cx.timer(Duration::from_secs(1), callback).cancel(cx);
            drop(Colored::new(cx, Color::from(5), posts()));
            // And by one that is refused at the limit.
            loop {
                let held = posts();
                if cx
                    .try_post(Color::from(6), move |_cx| std::mem::forget(held))
                    .is_err()
                {
                    break;
                }
            }
        })
        .unwrap();
    // The refused one's own post may have found no room either.
    assert!((4..=5).contains(&*dropped.lock().unwrap()));
}

/// As on threads, where others do not wait for a panic to be over.
#[test]
fn others_go_on_while_a_panic_unwinds() {
    struct Works<'a>(&'a mut Cx);
    impl Drop for Works<'_> {
        fn drop(&mut self) {
            sim::work(self.0, Duration::from_millis(1));
        }
    }
    let builder = Runtime::builder().cores(2);
    let builder = builder.on_panic(OnPanic::DropEvent).exit_when_idle(true);
    let mut simulation = builder.simulate(1).unwrap();
    let ended = Arc::new(Mutex::new(Vec::new()));
    let [first, second] = ["other", "unwound"].map(|what| {
        let ended = Arc::clone(&ended);
        move || ended.lock().unwrap().push(what)
    });
    simulation
        .run(move |cx| {
            cx.post(Color::from(1), move |_cx| first());
            cx.post(Color::from(2), move |cx| {
                struct Tells<F: FnMut()>(F);
                impl<F: FnMut()> Drop for Tells<F> {
                    fn drop(&mut self) {
                        (self.0)();
                    }
                }
                let _tells = Tells(second);
                let _works = Works(cx);
                panic!("on purpose");
            });
            cx.flush();
            sim::work(cx, Duration::from_micros(100));
        })
        .unwrap();
    assert_eq!(*ended.lock().unwrap(), ["other", "unwound"]);
    assert!(simulation.now() >= Duration::from_millis(1));
    let stats = simulation.stats();
    assert_eq!(stats.cores.iter().map(|core| core.panics).sum::<u64>(), 1);
}
