//! The sizes of closures, and the memory of events.

use crate::common::{Alive, Bound, cores};
use mely::Post;
use mely::{Color, Cx};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Closures of every size and alignment arrive as they were, inline or boxed, run or given back.
#[test]
fn closures_of_all_sizes() {
    #[derive(Clone)]
    #[repr(align(64))]
    struct Wide([u8; 64]);
    let _bound = Bound::new("closures_of_all_sizes");
    let alive = Alive::default();
    let given = alive.clone();
    let ran = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&ran);
    static RAN_EMPTY: AtomicU64 = AtomicU64::new(0);
    const ROUNDS: u64 = if cfg!(miri) { 2 } else { 1_000 };
    const HUGE: usize = if cfg!(miri) { 2_000 } else { 100_000 };
    fn sized<const N: usize>(cx: &mut Cx, count: &Arc<AtomicU64>, alive: &Alive) {
        let (count, payload, bytes) = (Arc::clone(count), alive.payload(), [N as u8; N]);
        let event = move |_cx: &mut Cx| {
            assert!(bytes.iter().all(|&b| b == N as u8), "{N} bytes");
            drop(payload);
            count.fetch_add(1, Ordering::Relaxed);
        };
        cx.post(Color::from(N as u64), event);
    }
    let runtime = cores(2).drain_deadline(Duration::from_secs(60));
    let runtime = runtime.build().unwrap();
    let observer = runtime.poster();
    runtime
        .run(move |cx| {
            for _ in 0..ROUNDS {
                cx.post(Color::from(9), |_cx| {
                    RAN_EMPTY.fetch_add(1, Ordering::Relaxed);
                });
                // With the two pointers in front, and padding: on both sides of what fits into 64
                // bytes with 40 of header, into 128 and into 256.
                sized::<0>(cx, &count, &given);
                sized::<8>(cx, &count, &given);
                sized::<9>(cx, &count, &given);
                sized::<72>(cx, &count, &given);
                sized::<73>(cx, &count, &given);
                sized::<200>(cx, &count, &given);
                sized::<201>(cx, &count, &given);
                sized::<1_000>(cx, &count, &given);
                sized::<HUGE>(cx, &count, &given);
                let (wide, count) = (Wide([7; 64]), Arc::clone(&count));
                cx.post(Color::from(10), move |_cx| {
                    assert_eq!((&raw const wide).addr() % 64, 0, "aligned");
                    assert_eq!(wide.0, [7; 64]);
                    count.fetch_add(1, Ordering::Relaxed);
                });
            }
            cx.stop();
        })
        .unwrap();
    assert_eq!(RAN_EMPTY.load(Ordering::Relaxed), ROUNDS);
    assert_eq!(ran.load(Ordering::Relaxed), 10 * ROUNDS);
    // The largest three, and the one that is aligned.
    assert_eq!(observer.stats().events_boxed, 4 * ROUNDS);
    let handlers = observer.profile().handlers;
    let boxed: Vec<_> = handlers.iter().filter(|row| row.is_boxed).collect();
    assert_eq!(boxed.len(), 4, "{boxed:?}");
    assert!(boxed.iter().all(|row| row.events() == ROUNDS), "{boxed:?}");
    assert_eq!(alive.count(), 0);
}

/// Event memory is recycled: it does not grow with the number of events, also when every event
/// crosses cores and is freed elsewhere than it was made.
#[test]
fn event_memory_stays_flat() {
    const ROUNDS: u64 = 10;
    // A tenth without optimization, where it takes as long.
    const EVENTS: u64 = if cfg!(debug_assertions) {
        200_000
    } else {
        1_000_000
    };
    let _bound = Bound::new("event_memory_stays_flat");
    let runtime = cores(2).build().unwrap();
    let observer = runtime.poster();
    let bytes = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&bytes);
    runtime
        .run(move |cx| {
            for i in 0..8 {
                let bytes = Arc::clone(&bytes);
                cx.post(Color::from(i), move |cx| hop(cx, 0, bytes));
            }
            fn hop(cx: &mut Cx, hops: u64, bytes: Arc<Mutex<Vec<usize>>>) {
                let color = cx.color().value();
                if color == 0 && hops.is_multiple_of(EVENTS) {
                    let now = cx.poster().stats().event_bytes;
                    bytes.lock().unwrap().push(now);
                }
                if hops == ROUNDS * EVENTS / 8 {
                    cx.stop();
                    return;
                }
                let far = Color::from(1_000 + (hops * 3 + color) % 100);
                cx.post(far, move |cx| {
                    cx.post(Color::from(color), move |cx| hop(cx, hops + 1, bytes));
                });
            }
        })
        .unwrap();
    let events = observer.stats().events();
    assert!(events >= 2 * ROUNDS * EVENTS, "{events}");
    let bytes = observer.stats().event_bytes;
    // 16 events are queued at most, and each core keeps some hundred nodes in stock.
    assert!(
        bytes <= 512 << 10,
        "{bytes} bytes for {events} events: {:?}",
        seen.lock()
    );
}

/// What foreign threads post is made there and freed on cores: also flat.
#[test]
fn event_memory_of_foreign_posts_stays_flat() {
    const EVENTS: u64 = 300_000;
    let _bound = Bound::new("event_memory_of_foreign_posts");
    let runtime = cores(2).build().unwrap();
    let observer = runtime.poster();
    let (poster, done) = (runtime.poster(), Arc::new(AtomicU64::new(0)));
    let thread = std::thread::spawn(move || {
        for i in 0..EVENTS {
            let count = Arc::clone(&done);
            poster
                .try_post(Color::from(i % 64), move |_cx| {
                    count.fetch_add(1, Ordering::Relaxed);
                })
                .unwrap();
            // At most this many are under way.
            while i + 1 - done.load(Ordering::Relaxed) > 1_000 {
                std::thread::yield_now();
            }
        }
        poster.stop();
    });
    runtime.run(|_cx| ()).unwrap();
    thread.join().unwrap();
    let bytes = observer.stats().event_bytes;
    assert!(bytes <= 512 << 10, "{bytes} bytes");
    assert_eq!(observer.stats().posts_foreign, EVENTS + 1);
}
