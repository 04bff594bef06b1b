//! What several models need.

use loom::sync::Notify;
use loom::thread::{self, JoinHandle};
use mely::model::{Core, Plan, World};
use mely::runtime::Stealing;
use mely::state::{Bounded, Permit};
use mely::{Color, Colored, Cx, Handler};
use mely_loom_tests::{Event, Oracle};
use std::borrow::Borrow;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// A color of core 0, which no model steals: what runs while the others are at work.
pub(crate) const RUNS: Color = Color::new(0);
/// Of two cores, another color of the same one.
pub(crate) const OTHER: Color = Color::new(2);

/// Not worth a steal, let alone a wake-up.
pub(crate) static SHORT: Handler = Handler::new("short").time(Duration::from_nanos(100));
/// Two fill a quantum, and one does not.
pub(crate) static HALF: Handler = Handler::new("half").time(Duration::from_nanos(500));
/// Worth a steal, and not long.
pub(crate) static WORTHY: Handler = Handler::new("worthy").time(Duration::from_nanos(900));
/// Worth a steal and a wake-up, and known to be long.
pub(crate) static LONG: Handler = Handler::new("long").time(Duration::from_nanos(5_000));

/// Tells whoever waits that events have run.
#[derive(Clone)]
pub(crate) struct Done(Arc<(Notify, AtomicU32)>);

impl Done {
    /// Of this many events.
    pub(crate) fn of(events: u32) -> Done {
        Done(Arc::new((Notify::new(), AtomicU32::new(events))))
    }

    /// Waits. What comes after is not explored: the shutdown has models of its own.
    pub(crate) fn wait(&self) {
        // Loom's notification may come without cause.
        while self.0.1.load(Ordering::Relaxed) > 0 {
            self.0.0.wait();
        }
        loom::stop_exploring();
    }

    /// `event`, which tells when it has run.
    pub(crate) fn after(&self, event: Event) -> Event {
        let done = self.clone();
        event.then(move |_cx| {
            done.0.1.fetch_sub(1, Ordering::Relaxed);
            done.0.0.notify();
        })
    }
}

/// Runs this event of the handler on the busy core. The other one sleeps, or is about to, and must
/// run the only event of [`OTHER`]. `besides`: what else the world consists of.
pub(crate) fn beside_a_sleeper<T, F>(
    world: World,
    oracle: &Oracle,
    mut busy: Core,
    besides: T,
    handler: &'static Handler,
    start: F,
) where
    F: FnOnce(&mut Cx) + Send + 'static,
{
    let mut sleeper = world.core(1);
    handler.on(RUNS, start).try_post(&world.poster()).unwrap();
    let driven = thread::spawn(move || sleeper.drive());
    busy.step();
    world.stop();
    busy.drive();
    driven.join().unwrap();
    oracle.assert_ran(OTHER, &[(0, 1)]);
    all_has_run(world, (busy, besides), oracle);
}

/// Nothing is left when all are done: no event and no mail, and, once `parts` of the world are
/// dropped too, no closure.
pub(crate) fn all_has_run<T>(world: impl Borrow<World>, parts: T, oracle: &Oracle) {
    assert_eq!(world.borrow().events_left(), 0);
    drop(parts);
    world.borrow().assert_at_rest();
    drop(world);
    oracle.assert_no_leak();
}

/// A world of two cores, which steal or not, in which there was a hold: a runtime's first makes the
/// gates, behind a lock that loom does not see.
pub(crate) fn world_with_gates(stealing: Stealing) -> (World, Core, Core) {
    let world = World::new(Plan {
        stealing,
        ..Plan::cores(2)
    });
    let (mut here, there) = (world.core(0), world.core(1));
    drop(within(&world, &mut here, &SHORT, |cx| cx.hold()));
    here.step();
    (world, here, there)
}

/// A color with a bound, and room in it: dropped inside an event, that publishes what the event has
/// posted.
pub(crate) fn room_in(world: &World, color: Color) -> (Bounded<()>, Permit<()>) {
    let bounded = Colored::new(&world.poster(), color, ()).bounded(1);
    let room = bounded.try_reserve().expect("there is room for one");
    (bounded, room)
}

/// A thread of its own that steps the core so often, and gives it back.
pub(crate) fn steps(mut core: Core, count: usize) -> JoinHandle<Core> {
    thread::spawn(move || {
        for _ in 0..count {
            core.step();
        }
        core
    })
}

/// Steps cores in turn until none of them finds anything.
pub(crate) fn settle(cores: &mut [&mut Core]) {
    let mut quiet = 0;
    let mut turns = 0;
    while quiet < 2 {
        turns += 1;
        assert!(turns < 50, "the cores do not come to rest");
        // Every core is asked in every round.
        let ran = cores.iter_mut().fold(false, |ran, core| core.step() | ran);
        quiet = if ran { 0 } else { quiet + 1 };
    }
}

/// Posts `f` as an event of [`RUNS`], steps the core, which is core 0, so that it runs, and returns
/// what it returned.
pub(crate) fn within<R: Send + 'static>(
    world: &World,
    core: &mut Core,
    handler: &'static Handler,
    f: impl FnOnce(&mut Cx) -> R + Send + 'static,
) -> R {
    let (sender, receiver) = mpsc::channel();
    let event = move |cx: &mut Cx| sender.send(f(cx)).unwrap();
    handler.on(RUNS, event).try_post(&world.poster()).unwrap();
    core.step();
    receiver.recv().unwrap()
}
