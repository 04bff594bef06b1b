//! The line for room, and its callbacks.

use super::{COLOR, WORK, beside, blocks, bounded};
use crate::common::{Alive, cores};
use mely::Reason;
use mely::state::Permit;
use mely::{Callback, Color, Cx, Rejected};
use std::pin::pin;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

/// A waker of the user's, woken by an event that has nothing to do with it.
#[test]
fn a_waker_that_panics_hits_no_other_event() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("in a waker");
        }
    }
    let _bound = crate::common::Bound::new("a waker that panics");
    let (tell, told) = channel();
    let builder = cores(1).on_panic(mely::runtime::OnPanic::DropEvent);
    let builder = builder.panic_hook(move |report| tell.send(report.clone()).unwrap());
    let run = beside(builder.build().unwrap(), move |poster| {
        let full = bounded(poster, 1, 0);
        let (go, begun) = blocks(poster, full.state());
        begun.recv().unwrap();
        full.via(&WORK).try_post(poster, |n, _cx| *n += 1).unwrap();
        let waker = Waker::from(Arc::new(Panics));
        let mut room = pin!(full.reserve());
        let mut context = Context::from_waker(&waker);
        assert!(room.as_mut().poll(&mut context).is_pending());
        go.send(()).unwrap();
        let report = told.recv().unwrap();
        assert_eq!((report.color, &*report.message), (COLOR, "in a waker"));
        assert_ne!(report.handler, "work");
        // The event has run, the state is not poisoned, and the room is given.
        let mut count = full.state().try_ask(poster, |n, _cx| *n).unwrap();
        assert_eq!(count.recv(), Ok(1));
        assert!(room.as_mut().poll(&mut context).is_ready());
        assert!(told.try_recv().is_err(), "one panic");
    });
    run.unwrap();
}

/// The callback of a runtime that has ended meanwhile is dropped by whoever gives room.
#[test]
fn a_callback_that_panics_when_dropped_hits_no_other_event() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("in a drop");
        }
    }
    let _bound = crate::common::Bound::new("a callback that panics when dropped");
    let (tell, told) = channel();
    let builder = cores(1).on_panic(mely::runtime::OnPanic::DropEvent);
    let builder = builder.panic_hook(move |report| tell.send(report.clone()).unwrap());
    let run = beside(builder.build().unwrap(), move |poster| {
        let full = bounded(poster, 1, 0);
        let (go, begun) = blocks(poster, full.state());
        begun.recv().unwrap();
        full.via(&WORK).try_post(poster, |n, _cx| *n += 1).unwrap();
        let other = cores(1).build().unwrap();
        for _ in 0..2 {
            let panics = Panics;
            let on_room = move |_: &mut Cx, room: Permit<i32>| drop((room, panics));
            full.on_room(
                &other.poster(),
                Callback::anonymous_value(Color::from(9), on_room),
            )
            .unwrap();
        }
        drop(other);
        go.send(()).unwrap();
        let report = told.recv().unwrap();
        assert_eq!((report.color, &*report.message), (COLOR, "in a drop"));
        assert_ne!(report.handler, "work");
        let mut count = full.state().try_ask(poster, |n, _cx| *n).unwrap();
        assert_eq!(count.recv(), Ok(1));
        assert_eq!((full.waiting(), full.in_line()), (0, 0));
    });
    run.unwrap();
}

/// A callback of the color that is held, by the hold: else each would wait for the other.
#[test]
fn a_room_callback_goes_through_its_hold() {
    let _bound = crate::common::Bound::new("a room callback through a hold");
    const HELD: Color = Color::new(8);
    let runtime = cores(1).exit_when_idle(true).build().unwrap();
    let full = bounded(&runtime.poster(), 1, ());
    let log = Arc::new(Mutex::new(Vec::new()));
    let (its, notes) = (full.clone(), Arc::clone(&log));
    runtime
        .run(move |cx| {
            let permit = its.try_reserve().unwrap();
            cx.post(HELD, move |cx| {
                let hold = cx.hold();
                let behind = Arc::clone(&notes);
                cx.post(HELD, move |_cx| behind.lock().unwrap().push("behind"));
                let hold = Arc::new(Mutex::new(Some(hold)));
                let resumes = Arc::clone(&hold);
                let on_room = move |cx: &mut Cx, _room: Permit<()>| {
                    assert_eq!((cx.color(), cx.handler()), (HELD, "work"));
                    notes.lock().unwrap().push("room");
                    let hold = resumes.lock().unwrap().take().unwrap();
                    hold.resume(|_cx| ());
                };
                let hold = hold.lock().unwrap();
                let by = hold.as_ref().unwrap();
                its.on_room(by, WORK.on_value(HELD, on_room)).unwrap();
                cx.post(Color::from(9), move |_cx| drop(permit));
            });
        })
        .unwrap();
    assert_eq!(*log.lock().unwrap(), ["room", "behind"]);
}

