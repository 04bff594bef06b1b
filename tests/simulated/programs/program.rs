//! What a program is, and how one is made.

use mely::runtime::{OnPanic, Stealing};
use proptest::collection::vec;
use proptest::prelude::*;

/// Handlers by annotation; see `run::HANDLERS`.
pub(crate) const HANDLERS: usize = 6;

/// Bounded colors; see `run::bound`.
pub(crate) const BOUNDS: usize = 3;

/// A runtime, its first event, and what comes from outside.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) cores: usize,
    pub(crate) packages: usize,
    pub(crate) stealing: Stealing,
    pub(crate) batch: u32,
    pub(crate) slots: usize,
    pub(crate) events_max: usize,
    pub(crate) on_panic: OnPanic,
    pub(crate) exit_when_idle: bool,
    pub(crate) start: Vec<Act>,
    pub(crate) outside: Vec<(u32, Outside)>,
}

/// What an event does.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Posts an event under one of the handlers.
    Post(usize, u64, Vec<Act>),
    /// Posts an event to its own color.
    PostOwn(Vec<Act>),
    /// Posts an event that may be refused.
    TryPost(u64, Vec<Act>),
    /// Posts this many events of one handler and duration to as many colors from this one on.
    Many(u8, usize, u64, u32),
    /// Posts an event to a color of its own, which it keeps until it has run.
    Unique(Vec<Act>),
    /// Takes this many ns.
    Work(u32),
    /// Lets others go on.
    Pause,
    /// Publishes what was posted so far.
    Flush,
    /// Moves a color to a core.
    Place(u64, usize),
    Hurry(u64),
    /// Has this many of the cores work.
    Working(usize),
    /// Sets a timer of this many ns.
    Timer(u32, u64, Vec<Act>),
    /// Cancels one of the timers that were set.
    Cancel(usize),
    /// Takes this many holds of its color.
    Hold(u8),
    /// Posts an event through one of the holds that are out.
    Through(usize, Vec<Act>),
    /// Resumes one of them with an event.
    Resume(usize, Vec<Act>),
    /// Sets a deadline of this many ns for one of them, which ends it with an event.
    Deadline(usize, u32, Vec<Act>),
    /// Drops one of them.
    LetGo(usize),
    /// Asks a color, and has the reply in another one.
    Ask(u64, u64, Vec<Act>),
    /// Gives work to a thread of the runtime, whose result is an event.
    Blocking(u64, Vec<Act>),
    /// Cancels one of the works that were given.
    CancelBlocking(usize),
    /// Spawns a task in a color, which does the one after the other. Before each it waits for the
    /// number of ns that stands beside it; 0: for the others of its color.
    Spawn(u64, Vec<(u32, Vec<Act>)>),
    /// Holds its color until such a task is over.
    Until(Vec<(u32, Vec<Act>)>),
    /// Drops the handle of one of the tasks.
    DropTask(usize),
    /// Posts an event of these colors that has their states, or reads them.
    Together(Vec<u64>, bool, Vec<Act>),
    /// Posts an event to one of the bounded colors, which may be refused or shed.
    TryBounded(usize, Vec<Act>),
    /// Waits for room in one of them, by a callback of this color that then posts an event there.
    OnRoom(usize, u64, Vec<Act>),
    /// The same by a task of this color.
    Reserve(usize, u64, Vec<Act>),
    /// Posts an event there with room that was given: what the two above do then.
    UseRoom(Vec<Act>),
    /// Makes a keep-alive, which is kept outside.
    Poster,
    /// Panics.
    Panic,
    /// Asks the runtime to stop.
    Stop,
}

/// What comes from outside, after this many steps of the runtime.
#[derive(Clone, Debug)]
pub(crate) enum Outside {
    Post(usize, u64, Vec<Act>),
    /// Posts to one of the bounded colors.
    TryBounded(usize, Vec<Act>),
    /// Through the latest keep-alive, if there is one.
    PostKept(usize, u64, Vec<Act>),
    /// Drops the latest keep-alive.
    LetGo,
    Place(u64, usize),
    Hurry(u64),
    Working(usize),
    Stop,
}

