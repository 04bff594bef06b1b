//! States whose event has panicked.

use super::{FAULTY, FIRST, reports};
use crate::common::{Alive, Bound, cores};
use mely::Post;
use mely::runtime::OnPanic;
use mely::task::JoinError;
use mely::{Color, Colored, Cx, Reason, Rejected};
use std::sync::mpsc::channel;

#[test]
fn colored_is_poisoned_and_refuses() {
    let _bound = Bound::new("colored_is_poisoned");
    let (reports, hook) = reports();
    let alive = Alive::default();
    let payload = alive.payload();
    cores(2)
        .on_panic(OnPanic::DropEvent)
        .panic_hook(hook)
        .build()
        .unwrap()
        .run(move |cx| {
            let color = Color::from(8);
            let state = Colored::new(cx, color, payload);
            state
                .via(&FAULTY)
                .post(cx, |_state, _cx| panic!("half done"));
            state.post(cx, |_state, _cx| unreachable!());
            cx.post(color, move |cx| {
                assert_eq!(state.with(cx, |_, _| ()), Err(Reason::Poisoned));
                cx.stop();
            });
        })
        .unwrap();
    let reports = reports.lock().unwrap();
    assert_eq!(reports.len(), 2, "{reports:?}");
    assert_eq!(
        (reports[0].handler, &*reports[0].message),
        ("faulty", "half done")
    );
    let refused = Reason::Poisoned.to_string();
    assert_eq!(
        reports[1].message, refused,
        "the later event is reported, not lost"
    );
    assert_eq!(alive.count(), 0, "poisoned state is dropped all the same");
}

/// What tries is refused at once; what is posted panics when its turn comes. From when the poison
/// is cleared on, all have the state again.
#[test]
fn poison_is_seen_from_anywhere_and_cleared() {
    let _bound = Bound::new("poison_is_seen");
    let builder = cores(2).on_panic(OnPanic::DropEvent).panic_hook(|_| ());
    let runtime = builder.build().unwrap();
    let (poster, observer) = (runtime.poster(), runtime.poster());
    let room = Colored::new(&poster, FIRST, vec!["hello"]);
    let its = room.clone();
    let outside = std::thread::spawn(move || {
        let asked = |room: &Colored<Vec<_>>| {
            let mut reply = room.try_ask(&poster, |lines, _cx| lines.len()).unwrap();
            reply.recv()
        };
        assert!(!room.is_poisoned());
        let mut reply = room.try_ask(&poster, |_, _cx| panic!("half done")).unwrap();
        let reply: Result<(), _> = reply.recv();
        assert_eq!(reply, Err(JoinError::Panicked));
        assert!(room.is_poisoned());
        let poisoned = |why| matches!(why, Some(Reason::Poisoned));
        let bounded = room.bounded(1);
        let full = bounded.try_post(&poster, |_, _cx| unreachable!());
        let full = matches!(
            full,
            Err(Rejected {
                reason: Reason::Poisoned,
                ..
            })
        );
        assert!(full && bounded.waiting() == 0);
        for why in [
            reason(room.try_post(&poster, |_, _cx| unreachable!())),
            reason(room.via(&FAULTY).try_post(&poster, |_, _cx| unreachable!())),
            reason(room.try_ask(&poster, |_, _cx| unreachable!())),
            reason(poster.try_read(&room, |_, _cx| unreachable!())),
        ] {
            assert!(poisoned(why));
        }
        // A handler's is accepted, and its event panics.
        let (tell, told) = channel();
        let poisoned = room.clone();
        let asks = move |cx: &mut Cx| {
            let reply = poisoned.ask(cx, |lines, _cx| lines.len());
            tell.send(reply).unwrap();
        };
        poster.try_post(Color::from(99), asks).unwrap();
        assert_eq!(told.recv().unwrap().recv(), Err(JoinError::Panicked));
        let again = room.clone();
        let mends = move |cx: &mut Cx| {
            again.clear_poison();
            again.with(cx, |lines, _cx| lines.clear()).unwrap();
        };
        let mut mended = poster.try_ask(room.color(), mends).unwrap();
        assert_eq!(mended.recv(), Ok(()));
        assert_eq!(asked(&room), Ok(0));
        assert!(!room.is_poisoned());
        room.try_post(&poster, |lines, _cx| lines.push("and go on"))
            .unwrap();
        assert_eq!(asked(&room), Ok(1));
        poster.stop();
    });
    runtime.run(|_cx| ()).unwrap();
    outside.join().unwrap();
    drop(its);
    assert_eq!(observer.stats().panics(), 2);
}

fn reason<T, F>(posted: Result<T, Rejected<F>>) -> Option<Reason> {
    match posted {
        Err(Rejected {
            reason: refused, ..
        }) => Some(refused),
        _ => None,
    }
}

/// A panic elsewhere in the event, with nothing lent, poisons nothing.
#[test]
fn a_panic_beside_the_state_does_not_poison_it() {
    let _bound = Bound::new("a_panic_beside_the_state");
    cores(1)
        .on_panic(OnPanic::DropEvent)
        .build()
        .unwrap()
        .run(move |cx| {
            let color = Color::from(8);
            let state = Colored::new(cx, color, 1);
            let clone = state.clone();
            cx.post(color, move |cx| {
                clone.with(cx, |n, _| *n += 1).unwrap();
                panic!("afterwards");
            });
            cx.post(color, move |cx| {
                assert_eq!(state.with(cx, |n, _| *n), Ok(2));
                cx.stop();
            });
        })
        .unwrap();
}
