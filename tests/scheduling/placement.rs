//! Where colors run: `place`, and the colors that the runtime hands out.

use crate::common::{Bound, cores, eventually};
use mely::Post;
use mely::runtime::Stealing;
use mely::{Color, Cx};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Without stealing a color stays where it was put.
fn fixed(n: usize) -> mely::Runtime {
    cores(n).stealing(Stealing::OFF).build().unwrap()
}

#[test]
fn a_fresh_color_is_on_slot_mod_cores() {
    let _bound = Bound::new("a_fresh_color");
    fixed(3)
        .run(|cx| {
            for value in 0..30 {
                cx.post(Color::from(value), move |cx| {
                    assert_eq!(cx.core(), value as usize % 3);
                    assert_eq!(cx.cores(), 3);
                });
            }
            cx.stop();
        })
        .unwrap();
}

#[test]
fn moves_an_idle_color() {
    let _bound = Bound::new("moves_an_idle_color");
    fixed(3)
        .run(|cx| {
            for value in 1..30 {
                cx.place(Color::from(value), 2);
                cx.post(Color::from(value), |cx| assert_eq!(cx.core(), 2));
            }
            cx.stop();
        })
        .unwrap();
}

/// Also by a poster, before there is a core that could be asked.
#[test]
fn a_poster_moves_a_color() {
    let _bound = Bound::new("a_poster_moves_a_color");
    let runtime = fixed(3);
    let poster = runtime.poster();
    for value in 1..30 {
        poster.place(Color::from(value), 2);
        let event = |cx: &mut Cx| assert_eq!(cx.core(), 2);
        poster.try_post(Color::from(value), event).unwrap();
    }
    runtime.run(|cx| cx.stop()).unwrap();
}

/// Events that are queued behind a busy core move with their color, when that core looks up.
#[test]
fn moves_a_queued_color() {
    let _bound = Bound::new("moves_a_queued_color");
    fixed(2)
        .run(|cx| {
            let (blocked, queued) = (Color::from(3), Color::from(5));
            let entered = Arc::new(AtomicBool::new(false));
            let go = Arc::new(AtomicBool::new(false));
            let (inside, release) = (Arc::clone(&entered), Arc::clone(&go));
            cx.post(blocked, move |cx| {
                assert_eq!(cx.core(), 1);
                inside.store(true, Ordering::Release);
                eventually("the release", || release.load(Ordering::Acquire));
            });
            cx.flush();
            eventually("core 1 is held", || entered.load(Ordering::Acquire));
            let order = Arc::new(Mutex::new(Vec::new()));
            for i in 0..100 {
                let order = Arc::clone(&order);
                cx.post(queued, move |cx| {
                    assert_eq!(cx.core(), 0, "moved before core 1 came to it");
                    order.lock().unwrap().push(i);
                });
            }
            cx.flush();
            cx.place(queued, 0);
            cx.post(queued, move |cx| {
                assert_eq!(*order.lock().unwrap(), (0..100).collect::<Vec<_>>());
                cx.stop();
            });
            cx.flush();
            go.store(true, Ordering::Release);
        })
        .unwrap();
}

/// A color that is running moves when its turn ends; or a little later, if the mail by which it
/// came to its core is still on its way.
#[test]
fn moves_the_running_color() {
    let _bound = Bound::new("moves_the_running_color");
    fixed(2)
        .run(|cx| {
            hop(cx, if cfg!(miri) { 10 } else { 1_000 });
            fn hop(cx: &mut Cx, left: u32) {
                if left == 0 {
                    cx.stop();
                    return;
                }
                let to = 1 - cx.core();
                cx.place(cx.color(), to);
                arrive(cx, left, to, 1_000);
            }
            fn arrive(cx: &mut Cx, left: u32, to: usize, tries: u32) {
                // From another color, so that this turn is over.
                let color = cx.color();
                cx.post(Color::from(77), move |cx| {
                    cx.post(color, move |cx| {
                        if cx.core() == to {
                            return hop(cx, left - 1);
                        }
                        assert!(tries > 0, "it has not moved");
                        std::thread::yield_now();
                        arrive(cx, left, to, tries - 1);
                    });
                });
            }
        })
        .unwrap();
}

/// The last wish holds, also the wish to stay.
#[test]
fn the_last_of_several_wishes_holds() {
    let _bound = Bound::new("the_last_of_several_wishes");
    fixed(3)
        .run(|cx| {
            let here = cx.core();
            assert_eq!(here, 0);
            cx.place(Color::DEFAULT, 1);
            cx.place(Color::DEFAULT, 2);
            cx.place(Color::DEFAULT, here);
            cx.post(Color::from(1), move |cx| {
                cx.post(Color::DEFAULT, move |cx| {
                    assert_eq!(cx.core(), here);
                    cx.stop();
                });
            });
        })
        .unwrap();
}

#[test]
fn a_core_that_is_not_there_is_refused() {
    let _bound = Bound::new("a_core_that_is_not_there");
    let outcome = fixed(2).run(|cx| cx.place(Color::from(1), 2));
    let text = outcome.unwrap_err().to_string();
    assert!(text.contains("core 2 of a runtime with 2 cores"), "{text}");
}

fn unique_color_on(cx: &Cx, core: usize) -> mely::state::UniqueColor {
    let unique = cx.unique_color();
    cx.place(unique.color(), core);
    unique
}

