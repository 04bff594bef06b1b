//! Each operation that writes a color's words against each other one, with the color in each of its
//! states.
//!
//! The words are the mailbox, the link of the poke, the owner, the wish and the private part of the
//! slot (`mely`'s `shared/queue/slots.rs`). What writes them: a post from outside, [`Op::Place`],
//! [`Op::Hurry`], a steal, what a hold lets go, a retirement, an event of several colors, a reader,
//! and a takeover. Two of them run on threads of their own while the color's owner goes on with its
//! step.
//!
//! Pairs that are left out cannot meet, or are others again:
//! - one core does not steal twice at once: two thieves are `stealing::two_thieves`;
//! - a color is taken over only from a core that sleeps, and that core runs no event, and has no
//!   color queued, due or held with an event at hand;
//! - a reader is a post until it arrives, and from then on at most a hold: it is explored where
//!   those two differ from it, with the color idle and running (and see `readers`).

use crate::support::{LONG, SHORT, WORTHY, settle, steps, world_with_gates};
use loom::cell::UnsafeCell;
use loom::thread::{self, JoinHandle};
use mely::model::{Core, World};
use mely::runtime::Stealing;
use mely::{Color, Colored, Cx, Handler, Hold, Poster};
use mely_loom_tests::{Event, Model, Oracle, must_fail};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

/// A color of core 1, its owner at first: the one that all is done to.
const X: Color = Color::new(1);
/// Another one of core 1, whose event runs while others do that.
const BESIDE: Color = Color::new(3);
/// A color of core 0, the other core.
const Y: Color = Color::new(2);

/// What is done to the color.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Post,
    Place,
    Hurry,
    /// The other core steps, and takes what it gets.
    Steal,
    /// An event takes a hold, which is resumed at the end.
    Hold,
    /// The hold of [`State::Held`] is resumed.
    Resume,
    /// The owner is retired.
    Retire,
    WithAll,
    Read,
    /// The other core runs an event that posts to the color.
    TakeOver,
}

use Op::{Hold as TakeHold, Hurry, Place, Post, Read, Resume, Retire, Steal, TakeOver, WithAll};

/// Those that may meet in most states.
const ALL: [Op; 8] = [Post, Place, Hurry, Steal, TakeHold, Retire, WithAll, Read];

/// Where the color is when both operations begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing is there for it.
    Idle,
    /// In its owner's core-queue, worth a steal, while the owner is in an event of another color.
    Queued,
    /// Checked out behind the event that runs.
    Due,
    /// Inside a long event of its own.
    Running,
    /// The same, and a thief has left its poke, with a wish for the next turn, for the owner.
    Deferred,
    /// A hold is taken, and an event waits.
    Held,
    /// Idle, and its owner sleeps.
    Asleep,
}

/// The color's state, whose accesses loom looks at.
#[derive(Debug)]
struct Cell(UnsafeCell<u32>);

// SAFETY: the cell is checked by loom: an access that overlaps with another is reported and not
// performed.
unsafe impl Sync for Cell {}
// SAFETY: as above.
unsafe impl Send for Cell {}

impl Cell {
    fn write(&mut self) {
        // SAFETY: loom reports an access beside this one.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }

    fn read(&self) {
        // SAFETY: loom reports a write beside this one.
        self.0.with(|value| unsafe { *value });
    }
}

/// What threads and events of one execution share.
#[derive(Clone)]
struct Scene {
    poster: Poster,
    oracle: Arc<Oracle>,
    x: Colored<Cell>,
    y: Colored<Cell>,
    /// Events that have run, readers and events of several colors included.
    ran: Arc<AtomicUsize>,
    hold: Arc<Mutex<Option<Hold>>>,
    other: Arc<Mutex<Option<Core>>>,
}

impl Scene {
    fn new(world: &World, other: Core) -> Scene {
        let poster = world.poster();
        let cell = |color| Colored::new(&poster, color, Cell(UnsafeCell::new(0)));
        Scene {
            x: cell(X),
            y: cell(Y),
            poster: poster.clone(),
            oracle: Oracle::new(),
            ran: Arc::default(),
            hold: Arc::default(),
            other: Arc::new(Mutex::new(Some(other))),
        }
    }

    /// The `number`-th event of `by`: writes the state.
    fn event(&self, by: u32, number: u32) -> Event {
        let (x, ran) = (self.x.clone(), Arc::clone(&self.ran));
        self.oracle.event(by, number).then(move |cx| {
            x.with(cx, |cell, _cx| cell.write()).unwrap();
            ran.fetch_add(1, Ordering::Relaxed);
        })
    }

    fn post(&self, by: u32, number: u32, handler: &'static Handler) {
        self.event(by, number).post_from(&self.poster, handler, X);
    }

