//! What waits outside of all queues, for the runtime to drop if nobody else ever will.
//!
//! A task that waits is reached by its wakers only. One of them may be in something that the task
//! owns: then each keeps the other. So each that waits is noted here, and what is left when a run
//! was cut short is dropped from here.

use super::inner::Ended;
use super::panics::InTurn;
use crate::Color;
use crate::sync::{Arc, Mutex};
use slab::Slab;

/// What may be left.
pub(crate) trait Leftover: Send + Sync {
    /// Its color, and the name of its handler: for reports.
    fn name(&self) -> (Color, &'static str);

    /// Drops what is the user's.
    fn drop_after_the_end(&self, ended: &mut Ended<'_>);
}

const SHARDS: usize = if cfg!(loom) { 1 } else { 64 };
const _: () = assert!(SHARDS.is_power_of_two());

/// See the module text. By color, so that cores seldom wait for each other.
pub(crate) struct Leftovers {
    shards: [Mutex<Slab<Arc<dyn Leftover>>>; SHARDS],
}

impl Leftovers {
    pub(crate) fn new() -> Leftovers {
        Leftovers {
            shards: std::array::from_fn(|_| Mutex::new(Slab::new())),
        }
    }

    fn shard(&self, color: Color) -> &Mutex<Slab<Arc<dyn Leftover>>> {
        // Mixed, since colors may come in steps.
        let mixed = color.value().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        &self.shards[mixed as usize & (SHARDS - 1)]
    }

    /// Notes something of this color, under the key that it is given back by.
    pub(crate) fn add(&self, color: Color, left: Arc<dyn Leftover>) -> usize {
        self.shard(color).lock().unwrap().insert(left)
    }

    /// It is not left over any more. None if the runtime has dropped it.
    pub(crate) fn remove(&self, color: Color, key: usize) -> Option<Arc<dyn Leftover>> {
        self.shard(color).lock().unwrap().try_remove(key)
    }

    /// The names of some, at most this many.
    pub(crate) fn some(&self, most: usize) -> Vec<(Color, &'static str)> {
        let mut names = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap();
            let more = shard.iter().take(most - names.len());
            names.extend(more.map(|(_, left)| left.name()));
        }
        names
    }

    /// Drops all that is left of a run that is over.
    pub(crate) fn drop_all(&self, ended: &mut Ended<'_>, drops: &mut InTurn) {
        for shard in &self.shards {
            let left = std::mem::take(&mut *shard.lock().unwrap());
            for (_, left) in left {
                drops.run(|| left.drop_after_the_end(ended));
            }
        }
    }
}
