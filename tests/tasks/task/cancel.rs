//! Tasks that are canceled or detached, and what becomes of their futures.

use super::{HERE, THERE};
use crate::common::{Alive, Bound, Payload, cores};
use mely::Post;
use mely::runtime::OnPanic;
use mely::sim::Step;
use mely::task::{JoinError, join_all, sleep, try_with_cx, with_cx, yield_now};
use mely::{Color, Cx, Handler, Runtime};
use std::future::pending;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;

/// Says in which color it was dropped.
struct Dropped(std::sync::mpsc::Sender<Option<Color>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.send(try_with_cx(|cx| cx.color()).ok());
    }
}

#[test]
fn a_handle_that_cancels_on_drop_cancels_its_task_in_its_color() {
    let _bound = Bound::new("a_handle_that_cancels_on_drop");
    let (told, drops) = channel();
    let runtime = cores(2).exit_when_idle(true).build().unwrap();
    runtime
        .run(move |cx| {
            // Before its first poll, which the event that cancels it is in the way of.
            let payload = Dropped(told.clone());
            cx.post(HERE, |cx| {
                let task = cx.spawn(HERE, async move {
                    drop(payload);
                    unreachable!("canceled before it began");
                });
                drop(task.cancel_on_drop());
            });
            // While it waits, by another color.
            let payload = Dropped(told.clone());
            let task = cx.spawn(HERE, async move {
                let _payload = payload;
                pending::<()>().await;
            });
            let task = task.cancel_on_drop();
            cx.spawn(THERE, async move {
                sleep(Duration::from_millis(1)).await;
                drop(task);
            });
            // While it waits, by a thread.
            let payload = Dropped(told.clone());
            let task = cx.spawn(HERE, async move {
                let _payload = payload;
                pending::<()>().await;
            });
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(1));
                drop(task.cancel_on_drop());
            });
            // By itself: its first poll goes on to its end.
            let (give, mine) = channel();
            let payload = Dropped(told);
            let task = cx.spawn(HERE, async move {
                let _payload = payload;
                drop(mine.recv().unwrap());
                pending::<()>().await;
            });
            give.send(task.cancel_on_drop()).unwrap();
        })
        .unwrap();
    let drops: Vec<_> = drops.into_iter().collect();
    assert_eq!(drops, [Some(HERE); 4]);
}

/// Not begun, waiting, polled at that moment, or over: the task goes on to its end, and its output
/// is dropped by that event; one that is there already is dropped with the handle.
#[test]
fn a_handle_that_is_dropped_detaches_its_task() {
    struct Output(std::sync::mpsc::Sender<Option<String>>);
    impl Drop for Output {
        fn drop(&mut self) {
            let name = thread::current().name().map(str::to_owned);
            self.0.send(name).unwrap();
        }
    }
    let _bound = Bound::new("a_handle_that_is_dropped");
    let (told, drops) = channel();
    let output = || Output(told.clone());
    let outputs = [0; 6].map(|_| output());
    drop(told);
    let runtime = cores(2).exit_when_idle(true).build().unwrap();
    let over = runtime.run_until(move |cx, finish| {
        let [first, second, third, fourth, fifth, last] = outputs;
        drop(cx.spawn(HERE, async move { first }));
        let (wake, woken) = oneshot::channel();
        let waits = cx.spawn(HERE, async move {
            woken.await.unwrap();
            second
        });
        cx.spawn(THERE, async move {
            drop(waits);
            wake.send(()).unwrap();
        });
        let (give, mine) = channel::<mely::JoinHandle<Output>>();
        let polled = cx.spawn(HERE, async move {
            drop(mine.recv().unwrap());
            third
        });
        give.send(polled).unwrap();
        // All of those that are joined.
        let both = [fourth, fifth].map(|output| cx.spawn(HERE, async move { output }));
        drop(join_all(both));
        let over = cx.spawn(HERE, async move { last });
        cx.spawn(THERE, async move {
            while !over.is_finished() {
                yield_now().await;
            }
            finish.finish(over);
        });
    });
    let over = over.unwrap();
    let on_cores: Vec<_> = drops.try_iter().flatten().collect();
    assert_eq!(on_cores.len(), 5);
    assert!(on_cores.iter().all(|name| name.starts_with("mely-")));
    drop(over);
    let here = thread::current().name().map(str::to_owned);
    assert_eq!(drops.into_iter().collect::<Vec<_>>(), [here]);
}

/// All tasks that are joined are canceled, and the joined handle gives what has become of each.
#[test]
fn joined_tasks_are_canceled_together() {
    let _bound = Bound::new("joined_tasks_are_canceled");
    let alive = Alive::default();
    let given = alive.clone();
    let all = cores(2).build().unwrap().run_until(move |cx, finish| {
        let waits = |color| {
            let payload = given.payload();
            cx.spawn(color, async move {
                let _payload = payload;
                pending::<u32>().await
            })
        };
        let tasks = [waits(HERE), waits(THERE), cx.spawn(HERE, async { 5 })];
        cx.spawn(THERE, async move {
            while !tasks[2].is_finished() {
                yield_now().await;
            }
            let all = join_all(tasks);
            all.cancel();
            finish.finish(all.await);
        });
    });
    let canceled = Err(JoinError::Canceled);
    assert_eq!(all.unwrap(), Ok(vec![canceled, canceled, Ok(5)]));
    assert_eq!(alive.count(), 0);
}

