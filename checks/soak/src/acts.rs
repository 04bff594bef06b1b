//! The odd things that events do: placements, hurry, state, colors of one's own, timers, holds,
//! tasks, several states at once, bounded colors, late posts, other runtimes, cores that come and
//! go.

use crate::bounds::use_bound;
use crate::draw::End;
use crate::event::{Place, accepted, cross, post};
use crate::server;
use crate::ticket::Ticket;
use crate::verdict::{PLANTED, fail};
use crate::world::{State, World};
use mely::runtime::OnPanic;
use mely::state::UniqueColor;
use mely::task::{sleep, timeout, with_cx, yield_now};
use mely::{Callback, Color, Colored, Cx, Post, Poster, Reason, Rejected};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::oneshot;

/// Does one of them; the caller is inside `at`.
pub(crate) fn odd(cx: &mut Cx, world: &Arc<World>, at: Place, rng: &mut fastrand::Rng) {
    match rng.u32(..27) {
        0 => {
            let core = rng.usize(..cx.cores());
            cx.place(any_color(world, at, rng), core);
        }
        1 => cx.flush(),
        2 | 3 => new_state(cx, world, at, rng),
        4 | 5 => use_state(cx, world, at, rng),
        6 => unique(cx, world, rng),
        7 | 8 => timer(cx, world, at, rng),
        9 => cancel(cx, world, at),
        10 | 11 => hold(cx, world, at, rng),
        12 => server::connect_to_any(cx, world, at, rng),
        13 | 14 => task(cx, world, at, rng),
        15 => hold_until(cx, world, at, rng),
        16 => drop_task(world, at),
        17 | 18 => together(&cx.poster(), true, world, at, rng),
        19 => read(&cx.poster(), true, world, at, rng),
        20 | 21 => use_bound(cx, world, at, rng),
        22 | 23 => cx.hurry(any_color(world, at, rng)),
        24 => keep_alive(cx, world, at, rng),
        25 => {
            let cores = rng.usize(1..=cx.cores());
            if let Err(error) = cx.poster().set_working_cores(cores) {
                fail(&format!("cores cannot go or come: {error}"));
            }
        }
        _ => cross(world, at, rng),
    }
}

/// A color of the same group.
fn any_color(world: &World, at: Place, rng: &mut fastrand::Rng) -> Color {
    world.sides[at.side].groups[at.group][rng.usize(..world.draw.colors)].color
}

/// A thread for blocking work posts later, also after a stop.
fn keep_alive(cx: &mut Cx, world: &Arc<World>, at: Place, rng: &mut fastrand::Rng) {
    let Some(ticket) = Ticket::loose(world) else {
        return;
    };
    let (alive, color) = (cx.strong_poster(), never_held(rng));
    let late = Duration::from_micros(rng.u64(..300));
    let side = &world.draw.sides[at.side];
    // A run that is cut short refuses what comes later.
    let to_its_end = side.on_panic == OnPanic::DropEvent && !matches!(side.end, End::Deadline(_));
    let work = move || {
        std::thread::sleep(late);
        let posted = alive.try_post(color, move |_cx: &mut Cx| ticket.runs());
        if matches!(
            posted,
            Err(Rejected {
                reason: Reason::Ended,
                ..
            })
        ) && to_its_end
        {
            fail("a runtime that is kept alive has ended");
        }
    };
    if let Ok(given) = cx.try_blocking(work)
        && rng.bool()
    {
        given.then(cx, Callback::anonymous_value(color, |_cx: &mut Cx, _| ()));
    }
}

/// A new `Colored` in the place of another, whose handle is dropped: the last one, or not.
pub(crate) fn new_state(
    by: &(impl Post + ?Sized),
    world: &Arc<World>,
    at: Place,
    rng: &mut fastrand::Rng,
) {
    let Some(ticket) = Ticket::loose(world) else {
        return;
    };
    let side = &world.sides[at.side];
    let color = any_color(world, at, rng);
    let state = State {
        color,
        inside: false,
        readers: AtomicU32::new(0),
        _ticket: ticket,
    };
    let state = Colored::new(by, color, state);
    let slot = &side.states[rng.usize(..side.states.len())];
    let dropped = slot.lock().unwrap().replace(state);
    drop(dropped);
}

