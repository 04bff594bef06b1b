//! Making events: what posting threads do before anything is shared, on cores and elsewhere.

use super::index::Index;
use super::node::{Node, VtableOf, fill};
use super::pool::Pool;
use super::profile::OVERFLOW;
use super::shared::{Boxed, Shared};
use super::times::Times;
use crate::sync::Arc;
use crate::{Color, Cx, Handler};
use std::ptr::NonNull;

/// What a thread makes events with: nodes, and the way to profiles.
#[derive(Debug)]
pub(crate) struct Maker {
    pool: Pool,
    index: Index,
}

impl Maker {
    pub(crate) fn new(shared: &Shared) -> Maker {
        Maker {
            pool: Pool::new(Arc::clone(&shared.depot)),
            index: Index::new(),
        }
    }

    /// Makes an event, which the caller then holds; the closure comes back if the limit of events is
    /// reached.
    #[inline(always)]
    pub(crate) fn make<F>(
        &mut self,
        shared: &Shared,
        handler: Option<&'static Handler>,
        color: Color,
        f: F,
    ) -> Result<(NonNull<Node>, Times), F>
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let profile = self
            .index
            .find(&shared.profiles, handler, VtableOf::<F>::VTABLE);
        let times = shared.profiles.get(profile).estimate();
        let Some(node) = self.pool.alloc() else {
            return Err(f);
        };
        let color = color.value();
        if profile == OVERFLOW {
            let boxed: Boxed = Box::new(f);
            // SAFETY: a fresh node, held by us; the overflow profile's vtable is that of `Boxed`.
            unsafe { fill(node, color, profile, times, boxed) };
        } else {
            // SAFETY: a fresh node, held by us; the profile's vtable is that of `F`.
            unsafe { fill(node, color, profile, times, f) };
        }
        Ok((node, times))
    }

    /// Makes sure that the next event is made, whatever the limit says: for events of the runtime's
    /// own. A connection that is not closed, or a closure that is dropped in the wrong place, would
    /// cost more than an event.
    pub(crate) fn reserve(&mut self) {
        self.pool.reserve();
    }

    /// Whether the next event is sure to be made.
    pub(crate) fn has_room(&mut self) -> bool {
        self.pool.has_room()
    }

    /// Takes back a node that holds no closure.
    #[inline(always)]
    pub(crate) fn free(&mut self, node: NonNull<Node>) {
        self.pool.free(node);
    }
}
