//! Many cores that want one lock, or one line: in virtual time a lock has one holder, and everybody
//! gets it at last.

mod common;

use common::{body, epyc, go, lines, run, takes, wait_until};
use mely_hardware::sync::atomic::AtomicU64;
use mely_hardware::sync::{Mutex, SpinMutex};
use mely_hardware::{Body, Machine, Options, charge};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// A lock of each kind.
#[derive(Default)]
struct Locks {
    spins: SpinMutex<u64>,
    sleeps: Mutex<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Of {
    Spins,
    Sleeps,
}

const BOTH: [Of; 2] = [Of::Spins, Of::Sleeps];

impl Locks {
    fn with<R>(&self, of: Of, f: impl FnOnce(&mut u64) -> R) -> R {
        match of {
            Of::Spins => f(&mut self.spins.lock()),
            // Who unwinds poisons it.
            Of::Sleeps => f(&mut self.sleeps.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

fn now_ns() -> u64 {
    charge::now_ns().unwrap()
}

#[test]
fn nobody_has_a_lock_before_it_is_released() {
    let xeon = Machine::shipped("xeon-e5410").unwrap();
    for (machine, of) in [
        (&epyc(24), Of::Spins),
        (&xeon, Of::Spins),
        (&epyc(8), Of::Sleeps),
    ] {
        let cores = machine.topology().cores().len();
        let locks = Rc::new(Locks::default());
        // When each holder got it, and when it had released it.
        let held = Rc::new(RefCell::new(Vec::new()));
        let bodies = (0..cores).map(|core| {
            let (locks, held) = (Rc::clone(&locks), Rc::clone(&held));
            body(move || {
                let mut random = fastrand::Rng::with_seed(core as u64);
                for _ in 0..100 {
                    let at = locks.with(of, |_| {
                        held.borrow_mut().push((now_ns(), 0));
                        charge::work_ns(random.u64(0..40));
                        held.borrow().len() - 1
                    });
                    held.borrow_mut()[at].1 = now_ns();
                    charge::work_ns(random.u64(0..100));
                }
            })
        });
        go(machine, 1, true, bodies.collect());
        let held = held.borrow();
        assert_eq!(held.len(), 100 * cores);
        for pair in held.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "{of:?}, {cores} cores: {pair:?}");
        }
    }
}

/// However many want a line: of those that wait one has a turn. (Who polls the lock in it looks
/// whenever somebody has changed it: that is each of them.)
#[test]
fn who_gets_a_line_takes_few_turns() {
    for of in [None, Some(Of::Sleeps)] {
        let shared = Rc::new((lines(1), Locks::default()));
        let bodies = (0..128).map(|_| {
            let shared = Rc::clone(&shared);
            body(move || (0..10).for_each(|_| add(&shared.0[0].0, &shared.1, of)))
        });
        let report = go(&epyc(128), 1, true, bodies.collect());
        let all = shared.0[0].0.load(Relaxed) + shared.1.with(Of::Sleeps, |count| *count);
        assert_eq!(all, 1_280);
        assert!(report.switches < 12 * 1_280, "{of:?}: {}", report.switches);
    }
}

/// Changes a line, or what is behind a lock.
fn add(line: &AtomicU64, locks: &Locks, of: Option<Of>) {
    match of {
        None => _ = line.fetch_add(1, Relaxed),
        Some(of) => locks.with(of, |count| *count += 1),
    }
}

/// Also if it does nothing else.
#[test]
fn who_changes_a_line_again_and_again_lets_others_change_it() {
    for of in [None, Some(Of::Spins), Some(Of::Sleeps)] {
        let waited_ns = Rc::new(Cell::new(0.0));
        let shared = Rc::new((lines(1), Locks::default()));
        let (its, other, waited) = (Rc::clone(&shared), Rc::clone(&shared), waited_ns.clone());
        let mut bodies = vec![body(move || {
            (0..20_000).for_each(|_| add(&its.0[0].0, &its.1, of));
        })];
        bodies.extend((1..20).map(|_| body(|| ())));
        bodies.push(body(move || {
            for round in 0..10 {
                wait_until(1_000 + 5_000 * round);
                let took = takes(|| add(&other.0[0].0, &other.1, of));
                waited.set(waited.get() + took);
            }
        }));
        let report = go(&epyc(21), 1, true, bodies);
        let mean_ns = waited_ns.get() / 10.0;
        assert!((100.0..2_000.0).contains(&mean_ns), "{of:?}: {mean_ns}");
        assert!(report.ns > 60_000.0, "it was alone most of the time");
    }
}

/// The guard is dropped in the middle of a panic, by a core whose turn is over.
#[test]
fn who_unwinds_releases_its_lock_and_is_seen() {
    struct Told(Rc<Vec<common::Line>>);
    impl Drop for Told {
        fn drop(&mut self) {
            self.0[1].0.store(1, Release);
        }
    }
    for (of, seed) in BOTH
        .into_iter()
        .flat_map(|of| [1, 2, 3].map(|seed| (of, seed)))
    {
        let (locks, lines) = (Rc::new(Locks::default()), lines(2));
        let (locks1, lines1, lines2) = (locks.clone(), lines.clone(), lines.clone());
        let unwinds = move || {
            locks.with(of, |_| {
                let _told = Told(Rc::clone(&lines));
                wait_until(10_000);
                lines[0].0.fetch_add(1, Relaxed);
                resume_unwind(Box::new(()));
            });
        };
        let bodies: Vec<Body> = vec![
            body(move || assert!(catch_unwind(AssertUnwindSafe(unwinds)).is_err())),
            body(move || {
                wait_until(5_000);
                locks1.with(of, |_| ());
                assert_eq!(lines1[1].0.load(Acquire), 1);
            }),
            body(move || {
                while lines2[1].0.load(Acquire) == 0 {
                    charge::pause();
                }
            }),
            body(|| (0..20_000).for_each(|_| charge::work(1.0))),
        ];
        let mut options = Options::new(seed);
        options.ns_max = 1e7;
        let report = run(&epyc(4), options, bodies);
        assert!(report.is_ok(), "{of:?}: {report:?}");
    }
}

/// Two hyper-threads of a core have its caches together.
#[test]
fn who_shares_a_first_cache_is_told_too() {
    let of_threads = Machine::shipped("measured-vm")
        .unwrap()
        .to_text()
        .replace("online 0-1", "online 0-3")
        .replace("package 0: 0-1", "package 0: 0-3")
        .replace("node 0: 0-1", "node 0: 0-3")
        .replace("core: 0; 1", "core: 0-1; 2-3")
        .replace("64: 0; 1", "64: 0-1; 2-3")
        .replace("64: 0-1\n", "64: 0-3\n")
        .replace("transfer L3", "transfer L1 = 3 ; assumed\ntransfer L3")
        .replace(
            "transfer-row L3",
            "transfer-row L1 = 0.2 ; assumed\ntransfer-row L3",
        )
        .replace("rmw L3", "rmw L1 = 6 ; assumed\nrmw L3");
    let machine = Machine::parse(&of_threads).unwrap();
    for (who, other) in [(0, 1), (0, 2), (1, 3)] {
        for of in [None, Some(Of::Spins), Some(Of::Sleeps)] {
            let shared = Rc::new((lines(1), Locks::default()));
            let bodies = (0..4).map(|core| {
                let (lines, locks) = (Rc::clone(&shared.0), Rc::clone(&shared));
                let at_last = move || match of {
                    None => {
                        wait_until(10_000);
                        lines[0].0.store(1, Release);
                    }
                    Some(of) => locks.1.with(of, |_| wait_until(10_000)),
                };
                let shared = Rc::clone(&shared);
                let waits = move || {
                    wait_until(5_000);
                    match of {
                        None => {
                            while shared.0[0].0.load(Acquire) == 0 {
                                charge::pause();
                            }
                        }
                        Some(of) => shared.1.with(of, |_| ()),
                    }
                };
                if core == who {
                    body(at_last)
                } else if core == other {
                    body(waits)
                } else {
                    body(|| ())
                }
            });
            let report = go(&machine, 1, true, bodies.collect());
            assert!(
                (10_000.0..10_400.0).contains(&report.ns),
                "{of:?}: {}",
                report.ns
            );
        }
    }
}