/// Posts to one, or drops its handle.
fn use_state(cx: &mut Cx, world: &Arc<World>, at: Place, rng: &mut fastrand::Rng) {
    let slots = &world.sides[at.side].states;
    let slot = &slots[rng.usize(..slots.len())];
    if rng.u32(..4) == 0 {
        let dropped = slot.lock().unwrap().take();
        drop(dropped);
        return;
    }
    let Some(state) = slot.lock().unwrap().clone() else {
        return;
    };
    // Loose: if the state is poisoned, its closure is not called.
    let Some(ticket) = Ticket::loose(world) else {
        return;
    };
    let panics = world.draw.panics > 0
        && world.draw.sides[at.side].on_panic == OnPanic::DropEvent
        && rng.u32(..20) == 0;
    let posted = state.try_post(cx, move |state, cx| {
        ticket.runs();
        if std::mem::replace(&mut state.inside, true) || *state.readers.get_mut() > 0 {
            fail(&format!("two events in the state of {:?}", state.color));
        }
        if cx.color() != state.color {
            fail(&format!(
                "the state of {:?} in {:?}",
                state.color,
                cx.color()
            ));
        }
        if panics {
            std::panic::panic_any(PLANTED);
        }
        state.inside = false;
    });
    must_be_taken(posted, true);
}

/// A post from inside is refused at the limit only, and one from outside also at the end.
fn must_be_taken<T, F>(posted: Result<T, Rejected<F>>, inside: bool) {
    match posted {
        Err(Rejected {
            reason: Reason::Ended,
            ..
        }) if inside => fail("a post from inside: the runtime has ended"),
        _ => {}
    }
}

/// Some of the states that there are.
fn some_states(world: &World, at: Place, rng: &mut fastrand::Rng) -> Vec<Colored<State>> {
    let mut slots: Vec<_> = world.sides[at.side].states.iter().collect();
    rng.shuffle(&mut slots);
    let slots = slots.iter().take(rng.usize(1..4));
    slots
        .filter_map(|slot| slot.lock().unwrap().clone())
        .collect()
}

/// Reads some states at once, of whatever colors.
pub(crate) fn read(
    by: &Poster,
    inside: bool,
    world: &Arc<World>,
    at: Place,
    rng: &mut fastrand::Rng,
) {
    let states = some_states(world, at, rng);
    let Some(ticket) = Ticket::loose(world) else {
        return;
    };
    if states.is_empty() {
        return;
    }
    let posted = by.try_read(states, move |states, _cx| {
        ticket.runs();
        for state in &states {
            state.readers.fetch_add(1, Relaxed);
            if state.inside {
                fail(&format!("read and written: the state of {:?}", state.color));
            }
        }
        for state in &states {
            state.readers.fetch_sub(1, Relaxed);
        }
    });
    must_be_taken(posted, inside);
}

/// Has some states at once, of whatever colors.
pub(crate) fn together(
    by: &Poster,
    inside: bool,
    world: &Arc<World>,
    at: Place,
    rng: &mut fastrand::Rng,
) {
    let states = some_states(world, at, rng);
    let Some(ticket) = Ticket::loose(world) else {
        return;
    };
    if states.is_empty() {
        return;
    }
    let panics = world.draw.panics > 0
        && world.draw.sides[at.side].on_panic == OnPanic::DropEvent
        && rng.u32(..40) == 0;
    let posted = by.try_with_all(states, move |mut states, cx| {
        ticket.runs();
        for state in &mut states {
            if std::mem::replace(&mut state.inside, true) || *state.readers.get_mut() > 0 {
                fail(&format!("two events in the state of {:?}", state.color));
            }
        }
        if !states.iter().any(|state| cx.color() == state.color) {
            fail(&format!("several states in {:?}", cx.color()));
        }
        if panics {
            std::panic::panic_any(PLANTED);
        }
        for state in states {
            state.inside = false;
        }
    });
    must_be_taken(posted, inside);
}

/// What checks a color of its own.
struct Chain {
    inside: AtomicBool,
    last: AtomicU32,
}