fn color() -> impl Strategy<Value = u64> {
    // Few, so that they meet; some beyond the slots, so that they share one.
    prop_oneof![6 => 0..6u64, 3 => 0..24u64, 1 => any::<u64>()]
}

fn leaf() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (0..20_000u32).prop_map(Act::Work),
        6 => Just(Act::Pause),
        3 => Just(Act::Flush),
        4 => (color(), 0..64usize).prop_map(|(color, core)| Act::Place(color, core)),
        3 => color().prop_map(Act::Hurry),
        3 => (0..64usize).prop_map(Act::Working),
        6 => (1..30u8, 0..HANDLERS, color(), 0..8_000u32)
            .prop_map(|(count, handler, color, ns)| Act::Many(count, handler, color, ns)),
        2 => (0..8usize).prop_map(Act::Cancel),
        2 => holds(),
        2 => (0..8usize).prop_map(Act::LetGo),
        1 => Just(Act::Poster),
        1 => (0..8usize).prop_map(Act::CancelBlocking),
        1 => (0..8usize).prop_map(Act::DropTask),
        1 => Just(Act::Panic),
    ]
}

fn holds() -> impl Strategy<Value = Act> {
    (1..4u8).prop_map(Act::Hold)
}

/// Acts on holds of a few colors, which all kinds of events take, and end in any order.
fn holding() -> impl Strategy<Value = Vec<Act>> {
    let which = || 0..8usize;
    let leaf = prop_oneof![
        6 => holds(),
        2 => which().prop_map(Act::LetGo),
        1 => (0..20_000u32).prop_map(Act::Work),
        1 => Just(Act::Pause),
        1 => Just(Act::Flush),
        1 => Just(Act::Panic),
        1 => which().prop_map(Act::DropTask),
    ];
    let act = leaf.prop_recursive(5, 160, 5, move |act| {
        let body = || vec(act.clone(), 0..5);
        let gap = || prop_oneof![Just(0), 0..50_000u32];
        let stages = || vec((gap(), vec(act.clone(), 0..3)), 1..4);
        let ns = || 0..50_000u32;
        prop_oneof![
            4 => (0..3u64, body()).prop_map(|(color, body)| Act::Post(0, color, body)),
            2 => body().prop_map(Act::PostOwn),
            6 => (which(), body()).prop_map(|(which, body)| Act::Through(which, body)),
            8 => (which(), body()).prop_map(|(which, body)| Act::Resume(which, body)),
            3 => (which(), ns(), body())
                .prop_map(|(which, ns, body)| Act::Deadline(which, ns, body)),
            2 => stages().prop_map(Act::Until),
            2 => (ns(), 0..3u64, body()).prop_map(|(ns, color, body)| Act::Timer(ns, color, body)),
            1 => (vec(0..3u64, 1..3), any::<bool>(), body())
                .prop_map(|(colors, reads, body)| Act::Together(colors, reads, body)),
        ]
    });
    vec(act, 1..8)
}

fn body() -> impl Strategy<Value = Vec<Act>> {
    let act = leaf().prop_recursive(5, 160, 5, |act| {
        let body = || vec(act.clone(), 0..5);
        let gap = || prop_oneof![Just(0), 0..50_000u32];
        let stages = || vec((gap(), vec(act.clone(), 0..3)), 1..4);
        prop_oneof![
            8 => (0..HANDLERS, color(), body())
                .prop_map(|(handler, color, body)| Act::Post(handler, color, body)),
            3 => body().prop_map(Act::PostOwn),
            3 => (color(), body()).prop_map(|(color, body)| Act::TryPost(color, body)),
            2 => body().prop_map(Act::Unique),
            2 => (0..8usize, body()).prop_map(|(which, body)| Act::Through(which, body)),
            3 => (0..8usize, body()).prop_map(|(which, body)| Act::Resume(which, body)),
            1 => (0..8usize, 0..50_000u32, body())
                .prop_map(|(which, ns, body)| Act::Deadline(which, ns, body)),
            2 => (color(), color(), body())
                .prop_map(|(color, reply, body)| Act::Ask(color, reply, body)),
            2 => (color(), body()).prop_map(|(color, body)| Act::Blocking(color, body)),
            3 => (color(), stages()).prop_map(|(color, stages)| Act::Spawn(color, stages)),
            2 => stages().prop_map(Act::Until),
            4 => (0..BOUNDS, body()).prop_map(|(which, body)| Act::TryBounded(which, body)),
            3 => (0..BOUNDS, color(), body())
                .prop_map(|(which, color, body)| Act::OnRoom(which, color, body)),
            3 => (0..BOUNDS, color(), body())
                .prop_map(|(which, color, body)| Act::Reserve(which, color, body)),
            3 => (vec(color(), 1..4), any::<bool>(), body())
                .prop_map(|(colors, reads, body)| Act::Together(colors, reads, body)),
            2 => (0..50_000u32, color(), body())
                .prop_map(|(ns, color, body)| Act::Timer(ns, color, body)),
        ]
    });
    vec(act, 0..8)
}

