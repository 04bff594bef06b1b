//! What costs time on a virtual core. Elsewhere, each of these does nothing.
//!
//! The types of [`crate::sync`] charge for themselves. This is for what has no type: handlers' work
//! and the bytes they touch, instructions, waiting.

use crate::costs::ps;
use crate::memory::Kind;
use crate::run::{charge, is_charged, look};
use crate::world::{Flow, OUTSIDE, World};

pub use crate::run::uncharged;

/// The size of a line, in bytes.
const LINE_BYTES: usize = 64;
/// No less is mapped, and the first of them never is.
const PAGE_BYTES: usize = 4096;
/// No less is on two lines.
const UNIT_BYTES: usize = 16;

/// The line at an address is read.
#[inline]
pub fn load<T: ?Sized>(at: *const T) {
    if is_charged() {
        access(at.addr(), Kind::Load);
    }
}

/// The line that a link leads to is read, and what comes next waits until it is here.
#[inline]
pub fn reach<T: ?Sized>(at: *const T) {
    if is_charged() {
        access(at.addr(), Kind::Reach);
    }
}

/// The same in a loop that does little else: what is in the first cache takes its time, too.
#[inline]
pub fn follow<T: ?Sized>(at: *const T) {
    if is_charged() {
        access(at.addr(), Kind::Follow);
    }
}

/// The line at an address is written.
#[inline]
pub fn store<T: ?Sized>(at: *const T) {
    if is_charged() {
        access(at.addr(), Kind::Store);
    }
}

/// A read-modify-write of the line at an address.
#[inline]
pub fn rmw<T: ?Sized>(at: *const T) {
    if is_charged() {
        access(at.addr(), Kind::Rmw);
    }
}

/// A reference count of this value is changed, `times` times.
pub fn count_of<T>(value: *const T, times: usize) {
    if is_charged() {
        let at = crate::sync::count_of(value, align_of::<T>());
        (0..times).for_each(|_| access(at.addr(), Kind::Rmw));
    }
}

#[inline(never)]
fn access(address: usize, kind: Kind) {
    charge(|world| world.access(address, kind));
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
    each_line(at, bytes, Kind::Load);
}

/// These bytes are written.
pub fn write_bytes(at: *const u8, bytes: usize) {
    each_line(at, bytes, Kind::Store);
}

