//! Making events: what posting threads do before anything is shared, on cores and elsewhere.

use super::fifo::Event;
use super::node::{Node, VtableOf, fill};
use super::pool::{Depot, Pool, poison};
use super::profile::{Boxed, Profiles};
use super::profile_cache::ProfileCache;
use super::tag::ProfileId;
use super::times::Times;
use crate::sync::Arc;
use crate::{Color, Cx, Handler};
use std::ptr::NonNull;

/// What a thread makes events with: nodes, and the way to profiles.
#[derive(Debug)]
pub(crate) struct Maker {
    pool: Pool,
    cache: ProfileCache,
}

impl Maker {
    pub(crate) fn new(depot: &Arc<Depot>) -> Maker {
        Maker {
            pool: Pool::new(Arc::clone(depot)),
            cache: ProfileCache::new(),
        }
    }

    /// Makes an event of `wrap(f)`, which the caller then holds. `f` comes back if the limit of
    /// events is reached: it is wrapped once there is memory for the event. `wrap` runs no user
    /// code.
    #[inline(always)]
    pub(crate) fn make<F, G>(
        &mut self,
        profiles: &Profiles,
        handler: Option<&'static Handler>,
        color: Color,
        f: F,
        wrap: impl FnOnce(F) -> G,
    ) -> Result<(Event, Times), F>
    where
        G: FnOnce(&mut Cx) + Send + 'static,
    {
        let vtable = VtableOf::<G>::VTABLE;
        let profile = self.cache.find(profiles, handler, vtable);
        let times = profiles.get(profile).estimate();
        // After the profile: before it, a post took 12 instructions more.
        let Some(node) = self.pool.alloc() else {
            return Err(f);
        };
        // SAFETY: a fresh node, and the profile of `G`.
        let event = unsafe { fill_by(node, color, (profile, ProfileId::OVERFLOW), times, wrap(f)) };
        Ok((event, times))
    }

    /// Makes an event that nobody can be refused, also at the limit of events: a timer's, or one of
    /// the runtime's own. A connection that is not closed, or a closure that is dropped in the
    /// wrong place, would cost more than an event.
    pub(crate) fn make_own<F>(
        &mut self,
        profiles: &Profiles,
        handler: Option<&'static Handler>,
        color: Color,
        f: F,
    ) -> (Event, Times)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        match self.make(profiles, handler, color, f, |f| f) {
            Ok(made) => made,
            Err(f) => self.make_reserved(profiles, handler, color, f),
        }
    }

    #[cold]
    fn make_reserved<F>(
        &mut self,
        profiles: &Profiles,
        handler: Option<&'static Handler>,
        color: Color,
        f: F,
    ) -> (Event, Times)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let vtable = VtableOf::<F>::RESERVED;
        let profile = self.cache.find(profiles, handler, vtable);
        let times = profiles.get(profile).estimate();
        let node = self.pool.depot.reserve();
        // SAFETY: a fresh node, the profile of `F`, and that of boxed closures in reserved nodes.
        let event = unsafe {
            fill_by(
                node,
                color,
                (profile, ProfileId::OVERFLOW_RESERVED),
                times,
                f,
            )
        };
        (event, times)
    }

    /// Whether the next event is sure to be made.
    pub(crate) fn has_room(&mut self) -> bool {
        self.pool.has_room()
    }

    /// Reserved nodes that are in use, in the whole runtime.
    pub(crate) fn reserved(&self) -> usize {
        self.pool.depot.reserved()
    }

    /// Takes back a node that holds no closure.
    #[inline(always)]
    pub(crate) fn free(&mut self, node: NonNull<Node>) {
        self.pool.free(node);
    }

    /// Takes back a reserved node that holds no closure.
    pub(crate) fn retire(&mut self, node: NonNull<Node>) {
        poison(node);
        self.pool.depot.retire(node);
    }
}

/// Fills a node as its profile's vtable expects. `boxed`: the profile, with the vtable of
/// [`Boxed`], that takes the place of [`ProfileId::OVERFLOW`] in nodes of this kind.
///
/// # Safety
/// The caller holds the node and gives it up, and it holds no closure; the profile is one of `F`,
/// or [`ProfileId::OVERFLOW`].
#[inline(always)]
unsafe fn fill_by<F>(
    node: NonNull<Node>,
    color: Color,
    (profile, boxed): (ProfileId, ProfileId),
    times: Times,
    f: F,
) -> Event
where
    F: FnOnce(&mut Cx) + Send + 'static,
{
    if profile == ProfileId::OVERFLOW {
        let f: Boxed = Box::new(f);
        // SAFETY: the caller's promise; the profile's vtable is that of `Boxed`.
        unsafe { fill(node, color, boxed, times, f) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { fill(node, color, profile, times, f) };
    }
    // SAFETY: just filled, and given up by the caller.
    unsafe { Event::new(node) }
}
