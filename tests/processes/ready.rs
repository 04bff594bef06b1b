//! Signals, and descriptors that become ready.

use crate::common::{Alive, Bound, LONG, backends, cores, eventually};
use mely::aio;
use mely::net::Watch;
use mely::process::Signal;
use mely::sim::Step;
use mely::task::{timeout, with_cx};
use mely::{Callback, Color, Cx, Handler, Runtime};
use rustix::process::{getpid, kill_process};
use std::cell::Cell;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

static TOLD: Handler = Handler::new("told");
static OTHER: Handler = Handler::new("other");
const HERE: Color = Color::new(7);
const THERE: Color = Color::new(8);

fn raise(signal: Signal) {
    let its = rustix::process::Signal::from_named_raw(signal.number()).unwrap();
    kill_process(getpid(), its).unwrap();
}

fn pair() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    (ours, theirs)
}

#[test]
fn a_signal_is_told_to_all_who_watch_it() {
    let _bound = Bound::new("a_signal_is_told");
    for backend in backends() {
        let runtime = cores(2).backend(backend).build().unwrap();
        let alive = Alive::default();
        let (tell, told) = channel();
        let (ready, begun) = channel();
        let poster = runtime.poster();
        let raises = std::thread::spawn(move || {
            let guard: Watch = begun.recv().unwrap();
            raise(Signal::USR1);
            let mut both = [(); 2].map(|()| told.recv_timeout(LONG).unwrap());
            both.sort_unstable();
            assert_eq!(both, [(7, Signal::USR1), (8, Signal::USR1)]);
            raise(Signal::USR2);
            assert_eq!(told.recv_timeout(LONG), Ok((7, Signal::USR2)));
            drop(guard);
            raise(Signal::USR1);
            assert_eq!(told.recv_timeout(LONG), Ok((8, Signal::USR1)));
            let none = told.recv_timeout(Duration::from_millis(20));
            assert_eq!(none, Err(RecvTimeoutError::Timeout));
            poster.stop();
        });
        let its = alive.clone();
        let outcome = runtime.run(move |cx| {
            let payload = its.payload();
            let (first, second) = (tell.clone(), tell);
            let told = move |cx: &mut Cx, signal: Signal| {
                let _payload = &payload;
                first.send((cx.color().value(), signal)).unwrap();
            };
            let both = [Signal::USR1, Signal::USR2];
            let guard = cx.on_signal(both, TOLD.on_each(HERE, told)).unwrap();
            let payload = its.payload();
            let told = move |cx: &mut Cx, signal: Signal| {
                let _payload = &payload;
                second.send((cx.color().value(), signal)).unwrap();
            };
            // Dropped, it goes on.
            cx.on_signal([Signal::USR1], OTHER.on_each(THERE, told))
                .unwrap();
            ready.send(guard.cancel_on_drop()).unwrap();
        });
        outcome.unwrap();
        raises.join().unwrap();
        assert_eq!(alive.count(), 0);
    }
}

#[test]
fn a_panic_at_one_signal_costs_no_other() {
    let _bound = Bound::new("a_panic_at_one_signal");
    let builder = Runtime::builder().on_panic(mely::runtime::OnPanic::DropEvent);
    let mut simulation = builder.cores(2).simulate(3).unwrap();
    let all = Arc::new(Mutex::new(Vec::new()));
    let its = Arc::clone(&all);
    let begin = move |cx: &mut Cx| {
        let told = move |_cx: &mut Cx, signal: Signal| {
            its.lock().unwrap().push(signal);
            assert_ne!(signal, Signal::HUP, "planted");
        };
        let watched = [Signal::HUP, Signal::INT, Signal::TERM];
        cx.on_signal(watched, TOLD.on_each(HERE, told)).unwrap();
    };
    simulation.start(begin).unwrap();
    while simulation.step() != Step::Stalled {}
    for signal in [
        Signal::TERM,
        Signal::USR1,
        Signal::INT,
        Signal::HUP,
        Signal::INT,
    ] {
        simulation.raise(signal);
    }
    while simulation.step() != Step::Stalled {}
    // In the order of their numbers, each once.
    assert_eq!(
        *all.lock().unwrap(),
        [Signal::HUP, Signal::INT, Signal::TERM]
    );
    simulation.poster().stop();
    simulation.raise(Signal::INT);
    drop((simulation.end(), simulation));
    assert_eq!(Arc::strong_count(&all), 1, "the callback is dropped");
}

