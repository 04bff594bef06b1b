//! Runs code on virtual cores: the one door between what is charged and what charges.
//!
//! Each core is a coroutine on this thread. Whatever it charges may leave it for a while, in which
//! others go on: so no lock of the system, and no borrow of a cell that another core may borrow, is
//! held across what is charged.

use crate::costs::{Ps, ps};
use crate::hook::ThisThread;
use crate::machine::Machine;
use crate::report::Report;
use crate::world::{Flow, OUTSIDE, Status, World};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use mely::sim::machine::charge::{Hook, install};
use std::cell::{Cell, RefCell};
use std::fmt;

/// The stack of a virtual core: as large as a thread's, of which the system provides what is used.
const STACK_BYTES: usize = 2 << 20;
/// Ticks in a row after which nobody can go on, before that is called the end.
const TICKS_IN_VAIN_MAX: u32 = 8;

/// What a virtual core runs, and what is called between cores, with the time in ns.
pub use mely::sim::machine::{Body, Tick};

/// How to run.
pub struct Options {
    /// Who gets a line or a lock that several wait for, and all other chance.
    pub seed: u64,
    /// The virtual time after which the run is given up, in ns.
    pub ns_max: f64,
    /// How far one core may run ahead of the others, in ns; the machine's hold window if none.
    pub ahead_ns: Option<f64>,
    /// Work, wake-ups and transfers take a little more or less than they should, by chance, as they
    /// do on real cores. Cores whose costs are equal fall into step otherwise.
    pub varies: bool,
    /// Leaves a core: calls what it is given, and sees to it that nothing of the core's is found on
    /// this thread meanwhile.
    pub around: fn(&dyn Fn()),
    /// Called after each interval of this number of ns, between cores; costs nothing.
    pub tick: Option<(f64, Tick)>,
    /// Called before any core begins: names lines.
    pub setup: Body,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("seed", &self.seed)
            .field("ns_max", &self.ns_max)
            .field("ahead_ns", &self.ahead_ns)
            .field("varies", &self.varies)
            .finish_non_exhaustive()
    }
}

impl Options {
    /// With this seed; given up after an hour of virtual time.
    pub fn new(seed: u64) -> Options {
        Options {
            seed,
            ns_max: 3_600e9,
            ahead_ns: None,
            varies: true,
            around: |leave| leave(),
            tick: None,
            setup: Box::new(|| ()),
        }
    }
}

