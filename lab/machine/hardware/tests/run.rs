//! What runs on virtual cores takes turns as real cores would, and is the same for the same seed.

mod common;

use common::{assert_near, body, epyc, lines, run, takes};
use mely_hardware::sync::atomic::{AtomicBool, AtomicU64};
use mely_hardware::sync::{Arc, Mutex, SpinMutex};
use mely_hardware::{Body, Key, Machine, Options, Place, Report, charge};
use mely_topology::Distance;
use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

fn go(machine: &Machine, seed: u64, bodies: Vec<Body>) -> Report {
    common::go(machine, seed, true, bodies)
}

/// Writes what is beside what another core writes.
fn sharing(apart: usize) -> Report {
    #[repr(align(128))]
    struct Both([AtomicU64; 16]);
    let both = Rc::new(Both(std::array::from_fn(|_| AtomicU64::new(0))));
    let bodies = [0, apart].map(|at| {
        let both = Rc::clone(&both);
        body(move || {
            charge::name(&*both, "both", 0);
            for _ in 0..1_000 {
                both.0[at].fetch_add(1, Relaxed);
                charge::work_ns(100);
            }
        })
    });
    go(&epyc(2), 3, bodies.into())
}

#[test]
fn false_sharing_is_seen_and_named() {
    let together = sharing(7);
    assert_eq!(together.lines[0].name, "both[0].0");
    assert!(together.lines[0].transfers > 900, "{:?}", together.lines[0]);
    let apart = sharing(8);
    assert_eq!(apart.transfers(), 0);
    assert!(together.ns > 1.05 * apart.ns);
}

/// The time, what lines cost, and the order in which cores had a lock.
fn contended(seed: u64) -> (Report, Vec<usize>) {
    let lock = Arc::new(SpinMutex::new(Vec::new()));
    let bodies = (0..8).map(|core| {
        let lock = lock.clone();
        body(move || {
            charge::name(&*lock, "lock", 0);
            for _ in 0..100 {
                let mut order = lock.lock();
                order.push(core);
                charge::work_ns(20);
                drop(order);
                charge::work_ns(50);
            }
        })
    });
    let report = go(&epyc(8), seed, bodies.collect());
    let order = lock.lock().clone();
    (report, order)
}

#[test]
fn the_seed_draws_who_gets_a_lock_and_nobody_starves() {
    let (report, order) = contended(5);
    assert_eq!(contended(5), (report.clone(), order.clone()));
    assert_ne!(contended(6).1, order);
    assert!(
        report
            .lines
            .iter()
            .any(|line| line.name.starts_with("lock[0]"))
    );
    // While all want it, each core has its share.
    let half = &order[..400];
    for core in 0..8 {
        let had = half.iter().filter(|&&its| its == core).count();
        assert!(
            (25..=75).contains(&had),
            "core {core} had it {had} times of 400"
        );
    }
    // It goes to one that has looked since the release, and then makes the line its own.
    let machine = epyc(8);
    let own = machine.ns(Key::Rmw(Distance::SameCore));
    let least = 20.0 + machine.ns(Key::Transfer(Distance::SharedL3)) + own;
    assert!(report.ns > 800.0 * least, "{}", report.ns);
}

/// Who releases a lock and wants it again has it before another sees that it was released: most
/// times, and not for ever.
#[test]
fn who_releases_a_lock_is_seldom_overtaken() {
    for (outside_ns, again) in [(5, 0.8..0.95), (100, 0.0..0.1)] {
        let lock = Arc::new(SpinMutex::new(Vec::new()));
        let bodies = (0..2).map(|core| {
            let lock = lock.clone();
            body(move || {
                while charge::now_ns().unwrap() < 100_000 {
                    let mut order = lock.lock();
                    order.push(core);
                    charge::work_ns(10);
                    drop(order);
                    charge::work_ns(outside_ns);
                }
            })
        });
        go(&epyc(2), 1, bodies.collect());
        let order = lock.lock().clone();
        let pairs = order.windows(2);
        let had = pairs.filter(|pair| pair[0] == pair[1]).count() as f64 / order.len() as f64;
        assert!(
            again.contains(&had),
            "{outside_ns} ns: {had} of {}",
            order.len()
        );
    }
}