#[test]
fn what_cannot_be_watched_is_refused_in_words() {
    let _bound = Bound::new("what_cannot_be_watched");
    let refused = |watch: io::Result<Watch>, kind: ErrorKind, says: &str| {
        let error = watch.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    };
    let never = || Callback::anonymous_each(HERE, |_: &mut Cx, _: Signal| unreachable!());
    let nothing = || Callback::anonymous_each(HERE, |_: &mut Cx, _: io::Result<()>| unreachable!());
    let run = cores(1).build().unwrap().run(move |cx| {
        for number in [-1, 0, 9, 11, 23, 33, 65] {
            let watch = cx.on_signal([Signal::from(number)], never());
            refused(watch, ErrorKind::InvalidInput, &format!("signal {number} "));
        }
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        refused(
            cx.on_readable(&file, nothing()),
            ErrorKind::InvalidInput,
            "a file",
        );
        let null = std::fs::File::open("/dev/null").unwrap();
        refused(
            cx.on_readable(&null, nothing()),
            ErrorKind::InvalidInput,
            "always ready",
        );
        let folder = std::fs::File::open("/").unwrap();
        refused(
            cx.on_writable(&folder, nothing()),
            ErrorKind::InvalidInput,
            "a file",
        );
        cx.stop();
    });
    run.unwrap();
    let mut simulation = cores(1).simulate(1).unwrap();
    let run = simulation.run(move |cx| {
        refused(
            cx.on_readable(&pair().0, nothing()),
            ErrorKind::Unsupported,
            "simulation",
        );
        cx.stop();
    });
    run.unwrap();
}

/// A byte a call, though they came at once; and what is watched twice is told twice.
#[test]
fn who_leaves_something_is_called_again() {
    let _bound = Bound::new("who_leaves_something");
    for backend in backends() {
        let (ours, mut theirs) = pair();
        let calls = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&calls);
        let read = cores(2)
            .backend(backend)
            .build()
            .unwrap()
            .run_until(move |cx, finish| {
                theirs.write_all(b"abc").unwrap();
                let mut reads = ours.try_clone().unwrap();
                let mut all = Vec::new();
                let told = move |_cx: &mut Cx, ready: io::Result<()>| {
                    ready.unwrap();
                    let mut byte = [0];
                    reads.read_exact(&mut byte).unwrap();
                    all.push(byte[0]);
                    match all.len() {
                        3 => theirs.write_all(b"de").unwrap(),
                        5 => finish.finish(String::from_utf8(std::mem::take(&mut all)).unwrap()),
                        _ => {}
                    }
                };
                let watch = cx.on_readable(&ours, TOLD.on_each(HERE, told)).unwrap();
                drop(watch);
                // It reads nothing, and is called as long as there is something.
                let seen = move |_cx: &mut Cx, ready: io::Result<()>| {
                    ready.unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                };
                // The caller's own is closed: the watch has another.
                cx.on_readable(ours, OTHER.on_each(THERE, seen)).unwrap();
            });
        assert_eq!(read.unwrap(), "abcde");
    }
}

/// From its own color it is not called any more, what it has is dropped in the color, and the
/// descriptor is closed.
#[test]
fn a_canceled_watch_is_over() {
    let _bound = Bound::new("a_canceled_watch");
    for backend in backends() {
        let alive = Alive::default();
        let (ours, mut theirs) = pair();
        theirs.write_all(b"unread").unwrap();
        let (keep, kept) = channel::<Watch>();
        let (gone, went) = channel();
        struct Tells(std::sync::mpsc::Sender<Option<Color>>);
        impl Drop for Tells {
            fn drop(&mut self) {
                let color = mely::task::try_with_cx(|cx| cx.color()).ok();
                let _ = self.0.send(color);
            }
        }
        let payload = alive.payload();
        let tells = Tells(gone);
        let runtime = cores(2).backend(backend).build().unwrap();
        let poster = runtime.poster();
        let waits = std::thread::spawn(move || {
            went.recv_timeout(LONG).unwrap();
            // All that was sent is gone, and so is the other end.
            let end = theirs.read(&mut [0; 9]).map_err(|error| error.kind());
            assert!(
                matches!(end, Ok(0) | Err(ErrorKind::ConnectionReset)),
                "{end:?}"
            );
            poster.stop();
        });
        let outcome = runtime.run(move |cx| {
            let called = Cell::new(false);
            let told = move |_cx: &mut Cx, ready: io::Result<()>| {
                let _has = (&payload, &tells);
                ready.unwrap();
                assert!(!called.replace(true), "called after it was canceled");
                kept.recv().unwrap().cancel();
            };
            keep.send(cx.on_readable(ours, TOLD.on_each(HERE, told)).unwrap())
                .unwrap();
        });
        outcome.unwrap();
        waits.join().unwrap();
        assert_eq!(alive.count(), 0);
    }
}

