//! What costs time on a virtual core, and what a run counts. Elsewhere, each of these does nothing.

use crate::run::look;
use crate::world::{OUTSIDE, World};

pub use mely::sim::machine::charge::{
    announce, clock_ns, count_of, fence, follow, idle, load, name, name_bytes, name_count,
    name_next, now_ns, pause, pauses, post, prefetch, prefetch_to_write, queue, reach, read,
    read_bytes, rmw, run, send, sleep, step, store, turn, uncharged, unlock, wait_for_lock, wake,
    work, work_ns, write, write_bytes,
};

/// The number of this core, if it is a virtual one.
pub fn core() -> Option<usize> {
    look(|world| world.current).filter(|&core| core != OUTSIDE)
}

/// From now on it is counted what lines cost, and for how long.
pub fn count_from_here() {
    look(World::count_from_here);
}

/// Up to now it was counted.
pub fn count_to_here() {
    look(|world| world.counted_to = Some(world.now_of(world.current)));
}
