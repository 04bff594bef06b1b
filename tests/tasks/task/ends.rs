//! Tasks at the end of a run.

use super::{HERE, THERE};
use crate::common::{Alive, Bound, Payload, cores};
use mely::runtime::OnPanic;
use mely::task::{JoinError, sleep, stopping, timeout};
use mely::{Callback, Color, RunError};
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;

/// A run is asked to stop while its tasks wait for somebody outside: they are answered.
#[test]
fn a_run_does_not_end_before_its_tasks() {
    let _bound = Bound::new("a_run_does_not_end");
    const TASKS: u64 = if cfg!(miri) { 4 } else { 100 };
    for exits in [false, true] {
        let runtime = cores(2).exit_when_idle(exits).build().unwrap();
        let observer = runtime.poster();
        let answered = Arc::new(AtomicU64::new(0));
        let sum = Arc::clone(&answered);
        let (give, take) = channel::<oneshot::Sender<u64>>();
        let outside = thread::spawn(move || {
            let waiting: Vec<_> = take.into_iter().collect();
            thread::sleep(Duration::from_millis(20));
            for (n, sender) in waiting.into_iter().enumerate() {
                sender.send(n as u64).unwrap();
            }
        });
        let seen = runtime.poster();
        runtime
            .run(move |cx| {
                for n in 0..TASKS {
                    let (sender, receiver) = oneshot::channel();
                    give.send(sender).unwrap();
                    let sum = Arc::clone(&sum);
                    cx.spawn(Color::from(n), async move {
                        sum.fetch_add(receiver.await.unwrap(), Ordering::Relaxed);
                    });
                }
                drop(give);
                if !exits {
                    cx.stop();
                }
                let stats = seen.stats();
                assert!(stats.tasks <= TASKS);
            })
            .unwrap();
        outside.join().unwrap();
        assert_eq!(answered.load(Ordering::Relaxed), TASKS * (TASKS - 1) / 2);
        let stats = observer.stats();
        assert_eq!((stats.tasks, stats.events_waiting), (0, 0));
    }
}

/// What it was waiting for has its waker, and it has what it was waiting for.
#[derive(Default)]
struct Ring {
    waker: Arc<Mutex<Option<Waker>>>,
}

impl Future for Ring {
    type Output = ();
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        *self.waker.lock().unwrap() = Some(context.waker().clone());
        Poll::Pending
    }
}

#[test]
fn what_is_left_of_a_run_cut_short_is_dropped() {
    let _bound = Bound::new("what_is_left");
    let alive = Alive::default();
    let given = alive.clone();
    let (keep, kept) = channel();
    let runtime = cores(2)
        .drain_deadline(Duration::from_millis(20))
        .build()
        .unwrap();
    let poster = runtime.poster();
    let early = poster.try_spawn(THERE, pending::<Payload>()).unwrap();
    keep.send(early).unwrap();
    let error = runtime
        .run(move |cx| {
            for n in 0..100 {
                let payload = given.payload();
                let task = cx.spawn(Color::from(n), async move {
                    let _payload = payload;
                    Ring::default().await;
                    unreachable!("nobody wakes it")
                });
                keep.send(task).unwrap();
            }
            cx.stop();
        })
        .unwrap_err();
    let RunError::Deadline {
        events_left,
        tasks_left,
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!((events_left, tasks_left), (0, 101));
    assert_eq!(alive.count(), 0);
    for mut task in kept {
        assert_eq!(task.recv().map(drop), Err(JoinError::Dropped));
    }
    // A runtime that never runs.
    let runtime = cores(1).build().unwrap();
    let payload = alive.payload();
    let mut task = runtime
        .poster()
        .try_spawn(HERE, async move { drop(payload) })
        .unwrap();
    drop(runtime);
    assert_eq!(task.recv(), Err(JoinError::Dropped));
    assert_eq!(alive.count(), 0);
}

/// Timers are canceled by a stop, sleeps are not: the run ends when the tasks are over.
#[test]
fn a_stop_is_heard_and_sleeps_go_on() {
    let _bound = Bound::new("a_stop_is_heard");
    let log = Arc::new(Mutex::new(Vec::new()));
    let (heard, slept) = (Arc::clone(&log), Arc::clone(&log));
    let runtime = cores(2).build().unwrap();
    let poster = runtime.poster();
    runtime
        .run(move |cx| {
            cx.spawn(HERE, async move {
                stopping().await;
                heard.lock().unwrap().push("heard");
                stopping().await;
            });
            cx.spawn(THERE, async move {
                // One that is dropped is not noted any more.
                assert!(timeout(Duration::from_millis(1), stopping()).await.is_err());
                poster.stop();
                sleep(Duration::from_millis(3)).await;
                slept.lock().unwrap().push("slept");
            });
        })
        .unwrap();
    // Two colors: which is first depends on how busy the machine is.
    let mut log = std::mem::take(&mut *log.lock().unwrap());
    log.sort_unstable();
    assert_eq!(log, ["heard", "slept"]);
}

#[test]
fn a_drop_that_panics_at_the_end_leaves_no_other_future() {
    let _bound = Bound::new("a_drop_that_panics");
    struct Panics {
        _payload: Payload,
        panics: bool,
    }
    impl Drop for Panics {
        fn drop(&mut self) {
            assert!(!self.panics, "in a drop");
        }
    }
    let alive = Alive::default();
    let given = alive.clone();
    let runtime = cores(1)
        .drain_deadline(Duration::from_millis(5))
        .build()
        .unwrap();
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        drop(runtime.run(move |cx| {
            for n in 0..20 {
                let panics = Panics {
                    _payload: given.payload(),
                    panics: n % 7 == 3,
                };
                cx.spawn(Color::from(n), async move {
                    let _panics = panics;
                    Ring::default().await;
                });
            }
            cx.stop();
        }));
    }));
    assert!(ended.is_err());
    assert_eq!(alive.count(), 0);
}

/// A waker that panics when the runtime is asked to stop keeps no task from hearing of it.
#[test]
fn all_hear_of_the_stop() {
    struct Panics;
    impl std::task::Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("in a waker");
        }
    }
    let _bound = Bound::new("all_hear_of_the_stop");
    let heard = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&heard);
    let runtime = cores(1)
        .on_panic(OnPanic::DropEvent)
        .panic_hook(|_report| ())
        .build()
        .unwrap();
    runtime
        .run(move |cx| {
            cx.spawn(HERE, async move {
                let mut noted = Box::pin(stopping());
                let waker = Waker::from(Arc::new(Panics));
                assert!(
                    noted
                        .as_mut()
                        .poll(&mut Context::from_waker(&waker))
                        .is_pending()
                );
                sleep(Duration::from_millis(2)).await;
            });
            for _ in 0..3 {
                let count = Arc::clone(&count);
                cx.spawn(THERE, async move {
                    stopping().await;
                    count.fetch_add(1, Ordering::Relaxed);
                });
            }
            let stops = |cx: &mut mely::Cx| cx.stop();
            cx.timer(Duration::from_millis(1), Callback::anonymous(HERE, stops));
        })
        .unwrap();
    assert_eq!(heard.load(Ordering::Relaxed), 3);
}