#[test]
fn a_callback_that_finds_the_line_full_comes_back() {
    let _bound = crate::common::Bound::new("a line that is full");
    let runtime = cores(1).build().unwrap();
    let poster = runtime.poster();
    let full = bounded(&poster, 1, ()).waiters_max(2);
    let permit = full.try_reserve().unwrap();
    let alive = Alive::default();
    let on_room = || {
        let payload = alive.payload();
        let on_room = move |_: &mut Cx, room: Permit<()>| drop((room, payload));
        full.on_room(&poster, Callback::anonymous_value(Color::from(9), on_room))
    };
    on_room().unwrap();
    on_room().unwrap();
    let refused = on_room().unwrap_err();
    assert!(
        matches!(
            refused,
            Rejected {
                reason: Reason::NoRoom,
                ..
            }
        ),
        "{refused:?}"
    );
    assert!(
        refused.to_string().contains("Bounded::waiters_max"),
        "{refused}"
    );
    assert_eq!(refused.value.color(), Color::from(9));
    drop(refused);
    assert_eq!((full.in_line(), alive.count(), full.refused()), (2, 2, 1));
    // A future joins the line all the same: its memory is its own.
    let mut reserve = pin!(full.reserve());
    let mut context = Context::from_waker(Waker::noop());
    assert!(reserve.as_mut().poll(&mut context).is_pending());
    assert_eq!(full.in_line(), 3);
    drop(runtime);
    assert!(matches!(
        on_room(),
        Err(Rejected {
            reason: Reason::Ended,
            ..
        })
    ));
    drop(permit);
    assert!(reserve.as_mut().poll(&mut context).is_ready());
    assert_eq!((alive.count(), full.in_line(), full.refused()), (0, 0, 1));
}

#[test]
fn a_line_for_nobody_refuses_only_where_there_is_no_room() {
    let runtime = cores(1).build().unwrap();
    let poster = runtime.poster();
    let full = bounded(&poster, 1, ()).waiters_max(0);
    let on_room = || {
        let on_room = |_: &mut Cx, room: Permit<()>| drop(room);
        full.on_room(&poster, Callback::anonymous_value(Color::from(9), on_room))
    };
    on_room().unwrap();
    assert_eq!(full.waiting(), 1, "posted, with its permit");
    assert!(matches!(
        on_room(),
        Err(Rejected {
            reason: Reason::NoRoom,
            ..
        })
    ));
    assert_eq!(full.in_line(), 0);
    drop(runtime);
    assert_eq!(full.waiting(), 0);
    assert!(full.try_reserve().is_some(), "nobody waits");
}

/// The callback of another runtime that has ended, when there is room and when there is none.
#[test]
fn a_callback_of_a_runtime_that_has_ended_comes_back() {
    let runtime = cores(1).build().unwrap();
    let full = bounded(&runtime.poster(), 1, ());
    let other = cores(1).build().unwrap();
    let by = other.poster();
    drop(other);
    let on_room = || {
        let on_room = |_: &mut Cx, room: Permit<()>| drop(room);
        full.on_room(&by, Callback::anonymous_value(Color::from(9), on_room))
    };
    assert!(matches!(
        on_room(),
        Err(Rejected {
            reason: Reason::Ended,
            ..
        })
    ));
    let permit = full.try_reserve().unwrap();
    assert!(matches!(
        on_room(),
        Err(Rejected {
            reason: Reason::Ended,
            ..
        })
    ));
    assert_eq!((full.in_line(), full.refused()), (0, 0));
    drop(permit);
}