/// Why a run did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Nobody could go on any more; else the time was up.
    pub stalled: bool,
    /// When that was, in ns.
    pub at_ns: u64,
    /// What each core did.
    pub cores: Vec<String>,
    /// The seed.
    pub seed: u64,
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = if self.stalled {
            "nobody can go on"
        } else {
            "given up"
        };
        write!(
            f,
            "{why} after {} ns of virtual time (seed {})",
            self.at_ns, self.seed
        )?;
        for (core, does) in self.cores.iter().enumerate() {
            write!(f, "; core {core} {does}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Stopped {}

std::thread_local! {
    /// Bodies that are to begin on cores that run none.
    static BEGINNING: RefCell<Vec<Body>> = const { RefCell::new(Vec::new()) };
    /// Whether accesses of this thread are charged.
    pub(crate) static CHARGES: Cell<bool> = const { Cell::new(false) };
    static YIELDER: Cell<*const Yielder<(), ()>> = const { Cell::new(std::ptr::null()) };
    static AROUND: Cell<fn(&dyn Fn())> = const { Cell::new(leave_bare) };
    static WORLD: RefCell<Option<Box<World>>> = const { RefCell::new(None) };
}

fn leave_bare(leave: &dyn Fn()) {
    leave();
}

/// Calls `f` with the world, if this thread is on a virtual core; and does what follows.
#[inline]
pub(crate) fn charge(mut f: impl FnMut(&mut World) -> Flow) {
    if !CHARGES.get() {
        return;
    }
    let mut f = |world: &mut World| {
        // Who unwinds is not left.
        if world.is_ahead() && !std::thread::panicking() {
            world.leave();
            return Flow::Again;
        }
        f(world)
    };
    while let Some(flow) = with_world(&mut f) {
        if flow == Flow::Go {
            return;
        }
        // A panic unwinds on its core without being left: the thread would seem to panic to others.
        if std::thread::panicking() {
            look(World::stay);
            return;
        }
        leave();
        if flow == Flow::Leave {
            return;
        }
    }
}

fn with_world<R>(f: impl FnOnce(&mut World) -> R) -> Option<R> {
    WORLD.with_borrow_mut(|world| world.as_deref_mut().map(f))
}

#[cold]
fn leave() {
    let yielder = YIELDER.get();
    (AROUND.get())(&|| {
        // SAFETY: set by `resume` to the yielder at the bottom of the very stack that we are on.
        unsafe { &*yielder }.suspend(());
    });
}

/// Calls `f` with the world of the run that this thread is inside of, on a core or between two.
pub(crate) fn look<R>(f: impl FnOnce(&mut World) -> R) -> Option<R> {
    WORLD.with_borrow_mut(|world| world.as_deref_mut().map(f))
}

/// Begins a body on the next core of the machine that none runs on, or else on a *visitor*: a core
/// beside the last one, with caches of its own, as a thread of another part of the program that
/// seldom runs. From now on the run ends when it has returned, too.
///
/// # Panics
/// If all cores and the visitor have bodies; later, between two cores.
pub fn begin(body: Body) {
    BEGINNING.with_borrow_mut(|beginning| beginning.push(body));
}

type Steps = Coroutine<(), (), ()>;

struct VirtualCore {
    /// None once it has ended.
    coroutine: Option<Steps>,
    yielder: *const Yielder<(), ()>,
}

/// Clears what the thread has of a run, whichever way that ends.
struct Cleanup {
    /// Who was told before.
    hook: Option<&'static dyn Hook>,
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        CHARGES.set(false);
        YIELDER.set(std::ptr::null());
        AROUND.set(leave_bare);
        WORLD.set(None);
        BEGINNING.take();
        // SAFETY: as before the run.
        unsafe { install(self.hook) };
    }
}

/// Runs bodies on the first cores of a machine, one each, until all have returned.
///
/// ```
/// use mely_hardware::{Machine, Options, charge, run, sync::atomic::AtomicU64};
/// use std::rc::Rc;
/// use std::sync::atomic::Ordering::Relaxed;
///
/// let machine = Machine::shipped("xeon-e5410").expect("it comes with the crate").take(2)?;
/// let shared = Rc::new(AtomicU64::new(0));
/// let body = |shared: Rc<AtomicU64>| -> Box<dyn FnOnce()> {
///     Box::new(move || for _ in 0..100 {
///         charge::work_ns(50);
///         shared.fetch_add(1, Relaxed);
///     })
/// };
/// let bodies = vec![body(shared.clone()), body(shared.clone())];
/// // SAFETY: the bodies have no thread-local variables.
/// let report = unsafe { run(&machine, Options::new(7), bodies)? };
/// assert_eq!(shared.load(Relaxed), 200);
/// assert!(report.ns > 100.0 * 50.0 && report.transfers() > 50);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Safety
/// All cores are on the calling thread. Where a body charges for something (a function of
/// [`charge`](crate::charge), an access by a type of [`sync`](crate::sync)) its core may be left, and
/// others go on, with the same thread-local variables. So no body, nor one that [`begin`] adds, may
/// charge for anything while it lends a reference by a thread-local variable, as the crate
/// `scoped-tls` does: another body would find the reference, and might use it after its referent is
/// gone. Thread-local variables are an example: each body must be sound though any other runs on
/// the same thread at such a place.
///
/// # Errors
/// If the time is up before, or nobody can go on. What is in the middle is leaked then, with its
/// stack.
///
/// # Panics
/// If there are more bodies than cores, or inside another run; and with what a body panics with.
pub unsafe fn run(
    machine: &Machine,
    mut options: Options,
    bodies: Vec<Body>,
) -> Result<Report, Stopped> {
    let cores = machine.topology().cores().len();
    assert!(
        bodies.len() <= cores,
        "{} bodies on {cores} cores",
        bodies.len()
    );
    assert!(look(|_| ()).is_none(), "a run inside of a run");
    // SAFETY: a core is left inside `options.around` only, and the caller has promised that the
    // bodies are sound though others go on then. `ThisThread::unlock` releases once.
    let hook = unsafe { install(Some(&ThisThread)) };
    let _cleanup = Cleanup { hook };
    let mut world = World::new(machine, &options);
    world.begin(bodies.len());
    WORLD.set(Some(Box::new(world)));
    AROUND.set(options.around);
    std::mem::replace(&mut options.setup, Box::new(|| ()))();
    let mut virtual_cores: Vec<Option<VirtualCore>> = bodies
        .into_iter()
        .map(|body| Some(virtual_core(body)))
        .collect();
    virtual_cores.resize_with(cores + 1, || None);
    let result = drive(&mut virtual_cores, options);
    for core in virtual_cores.into_iter().flatten() {
        // Its stack holds what only it can drop.
        std::mem::forget(core.coroutine);
    }
    result
}

fn virtual_core(body: Body) -> VirtualCore {
    let stack = DefaultStack::new(STACK_BYTES).expect("memory for a stack");
    let coroutine = Steps::with_stack(stack, move |yielder, ()| {
        YIELDER.set(yielder);
        body();
    });
    VirtualCore {
        coroutine: Some(coroutine),
        yielder: std::ptr::null(),
    }
}

fn drive(cores: &mut [Option<VirtualCore>], mut options: Options) -> Result<Report, Stopped> {
    let ps_max = if options.ns_max.is_finite() {
        ps(options.ns_max)
    } else {
        Ps::MAX
    };
    let mut next_tick = options.tick.as_ref().map(|(every_ns, _)| ps(*every_ns));
    let mut in_vain = 0;
    let mut left = cores.iter().flatten().count();
    while left > 0 {
        for body in BEGINNING.take() {
            let at = cores.iter().position(Option::is_none);
            let at = at.expect("the machine has a core for each body, but one");
            look(|world| world.begin_now(at));
            cores[at] = Some(virtual_core(body));
            left += 1;
        }
        let next_at = look(|world| world.next_at()).flatten();
        if let (Some(tick_at), Some((every_ns, tick))) = (next_tick, &mut options.tick)
            && next_at.is_none_or(|at| at > tick_at)
        {
            in_vain = if next_at.is_none() { in_vain + 1 } else { 0 };
            look(|world| world.now = world.now.max(tick_at));
            next_tick = Some(tick_at + ps(*every_ns).max(1));
            if in_vain > TICKS_IN_VAIN_MAX {
                return Err(stopped(true, cores, options.seed));
            }
            tick(tick_at / 1000);
            continue;
        }
        in_vain = 0;
        match next_at {
            None => return Err(stopped(true, cores, options.seed)),
            Some(at) if at > ps_max => {
                look(|world| world.now = at);
                return Err(stopped(false, cores, options.seed));
            }
            Some(_) => {}
        }
        look(|world| world.bound = ps_max.min(next_tick.unwrap_or(Ps::MAX)));
        let Some(core) = look(World::next).flatten() else {
            continue;
        };
        let its = cores[core].as_mut().expect("who is queued has a body");
        if resume(its) {
            left -= 1;
            look(|world| {
                world.memory.drain(core);
                world.now = world.now.max(world.now_of(core));
                world.cores[core].status = Status::Ended;
            });
        }
        look(|world| world.current = OUTSIDE);
    }
    Ok(look(|world| Report::of(world)).expect("it is there until the end"))
}

/// Lets a core go on. True: it has ended.
fn resume(core: &mut VirtualCore) -> bool {
    let coroutine = core
        .coroutine
        .as_mut()
        .expect("who has ended is not queued");
    YIELDER.set(core.yielder);
    CHARGES.set(true);
    // A panic of its body comes out here.
    let result = coroutine.resume(());
    CHARGES.set(false);
    core.yielder = YIELDER.get();
    match result {
        CoroutineResult::Yield(()) => false,
        CoroutineResult::Return(()) => {
            core.coroutine = None;
            true
        }
    }
}

fn stopped(stalled: bool, cores: &[Option<VirtualCore>], seed: u64) -> Stopped {
    let told = look(|world| {
        let used = (0..cores.len()).filter(|&core| cores[core].is_some());
        let cores = used.map(|core| world.describe(core)).collect();
        (world.now / 1000, cores)
    });
    let (at_ns, cores) = told.unwrap_or_default();
    Stopped {
        stalled,
        at_ns,
        cores,
        seed,
    }
}
