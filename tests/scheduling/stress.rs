//! The rules under load: exclusion, order, nothing lost, nothing twice, memory freed.

use crate::common::cores;
use mely::Post;
use mely::runtime::Stealing;
use mely::{Color, Cx, Poster};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// What is checked for each color.
struct Cell {
    running: AtomicBool,
    /// The last sequence number seen of each poster.
    last: Vec<AtomicU32>,
    events: AtomicU64,
}

struct World {
    cells: Vec<Cell>,
    executed: AtomicU64,
    /// Counts payloads alive: what is left at the end has leaked.
    alive: Arc<AtomicU64>,
}

struct Payload(Arc<AtomicU64>);

impl Payload {
    fn new(alive: &Arc<AtomicU64>) -> Payload {
        alive.fetch_add(1, Ordering::Relaxed);
        Payload(Arc::clone(alive))
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl World {
    fn new(colors: usize, posters: usize) -> Arc<World> {
        let cell = || Cell {
            running: AtomicBool::new(false),
            last: (0..posters).map(|_| AtomicU32::new(0)).collect(),
            events: AtomicU64::new(0),
        };
        Arc::new(World {
            cells: (0..colors).map(|_| cell()).collect(),
            executed: AtomicU64::new(0),
            alive: Arc::new(AtomicU64::new(0)),
        })
    }

    /// One event of `color`, the `sequence`-th (from 1) that `poster` posted to it.
    fn enter(&self, color: usize, poster: usize, sequence: u32) {
        let cell = &self.cells[color];
        assert!(
            !cell.running.swap(true, Ordering::Relaxed),
            "two events of color {color} at once"
        );
        let last = cell.last[poster].swap(sequence, Ordering::Relaxed);
        assert_eq!(last + 1, sequence, "color {color}, poster {poster}");
        cell.events.fetch_add(1, Ordering::Relaxed);
        self.executed.fetch_add(1, Ordering::Relaxed);
        assert!(cell.running.swap(false, Ordering::Relaxed));
    }
}

fn color(index: usize) -> Color {
    // Small, large and mixed values: a spread over all ranges of slots.
    match index % 3 {
        0 => Color::from(index as u64),
        1 => Color::from(0x7f00_0000_0000 + 64 * index as u64),
        _ => Color::from((index as u64).wrapping_mul(0x1234_5678_9abc_def1) | 1 << 63),
    }
}

/// Foreign threads post round-robin over the colors; each event re-posts to its own color and to
/// another one, a few times.
fn storm(core_count: usize, colors: usize, threads: usize, per_thread: usize, stealing: Stealing) {
    const CHILDREN: usize = 2;
    let per_thread = if cfg!(miri) { 4 } else { per_thread };
    let posters = threads;
    let world = World::new(colors, posters);
    let runtime = cores(core_count)
        .stealing(stealing)
        .spin(Duration::from_micros(20))
        // Nothing here is about time, and a sanitizer takes ten times as long.
        .drain_deadline(Duration::from_secs(3_600))
        .build()
        .unwrap();
    let observer = runtime.poster();
    let children = Arc::new(AtomicU64::new(0));
    let done = Arc::new(AtomicU64::new(0));
    let senders: Vec<_> = (0..threads)
        .map(|thread| {
            let poster = runtime.poster();
            let world = Arc::clone(&world);
            let children = Arc::clone(&children);
            let done = Arc::clone(&done);
            std::thread::spawn(move || {
                let mut sequence = vec![0u32; colors];
                for i in 0..per_thread {
                    let target = (i * 7 + thread * 13) % colors;
                    sequence[target] += 1;
                    let (world, sequence) = (Arc::clone(&world), sequence[target]);
                    let children = Arc::clone(&children);
                    let payload = Payload::new(&world.alive);
                    poster
                        .try_post(color(target), move |cx| {
                            let _payload = payload;
                            world.enter(target, thread, sequence);
                            for child in 0..CHILDREN {
                                // To itself, and to another color, in turn: nobody checks their
                                // order, only that they are exclusive and all come.
                                let to = if child == 0 {
                                    target
                                } else {
                                    (target * 31 + 17) % colors
                                };
                                let (world, children) = (Arc::clone(&world), Arc::clone(&children));
                                let payload = Payload::new(&world.alive);
                                cx.post(color(to), move |_cx| {
                                    let _payload = payload;
                                    let cell = &world.cells[to];
                                    assert!(!cell.running.swap(true, Ordering::Relaxed));
                                    children.fetch_add(1, Ordering::Relaxed);
                                    assert!(cell.running.swap(false, Ordering::Relaxed));
                                });
                            }
                        })
                        .unwrap();
                }
                if done.fetch_add(1, Ordering::AcqRel) + 1 == threads as u64 {
                    poster.stop();
                }
            })
        })
        .collect();
    runtime.run(|_cx| ()).unwrap();
    senders.into_iter().for_each(|s| s.join().unwrap());
    let total = (threads * per_thread) as u64;
    assert_eq!(world.executed.load(Ordering::Relaxed), total);
    assert_eq!(children.load(Ordering::Relaxed), total * CHILDREN as u64);
    assert_eq!(observer.stats().events(), total * (1 + CHILDREN as u64) + 1);
    assert_eq!(world.alive.load(Ordering::Relaxed), 0, "payloads leaked");
}

#[test]
fn storm_one_color() {
    storm(2, 1, 4, 50_000, Stealing::default());
}

#[test]
fn storm_sixteen_colors() {
    storm(2, 16, 4, 50_000, Stealing::default());
}

#[test]
#[cfg_attr(miri, ignore = "what it is about is the number")]
fn storm_many_colors() {
    storm(2, 100_000, 4, 100_000, Stealing::default());
}

#[test]
fn storm_oversubscribed() {
    storm(8, 64, 4, 25_000, Stealing::default());
}

#[test]
fn storm_base_stealing() {
    storm(4, 64, 4, 25_000, Stealing::BASE);
}

#[test]
fn storm_without_stealing() {
    storm(2, 64, 4, 25_000, Stealing::OFF);
}

/// Handlers post numbered events to every color: order per posting color, through migrations.
#[test]
fn handlers_keep_order_per_poster() {
    const COLORS: usize = 24;
    const ROUNDS: u32 = if cfg!(miri) { 3 } else { 3_000 };
    let world = World::new(COLORS, COLORS);
    let runtime = cores(4).build().unwrap();
    let observer = runtime.poster();
    let left = Arc::new(AtomicU64::new(COLORS as u64));
    let given = Arc::clone(&world);
    runtime
        .run(move |cx| {
            for from in 0..COLORS {
                let (world, left) = (Arc::clone(&given), Arc::clone(&left));
                cx.post(color(from), move |cx| round(cx, world, from, 1, left));
            }
        })
        .unwrap();
    assert_eq!(
        world.executed.load(Ordering::Relaxed),
        (COLORS as u64) * u64::from(ROUNDS) * 3
    );
    assert!(
        cfg!(miri) || observer.stats().steals() > 0,
        "nothing migrated, so nothing was tested"
    );

    fn round(cx: &mut Cx, world: Arc<World>, from: usize, number: u32, left: Arc<AtomicU64>) {
        // Uneven work, so that colors migrate.
        if number as usize % COLORS == from {
            spin(20_000);
        }
        for to in [from, (from + 1) % COLORS, (from * 5 + 3) % COLORS] {
            // The same target twice in one round would number twice.
            let world = Arc::clone(&world);
            cx.post(color(to), move |_cx| world.enter_once(to, from, number));
        }
        if number < ROUNDS {
            cx.post(color(from), move |cx| {
                round(cx, world, from, number + 1, left)
            });
        } else if left.fetch_sub(1, Ordering::AcqRel) == 1 {
            cx.stop();
        }
    }
}

impl World {
    /// Like `enter`, but a poster may send several events of one number to a color.
    fn enter_once(&self, color: usize, poster: usize, number: u32) {
        let cell = &self.cells[color];
        assert!(
            !cell.running.swap(true, Ordering::Relaxed),
            "two events of color {color} at once"
        );
        let last = cell.last[poster].swap(number, Ordering::Relaxed);
        assert!(
            last == number || last + 1 == number,
            "color {color}, poster {poster}: {last}, {number}"
        );
        self.executed.fetch_add(1, Ordering::Relaxed);
        assert!(cell.running.swap(false, Ordering::Relaxed));
    }
}

fn spin(iterations: u32) {
    for i in 0..iterations {
        std::hint::black_box(i);
    }
}

/// Causal order with three parties: A posts x to C, then a token to B; B, on receiving it, posts y
/// to C. x must come first, although B never posted before A's event ended.
#[test]
fn causal_order_with_three_parties() {
    const ROUNDS: u32 = if cfg!(miri) { 3 } else { 20_000 };
    const GROUPS: u64 = 8;
    let expected = Arc::new((0..GROUPS).map(|_| AtomicU32::new(0)).collect::<Vec<_>>());
    let left = Arc::new(AtomicU64::new(GROUPS));
    let runtime = cores(3).build().unwrap();
    let check = Arc::clone(&expected);
    runtime
        .run(move |cx| {
            for group in 0..GROUPS {
                let (expected, left) = (Arc::clone(&expected), Arc::clone(&left));
                cx.post(Color::from(group * 3), move |cx| {
                    step(cx, expected, group, 0, left)
                });
            }
        })
        .unwrap();
    assert!(
        check
            .iter()
            .all(|e| e.load(Ordering::Relaxed) == 2 * ROUNDS)
    );

    fn step(
        cx: &mut Cx,
        expected: Arc<Vec<AtomicU32>>,
        group: u64,
        round: u32,
        left: Arc<AtomicU64>,
    ) {
        let [a, b, c] = [0, 1, 2].map(|i| Color::from(group * 3 + i));
        if round == ROUNDS {
            if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                cx.stop();
            }
            return;
        }
        let at_c = move |number: u32, expected: &Arc<Vec<AtomicU32>>| {
            let expected = Arc::clone(expected);
            move |_cx: &mut Cx| {
                let before = expected[group as usize].swap(number + 1, Ordering::Relaxed);
                assert_eq!(before, number, "group {group}");
            }
        };
        cx.post(c, at_c(2 * round, &expected));
        cx.post(b, move |cx| {
            cx.post(c, at_c(2 * round + 1, &expected));
            cx.post(a, move |cx| step(cx, expected, group, round + 1, left));
        });
    }
}

/// A poster used inside a handler cannot overtake `cx.post`.
#[test]
fn poster_inside_a_handler_keeps_program_order() {
    const EVENTS: u32 = if cfg!(miri) { 50 } else { 50_000 };
    let runtime = cores(2).build().unwrap();
    let poster: Poster = runtime.poster();
    let next = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&next);
    runtime
        .run(move |cx| {
            for i in 0..EVENTS {
                let next = Arc::clone(&next);
                let event = move |cx: &mut Cx| {
                    assert_eq!(next.fetch_add(1, Ordering::Relaxed), i);
                    if i == EVENTS - 1 {
                        cx.stop();
                    }
                };
                if i % 2 == 0 {
                    cx.post(Color::from(1), event);
                } else {
                    poster.try_post(Color::from(1), event).unwrap();
                }
            }
        })
        .unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), EVENTS);
}

