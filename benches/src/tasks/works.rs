//! What the tasks do: written once, for any runtime that is a [`Host`].

use super::hosts::{FIRST_COLOR, Host};
use mely::state::Bounded;
use mely::task::with_cx;
use mely::{Color, Colored, Cx};
use std::future::Future;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel, Ordering::Release};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};

/// Something that is done again and again by the task that measures.
pub(super) trait Batch: Send + 'static {
    /// Does it once; how many operations that were.
    fn run(&mut self) -> impl Future<Output = u64> + Send;
}

/// Tasks spawned before the first of them is waited for.
const SPAWNED: usize = 1_000;
/// Tasks that yield by turns, or send to one.
const MANY: u64 = 16;
/// Operations of a task in a batch: far more than it costs to spawn it.
const ROUNDS: u64 = 4_096;
/// What a bounded channel holds.
const CAPACITY: usize = 64;

/// Captured by a task, and looked at.
#[derive(Clone, Copy, Debug)]
struct Payload<const WORDS: usize>([u64; WORDS]);

impl<const WORDS: usize> Payload<WORDS> {
    fn new(first: u64) -> Payload<WORDS> {
        let mut words = [0; WORDS];
        words[0] = first;
        Payload(words)
    }

    fn look(&self) -> u64 {
        black_box(self).0[0]
    }
}

/// Spawns tasks that return at once, and waits for each handle.
pub(super) struct SpawnJoin<H: Host, const WORDS: usize> {
    host: H,
    tasks: Vec<H::Task<u64>>,
}

impl<H: Host, const WORDS: usize> SpawnJoin<H, WORDS> {
    pub(super) fn new(host: H) -> SpawnJoin<H, WORDS> {
        SpawnJoin {
            host,
            tasks: Vec::with_capacity(SPAWNED),
        }
    }
}

impl<H: Host, const WORDS: usize> Batch for SpawnJoin<H, WORDS> {
    async fn run(&mut self) -> u64 {
        let host = self.host;
        self.tasks.extend((0..SPAWNED as u64).map(|i| {
            let payload = Payload::<WORDS>::new(i);
            host.spawn(i, async move { payload.look() })
        }));
        let mut sum = 0;
        for task in self.tasks.drain(..) {
            sum += H::join(task).await;
        }
        assert_eq!(sum, (0..SPAWNED as u64).sum::<u64>());
        SPAWNED as u64
    }
}

/// Spawns tasks that nobody waits for; the last one tells that all have run.
pub(super) struct SpawnDetached<H, const WORDS: usize> {
    host: H,
    left: &'static Left,
}

/// How many tasks of a batch have not run, and who waits for the last one.
#[derive(Default)]
struct Left {
    tasks: AtomicUsize,
    none: Notify,
}

impl Left {
    fn one_less(&self) {
        if self.tasks.fetch_sub(1, AcqRel) == 1 {
            self.none.notify_one();
        }
    }
}

impl<H, const WORDS: usize> SpawnDetached<H, WORDS> {
    pub(super) fn new(host: H) -> SpawnDetached<H, WORDS> {
        // A reference is as small as the smallest task; one process makes one of these.
        let left = Box::leak(Box::default());
        SpawnDetached { host, left }
    }
}

impl<H: Host, const WORDS: usize> Batch for SpawnDetached<H, WORDS> {
    async fn run(&mut self) -> u64 {
        let left = self.left;
        left.tasks.store(SPAWNED, Release);
        for i in 0..SPAWNED as u64 {
            // Of the captured words the reference is one.
            let payload = [i; WORDS];
            H::detach(self.host.spawn(i, async move {
                black_box(&payload);
                left.one_less();
            }));
        }
        left.none.notified().await;
        SPAWNED as u64
    }
}

/// Tasks that yield; the number of them.
pub(super) struct Yield<H> {
    pub(super) host: H,
    pub(super) tasks: u64,
}

impl<H: Host> Yield<H> {
    /// One task yields.
    pub(super) fn one(host: H) -> Yield<H> {
        Yield { host, tasks: 1 }
    }

