//! The threads of virtual cores.

use super::{chains, in_the_middle};
use crate::common::{child_passes, eventually};
use mely::runtime::BuildError;
use mely::sim::{self, SimError};
use mely::{Color, Cx, Runtime};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A crate like `scoped-tls` lends a reference by such a variable, for as long as a closure runs:
/// to another core it would be lent for longer.
#[test]
fn what_a_core_lends_by_a_thread_local_no_other_core_sees() {
    thread_local! {
        static LENT: Cell<Option<usize>> = const { Cell::new(None) };
    }
    let most = Arc::new(AtomicUsize::new(0));
    for seed in 0..20 {
        let builder = Runtime::builder().cores(4);
        let mut simulation = builder.exit_when_idle(true).simulate(seed).unwrap();
        let lending = Arc::new(AtomicUsize::new(0));
        let most = Arc::clone(&most);
        let lends = move |cx: &mut Cx| {
            let core = cx.core();
            assert_eq!(LENT.replace(Some(core)), None, "seen on core {core}");
            let lending_now = lending.fetch_add(1, Ordering::Relaxed) + 1;
            most.fetch_max(lending_now, Ordering::Relaxed);
            if cx.color().value().is_multiple_of(2) {
                sim::work(cx, Duration::from_micros(10));
            } else {
                sim::pause(cx);
            }
            lending.fetch_sub(1, Ordering::Relaxed);
            assert_eq!(LENT.take(), Some(core));
        };
        let start = move |cx: &mut Cx| {
            for color in 1..60u64 {
                cx.post(Color::from(color), lends.clone());
            }
        };
        simulation.run(start).unwrap();
    }
    assert_eq!(most.load(Ordering::Relaxed), 4, "cores lent side by side");
}

#[test]
fn each_core_has_a_thread_until_the_simulation_is_gone() {
    thread_local! {
        static KEPT: RefCell<Option<Arc<()>>> = const { RefCell::new(None) };
    }
    let kept = Arc::new(());
    let threads = Arc::new(Mutex::new(BTreeMap::new()));
    let builder = Runtime::builder().cores(4);
    let mut simulation = builder.exit_when_idle(true).simulate(1).unwrap();
    let (its, theirs) = (Arc::clone(&kept), Arc::clone(&threads));
    let notes = move |cx: &mut Cx| {
        sim::work(cx, Duration::from_micros(10));
        KEPT.set(Some(Arc::clone(&its)));
        let thread = std::thread::current();
        let before = theirs.lock().unwrap().insert(cx.core(), thread.clone());
        assert!(before.is_none_or(|before| before.id() == thread.id()));
        assert_eq!(thread.name(), Some(&*format!("mely-{}", cx.core())));
    };
    let start = move |cx: &mut Cx| {
        (1..100).for_each(|color| cx.post(Color::from(color), notes.clone()));
    };
    simulation.run(start).unwrap();
    let threads = threads.lock().unwrap();
    let ids: std::collections::HashSet<_> = threads.values().map(|thread| thread.id()).collect();
    assert_eq!(ids.len(), 4);
    assert!(!ids.contains(&std::thread::current().id()));
    // The variables of the threads are dropped before `run` returns.
    assert_eq!(Arc::strong_count(&kept), 1);
}

/// Threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[test]
fn no_thread_is_left() {
    child_passes("sim::threads::child_leaves_no_thread", &[]);
}

#[test]
#[ignore = "in a process of its own"]
fn child_leaves_no_thread() {
    let before = threads();
    let none_left = |after: &str| eventually(after, || threads() == before);
    let simulation = Runtime::builder().simulate(1).unwrap();
    assert_eq!(threads(), before + 4);
    drop(simulation);
    none_left("one that did nothing");
    let simulation = chains(1, 4);
    none_left("one that has run");
    drop(simulation);
    drop(in_the_middle());
    none_left("one with a handler in the middle");
    let mut simulation = Runtime::builder().simulate(1).unwrap();
    simulation.run(|_cx| panic!("on purpose")).unwrap_err();
    none_left("one that has panicked");
    let mut simulation = Runtime::builder().simulate(1).unwrap();
    let error = simulation.run(|_cx| ()).unwrap_err();
    assert!(matches!(error, SimError::Stalled), "{error}");
    drop(simulation);
    none_left("one that has stalled");
}

#[test]
fn a_thread_that_is_refused_is_told() {
    let calls = [libc::SYS_clone, libc::SYS_clone3].map(|call| (call, Vec::new()));
    let refuse = SeccompAction::Errno(libc::EAGAIN as u32);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(calls.into(), SeccompAction::Allow, refuse, arch).unwrap();
    let filter: BpfProgram = filter.try_into().unwrap();
    let refused = std::thread::spawn(move || {
        apply_filter(&filter).unwrap();
        Runtime::builder().simulate(1).unwrap_err()
    });
    let error = refused.join().unwrap();
    assert!(matches!(error, BuildError::Thread(_)), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("`simulate`") && text.contains("`cores`"),
        "{text}"
    );
}