/// Whoever cancels is told when the future is gone, whatever the task does at that moment.
#[test]
fn a_cancel_tells_when_the_future_is_gone() {
    let _bound = Bound::new("a_cancel_tells");
    let alive = Alive::default();
    let given = alive.clone();
    let runtime = cores(2)
        .on_panic(OnPanic::DropEvent)
        .panic_hook(|_| ())
        .exit_when_idle(true)
        .build()
        .unwrap();
    let told = runtime.run_until(move |cx, finish| {
        let payload = || given.payload();
        let left = given.clone();
        let waits = |payload: Payload| async move {
            let _payload = payload;
            pending::<u32>().await
        };
        let waiting = cx.spawn(HERE, waits(payload()));
        let outside = cx.spawn(HERE, waits(payload()));
        let over = cx.spawn(HERE, async { 5 });
        let panics = cx.spawn(HERE, async move {
            struct PanicsWhenDropped;
            impl Drop for PanicsWhenDropped {
                fn drop(&mut self) {
                    panic!("planted");
                }
            }
            let _panics = PanicsWhenDropped;
            pending::<()>().await;
        });
        cx.spawn(THERE, async move {
            let not_begun = with_cx(|cx| {
                // In its own color, which begins with it later.
                let payload = left.payload();
                let task = cx.spawn(THERE, async move {
                    drop(payload);
                    unreachable!("canceled before it began");
                });
                task.cancel();
                task
            });
            assert_eq!(left.count(), 3);
            let not_begun: Result<(), JoinError> = not_begun.await;
            assert_eq!(left.count(), 2);
            assert!(!waiting.is_finished());
            waiting.cancel();
            let waiting = waiting.await;
            assert_eq!(left.count(), 1);
            // On a thread.
            let (tell, told) = oneshot::channel();
            thread::spawn(move || {
                let mut outside = outside;
                outside.cancel();
                let canceled = outside.recv();
                tell.send((canceled, left.count())).unwrap();
            });
            let outside = told.await.unwrap();
            while !over.is_finished() {
                yield_now().await;
            }
            over.cancel();
            let over = over.await;
            panics.cancel();
            let panics = panics.await;
            finish.finish((not_begun, waiting, outside, over, panics));
        });
    });
    let canceled = JoinError::Canceled;
    assert_eq!(
        told.unwrap(),
        (
            Err(canceled),
            Err(canceled),
            (Err(canceled), 0),
            Ok(5),
            Err(JoinError::Panicked)
        )
    );
    assert_eq!(alive.count(), 0);
}

/// What a canceled future posts when it is dropped comes before what the canceler then posts.
#[test]
fn what_a_canceled_future_posts_comes_before_what_the_canceler_posts() {
    static SHORT: Handler = Handler::new("short").time(Duration::from_nanos(100));
    // Of another core than the task.
    const LAST: Color = Color::new(8);
    struct Posts(Arc<Mutex<Vec<&'static str>>>);
    impl Drop for Posts {
        fn drop(&mut self) {
            let order = Arc::clone(&self.0);
            let posts = move |_cx: &mut Cx| order.lock().unwrap().push("canceled");
            with_cx(|cx| SHORT.on(LAST, posts).post(cx));
        }
    }
    for seed in 0..200 {
        let order = Arc::new(Mutex::new(Vec::new()));
        let posts = Posts(Arc::clone(&order));
        let mut simulation = Runtime::builder().cores(2).simulate(seed).unwrap();
        let poster = simulation.poster();
        let (give, tasks) = channel();
        let begin = move |cx: &mut Cx| {
            let task = async move {
                let _posts = posts;
                pending::<()>().await;
            };
            give.send(SHORT.spawn(cx, HERE, task)).unwrap();
        };
        simulation.start(begin).unwrap();
        while simulation.step() != Step::Stalled {}
        let mut task = tasks.recv().unwrap();
        task.cancel();
        // More to do, before the posts are published.
        for color in (21..60).step_by(2) {
            let more = SHORT.on(Color::from(color), |_cx| ());
            more.try_post(&poster).unwrap();
        }
        let mut came = false;
        while simulation.step() != Step::Stalled {
            if !came && task.try_recv() == Some(Err(JoinError::Canceled)) {
                came = true;
                let order = Arc::clone(&order);
                let posts = move |_cx: &mut Cx| order.lock().unwrap().push("canceler");
                poster.try_post(LAST, posts).unwrap();
            }
        }
        let order = order.lock().unwrap().clone();
        assert_eq!(order, ["canceled", "canceler"], "with seed {seed}");
    }
}