/// A color of its own, given back by the last of three events.
fn unique(cx: &mut Cx, world: &Arc<World>, rng: &mut fastrand::Rng) {
    let own = cx.unique_color();
    if rng.bool() {
        cx.place(own.color(), rng.usize(..cx.cores()));
    }
    let color = own.color();
    let chain = Arc::new(Chain {
        inside: AtomicBool::new(false),
        last: AtomicU32::new(0),
    });
    let mut own: Option<UniqueColor> = Some(own);
    for number in 1..=3 {
        let Some(ticket) = Ticket::new(world) else {
            return;
        };
        let (id, chain) = (ticket.id(), Arc::clone(&chain));
        let own = if number == 3 { own.take() } else { None };
        let posted = cx.try_post(color, move |cx: &mut Cx| {
            ticket.runs();
            if chain.inside.swap(true, Relaxed) {
                fail("two events of a unique color at once");
            }
            if chain.last.swap(number, Relaxed) >= number || cx.color() != color {
                fail("the events of a unique color are out of order, or of another");
            }
            chain.inside.store(false, Relaxed);
            drop(own);
        });
        accepted(world, id, posted);
    }
}

/// A timer, which is left alone, canceled at once, or given to whoever cancels.
fn timer(cx: &mut Cx, world: &Arc<World>, at: Place, rng: &mut fastrand::Rng) {
    let Some(ticket) = Ticket::loose(world) else {
        return;
    };
    let to = Place {
        color: rng.usize(..world.draw.colors),
        ..at
    };
    let color = world.sides[at.side].groups[at.group][to.color].color;
    let own = to.color == at.color;
    let canceled = Arc::new(AtomicBool::new(false));
    let gone = Arc::clone(&canceled);
    let mut its = rng.fork();
    let fires = move |cx: &mut Cx| {
        ticket.runs();
        let world = Arc::clone(ticket.world());
        let cell = &world.sides[to.side].groups[to.group][to.color];
        let _inside = cell.enter();
        if gone.load(Relaxed) {
            fail("a timer that its own color has canceled runs");
        }
        post(cx, &world, to, &mut its);
    };
    let after = Duration::from_micros(rng.u64(..3_000));
    let timer = cx.timer(after, Callback::anonymous(color, fires));
    match rng.u32(..3) {
        0 => drop(timer),
        1 => {
            canceled.store(own, Relaxed);
            timer.cancel(cx);
        }
        _ => world.sides[at.side].timers.lock().unwrap().push(timer),
    }
}

/// A color is held, for as long as this is there.
struct Held {
    world: Arc<World>,
    at: Place,
}