    /// The event takes a hold, and leaves it for later.
    fn post_hold(&self, by: u32) {
        let hold = Arc::clone(&self.hold);
        let holds = move |cx: &mut Cx| {
            let before = hold.lock().unwrap().replace(cx.hold());
            assert!(before.is_none(), "one event of each pair holds");
        };
        let event = self.event(by, 0).then(holds);
        event.post_from(&self.poster, &SHORT, X);
    }

    /// Resumes the hold that was left, if there is one.
    fn resume(&self, by: u32, number: u32) -> bool {
        let Some(hold) = self.hold.lock().unwrap().take() else {
            return false;
        };
        hold.resume_callback(self.event(by, number).callback_of_core(&SHORT, X));
        true
    }

    /// Begins an operation, as thread `by`. It runs until the handle is joined.
    fn begin(&self, op: Op, by: u32) -> JoinHandle<()> {
        let scene = self.clone();
        let count = |ran: &Arc<AtomicUsize>| {
            let ran = Arc::clone(ran);
            move || ran.fetch_add(1, Ordering::Relaxed)
        };
        if op == TakeOver {
            let posts = scene.event(by, 0);
            let post = move |cx: &mut Cx| {
                posts.post(cx, &SHORT, X);
                cx.flush();
            };
            SHORT.on(Y, post).try_post(&scene.poster).unwrap();
        }
        thread::spawn(move || match op {
            Post => scene.post(by, 0, &SHORT),
            Place => scene.poster.place(X, 0),
            Hurry => scene.poster.hurry(X),
            Steal | TakeOver => {
                let mut other = scene.other.lock().unwrap().take().unwrap();
                other.step();
                other.step();
                *scene.other.lock().unwrap() = Some(other);
            }
            TakeHold => scene.post_hold(by),
            Resume => assert!(scene.resume(by, 0)),
            Retire => scene.poster.set_working_cores(1).unwrap(),
            WithAll => {
                let count = count(&scene.ran);
                let f = move |[x, y]: [&mut Cell; 2], _cx: &mut Cx| {
                    x.write();
                    y.write();
                    count();
                };
                assert!(scene.poster.try_with_all([&scene.x, &scene.y], f).is_ok());
            }
            Read => {
                let count = count(&scene.ran);
                let f = move |x: &Cell, _cx: &mut Cx| {
                    x.read();
                    count();
                };
                assert!(scene.poster.try_read(&scene.x, f).is_ok());
            }
        })
    }
}

impl Op {
    /// Events in which it ends.
    fn events(self) -> usize {
        match self {
            Place | Hurry | Steal | Retire => 0,
            Post | Resume | WithAll | Read | TakeOver => 1,
            // And its continuation.
            TakeHold => 2,
        }
    }
}

/// Explores `a` against `b`, which begin while the color is in this state.
fn explore(model: Model, state: State, a: Op, b: Op) {
    model.explore(move || {
        let (world, other, mut owner) = world_with_gates(Stealing::ALL);
        let scene = Scene::new(&world, other);
        let mut expected = a.events() + b.events();
        let (sender, receiver) = mpsc::channel();
        let both = {
            let scene = scene.clone();
            move |cx: &mut Cx| {
                if state == State::Queued {
                    scene.event(0, 0).post(cx, &WORTHY, X);
                    cx.flush();
                }
                if state == State::Deferred {
                    scene.post(0, 1, &SHORT);
                    scene.poster.hurry(X);
                    let other = scene.other.lock().unwrap().take().unwrap();
                    let other = steps(other, 1).join().unwrap();
                    *scene.other.lock().unwrap() = Some(other);
                }
                let begun = [(a, 1), (b, 2)].map(|(op, by)| scene.begin(op, by));
                sender.send(begun).unwrap();
            }
        };
        match state {
            State::Idle | State::Queued => {
                let beside = LONG.on(BESIDE, both);
                beside.try_post(&scene.poster).unwrap();
                expected += usize::from(state == State::Queued);
            }
            State::Due => {
                let beside = SHORT.on(BESIDE, both);
                beside.try_post(&scene.poster).unwrap();
                scene.post(0, 0, &SHORT);
                expected += 1;
            }
            State::Running | State::Deferred => {
                let event = scene.event(0, 0).then(both);
                event.post_from(&scene.poster, &LONG, X);
                expected += if state == State::Deferred { 2 } else { 1 };
            }
            State::Held => {
                scene.post_hold(0);
                owner.step();
                scene.post(3, 0, &SHORT);
                owner.step();
                let beside = SHORT.on(BESIDE, both);
                beside.try_post(&scene.poster).unwrap();
                expected += 2 + usize::from(a != Resume && b != Resume);
            }
            State::Asleep => {
                assert!(owner.lie_down());
                both_outside(&scene, a, b, &mut owner);
                return finish(world, scene, owner, expected);
            }
        }
        owner.step();
        owner.step();
        owner.step();
        for handle in receiver.recv().unwrap() {
            handle.join().unwrap();
        }
        finish(world, scene, owner, expected);
    });
}

/// Both begin beside a core that sleeps, and that rises afterwards.
fn both_outside(scene: &Scene, a: Op, b: Op, owner: &mut Core) {
    let first = scene.begin(a, 1);
    let second = scene.begin(b, 2);
    first.join().unwrap();
    second.join().unwrap();
    owner.rise();
}

/// All has run, once, and nothing is left.
fn finish(world: World, scene: Scene, mut owner: Core, expected: usize) {
    let mut other = scene.other.lock().unwrap().take().unwrap();
    settle(&mut [&mut owner, &mut other]);
    let mut resumed = 0;
    while scene.resume(4, resumed) {
        resumed += 1;
        settle(&mut [&mut owner, &mut other]);
    }
    let ran = scene.ran.load(Ordering::Relaxed);
    assert_eq!(ran, expected, "ORACLE: not all ran, or one twice");
    let Scene {
        poster,
        oracle,
        x,
        y,
        ..
    } = scene;
    drop((poster, x, y));
    settle(&mut [&mut owner, &mut other]);
    assert_eq!(world.events_left(), 0);
    drop((owner, other));
    world.assert_at_rest();
    drop(world);
    oracle.assert_no_leak();
}

/// The operations that `a` meets in this state. Each pair has one place: the one of its later
/// operation.
fn partners(state: State, a: Op) -> Vec<Op> {
    let at = ALL.iter().position(|&op| op == a);
    let earlier = at.map_or(&ALL[..], |at| &ALL[..=at]);
    let meets = |&&op: &&Op| match op {
        Steal => a != Steal && state != State::Asleep,
        Read => matches!(state, State::Idle | State::Running),
        _ => true,
    };
    earlier.iter().filter(meets).copied().collect()
}

/// A model for each state and operation.
macro_rules! pairs {
    ($($name:ident: $state:ident, $a:ident;)*) => {
        $(
            #[test]
            fn $name() {
                for b in partners(State::$state, $a) {
                    let model = Model {
                        name: concat!("pairs::", stringify!($name)),
                        preemptions_max: 1,
                        iterations_min: 5,
                    };
                    println!("{:?} against {:?}", $a, b);
                    explore(model, State::$state, $a, b);
                }
            }
        )*
    };
}

pairs! {
    idle_post: Idle, Post;
    idle_place: Idle, Place;
    idle_hurry: Idle, Hurry;
    idle_steal: Idle, Steal;
    idle_hold: Idle, TakeHold;
    idle_retire: Idle, Retire;
    idle_with_all: Idle, WithAll;
    idle_read: Idle, Read;
    queued_post: Queued, Post;
    queued_place: Queued, Place;
    queued_hurry: Queued, Hurry;
    queued_steal: Queued, Steal;
    queued_hold: Queued, TakeHold;
    queued_retire: Queued, Retire;
    queued_with_all: Queued, WithAll;
    due_post: Due, Post;
    due_place: Due, Place;
    due_hurry: Due, Hurry;
    due_steal: Due, Steal;
    due_hold: Due, TakeHold;
    due_retire: Due, Retire;
    due_with_all: Due, WithAll;
    running_post: Running, Post;
    running_place: Running, Place;
    running_hurry: Running, Hurry;
    running_steal: Running, Steal;
    running_hold: Running, TakeHold;
    running_retire: Running, Retire;
    running_with_all: Running, WithAll;
    running_read: Running, Read;
    deferred_post: Deferred, Post;
    deferred_place: Deferred, Place;
    deferred_hurry: Deferred, Hurry;
    deferred_steal: Deferred, Steal;
    deferred_hold: Deferred, TakeHold;
    deferred_retire: Deferred, Retire;
    deferred_with_all: Deferred, WithAll;
    held_post: Held, Post;
    held_place: Held, Place;
    held_hurry: Held, Hurry;
    held_steal: Held, Steal;
    held_hold: Held, TakeHold;
    held_retire: Held, Retire;
    held_with_all: Held, WithAll;
    held_resume: Held, Resume;
    asleep_take_over: Asleep, TakeOver;
}

#[test]
fn finds_hurried_color_not_looked_at_again() {
    must_fail(
        "pairs::deferred_place",
        "hurried color not looked at again",
        &["colors queued"],
    );
}
