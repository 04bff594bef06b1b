//! Futures, results, states and closures of which five have no room on a stack.
//!
//! What fails here ends the whole test program: the thread has overflowed its stack.

use crate::common::{Bound, cores};
use mely::Post;
use mely::Reason;
use mely::task::{JoinError, with_cx, yield_now};
use mely::{Builder, Color, Colored, Cx, Handler, Rejected};
use std::sync::{Arc, Mutex};

static LARGE: Handler = Handler::new("large");
const COLOR: Color = Color::new(7);

/// The stack of each thread here.
const STACK_BYTES: usize = 2 << 20;
const BYTES: usize = 384 << 10;
type Large = [u8; BYTES];

fn one_core() -> Builder {
    cores(1).stack_bytes(STACK_BYTES).stack_bytes(STACK_BYTES)
}

/// Calls `f` on a thread with such a stack, and returns what it returns.
fn on_small_stack<R: Send + 'static>(f: impl FnOnce() -> R + Send + 'static) -> R {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    thread.spawn(f).unwrap().join().unwrap()
}

/// A large future: it has the bytes, also while it waits.
async fn future(byte: u8) -> u8 {
    let bytes = [byte; BYTES];
    yield_now().await;
    bytes[BYTES - 1]
}

#[test]
fn a_future_is_moved_to_its_place_at_once() {
    let _bound = Bound::new("a_future_is_moved_to_its_place");
    assert!(size_of_val(&future(0)) >= BYTES);
    let runtime = one_core().build().unwrap();
    let poster = runtime.poster();
    let outside = on_small_stack(move || poster.try_spawn(COLOR, future(1)).unwrap());
    let bytes = runtime.run_until(|cx, finish| {
        let tasks = [
            cx.spawn(COLOR, future(2)),
            LARGE.spawn(cx, COLOR, future(3)),
            cx.poster().try_spawn(COLOR, future(4)).unwrap(),
        ];
        cx.post(COLOR, move |cx| {
            let held = cx.hold().until(future(5));
            let rest = async move {
                let mut bytes = vec![outside.await, held.await];
                for task in tasks {
                    bytes.push(task.await);
                }
                finish.finish(bytes);
            };
            cx.spawn(Color::new(8), rest);
        });
    });
    assert_eq!(bytes.unwrap(), [1, 5, 2, 3, 4].map(Ok));
}

#[test]
fn a_future_that_is_refused_comes_back() {
    let _bound = Bound::new("a_future_that_is_refused");
    let runtime = one_core().events_max(1).build().unwrap();
    let byte = runtime.run_until(|cx, finish| {
        while cx.try_post(COLOR, |_cx| ()).is_ok() {}
        let Err(Rejected {
            reason: Reason::Full,
            value: refused,
        }) = cx.poster().try_spawn(COLOR, future(6))
        else {
            panic!("there is no room");
        };
        let refused = Box::pin(refused);
        cx.hold().until(async move { finish.finish(refused.await) });
    });
    assert_eq!(byte.unwrap(), 6);
}

#[test]
fn what_a_future_returns() {
    let _bound = Bound::new("what_a_future_returns");
    let bytes = one_core().build().unwrap().run_until(|cx, finish| {
        let task = cx.spawn(COLOR, async { [1_u8; BYTES] });
        let callback = LARGE.on_value(COLOR, move |cx: &mut Cx, first: Result<Large, _>| {
            let first = first.unwrap()[0];
            let task = cx.spawn(COLOR, async { [2_u8; BYTES] });
            let awaits = async move { finish.finish([first, task.await.unwrap()[0]]) };
            cx.spawn(COLOR, awaits);
        });
        task.then(cx, callback);
    });
    assert_eq!(bytes.unwrap(), [1, 2]);
}