impl Held {
    fn new(world: &Arc<World>, at: Place) -> Held {
        world.sides[at.side].groups[at.group][at.color].hold(true);
        Held {
            world: Arc::clone(world),
            at,
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Place { side, group, color } = self.at;
        self.world.sides[side].groups[group][color].hold(false);
    }
}

/// Holds the running color. The hold is dropped, or resumed: by another color, by a thread for
/// blocking work, by its result, or by a deadline.
pub(crate) fn hold(cx: &mut Cx, world: &Arc<World>, at: Place, rng: &mut fastrand::Rng) {
    let Some(ticket) = Ticket::loose(world) else {
        return;
    };
    let other = never_held(rng);
    let mut hold = cx.hold();
    let way = rng.u32(..5);
    // Where a drop and a deadline race, it is not sure that it is out.
    let held = (way != 3).then(|| Held::new(world, at));
    let its = Arc::clone(world);
    let last = move |_cx: &mut Cx| {
        ticket.runs();
        drop(held);
        let _inside = its.sides[at.side].groups[at.group][at.color].enter();
    };
    // What is refused is dropped, and the hold with it.
    match way {
        0 => {
            drop(last);
            drop(hold);
        }
        1 => {
            let answer = hold.on_value(move |cx, _| last(cx));
            if let Ok(given) = cx.try_blocking(|| ()) {
                given.then(cx, answer);
            }
        }
        2 => {
            let _refused = cx.try_blocking(move || hold.resume(last));
        }
        3 => {
            hold.resume_after(cx, Duration::from_micros(rng.u64(..300)), last);
            let _refused = cx.try_post(other, move |_cx: &mut Cx| drop(hold));
        }
        _ => {
            let _refused = cx.try_post(other, move |_cx: &mut Cx| hold.resume(last));
        }
    }
}

/// A color that is never held: two that are may wait for each other.
fn never_held(rng: &mut fastrand::Rng) -> Color {
    Color::from((4 << 40) + rng.u64(..8))
}

/// What a task of this color does: it waits for one thing after the other. `through`: its color is
/// held meanwhile.
fn stages(
    world: &Arc<World>,
    at: Place,
    ticket: Ticket,
    through: bool,
    rng: &mut fastrand::Rng,
) -> impl Future<Output = ()> + Send + 'static {
    let (world, mut rng) = (Arc::clone(world), rng.fork());
    async move {
        ticket.runs();
        for _ in 0..rng.u32(1..5) {
            let cell = &world.sides[at.side].groups[at.group][at.color];
            drop(if through {
                cell.enter_through()
            } else {
                cell.enter()
            });
            if with_cx(|cx| cx.color()) != cell.color {
                fail("a task is polled outside of its color");
            }
            match rng.u32(..5) {
                0 => yield_now().await,
                1 => sleep(Duration::from_micros(rng.u64(..300))).await,
                2 => {
                    let asked = with_cx(|cx| cx.try_ask(never_held(&mut rng), |_cx| ()));
                    if let Ok(asked) = asked {
                        let _told = asked.await;
                    }
                }
                3 => {
                    let never = std::future::pending::<()>();
                    let _late = timeout(Duration::from_micros(rng.u64(..100)), never).await;
                }
                _ => {
                    // Woken by a thread that is no core, if it is not refused.
                    let (sender, receiver) = oneshot::channel();
                    let tell = move || {
                        let _gone = sender.send(());
                    };
                    let given = with_cx(|cx| cx.try_blocking(tell));
                    match given {
                        Ok(given) if rng.bool() => drop(given.cancel_on_drop().await),
                        _ => drop(receiver.await),
                    }
                }
            }
        }
    }
}

/// A task, which is detached, canceled at once, or given to a later act that cancels it.
fn task(cx: &mut Cx, world: &Arc<World>, at: Place, rng: &mut fastrand::Rng) {
    let Some(ticket) = Ticket::loose(world) else {
        return;
    };
    let to = Place {
        color: rng.usize(..world.draw.colors),
        ..at
    };
    let color = world.sides[at.side].groups[at.group][to.color].color;
    let Ok(task) = cx
        .poster()
        .try_spawn(color, stages(world, to, ticket, false, rng))
    else {
        return;
    };
    match rng.u32(..4) {
        0 => task.cancel(),
        1 => world.sides[at.side]
            .tasks
            .lock()
            .unwrap()
            .push(task.cancel_on_drop()),
        _ => drop(task),
    }
}

/// Holds the running color until a task of it is over.
fn hold_until(cx: &mut Cx, world: &Arc<World>, at: Place, rng: &mut fastrand::Rng) {
    let Some(ticket) = Ticket::loose(world) else {
        return;
    };
    let held = Held::new(world, at);
    let stages = stages(world, at, ticket, true, rng);
    let task = cx.hold().until(async move {
        // Over before what waits goes on, however it ends.
        let _held = held;
        stages.await;
    });
    match rng.u32(..3) {
        0 => world.sides[at.side]
            .tasks
            .lock()
            .unwrap()
            .push(task.cancel_on_drop()),
        _ => drop(task),
    }
}

/// Cancels some task, of whatever color, over or not.
fn drop_task(world: &Arc<World>, at: Place) {
    let task = world.sides[at.side].tasks.lock().unwrap().pop();
    drop(task);
}

/// Cancels some timer, on whatever core, of whatever color, over or not.
fn cancel(cx: &mut Cx, world: &Arc<World>, at: Place) {
    let timer = world.sides[at.side].timers.lock().unwrap().pop();
    if let Some(timer) = timer {
        timer.cancel(cx);
    }
}