#[test]
fn what_is_watched_at_a_stop_is_let_go() {
    let _bound = Bound::new("what_is_watched_at_a_stop");
    for backend in backends() {
        let alive = Alive::default();
        let (ours, theirs) = pair();
        let payload = alive.payload();
        let kept = Arc::new(Mutex::new(None));
        let keep = Arc::clone(&kept);
        let run = cores(2).backend(backend).build().unwrap().run(move |cx| {
            let keep = Arc::clone(&keep);
            let its = Arc::clone(&keep);
            let told = move |_: &mut Cx, _: io::Result<()>| {
                let _has = (&payload, &keep);
                unreachable!();
            };
            // The callback has its own handle.
            let watch = cx.on_readable(ours, TOLD.on_each(HERE, told)).unwrap();
            *its.lock().unwrap() = Some(watch);
            cx.stop();
        });
        run.unwrap();
        assert_eq!(alive.count(), 0);
        drop(theirs);
        kept.lock().unwrap().take().unwrap().cancel();
    }
}

/// The core whose event source it is has a long handler: another one is told.
#[test]
fn what_is_ready_does_not_wait_for_a_handler() {
    let _bound = Bound::new("what_is_ready_does_not_wait");
    for backend in backends() {
        let (ours, mut theirs) = pair();
        let seen = Arc::new(AtomicBool::new(false));
        let (its, waits) = (Arc::clone(&seen), seen);
        let run = cores(2).backend(backend).build().unwrap().run(move |cx| {
            let told = move |cx: &mut Cx, ready: io::Result<()>| {
                ready.unwrap();
                its.store(true, Ordering::Release);
                cx.stop();
            };
            cx.on_readable(&ours, TOLD.on_each(HERE, told)).unwrap();
            let begun = cx.core();
            cx.place(THERE, begun);
            cx.post(THERE, move |_cx| {
                let _open = ours;
                std::thread::sleep(Duration::from_millis(20));
                theirs.write_all(b"x").unwrap();
                eventually("the other core is told", || waits.load(Ordering::Acquire));
            });
        });
        run.unwrap();
    }
}

#[test]
fn a_task_waits_until_it_can_read_and_write() {
    let _bound = Bound::new("a_task_waits");
    for backend in backends() {
        let (mut ours, mut theirs) = pair();
        let run = cores(2)
            .backend(backend)
            .build()
            .unwrap()
            .run_until(move |cx, finish| {
                cx.spawn(HERE, async move {
                    let none = timeout(Duration::from_millis(5), aio::readable(&ours)).await;
                    assert!(none.is_err(), "nothing was sent");
                    aio::writable(&ours).await.unwrap();
                    let mut sent = 0;
                    while let Ok(n) = ours.write(&[1; 1 << 16]) {
                        sent += n;
                    }
                    let full = timeout(Duration::from_millis(5), aio::writable(&ours)).await;
                    assert!(full.is_err(), "there is no room");
                    let reads = std::thread::spawn(move || {
                        let mut all = vec![0; sent];
                        theirs.read_exact(&mut all).unwrap();
                        theirs.write_all(b"read").unwrap();
                        theirs
                    });
                    aio::writable(&ours).await.unwrap();
                    aio::readable(&ours).await.unwrap();
                    let mut answer = [0; 4];
                    ours.read_exact(&mut answer).unwrap();
                    let theirs = reads.join().unwrap();
                    // The end of the stream is something to read.
                    drop(theirs);
                    aio::readable(&ours).await.unwrap();
                    assert_eq!(ours.read(&mut answer).unwrap(), 0);
                    with_cx(|cx| cx.stop());
                    let stopped = aio::readable(&ours).await.unwrap_err();
                    assert_eq!(stopped.raw_os_error(), Some(libc::ECANCELED));
                    finish.finish(answer);
                });
            });
        assert_eq!(&run.unwrap(), b"read");
    }
    let outside = std::pin::pin!(aio::readable(pair().0));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let polled = outside.poll(&mut context);
    assert!(matches!(polled, std::task::Poll::Ready(Err(_))));
}