/// Shutdown during load: everything accepted runs, everything refused comes back.
#[test]
fn shutdown_during_load_loses_nothing() {
    let (rounds, posts) = if cfg!(miri) { (1, 20) } else { (20, 2_000) };
    for round in 0..rounds {
        let runtime = cores(2).build().unwrap();
        let executed = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..4u64)
            .map(|thread| {
                let (poster, executed) = (runtime.poster(), Arc::clone(&executed));
                std::thread::spawn(move || {
                    let mut accepted = 0u64;
                    for i in 0.. {
                        let counter = Arc::clone(&executed);
                        let event = move |_: &mut Cx| {
                            counter.fetch_add(1, Ordering::Relaxed);
                        };
                        if poster
                            .try_post(Color::from(i % 50 + thread), event)
                            .is_err()
                        {
                            break;
                        }
                        accepted += 1;
                        if thread == 0 && i == posts + 100 * round {
                            poster.stop();
                        }
                    }
                    accepted
                })
            })
            .collect();
        let outcome = runtime.run(|_cx| ());
        let accepted: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
        outcome.unwrap();
        assert_eq!(executed.load(Ordering::Relaxed), accepted);
    }
}

/// Through another runtime order is kept by a flush before the post that goes there.
#[test]
fn through_another_runtime_after_a_flush() {
    const ROUNDS: u32 = if cfg!(miri) { 10 } else { 2_000 };
    /// On the first runtime: posts to color 1, then to the other runtime, which posts to color 1 as
    /// well.
    fn round(cx: &mut Cx, other: Poster, left: u32, order: Arc<AtomicU32>) {
        let (first, second) = (Arc::clone(&order), Arc::clone(&order));
        let here = cx.poster();
        cx.post(Color::from(1), move |_cx| {
            first.store(1, Ordering::Relaxed);
        });
        cx.flush();
        let there = other.clone();
        let back = move |_cx: &mut Cx| {
            let last = move |cx: &mut Cx| {
                assert_eq!(second.swap(0, Ordering::Relaxed), 1, "overtaken");
                if left == 0 {
                    other.stop();
                    cx.stop();
                } else {
                    cx.post(Color::from(2), move |cx| round(cx, other, left - 1, order));
                }
            };
            here.try_post(Color::from(1), last).unwrap();
        };
        there.try_post(Color::from(7), back).unwrap();
    }
    let (one, two) = (cores(2).build().unwrap(), cores(1).build().unwrap());
    let other = two.poster();
    let thread = std::thread::spawn(move || two.run(|_cx| ()).unwrap());
    one.run(move |cx| round(cx, other, ROUNDS, Arc::default()))
        .unwrap();
    thread.join().unwrap();
}