    /// Many yield by turns.
    pub(super) fn many(host: H) -> Yield<H> {
        Yield { host, tasks: MANY }
    }
}

impl<H: Host> Batch for Yield<H> {
    async fn run(&mut self) -> u64 {
        let rounds = ROUNDS * MANY / self.tasks;
        let yielding = |place| {
            self.host.spawn(place, async move {
                for _ in 0..rounds {
                    H::yield_now().await;
                }
            })
        };
        let tasks: Vec<_> = (1..=self.tasks).map(yielding).collect();
        for task in tasks {
            H::join(task).await;
        }
        rounds * self.tasks
    }
}

/// Two tasks wake each other by turns: an operation is one wake.
pub(super) struct PingPongNotify<H>(pub(super) H);

impl<H: Host> Batch for PingPongNotify<H> {
    async fn run(&mut self) -> u64 {
        let here = Arc::new([Notify::new(), Notify::new()]);
        let there = Arc::clone(&here);
        let ping = self.0.spawn(1, async move {
            for _ in 0..ROUNDS {
                here[0].notify_one();
                here[1].notified().await;
            }
        });
        let pong = self.0.spawn(2, async move {
            for _ in 0..ROUNDS {
                there[0].notified().await;
                there[1].notify_one();
            }
        });
        H::join(ping).await;
        H::join(pong).await;
        2 * ROUNDS
    }
}

/// Two tasks send each other a number by turns: an operation is one message.
pub(super) struct PingPongMpsc<H>(pub(super) H);

impl<H: Host> Batch for PingPongMpsc<H> {
    async fn run(&mut self) -> u64 {
        let (to_pong, mut from_ping) = mpsc::channel(1);
        let (to_ping, mut from_pong) = mpsc::channel(1);
        let ping = self.0.spawn(1, async move {
            for i in 0..ROUNDS {
                to_pong.send(i).await.expect("it listens");
                assert_eq!(from_pong.recv().await, Some(i));
            }
        });
        let pong = self.0.spawn(2, async move {
            while let Some(i) = from_ping.recv().await {
                to_ping.send(i).await.expect("it listens");
            }
        });
        H::join(ping).await;
        H::join(pong).await;
        2 * ROUNDS
    }
}

/// Many tasks send to one: an operation is one message.
pub(super) struct Channel<H>(pub(super) H);

impl<H: Host> Batch for Channel<H> {
    async fn run(&mut self) -> u64 {
        let (sender, mut receiver) = mpsc::channel(CAPACITY);
        let consumer = self.0.spawn(MANY + 1, async move {
            let mut sum = 0;
            while let Some(number) = receiver.recv().await {
                sum += number;
            }
            sum
        });
        let producer = |place| {
            let sender = sender.clone();
            self.0.spawn(place, async move {
                for number in 0..ROUNDS {
                    sender.send(number).await.expect("it listens");
                }
            })
        };
        let producers: Vec<_> = (1..=MANY).map(producer).collect();
        drop(sender);
        for producer in producers {
            H::join(producer).await;
        }
        let sum = H::join(consumer).await;
        assert_eq!(sum, MANY * (0..ROUNDS).sum::<u64>());
        MANY * ROUNDS
    }
}

/// Many tasks sleep at the same time: as many operations.
pub(super) struct Sleep<H>(pub(super) H);

impl<H: Host> Batch for Sleep<H> {
    async fn run(&mut self) -> u64 {
        let sleeping = |i| self.0.spawn(i, H::sleep(Duration::from_millis(1)));
        let tasks: Vec<_> = (0..SPAWNED as u64).map(sleeping).collect();
        for task in tasks {
            H::join(task).await;
        }
        SPAWNED as u64
    }
}

/// Many look at a table, and every sixteenth changes it. The last one tells that all have run.
pub(super) struct Read<H: Host> {
    host: H,
    words: usize,
    table: Option<H::Shared<Vec<u64>>>,
    left: &'static Left,
}

impl<H: Host> Read<H> {
    pub(super) fn new(host: H, words: usize) -> Read<H> {
        let left = Box::leak(Box::default());
        Read {
            host,
            words,
            table: None,
            left,
        }
    }
}

