//! Settings: which are refused, and the least and greatest that work.

use crate::common::{Bound, cores};
use mely::runtime::BuildError;
use mely::{Callback, Color, Runtime};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[test]
fn impossible_settings_are_refused_in_words() {
    let refused = |builder: mely::Builder| builder.build().unwrap_err();
    let builder = Runtime::builder;
    assert_eq!(refused(builder().cores(0)), BuildError::CoreCount(0));
    let many = refused(builder().cores(513).pin(false));
    assert_eq!(many, BuildError::CoreCount(513));
    assert_eq!(many.to_string(), "513 cores: a runtime has from 1 to 512");
    for slots in [0, 1, 8, 15, 17, 1_000, 1 << 21, usize::MAX] {
        let error = refused(builder().color_slots(slots));
        assert_eq!(error, BuildError::ColorSlots(slots));
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("{slots} color slots: a power of two")),
            "{text}"
        );
    }
    for batch in [0, 65_537, u32::MAX] {
        let error = refused(builder().batch(batch));
        assert_eq!(error, BuildError::Batch(batch));
        let text = error.to_string();
        assert_eq!(
            text,
            format!("a batch threshold of {batch}: from 1 to 65536")
        );
    }
    let error = refused(builder().events_max(0));
    assert_eq!(error, BuildError::EventsMax);
    assert_eq!(error.to_string(), "a limit of no queued events at all");
    for threads in [0, 1_025] {
        let error = refused(builder().blocking_threads_max(threads));
        assert_eq!(error, BuildError::BlockingThreads(threads));
        let said = format!("{threads} threads for blocking work (`blocking_threads_max`)");
        assert!(error.to_string().starts_with(&said), "{error}");
    }
    for bytes in [0, (256 << 10) - 1, usize::MAX] {
        let error = refused(builder().stack_bytes(bytes));
        assert_eq!(error, BuildError::StackBytes(bytes));
        let said = format!("a stack of {bytes} bytes (`stack_bytes`): from 262144 to ");
        assert!(error.to_string().starts_with(&said), "{error}");
    }
    let error = refused(builder().cores(512));
    if let BuildError::TooManyCores { asked, available } = error {
        assert_eq!(asked, 512);
        let text = error.to_string();
        let said = format!("512 cores on {available} processors: `pin(false)`");
        assert!(text.starts_with(&said), "{text}");
    } else {
        assert!(std::thread::available_parallelism().unwrap().get() >= 512);
    }
}

#[test]
fn the_bounds_themselves_are_accepted() {
    let _bound = Bound::new("the_bounds_themselves");
    for slots in [16, 1 << 20] {
        cores(2)
            .color_slots(slots)
            .build()
            .unwrap()
            .run(|cx| {
                for i in 0..1_000 {
                    cx.post(Color::from(i << 40 | i), |_cx| ());
                }
                cx.stop();
            })
            .unwrap();
    }
    for batch in [1, 65_536] {
        let order = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&order);
        cores(1)
            .batch(batch)
            .build()
            .unwrap()
            .run(move |cx| {
                for i in 0..1_000 {
                    let order = Arc::clone(&order);
                    cx.post(Color::from(1), move |_cx| order.lock().unwrap().push(i));
                }
                cx.stop();
            })
            .unwrap();
        assert_eq!(*seen.lock().unwrap(), (0..1_000).collect::<Vec<_>>());
    }
    // More cores than any small machine has, each with an event source of its own.
    let runtime = cores(48).build().unwrap();
    let observer = runtime.poster();
    runtime
        .run(|cx| {
            for i in 0..480 {
                cx.post(Color::from(i), |_cx| ());
            }
            cx.stop();
        })
        .unwrap();
    assert_eq!(observer.stats().events(), 481);
}

/// Calls `f` with so many bytes of the stack in use.
fn on_stack(bytes: usize, f: &mut dyn FnMut()) {
    let mut page = [0_u8; 4_096];
    std::hint::black_box(&mut page);
    match bytes.checked_sub(2 * page.len()) {
        Some(left) => on_stack(left, f),
        None => f(),
    }
    std::hint::black_box(&mut page);
}

/// The smallest stack is large enough for the runtime, and a larger one can be used.
#[test]
fn stacks_are_as_large_as_asked_for() {
    let _bound = Bound::new("stacks_are_as_large");
    for bytes in [256 << 10, 16 << 20] {
        let builder = cores(2).stack_bytes(bytes);
        let uses = if bytes > 1 << 20 { 8 << 20 } else { 0 };
        let works = move || {
            let mut called = false;
            on_stack(uses, &mut || called = true);
            called
        };
        let called = builder.build().unwrap().run_until(move |cx, finish| {
            let here = works();
            let done = Callback::anonymous_value(
                Color::from(1),
                move |_cx, there: Result<bool, mely::task::JoinError>| {
                    finish.finish([here, there.unwrap()]);
                },
            );
            cx.try_blocking(works).unwrap().then(cx, done);
        });
        assert_eq!(called.unwrap(), [true; 2]);
    }
}

#[test]
fn a_stack_that_the_system_refuses_is_an_error_that_names_the_setting() {
    let _bound = Bound::new("a_stack_that_the_system_refuses");
    let bytes = usize::MAX / 8;
    let runtime = cores(2).stack_bytes(bytes).build().unwrap();
    let error = runtime.run(|_cx| unreachable!()).unwrap_err().to_string();
    let begins =
        format!("a core could not begin: a thread with a stack of {bytes} bytes (`stack_bytes`): ");
    assert!(error.starts_with(&begins), "{error}");
}

/// What is not possible is clamped, and nothing overflows.
#[test]
fn extreme_settings_work() {
    let _bound = Bound::new("extreme_settings_work");
    for time in [Duration::ZERO, Duration::from_nanos(1 << 63), Duration::MAX] {
        let runtime = cores(2)
            .wake_cost(time)
            .watchdog(time)
            .spin(time.min(Duration::from_millis(1)))
            .build()
            .unwrap();
        runtime
            .run(|cx| {
                for i in 0..1_000 {
                    cx.post(Color::from(i), |_cx| std::thread::yield_now());
                }
                assert!(cx.poster().deepest_colors(usize::MAX).len() <= 1_001);
                cx.stop();
            })
            .unwrap();
    }
}
