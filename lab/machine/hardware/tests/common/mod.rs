//! What the tests of runs have in common.

use mely_hardware::sync::atomic::AtomicU64;
use mely_hardware::{Body, Machine, Options, Report, Stopped, charge};
use std::rc::Rc;

pub(crate) fn epyc(cores: usize) -> Machine {
    Machine::shipped("epyc-2x64").unwrap().take(cores).unwrap()
}

pub(crate) fn run(
    machine: &Machine,
    options: Options,
    bodies: Vec<Body>,
) -> Result<Report, Stopped> {
    // SAFETY: no body of these tests lends anything by a thread-local variable.
    unsafe { mely_hardware::run(machine, options, bodies) }
}

/// If it `varies` not, all takes what the machine's file says.
pub(crate) fn go(machine: &Machine, seed: u64, varies: bool, bodies: Vec<Body>) -> Report {
    let mut options = Options::new(seed);
    options.varies = varies;
    run(machine, options, bodies).unwrap()
}

pub(crate) fn body(f: impl FnOnce() + 'static) -> Body {
    Box::new(f)
}

#[repr(align(128))]
#[derive(Default)]
pub(crate) struct Line(pub(crate) AtomicU64);

pub(crate) fn lines(count: usize) -> Rc<Vec<Line>> {
    let lines: Vec<Line> = (0..count).map(|_| Line::default()).collect();
    Rc::new(lines)
}

/// What `f` takes, in ns.
pub(crate) fn takes(f: impl FnOnce()) -> f64 {
    let start = charge::now_ns().unwrap();
    f();
    (charge::now_ns().unwrap() - start) as f64
}

/// Waits until this time.
#[allow(dead_code, reason = "not all tests wait")]
pub(crate) fn wait_until(ns: u64) {
    while charge::now_ns().unwrap() < ns {
        charge::work(1.0);
    }
}

#[allow(dead_code, reason = "not all tests compare times")]
#[track_caller]
pub(crate) fn assert_near(is: f64, expected: f64) {
    assert!(
        (is - expected).abs() <= 0.01 * expected + 1.0,
        "{is}, not {expected}"
    );
}