/// Asked to stop, a task that waits is told.
#[test]
fn a_stop_ends_a_wait() {
    let _bound = Bound::new("a_stop_ends_a_wait");
    for backend in backends() {
        let (ours, _theirs) = pair();
        let (tell, told) = channel();
        let run = cores(2).backend(backend).build().unwrap().run(move |cx| {
            cx.spawn(HERE, async move {
                tell.send(aio::readable(&ours).await.unwrap_err().raw_os_error())
                    .unwrap();
            });
            let stop = Callback::anonymous(THERE, |cx: &mut Cx| cx.stop());
            cx.timer(Duration::from_millis(5), stop);
        });
        run.unwrap();
        assert_eq!(told.recv(), Ok(Some(libc::ECANCELED)));
    }
}

/// In its own color, at once: also between two signals that came together.
#[test]
fn a_watch_of_signals_is_canceled_between_two() {
    let _bound = Bound::new("a_watch_of_signals_is_canceled");
    let mut simulation = cores(1).simulate(5).unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let begin = move |cx: &mut Cx| {
        let (keep, kept) = channel::<Watch>();
        let told = move |_cx: &mut Cx, _: Signal| {
            count.fetch_add(1, Ordering::Relaxed);
            kept.recv().unwrap().cancel();
        };
        let watched = [Signal::INT, Signal::TERM];
        keep.send(cx.on_signal(watched, TOLD.on_each(HERE, told)).unwrap())
            .unwrap();
    };
    simulation.start(begin).unwrap();
    while simulation.step() != Step::Stalled {}
    simulation.raise(Signal::INT);
    simulation.raise(Signal::TERM);
    simulation.raise(Signal::from(1_000));
    while simulation.step() != Step::Stalled {}
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    simulation.poster().stop();
    simulation.end().unwrap();
}

/// Or it would be called, and panic, for ever.
#[test]
fn a_panic_ends_the_watch_of_a_descriptor() {
    let _bound = Bound::new("a_panic_ends_the_watch");
    for backend in backends() {
        let (ours, mut theirs) = pair();
        theirs.write_all(b"bad").unwrap();
        let calls = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&calls);
        let builder = cores(2)
            .backend(backend)
            .on_panic(mely::runtime::OnPanic::DropEvent)
            .panic_hook(|_| ());
        let runtime = builder.exit_when_idle(true).build().unwrap();
        runtime
            .run(move |cx| {
                let told = move |_: &mut Cx, _: io::Result<()>| {
                    count.fetch_add(1, Ordering::Relaxed);
                    panic!("planted");
                };
                cx.on_readable(ours, TOLD.on_each(HERE, told)).unwrap();
            })
            .unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        drop(theirs);
    }
}

/// A future that is ready, and that nobody polls, costs nothing.
#[test]
fn a_wait_that_is_over_is_quiet() {
    let _bound = Bound::new("a_wait_that_is_over");
    for backend in backends() {
        let (ours, mut theirs) = pair();
        let runtime = cores(2).backend(backend).build().unwrap();
        let run = runtime.run_until(move |cx, finish| {
            cx.spawn(HERE, async move {
                let mut waits = std::pin::pin!(aio::readable(&ours));
                let pending = std::future::poll_fn(|context| {
                    std::task::Poll::Ready(waits.as_mut().poll(context).is_pending())
                });
                assert!(pending.await);
                theirs.write_all(b"x").unwrap();
                let events = || with_cx(|cx| cx.poster().stats().events());
                let before = events();
                mely::task::sleep(Duration::from_millis(20)).await;
                let ran = events() - before;
                waits.await.unwrap();
                finish.finish(ran);
            });
        });
        let ran = run.unwrap();
        assert!(ran < 50, "{ran} events");
    }
}

/// Signals that may come are no work; and a watch that is refused has changed nothing.
#[test]
fn a_run_that_is_idle_does_not_wait_for_signals() {
    let _bound = Bound::new("a_run_that_is_idle");
    for backend in backends() {
        let runtime = cores(2).backend(backend).exit_when_idle(true);
        let run = runtime.build().unwrap().run(|cx| {
            let never = || Callback::anonymous_each(HERE, |_: &mut Cx, _: Signal| unreachable!());
            cx.on_signal([Signal::WINCH], never()).unwrap();
            let refused = cx.on_signal([Signal::from(34), Signal::from(9)], never());
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
        });
        run.unwrap();
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
    assert_eq!(
        caught & 1 << 33,
        0,
        "a signal of a refused watch has a handler"
    );
}