#[test]
fn what_blocking_work_has_and_returns() {
    let _bound = Bound::new("what_blocking_work_has_and_returns");
    let bytes = one_core().build().unwrap().run_until(|cx, finish| {
        let given: Large = [3; BYTES];
        let work = move || given.map(|byte| byte + 1);
        let callback = LARGE.on_value(
            COLOR,
            move |cx: &mut Cx, first: Result<Large, JoinError>| {
                let first = first.unwrap()[0];
                let awaits = async move {
                    let second = with_cx(|cx| cx.try_blocking(|| [5; BYTES]).unwrap());
                    let second: Large = second.await.unwrap();
                    finish.finish([first, second[0]]);
                };
                cx.spawn(COLOR, awaits);
            },
        );
        cx.try_blocking(work).unwrap().then(cx, callback);
    });
    assert_eq!(bytes.unwrap(), [4, 5]);
}

#[test]
fn a_state() {
    let _bound = Bound::new("a_state");
    let runtime = one_core().build().unwrap();
    let poster = runtime.poster();
    let outside = on_small_stack(move || Colored::new(&poster, COLOR, [1_u8; BYTES]));
    let bytes = runtime.run_until(move |cx, finish| {
        let state = Colored::new(cx, COLOR, [2_u8; BYTES]);
        let unique = Colored::new_unique(cx, [3_u8; BYTES]);
        let all = [&outside, &state, &unique];
        cx.with_all(all, move |states, _cx| {
            finish.finish(states.map(|state| state[0]));
        });
    });
    assert_eq!(bytes.unwrap(), [1, 2, 3]);
}

/// Half as large: what posts it has a few of them on its stack.
type Captured = [u8; BYTES / 2];

#[test]
fn a_closure() {
    let _bound = Bound::new("a_closure");
    let runtime = one_core().build().unwrap();
    let all = Arc::new(Mutex::new(Vec::new()));
    let push = |byte| {
        let (bytes, all): (Captured, _) = ([byte; BYTES / 2], Arc::clone(&all));
        move || all.lock().unwrap().push(bytes[0])
    };
    let state = Colored::new(&runtime.poster(), COLOR, ());
    let (poster, its, push_1) = (runtime.poster(), state.clone(), Box::new(push(1)));
    on_small_stack(move || {
        let push = *push_1;
        its.try_post(&poster, move |(), _cx| push()).unwrap();
    });
    let (poster, push_2) = (runtime.poster(), Box::new(push(2)));
    on_small_stack(move || {
        let push = *push_2;
        poster.try_post(COLOR, move |_cx| push()).unwrap();
    });
    let (push_3, push_4) = (Box::new(push(3)), Box::new(push(4)));
    let ran = runtime.run(move |cx| {
        cx.post(COLOR, move |cx| {
            let push = *push_3;
            cx.post(COLOR, move |_cx| push());
        });
        cx.post(COLOR, move |cx| {
            let push = *push_4;
            state.post(cx, move |(), cx| {
                push();
                cx.stop();
            });
        });
    });
    ran.unwrap();
    assert_eq!(*all.lock().unwrap(), [1, 2, 3, 4]);
}

#[test]
fn a_reply() {
    let _bound = Bound::new("a_reply");
    let runtime = one_core().build().unwrap();
    let mut reply = runtime
        .poster()
        .try_ask(COLOR, |_cx| [1_u8; BYTES])
        .unwrap();
    let asker = std::thread::spawn(|| on_small_stack(move || reply.recv().unwrap()[0]));
    let bytes = runtime.run_until(|cx, finish| {
        let first = cx.ask(COLOR, |_cx| [2_u8; BYTES]);
        let told = move |cx: &mut Cx, first: Result<Large, JoinError>| {
            let first = first.unwrap()[0];
            let second = cx.ask(COLOR, |_cx| [3_u8; BYTES]);
            let awaits = async move { finish.finish([first, second.await.unwrap()[0]]) };
            cx.spawn(Color::new(8), awaits);
        };
        first.then(cx, LARGE.on_value(COLOR, told));
    });
    assert_eq!(bytes.unwrap(), [2, 3]);
    assert_eq!(asker.join().unwrap(), 1);
}