/// Who sleeps for a lock costs others nothing, and one of them is woken when it is released.
#[test]
fn who_sleeps_for_a_lock_takes_its_line_from_nobody() {
    let took = |cores: usize| {
        let lock = Rc::new(Mutex::new(0));
        let bodies = (0..cores).map(|_| {
            let lock = Rc::clone(&lock);
            body(move || {
                for _ in 0..50 {
                    *lock.lock().unwrap() += 1;
                    charge::work_ns(10);
                }
            })
        });
        let report = go(&epyc(cores), 1, bodies.collect());
        assert_eq!(*lock.lock().unwrap(), 50 * cores as u64);
        report.ns / (50 * cores) as f64
    };
    let (few, many) = (took(4), took(64));
    let far = epyc(64).ns(Key::Transfer(Distance::SameNode));
    assert!(many < few + 4.0 * far, "{few}, {many}");
}

/// In another process the memory is elsewhere: names alone decide.
#[test]
fn the_same_seed_is_the_same_run_in_another_process() {
    const CHILD: &str = "MELY_HARDWARE_TEST_CHILD";
    let (report, order) = contended(9);
    let told = format!("{report:?} {order:?}");
    if std::env::var_os(CHILD).is_some() {
        println!("told: {told}");
        return;
    }
    for child in 0..2 {
        let test = "the_same_seed_is_the_same_run_in_another_process";
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(CHILD, "x".repeat(1 + 1_000 * child))
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(&format!("told: {told}\n")), "{text}");
    }
}

#[test]
fn who_polls_goes_on_when_its_line_is_written() {
    let machine = epyc(2);
    let transfer = machine.ns(Key::Transfer(Distance::SharedL3));
    let (flag, other) = {
        let its = lines(1);
        (Rc::clone(&its), its)
    };
    let report = go(
        &machine,
        1,
        vec![
            body(move || {
                charge::work_ns(1_000_000);
                flag[0].0.store(1, Release);
            }),
            body(move || {
                while other[0].0.load(Acquire) == 0 {
                    charge::pause();
                }
                let late = charge::now_ns().unwrap() as f64 - 1_000_000.0;
                let most = 2.0 * transfer + 30.0 + 1_000_000.0 / 128.0;
                assert!(late.abs() < most, "{late}");
            }),
        ],
    );
    // Not round by round.
    assert!(report.switches < 50, "{}", report.switches);
    assert!(report.cores[1].polled_ns > 900_000.0);
}

#[test]
fn to_wake_costs_and_to_be_woken_takes_a_while() {
    let machine = epyc(2);
    let (waker, sleeper) = (machine.ns(Key::Waker), machine.ns(Key::Sleeper));
    go(
        &machine,
        1,
        vec![
            body(move || {
                charge::work_ns(10_000);
                assert_near(takes(|| charge::wake(1)), waker);
            }),
            body(move || {
                charge::sleep(None);
                let at = charge::now_ns().unwrap() as f64;
                assert!(
                    (at - 10_000.0 - sleeper).abs() < 0.02 * (10_000.0 + sleeper),
                    "{at}"
                );
                // A limit is kept, and to wake takes as long then; a wake-up that comes first is
                // not lost.
                charge::sleep(Some(at as u64 + 5_000));
                assert_near(charge::now_ns().unwrap() as f64 - at - 5_000.0, sleeper);
                charge::wake(1);
                charge::sleep(None);
            }),
        ],
    );
}

#[test]
fn who_has_slept_for_long_wakes_up_late() {
    let machine = epyc(2).with(Key::LongSleeper, 50_000.0, "assumed");
    let machine = machine.unwrap();
    let (short, long) = (machine.ns(Key::Sleeper), machine.ns(Key::LongSleeper));
    let late = move |until_ns: u64| {
        let at_ns = charge::now_ns().unwrap() + until_ns;
        charge::sleep(Some(at_ns));
        charge::now_ns().unwrap() as f64 - at_ns as f64
    };
    let bodies = vec![body(move || {
        assert_near(late(200_000), short);
        assert_near(late(2_600_000), (short + long) / 2.0);
        assert_near(late(5_000_000), long);
        assert_near(late(50_000_000), long);
    })];
    go(&machine, 1, bodies);
}

