//! What costs time on a virtual core of a machine. Elsewhere, each of these does nothing.
//!
//! The types of [`super`] charge for themselves. This is for what has no type: the
//! bytes that are touched, instructions, waiting. A thread is told of nothing until it
//! [installs](install) a machine's [`Hook`].
//!
//! What the runtime charges for besides memory, and where it does:
//!
//! | | | |
//! |---|---|---|
//! | [`step`] | a core takes a step | `sched/step.rs` |
//! | [`turn`] | a color has its turn | `sched/core.rs` |
//! | [`queue`] | a color is put into a core's queue, and will be taken out | `sched/section.rs` |
//! | [`post`] | an event is posted | `event/maker.rs` |
//! | [`send`] | events in a row go to another color | `sched/exchange.rs` |
//! | [`run`] | an event is run | `sched/core.rs` |
//! | [`pause`] | a pause in a loop that polls | `sync/lock.rs`, `host/worker.rs`, `io/uring/kick.rs` |

#![doc(hidden)]

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The size of a line, in bytes.
const LINE_BYTES: usize = 64;
/// No less is mapped, and the first of them never is.
const PAGE_BYTES: usize = 4096;
/// No less is on two lines.
const UNIT_BYTES: usize = 16;

/// What is done to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It is read.
    Load,
    /// It is what a link leads to, and what comes next waits until it is here.
    Reach,
    /// The same in a loop that does little else: what is in the first cache takes its time, too.
    Follow,
    /// It is written.
    Store,
    /// A read-modify-write.
    Rmw,
}

/// Instructions that take a time of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// An event is posted.
    Post,
    /// An event is run, apart from its handler.
    Run,
    /// Events in a row are handed to a color other than the one that runs.
    Send,
    /// A color has its turn.
    Turn,
    /// A color is put into a core's queue, and will be taken out.
    Queue,
    /// A core takes a step.
    Step,
}

/// A machine whose virtual cores are on one thread: it is told what the running core does, and
/// takes its time for that.
///
/// Unless it says otherwise, a function does nothing where [`is_charged`](Self::is_charged) is
/// false. Addresses are those of the program.
pub trait Hook {
    /// Whether the thread is on a virtual core, and its accesses are charged.
    fn is_charged(&self) -> bool;
    /// Charges from now on, or no longer; returns whether that was so before.
    fn set_charged(&self, charged: bool) -> bool;
    /// The line at an address is accessed.
    fn access(&self, address: usize, access: Access);
    /// The line at an address is asked for early.
    fn prefetch(&self, address: usize, to_write: bool);
    /// A fence that all stores wait for.
    fn fence(&self);
    /// Calls `release`, which releases the lock at an address, once, at the moment at which others
    /// see it.
    fn unlock(&self, address: usize, release: &mut dyn FnMut());
    /// Waits for the lock at an address, unless it `is_free`: polls it until its line is taken, or
    /// sleeps until it is released.
    fn wait_for_lock(&self, address: usize, asleep: bool, is_free: &dyn Fn() -> bool);
    /// Instructions take their time.
    fn spend(&self, on: Part);
    /// A handler works for so long.
    fn work(&self, ns: f64);
    /// The clock is read.
    fn read_clock(&self);
    /// The time of the running core, or between cores of the run, in ns. None if the thread runs
    /// nothing.
    fn now_ns(&self) -> Option<u64>;
    /// A number of pauses in a loop that polls.
    fn pause(&self, pauses: u32);
    /// A round of a loop that polls is over; see [`idle`].
    fn idle(&self, pauses: u32, at_hand: [usize; 2], until_ns: u64);
    /// The core sleeps in the kernel; see [`sleep`].
    fn sleep(&self, until_ns: Option<u64>);
    /// Wakes a core that sleeps, or will: from another core, or between cores.
    fn wake(&self, core: usize);
    /// Something comes to a core from outside; see [`announce`].
    fn announce(&self, core: usize, at_ns: u64);
    /// Names the lines of these bytes, by a region, and an index in there: the next one if none.
    fn name(&self, address: usize, bytes: usize, region: &str, index: Option<usize>);
}

thread_local! {
    static HOOK: Cell<Option<&'static dyn Hook>> = const { Cell::new(None) };
}