fn each_line(at: *const u8, bytes: usize, kind: Kind) {
    if !is_charged() || bytes == 0 {
        return;
    }
    // An object begins a line if it is named, wherever it lies.
    let end = at.addr() + bytes;
    for address in (at.addr()..end).step_by(LINE_BYTES) {
        access(address, kind);
    }
    if bytes > UNIT_BYTES {
        access(end - 1, kind);
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
    if is_charged() && address >= PAGE_BYTES {
        charge(|world| world.prefetch(address, to_write));
    }
}

/// A fence that all stores wait for.
pub fn fence() {
    charge(World::fence);
}

/// The lock at an address is released: calls `release`, which does so, at the moment at which
/// others see it.
pub fn unlock<T: ?Sized>(at: *const T, release: impl FnOnce()) {
    if !is_charged() {
        return release();
    }
    let (address, mut release) = (at.addr(), Some(release));
    charge(|world| {
        let flow = world.unlock(address);
        if flow != Flow::Again
            && let Some(release) = release.take()
        {
            release();
        }
        flow
    });
}

/// Waits for the lock at an address, unless it `is_free`: polls it until its line is taken, or
/// sleeps until it is released, for which one of those that sleep is drawn. Returns false elsewhere
/// than on a virtual core: the caller waits by its own means.
pub fn wait_for_lock<T: ?Sized>(at: *const T, asleep: bool, is_free: impl Fn() -> bool) -> bool {
    if !is_charged() {
        return false;
    }
    assert!(
        !std::thread::panicking(),
        "a core that unwinds waits for a lock, and cannot be left"
    );
    let address = at.addr();
    // It may have been released since the caller looked, who would then wait for nobody.
    charge(|world| {
        if is_free() {
            Flow::Go
        } else {
            world.wait_for_lock(address, asleep)
        }
    });
    true
}

/// A handler's work, in ns.
pub fn work_ns(ns: u64) {
    charge(|world| world.work(ps(ns as f64)));
}

/// A handler's work, in ns.
pub fn work(ns: f64) {
    charge(|world| world.work(ps(ns)));
}

/// An event is posted: what that takes besides its memory.
#[inline]
pub fn post() {
    charge(|world| {
        let takes = world.memory.costs.post;
        world.spend(takes)
    });
}

/// An event is run: what that takes besides its memory and its handler.
#[inline]
pub fn run() {
    charge(|world| {
        let takes = world.memory.costs.run;
        world.spend(takes)
    });
}

/// Events in a row are handed to a color other than the one that runs: what that takes besides its
/// memory.
#[inline]
pub fn send() {
    charge(|world| {
        let takes = world.memory.costs.send;
        world.spend(takes)
    });
}

/// A color has its turn.
#[inline]
pub fn turn() {
    charge(|world| {
        let takes = world.memory.costs.turn;
        world.spend(takes)
    });
}

/// A color is put into a core's queue, and will be taken out.
#[inline]
pub fn queue() {
    charge(|world| {
        let takes = world.memory.costs.queue;
        world.spend(takes)
    });
}

/// A core takes a step.
#[inline]
pub fn step() {
    charge(|world| {
        let takes = world.memory.costs.step;
        world.spend(takes)
    });
}

/// The time of this core since the beginning, in ns; reading it takes a while. None elsewhere.
pub fn clock_ns() -> Option<u64> {
    if !is_charged() {
        return None;
    }
    charge(World::read_clock);
    now_ns()
}

/// The time of this core, or between cores of the run, in ns, without any cost. None if this thread
/// runs nothing.
pub fn now_ns() -> Option<u64> {
    look(|world| world.now_of(world.current) / 1000)
}

/// The number of this core, if it is a virtual one.
pub fn core() -> Option<usize> {
    look(|world| world.current).filter(|&core| core != OUTSIDE)
}

/// A pause in a loop that polls; elsewhere, the processor's.
#[inline]
pub fn pause() {
    pauses(1);
}

/// This number of them, between which nothing is looked at.
#[inline]
pub fn pauses(pauses: u32) {
    if is_charged() {
        charge(|world| world.pause(pauses));
    } else {
        (0..pauses).for_each(|_| std::hint::spin_loop());
    }
}

/// A round of a loop that polls is over, which makes `pauses` pauses and looks at the lines
/// `at_hand` in each of them. If the round found what the one before did, goes on when a line of it
/// is written, or at `until_ns`.
pub fn idle(pauses: u32, at_hand: [*const u8; 2], until_ns: u64) {
    let at_hand = at_hand.map(|at| at.addr());
    charge(|world| world.idle(pauses, &at_hand, until_ns.saturating_mul(1000)));
}

/// Sleeps in the kernel, until [`wake`], [`announce`] or this time in ns, and for as long as it
/// takes to be woken. May return early.
pub fn sleep(until_ns: Option<u64>) {
    charge(|world| world.sleep(until_ns.map(|ns| ns.saturating_mul(1000))));
}

/// Wakes a core that sleeps, or will: from another core, or between cores (by a tick).
pub fn wake(core: usize) {
    if is_charged() {
        charge(|world| world.wake(core));
    } else {
        let _ = look(|world| {
            let flow = world.wake(core);
            debug_assert!(world.current != OUTSIDE || flow == Flow::Go);
        });
    }
}

/// From outside of the machine something comes to a core at this time in ns, for which it goes on if
/// it sleeps or polls then. Costs the caller nothing.
pub fn announce(core: usize, at_ns: u64) {
    look(|world| world.announce(core, at_ns.saturating_mul(1000)));
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

/// Names the line of the reference count of this value.
pub fn name_count<T>(value: *const T, region: &str, index: usize) {
    let at = crate::sync::count_of(value, align_of::<T>());
    name_bytes(
        at,
        align_of::<T>().clamp(UNIT_BYTES, LINE_BYTES),
        region,
        index,
    );
}

/// Names the lines of these bytes, by a region and the next index in there.
pub fn name_next(at: *const u8, bytes: usize, region: &str) {
    let index = look(|world| world.names.next_index(region));
    if let Some(index) = index {
        name_bytes(at, bytes, region, index as usize);
    }
}

/// Names the lines of these bytes.
pub fn name_bytes(at: *const u8, bytes: usize, region: &str, index: usize) {
    let address = at.addr();
    look(|world| {
        world.names.name(address, bytes, region, index as u32);
        let lines = world.names.len();
        world.memory.grow(lines);
    });
}

/// From now on it is counted what lines cost, and for how long.
pub fn count_from_here() {
    look(World::count_from_here);
}

/// Up to now it was counted.
pub fn count_to_here() {
    look(|world| world.counted_to = Some(world.now_of(world.current)));
}