impl<H: Host> Batch for Read<H> {
    async fn run(&mut self) -> u64 {
        let (host, left, words) = (self.host, self.left, self.words);
        let table = self.table.get_or_insert_with(|| H::share(vec![1; words]));
        left.tasks.store(SPAWNED, Release);
        for i in 0..SPAWNED {
            if i as u64 % MANY == MANY - 1 {
                H::change(table, move |table| {
                    // Between the two, a reader would see another sum.
                    let taken = std::mem::take(&mut table[i % words]);
                    table[(i + 1) % words] += black_box(taken);
                    left.one_less();
                });
            } else {
                host.look(table, move |table| {
                    assert_eq!(sum(table), words as u64);
                    left.one_less();
                });
            }
        }
        left.none.notified().await;
        SPAWNED as u64
    }
}

/// One function for all hosts: inlined, it is vectorized for one of them and not for another.
#[inline(never)]
fn sum(table: &[u64]) -> u64 {
    black_box(table).iter().sum()
}

/// No tasks, for comparison: callbacks that post the next one to their own color. mely only.
pub(super) struct Chain;

impl Batch for Chain {
    async fn run(&mut self) -> u64 {
        fn link(cx: &mut Cx, left: u64, done: oneshot::Sender<()>) {
            match left {
                0 => done.send(()).expect("the task waits"),
                _ => cx.post(cx.color(), move |cx| link(cx, left - 1, done)),
            }
        }
        let (sender, done) = oneshot::channel();
        let events = ROUNDS * MANY;
        with_cx(|cx| {
            let color = Color::new(FIRST_COLOR + 1);
            cx.post(color, move |cx| link(cx, events - 1, sender));
        });
        done.await.expect("the last event tells");
        events
    }
}

/// No tasks, for comparison: events that go round many colors, as many at a time as a channel
/// holds; by plain posts, or with a bound on each color. mely only.
pub(super) struct Relay {
    bounded: bool,
    ring: Option<&'static [Bounded<()>]>,
    left: &'static Left,
}

/// Colors in the ring: more than a core keeps at hand.
const RING: usize = 1_000;

impl Relay {
    pub(super) fn new(bounded: bool) -> Relay {
        // One process makes one of these.
        let left = Box::leak(Box::default());
        Relay {
            bounded,
            ring: None,
            left,
        }
    }
}

/// An event on its way.
#[derive(Clone, Copy)]
struct Relayed {
    bounded: bool,
    ring: &'static [Bounded<()>],
    place: usize,
    posts_left: u64,
    events_left: &'static Left,
}

impl Relayed {
    fn pass(self, cx: &Cx) {
        let event = move |_: &mut (), cx: &mut Cx| match self.posts_left {
            1 => self.events_left.one_less(),
            _ => self.next().pass(cx),
        };
        let color = &self.ring[self.place];
        match self.bounded {
            true => color.try_post(cx, event).expect("room for all"),
            false => color.state().post(cx, event),
        }
    }

    fn next(self) -> Relayed {
        Relayed {
            place: (self.place + 1) % RING,
            posts_left: self.posts_left - 1,
            ..self
        }
    }
}

impl Batch for Relay {
    async fn run(&mut self) -> u64 {
        let ring = *self.ring.get_or_insert_with(|| {
            let color = |place| {
                let color = Color::new(FIRST_COLOR + 1 + place as u64);
                with_cx(|cx| Colored::new(cx, color, ())).bounded(CAPACITY)
            };
            Box::leak((0..RING).map(color).collect())
        });
        self.left.tasks.store(CAPACITY, Release);
        for event in 0..CAPACITY {
            let relayed = Relayed {
                bounded: self.bounded,
                ring,
                place: event * (RING / CAPACITY),
                posts_left: ROUNDS,
                events_left: self.left,
            };
            with_cx(|cx| relayed.pass(cx));
        }
        self.left.none.notified().await;
        CAPACITY as u64 * ROUNDS
    }
}