/// From now on the hook is told what this thread does, or nobody is; returns the one before.
///
/// # Safety
/// In a call of a hook the thread may leave a virtual core and go on with another. That is sound
/// for the runtime if it happens inside the [`AROUND`](crate::sim::machine::AROUND) of the runtime,
/// and for handlers as [`Cores::new`](crate::sim::machine::Cores::new) says. [`Hook::unlock`] calls
/// what it is given exactly once.
pub unsafe fn install(hook: Option<&'static dyn Hook>) -> Option<&'static dyn Hook> {
    HOOK.replace(hook)
}

#[inline(always)]
fn tell(f: impl FnOnce(&dyn Hook)) {
    if let Some(hook) = HOOK.get() {
        f(hook);
    }
}

/// Whether this thread is on a virtual core, and what it does is charged.
#[inline(always)]
pub fn is_charged() -> bool {
    HOOK.get().is_some_and(|hook| hook.is_charged())
}

/// Calls `f`, in which nothing is charged. What is written or released in there is seen by who
/// looks later, and told to nobody who waits.
pub fn uncharged<R>(f: impl FnOnce() -> R) -> R {
    struct Restore(Option<(&'static dyn Hook, bool)>);
    impl Drop for Restore {
        fn drop(&mut self) {
            if let Some((hook, was)) = self.0 {
                hook.set_charged(was);
            }
        }
    }
    let _restore = Restore(HOOK.get().map(|hook| (hook, hook.set_charged(false))));
    f()
}

#[inline(always)]
fn access<T: ?Sized>(at: *const T, access: Access) {
    tell(|hook| hook.access(at.addr(), access));
}

/// The line at an address is read.
#[inline]
pub fn load<T: ?Sized>(at: *const T) {
    access(at, Access::Load);
}

/// The line that a link leads to is read, and what comes next waits until it is here.
#[inline]
pub fn reach<T: ?Sized>(at: *const T) {
    access(at, Access::Reach);
}

/// The same in a loop that does little else: what is in the first cache takes its time, too.
#[inline]
pub fn follow<T: ?Sized>(at: *const T) {
    access(at, Access::Follow);
}

/// The line at an address is written.
#[inline]
pub fn store<T: ?Sized>(at: *const T) {
    access(at, Access::Store);
}

/// A read-modify-write of the line at an address.
#[inline]
pub fn rmw<T: ?Sized>(at: *const T) {
    access(at, Access::Rmw);
}

/// Where the reference count of a value in an `Arc` is: before it.
fn count_at<T: ?Sized>(value: *const T, align: usize) -> *const u8 {
    let counts_bytes = 2 * size_of::<usize>();
    value.cast::<u8>().wrapping_sub(align.max(counts_bytes))
}

/// The reference count of this value, which is in an `Arc`, is changed.
pub(super) fn count<T: ?Sized>(value: &T) {
    rmw(count_at(value, align_of_val(value)));
}

/// The reference count of this value, which is in an `Arc`, is changed, `times` times.
pub fn count_of<T>(value: *const T, times: usize) {
    (0..times).for_each(|_| rmw(count_at(value, align_of::<T>())));
}

/// All lines of an object are read.
pub fn read<T: ?Sized>(of: &T) {
    read_bytes(std::ptr::from_ref(of).cast(), size_of_val(of));
}

/// All lines of an object are written.
pub fn write<T: ?Sized>(of: &T) {
    write_bytes(std::ptr::from_ref(of).cast(), size_of_val(of));
}

/// These bytes are read.
pub fn read_bytes(at: *const u8, bytes: usize) {
    each_line(at, bytes, Access::Load);
}

/// These bytes are written.
pub fn write_bytes(at: *const u8, bytes: usize) {
    each_line(at, bytes, Access::Store);
}

fn each_line(at: *const u8, bytes: usize, access: Access) {
    let Some(hook) = HOOK.get().filter(|hook| bytes > 0 && hook.is_charged()) else {
        return;
    };
    // An object begins a line if it is named, wherever it lies.
    let end = at.addr() + bytes;
    for address in (at.addr()..end).step_by(LINE_BYTES) {
        hook.access(address, access);
    }
    if bytes > UNIT_BYTES {
        hook.access(end - 1, access);
    }
}

/// The line at an address is asked for early.
#[inline]
pub fn prefetch<T: ?Sized>(at: *const T) {
    prefetch_line(at.addr(), false);
}

/// The same, with the right to write it.
#[inline]
pub fn prefetch_to_write<T: ?Sized>(at: *const T) {
    prefetch_line(at.addr(), true);
}

fn prefetch_line(address: usize, to_write: bool) {
    // There is nothing behind a null pointer, nor just beyond.
    if address >= PAGE_BYTES {
        tell(|hook| hook.prefetch(address, to_write));
    }
}

/// A fence that all stores wait for.
pub fn fence() {
    tell(|hook| hook.fence());
}

/// The lock at an address is released: calls `release`, which does so, at the moment at which
/// others see it.
pub fn unlock<T: ?Sized>(at: *const T, release: impl FnOnce()) {
    let Some(hook) = HOOK.get().filter(|hook| hook.is_charged()) else {
        return release();
    };
    let mut release = Some(release);
    hook.unlock(at.addr(), &mut || {
        if let Some(release) = release.take() {
            release();
        }
    });
}

/// Waits for the lock at an address, unless it `is_free`: polls it until its line is taken, or
/// sleeps until it is released, for which one of those that sleep is drawn. Returns false elsewhere
/// than on a virtual core: the caller waits by its own means.
pub fn wait_for_lock<T: ?Sized>(at: *const T, asleep: bool, is_free: impl Fn() -> bool) -> bool {
    let Some(hook) = HOOK.get().filter(|hook| hook.is_charged()) else {
        return false;
    };
    hook.wait_for_lock(at.addr(), asleep, &is_free);
    true
}

/// A handler's work, in ns.
pub fn work_ns(ns: u64) {
    work(ns as f64);
}

/// A handler's work, in ns.
pub fn work(ns: f64) {
    tell(|hook| hook.work(ns));
}

/// An event is posted: what that takes besides its memory.
#[inline]
pub fn post() {
    tell(|hook| hook.spend(Part::Post));
}

/// An event is run: what that takes besides its memory and its handler.
#[inline]
pub fn run() {
    tell(|hook| hook.spend(Part::Run));
}

/// Events in a row are handed to a color other than the one that runs: what that takes besides its
/// memory.
#[inline]
pub fn send() {
    tell(|hook| hook.spend(Part::Send));
}

/// A color has its turn.
#[inline]
pub fn turn() {
    tell(|hook| hook.spend(Part::Turn));
}

/// A color is put into a core's queue, and will be taken out.
#[inline]
pub fn queue() {
    tell(|hook| hook.spend(Part::Queue));
}

/// A core takes a step.
#[inline]
pub fn step() {
    tell(|hook| hook.spend(Part::Step));
}

/// The time of this core since the beginning, in ns; reading it takes a while. None elsewhere.
pub fn clock_ns() -> Option<u64> {
    let hook = HOOK.get().filter(|hook| hook.is_charged())?;
    hook.read_clock();
    hook.now_ns()
}

/// The time of this core, or between cores of the run, in ns, without any cost. None if this thread
/// runs nothing.
pub fn now_ns() -> Option<u64> {
    HOOK.get()?.now_ns()
}

/// A pause in a loop that polls; elsewhere, the processor's.
#[inline]
pub fn pause() {
    pauses(1);
}

/// This number of them, between which nothing is looked at.
#[inline]
pub fn pauses(pauses: u32) {
    match HOOK.get() {
        Some(hook) if hook.is_charged() => hook.pause(pauses),
        _ => (0..pauses).for_each(|_| std::hint::spin_loop()),
    }
}

/// A round of a loop that polls is over, which makes `pauses` pauses and looks at the lines
/// `at_hand` in each of them. If the round found what the one before did, goes on when a line of it
/// is written, or at `until_ns`.
pub fn idle(pauses: u32, at_hand: [*const u8; 2], until_ns: u64) {
    tell(|hook| hook.idle(pauses, at_hand.map(|at| at.addr()), until_ns));
}

/// Sleeps in the kernel, until [`wake`], [`announce`] or this time in ns, and for as long as it
/// takes to be woken. May return early.
pub fn sleep(until_ns: Option<u64>) {
    tell(|hook| hook.sleep(until_ns));
}

/// Wakes a core that sleeps, or will: from another core, or between cores (by a tick).
pub fn wake(core: usize) {
    tell(|hook| hook.wake(core));
}

/// From outside of the machine something comes to a core at this time in ns, for which it goes on
/// if it sleeps or polls then. Costs the caller nothing.
pub fn announce(core: usize, at_ns: u64) {
    tell(|hook| hook.announce(core, at_ns));
}

/// Names the lines of an object, for reports: by a region, and an index in there.
pub fn name<T: ?Sized>(of: &T, region: &str, index: usize) {
    name_bytes(
        std::ptr::from_ref(of).cast(),
        size_of_val(of),
        region,
        index,
    );
}

/// Names the lines of these bytes.
pub fn name_bytes(at: *const u8, bytes: usize, region: &str, index: usize) {
    tell(|hook| hook.name(at.addr(), bytes, region, Some(index)));
}

/// Names the line of the reference count of this value, which is in an `Arc`.
pub fn name_count<T>(value: *const T, region: &str, index: usize) {
    let at = count_at(value, align_of::<T>());
    let bytes = align_of::<T>().clamp(UNIT_BYTES, LINE_BYTES);
    name_bytes(at, bytes, region, index);
}

/// Names the lines of these bytes, by a region and the next index in there.
pub fn name_next(at: *const u8, bytes: usize, region: &str) {
    tell(|hook| hook.name(at.addr(), bytes, region, None));
}

/// The clock of the virtual core that asks, or of the run that it belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoreClock;

impl CoreClock {
    pub(crate) fn now_ns(self) -> u64 {
        clock_ns().or_else(now_ns).unwrap_or(0)
    }
}

/// The same clocks, which tell a recording the time for nothing; with the latest that was told,
/// since after the run there are no such cores.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreeClock(Arc<AtomicU64>);

impl FreeClock {
    pub(crate) fn now_ns(&self) -> u64 {
        let Some(now_ns) = now_ns() else {
            return self.0.load(Relaxed);
        };
        self.0.fetch_max(now_ns, Relaxed);
        now_ns
    }
}

/// When something is due, the earliest of a few: kept where runs are simulated only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due(u64);

impl Due {
    pub(crate) const NEVER: Due = Due(u64::MAX);

    /// At `at_ns`, if that is earlier.
    pub(crate) fn or_at(&mut self, at_ns: u64) {
        self.0 = self.0.min(at_ns);
    }

    pub(crate) fn ns(self) -> u64 {
        self.0
    }
}
