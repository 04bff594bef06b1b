//! What is said to allocate nothing allocates nothing. A program of its own, whose allocator
//! counts.

use crate::common::{Bound, cores};
use mely::task::{with_cx, yield_now};
use mely::{Color, Colored, Cx, Runtime};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::future::Future;
use std::sync::Arc;
use tokio::sync::Notify;

/// The system's, which counts what each thread asks for.
struct Counting;

thread_local! {
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: the system's allocator, asked as this one is asked. What counts allocates nothing, and
// has no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.set(ALLOCATED.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above; what is given back here came from there.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const FEW: u64 = 1_000;
const MANY: u64 = 10_000;
/// Event memory may still grow a little, and a core whose processor is taken away is told of that.
const GROWTH_MAX: u64 = MANY / 100;

/// How often one core allocates while a task does something this often, once it has done it for a
/// while.
fn allocations<F>(what: impl FnOnce(u64) -> F + Send + 'static) -> u64
where
    F: Future<Output = ()> + Send + 'static,
{
    let _bound = Bound::new("allocations");
    let counted = one_core().run_until(|cx, finish| {
        let task = async move {
            what(MANY).await;
            finish.finish(counted());
        };
        cx.spawn(Color::from(1), task);
    });
    counted.unwrap()
}

fn one_core() -> Runtime {
    cores(1).build().unwrap()
}

thread_local! {
    static BEGUN: Cell<u64> = const { Cell::new(0) };
}

/// From now on it counts.
fn begin() {
    BEGUN.set(ALLOCATED.get());
}

fn counted() -> u64 {
    ALLOCATED.get() - BEGUN.get()
}

/// Of a task that wakes itself, and of two that wake each other, of one color and of two.
#[test]
fn a_wake_and_a_poll_allocate_nothing() {
    let yields = |times| async move {
        for round in 0..FEW + times {
            if round == FEW {
                begin();
            }
            yield_now().await;
        }
    };
    assert!(allocations(yields) <= GROWTH_MAX);
    for color in [1, 2] {
        let wakes = move |times| async move {
            let here = Arc::new([Notify::new(), Notify::new()]);
            let there = Arc::clone(&here);
            let other = async move {
                loop {
                    there[0].notified().await;
                    there[1].notify_one();
                }
            };
            let other = with_cx(|cx| cx.spawn(Color::from(color), other));
            for round in 0..FEW + times {
                if round == FEW {
                    begin();
                }
                here[0].notify_one();
                here[1].notified().await;
            }
            let counted = counted();
            other.cancel();
            assert!(counted <= GROWTH_MAX);
            begin();
        };
        assert!(allocations(wakes) <= GROWTH_MAX);
    }
}

/// An event that holds its color until another color ends that; what waits comes then.
fn hold_again(cx: &mut Cx, left: u64, done: Arc<Notify>) {
    if left == MANY {
        begin();
    }
    if left == 0 {
        return done.notify_one();
    }
    let hold = cx.hold();
    cx.post(cx.color(), move |cx| hold_again(cx, left - 1, done));
    cx.post(Color::from(2), move |_cx| hold.resume(|_cx| ()));
}

#[test]
fn a_hold_allocates_nothing() {
    let holds = |times| async move {
        let done = Arc::new(Notify::new());
        let its = Arc::clone(&done);
        with_cx(|cx| cx.post(Color::from(3), move |cx| hold_again(cx, FEW + times, its)));
        done.notified().await;
    };
    assert!(allocations(holds) <= GROWTH_MAX);
}

#[test]
fn a_post_with_a_bound_allocates_nothing() {
    let posts = |times| async move {
        let state = with_cx(|cx| Colored::new(cx, Color::from(2), 0u64));
        let bounded = state.bounded(4);
        let done = Arc::new(Notify::new());
        for round in 0..FEW + times {
            if round == FEW {
                begin();
            }
            let its = Arc::clone(&done);
            let add = move |sum: &mut u64, _cx: &mut Cx| {
                *sum += 1;
                its.notify_one();
            };
            with_cx(|cx| bounded.try_post(cx, add)).unwrap();
            done.notified().await;
        }
    };
    assert!(allocations(posts) <= GROWTH_MAX);
}