#[test]
fn what_comes_from_outside_ends_sleep_and_polling_and_costs_nobody_else() {
    let machine = epyc(3);
    let sleeper = machine.ns(Key::Sleeper);
    let came = move |at_ns: f64, least: f64| {
        let now = charge::now_ns().unwrap() as f64;
        let most = at_ns + 1.02 * least + 500.0;
        assert!((at_ns..=most).contains(&now), "{now} is not {at_ns}");
    };
    let bodies = vec![
        body(|| {
            charge::work_ns(10_000);
            let free = takes(|| {
                charge::announce(1, 50_000);
                // The earlier one counts, in whichever order they are told.
                charge::announce(1, 30_000);
                charge::announce(1, 40_000);
                charge::announce(2, 20_000);
            });
            assert_eq!(free, 0.0);
        }),
        body(move || {
            charge::sleep(Some(1_000_000));
            came(30_000.0, sleeper);
        }),
        body(move || {
            let at_hand = [std::ptr::null::<u8>(); 2];
            while charge::now_ns().unwrap() < 20_000 {
                charge::idle(1, at_hand, 1_000_000);
            }
            came(20_000.0, 0.0);
        }),
    ];
    go(&machine, 1, bodies);
}

#[test]
fn what_does_not_end_is_given_up_with_what_each_waits_for() {
    let its = Rc::new(AtomicBool::new(true));
    let held = Rc::clone(&its);
    let bodies = vec![
        body(|| {
            loop {
                charge::work_ns(1_000);
            }
        }),
        body(move || {
            charge::name(&*held, "held", 3);
            held.load(SeqCst);
            let is_free = || charge::uncharged(|| !held.load(Relaxed));
            charge::wait_for_lock(&*held, false, is_free);
        }),
        body(|| charge::sleep(None)),
    ];
    let options = Options {
        ns_max: 1e6,
        ..Options::new(77)
    };
    let stopped = run(&epyc(3), options, bodies).unwrap_err();
    assert!(!stopped.stalled && stopped.at_ns >= 999_000);
    let text = stopped.to_string();
    let rest = "(seed 77); core 0 runs; core 1 waits for the lock held[3].0; core 2 sleeps";
    assert!(
        text.starts_with("given up after ") && text.ends_with(rest),
        "{text}"
    );
    // The thread is free for the next.
    let stalled = run(
        &epyc(1),
        Options::new(1),
        vec![body(|| charge::sleep(None))],
    )
    .unwrap_err();
    assert_eq!(
        stalled.to_string(),
        "nobody can go on after 0 ns of virtual time (seed 1); core 0 sleeps"
    );
}

/// What a core that has ended waited for last is part of the time.
#[test]
fn the_end_of_a_core_waits_for_what_is_on_its_way() {
    let machine = epyc(2);
    let memory = machine.ns(Key::Hit(Place::Memory)) - machine.ns(Key::Hit(Place::Cache(1)));
    let fresh = lines(1);
    let bodies = vec![
        body(move || _ = fresh[0].0.load(Acquire)),
        body(|| charge::sleep(None)),
    ];
    let stopped = run(&machine, Options::new(1), bodies).unwrap_err();
    assert_near(stopped.at_ns as f64, memory);
}

#[test]
fn a_panic_comes_out_and_leaves_nothing() {
    let caught = std::panic::catch_unwind(|| {
        go(
            &epyc(2),
            1,
            vec![body(|| charge::work_ns(5)), body(|| panic!("out"))],
        );
    });
    assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "out");
    assert_eq!(charge::now_ns(), None);
    let report = go(&epyc(1), 1, vec![body(|| charge::work_ns(1_000))]);
    assert_near(report.ns, 1_000.0);
}

/// What is charged while a core unwinds is due to let others go first, which it does not.
#[test]
fn who_has_unwound_has_no_turn_left() {
    struct Works;
    impl Drop for Works {
        fn drop(&mut self) {
            charge::work_ns(10_000);
        }
    }
    let unwinds = |sleeps: bool| {
        let caught = std::panic::catch_unwind(|| {
            let _works = Works;
            std::panic::resume_unwind(Box::new("caught"));
        });
        assert!(caught.is_err());
        if sleeps {
            charge::sleep(None);
            assert!(charge::now_ns().expect("it is charged") >= 50_000);
        }
    };
    let wakes = || {
        (0..50).for_each(|_| charge::work_ns(1_100));
        charge::wake(0);
    };
    for sleeps in [true, false] {
        let bodies = vec![body(move || unwinds(sleeps)), body(wakes)];
        go(&epyc(2), 1, bodies);
    }
}