fn stealing() -> impl Strategy<Value = Stealing> {
    let some = any::<(bool, bool, bool)>().prop_map(|(locality, time_left, penalty)| Stealing {
        enabled: true,
        locality,
        time_left,
        penalty,
    });
    prop_oneof![1 => Just(Stealing::OFF), 4 => Just(Stealing::default()), 4 => some]
}

fn outside() -> impl Strategy<Value = (u32, Outside)> {
    let what = prop_oneof![
        12 => (0..HANDLERS, color(), body())
            .prop_map(|(handler, color, body)| Outside::Post(handler, color, body)),
        4 => (0..BOUNDS, body()).prop_map(|(which, body)| Outside::TryBounded(which, body)),
        3 => (0..HANDLERS, color(), body())
            .prop_map(|(handler, color, body)| Outside::PostKept(handler, color, body)),
        1 => Just(Outside::LetGo),
        3 => (color(), 0..64usize).prop_map(|(color, core)| Outside::Place(color, core)),
        2 => color().prop_map(Outside::Hurry),
        2 => (0..64usize).prop_map(Outside::Working),
        1 => Just(Outside::Stop),
    ];
    (0..60u32, what)
}

fn program(
    cores: impl Strategy<Value = usize>,
    start: impl Strategy<Value = Vec<Act>>,
) -> impl Strategy<Value = Program> {
    let machine = (cores, 1..3usize, stealing(), 1..14u32);
    let limits = (
        prop_oneof![Just(16usize), Just(256)],
        prop_oneof![3 => Just(1usize << 20), 1 => Just(1)],
        prop_oneof![Just(OnPanic::DropEvent), Just(OnPanic::Stop)],
        any::<bool>(),
    );
    let events = (start, vec(outside(), 0..8));
    (machine, limits, events).prop_map(|(machine, limits, events)| {
        let (cores, packages, stealing, batch) = machine;
        let (slots, events_max, on_panic, exit_when_idle) = limits;
        let (start, outside) = events;
        Program {
            cores,
            packages,
            stealing,
            batch,
            slots,
            events_max,
            on_panic,
            exit_when_idle,
            start,
            outside,
        }
    })
}

/// Of all kinds.
pub(crate) fn mixed() -> impl Strategy<Value = Program> {
    let rarely_stopped = prop_oneof![
        9 => body(),
        1 => body().prop_map(|mut acts| {
            acts.push(Act::Stop);
            acts
        }),
    ];
    program(prop_oneof![6 => 1..6usize, 1 => 6..40usize], rarely_stopped)
}

/// A core with far more to do than the others.
pub(crate) fn wide() -> impl Strategy<Value = Program> {
    let load = (20..200u8, 0..HANDLERS, color(), 0..30_000u32)
        .prop_map(|(count, handler, color, ns)| Act::Many(count, handler, color, ns));
    let start = (vec(load, 1..4), body()).prop_map(|(mut acts, more)| {
        acts.extend(more);
        acts
    });
    program(prop_oneof![4 => 2..9usize, 1 => 9..129usize], start)
}

/// Colors that are held, most of the time.
pub(crate) fn held() -> impl Strategy<Value = Program> {
    program(1..4usize, holding())
}