#[test]
fn unique_colors_start_where_they_are_wanted() {
    let _bound = Bound::new("unique_colors_start");
    fixed(2)
        .run(|cx| {
            let mut seen = HashSet::new();
            for i in 0..if cfg!(miri) { 8 } else { 200 } {
                let core = i % 2;
                let mine = unique_color_on(cx, core);
                assert!(seen.insert(mine.color()));
                let color = mine.color();
                cx.post(color, move |cx| {
                    assert_eq!(cx.core(), core);
                    assert_eq!(cx.color(), mine.color());
                });
            }
            let here = cx.core();
            let mine = cx.unique_color();
            cx.post(mine.color(), move |cx| {
                assert_eq!(cx.core(), here);
                drop(mine);
                cx.stop();
            });
        })
        .unwrap();
}

/// Of 16 slots 4 are for unique colors, two for each core: a third one is moved.
#[test]
fn unique_colors_of_another_core_are_moved() {
    let _bound = Bound::new("unique_colors_of_another_core");
    let builder = cores(2).color_slots(16).stealing(Stealing::OFF);
    builder
        .build()
        .unwrap()
        .run(|cx| {
            let colors: Vec<_> = (0..4).map(|_| unique_color_on(cx, 0)).collect();
            for mine in colors {
                cx.post(mine.color(), move |cx| {
                    assert_eq!(cx.core(), 0, "{mine:?}");
                });
            }
            cx.stop();
        })
        .unwrap();
}

/// Taken and given back for ever: slots are reused, values are not.
#[test]
fn unique_colors_are_reused_under_new_values() {
    let _bound = Bound::new("unique_colors_are_reused");
    cores(2)
        .color_slots(16)
        .stealing(Stealing::OFF)
        .build()
        .unwrap()
        .run(|cx| {
            let mut seen = HashSet::new();
            for i in 0..if cfg!(miri) { 50 } else { 1_000 } {
                let mine = unique_color_on(cx, i % 2);
                assert!(seen.insert(mine.color()), "{:?} again", mine.color());
            }
            cx.stop();
        })
        .unwrap();
}

/// With 16 slots there are 4 for unique colors. Beyond them slots are shared, but a color is still
/// nobody else's.
#[test]
fn unique_colors_beyond_the_slots() {
    let _bound = Bound::new("unique_colors_beyond_the_slots");
    let count = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&count);
    cores(2)
        .color_slots(16)
        .build()
        .unwrap()
        .run(move |cx| {
            let colors: Vec<_> = (0..64).map(|i| unique_color_on(cx, i % 2)).collect();
            let distinct: HashSet<_> = colors.iter().map(|c| c.color()).collect();
            assert_eq!(distinct.len(), colors.len(), "a color was issued twice");
            for mine in colors {
                let count = Arc::clone(&count);
                cx.post(mine.color(), move |cx| {
                    assert_eq!(cx.color(), mine.color());
                    count.fetch_add(1, Ordering::Relaxed);
                });
            }
            cx.stop();
        })
        .unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), 64);
}

/// Colors are thrown about while they run, are queued and are stolen: order, exclusion and number
/// stay right.
#[test]
fn under_load_loses_nothing() {
    const COLORS: u64 = 16;
    const EVENTS: u64 = if cfg!(miri) { 3 } else { 4_000 };
    let _bound = Bound::new("under_load_loses_nothing");
    for stealing in [Stealing::default(), Stealing::OFF] {
        let next: Arc<Vec<AtomicU64>> = Arc::new((0..COLORS).map(|_| AtomicU64::new(0)).collect());
        let running: Arc<Vec<AtomicBool>> =
            Arc::new((0..COLORS).map(|_| AtomicBool::new(false)).collect());
        let runtime = cores(3).stealing(stealing).build().unwrap();
        let threads: Vec<_> = (0..2u64)
            .map(|half| {
                let poster = runtime.poster();
                let (next, running) = (Arc::clone(&next), Arc::clone(&running));
                std::thread::spawn(move || {
                    // Each thread has half of the colors to itself, so that order is known.
                    for i in 0..EVENTS {
                        for color in (half * COLORS / 2)..((half + 1) * COLORS / 2) {
                            let (next, running) = (Arc::clone(&next), Arc::clone(&running));
                            let event = move |cx: &mut Cx| {
                                let at = color as usize;
                                assert!(!running[at].swap(true, Ordering::Relaxed));
                                assert_eq!(next[at].fetch_add(1, Ordering::Relaxed), i);
                                // Itself, and somebody else who may be anywhere.
                                cx.place(cx.color(), (i as usize) % 3);
                                cx.place(
                                    Color::from((color * 7 + i) % COLORS),
                                    (i as usize / 3) % 3,
                                );
                                assert!(running[at].swap(false, Ordering::Relaxed));
                            };
                            poster.try_post(Color::from(color), event).unwrap();
                        }
                    }
                    poster
                })
            })
            .collect();
        let stopper = std::thread::spawn(move || {
            let posters: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
            posters[0].stop();
        });
        runtime.run(|_cx| ()).unwrap();
        stopper.join().unwrap();
        assert!(next.iter().all(|n| n.load(Ordering::Relaxed) == EVENTS));
    }
}