#[test]
fn what_is_not_charged_costs_nothing() {
    let its = lines(100);
    let report = go(
        &epyc(1),
        1,
        vec![body(move || {
            charge::uncharged(|| its.iter().for_each(|line| _ = line.0.fetch_add(1, SeqCst)));
            assert_eq!(charge::now_ns(), Some(0));
        })],
    );
    assert_eq!((report.accesses, report.ns), (0, 0.0));
}

#[test]
fn ticks_come_between_cores() {
    let ticks = Rc::new(std::cell::RefCell::new(Vec::new()));
    let seen = Rc::clone(&ticks);
    let options = Options {
        tick: Some((1_000.0, Box::new(move |ns| seen.borrow_mut().push(ns)))),
        ..Options::new(1)
    };
    run(
        &epyc(1),
        options,
        vec![body(|| (0..10).for_each(|_| charge::work_ns(500)))],
    )
    .unwrap();
    let ticks = ticks.borrow();
    assert!(
        ticks.iter().zip(1..).all(|(&ns, nth)| ns == nth * 1_000),
        "{ticks:?}"
    );
    assert!((4..=5).contains(&ticks.len()), "{ticks:?}");
}

/// Stolen lines go to whoever asked, and none of many waits for ever.
#[test]
fn a_contended_line_goes_round() {
    let counts = Rc::new([(); 16].map(|()| std::cell::Cell::new(0u64)));
    let line = lines(1);
    let bodies = (0..16).map(|core| {
        let (counts, line) = (Rc::clone(&counts), Rc::clone(&line));
        body(move || {
            while charge::now_ns().unwrap() < 200_000 {
                line[0].0.fetch_add(1, Relaxed);
                counts[core].set(counts[core].get() + 1);
                charge::work_ns(60);
            }
        })
    });
    go(&epyc(16), 11, bodies.collect());
    let counts: Vec<u64> = counts.iter().map(|count| count.get()).collect();
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(most < &(2 * least), "{counts:?}");
}

/// Random programs over locks that share lines come to their end: whoever waits is told.
#[test]
fn who_waits_for_a_lock_is_told() {
    #[repr(align(128))]
    #[derive(Default)]
    struct Shared {
        first: Mutex<u64>,
        second: Mutex<u64>,
        third: SpinMutex<u64>,
        count: AtomicU64,
        fourth: SpinMutex<u64>,
    }
    let programs = |machine: &Machine, cores: u64, seed: u64, varies: bool| {
        let shared = Rc::new(Shared::default());
        let bodies = (0..cores).map(|core| {
            let shared = Rc::clone(&shared);
            let mut random = fastrand::Rng::with_seed(seed * 1_000 + core);
            body(move || {
                for _ in 0..60 {
                    match random.u32(0..9) {
                        0 => *shared.first.lock().unwrap() += 1,
                        1 => {
                            let mut held = shared.first.lock().unwrap();
                            charge::work_ns(random.u64(0..60));
                            *shared.second.lock().unwrap() += 1;
                            *held += 1;
                        }
                        2 => *shared.third.lock() += 1,
                        3 => {
                            let mut held = shared.fourth.lock();
                            shared.count.store(7, Relaxed);
                            charge::work_ns(random.u64(0..60));
                            *held += 1;
                        }
                        4 => {
                            if let Some(mut held) = shared.third.try_lock() {
                                *held += 1;
                                charge::sleep(Some(charge::now_ns().unwrap() + 100));
                            }
                        }
                        5 => _ = shared.count.fetch_add(1, Relaxed),
                        6 => {
                            shared.count.fetch_add(1, Relaxed);
                            charge::pause();
                        }
                        7 => charge::fence(),
                        _ => charge::work_ns(random.u64(0..200)),
                    }
                }
            })
        });
        let mut options = Options::new(seed);
        (options.varies, options.ns_max) = (varies, 1e8);
        if let Err(stopped) = run(machine, options, bodies.collect()) {
            panic!("{cores} cores, {varies}: {stopped}");
        }
    };
    let xeon = Machine::shipped("xeon-e5410").unwrap();
    for seed in 0..20 {
        for varies in [false, true] {
            for cores in [2, 3, 8, 24] {
                programs(&epyc(cores), cores as u64, seed, varies);
                let few = cores.min(8);
                programs(&xeon.take(few).unwrap(), few as u64, seed, varies);
            }
        }
    }
}
