//! Making events: what posting threads do before anything is shared, on cores and elsewhere.

use super::node::{AtLimit, Class, Empty, Event, ProfileOf, Sort};
use super::pool::{Depot, Pool};
use super::profile::{Boxed, Profiles};
use super::profile_cache::ProfileCache;
use super::tag::ProfileId;
use super::times::Times;
use crate::record::Log;
use crate::sync::{Arc, charge};
use crate::{Color, Cx, Handler};

/// What a thread makes events with: nodes, and the way to profiles.
#[derive(Debug)]
pub(crate) struct Maker {
    pool: Pool,
    cache: ProfileCache,
}

/// Why an event was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The limit of events is reached.
    Full,
    /// It was not admitted.
    NotAdmitted,
}

/// Memory for the event of a closure that is boxed. The closure may be large: so it is put in here
/// by its poster, and not handed down to the maker.
#[must_use = "dropped, the memory is out of use until the runtime is gone"]
pub(crate) struct Place<F> {
    node: Empty,
    color: Color,
    /// Or that of closures that found no profile left.
    profile: Result<ProfileOf<F>, ProfileOf<Boxed>>,
    times: Times,
}

impl<F: FnOnce(&mut Cx) + Send + 'static> Place<F> {
    /// The event that runs `f`.
    pub(crate) fn fill(self, f: Box<F>) -> (Event, Times) {
        let (node, color, times) = (self.node, self.color, self.times);
        let event = match self.profile {
            Ok(profile) => node.fill_boxed(color, profile, times, f),
            Err(profile) => node.fill(color, profile, times, f as Boxed),
        };
        (event, times)
    }
}

impl Maker {
    pub(crate) fn new(depot: &Arc<Depot>) -> Maker {
        Maker {
            pool: Pool::new(Arc::clone(depot)),
            cache: ProfileCache::new(),
        }
    }

    /// From now on what is made is recorded.
    pub(crate) fn record(&mut self, log: Log) {
        self.cache.record(log);
    }

    /// What is made is recorded no more; what was is written to the file.
    pub(crate) fn end_record(&mut self) {
        self.cache.end_record();
    }

    /// Where the thread records, if it does.
    #[inline]
    pub(crate) fn log(&mut self) -> Option<&mut Log> {
        self.cache.log()
    }

    /// The post that was recorded last comes to nothing.
    #[cold]
    #[inline(never)]
    fn refuse_recorded(&mut self) {
        if let Some(log) = self.log() {
            log.refused();
        }
    }

    /// Makes an event of `wrap(f)`. `f` comes back if the limit of events is reached: it is wrapped
    /// once there is memory for the event. `wrap` runs no user code and does not panic. `profiles`
    /// are the same in each call: the maker remembers what it found there.
    #[inline(always)]
    pub(crate) fn make<F, G>(
        &mut self,
        profiles: &Profiles,
        handler: Option<&'static Handler>,
        color: Color,
        f: F,
        sort: Sort,
        wrap: impl FnOnce(F) -> G,
    ) -> Result<(Event, Times), F>
    where
        G: FnOnce(&mut Cx) + Send + 'static,
    {
        self.make_if(profiles, handler, color, f, sort, wrap, || true)
            .map_err(|(f, _)| f)
    }

    /// The same if `admit` says so, which is asked when nothing else can refuse the event any more.
    /// With the closure comes who refused it.
    #[inline(always)]
    #[allow(
        clippy::too_many_arguments,
        reason = "two of them tell apart who calls"
    )]
    pub(crate) fn make_if<F, G>(
        &mut self,
        profiles: &Profiles,
        handler: Option<&'static Handler>,
        color: Color,
        f: F,
        sort: Sort,
        wrap: impl FnOnce(F) -> G,
        admit: impl FnOnce() -> bool,
    ) -> Result<(Event, Times), (F, Refusal)>
    where
        G: FnOnce(&mut Cx) + Send + 'static,
    {
        charge::post();
        let Some(profile) = self.cache.find_of::<G>(profiles, handler, color, sort) else {
            let times = profiles.get(ProfileId::OVERFLOW).estimate();
            return match self.node_if(ProfileOf::overflow(sort), sort, admit) {
                Ok((node, profile)) => {
                    let f: Boxed = Box::new(wrap(f));
                    Ok((node.fill(color, profile, times, f), times))
                }
                Err(refusal) => Err((f, refusal)),
            };
        };
        let times = profiles.get(profile.id()).estimate();
        // After the profile: before it, a post took 12 instructions more.
        match self.node_if(profile, sort, admit) {
            Ok((node, profile)) => Ok((node.fill(color, profile, times, wrap(f)), times)),
            Err(refusal) => {
                self.refuse_recorded();
                Err((f, refusal))
            }
        }
    }

    /// Memory for the event of an `F`, which is boxed, if `admit` says so: see
    /// [`make_if`](Self::make_if).
    pub(crate) fn place_if<F>(
        &mut self,
        profiles: &Profiles,
        handler: Option<&'static Handler>,
        color: Color,
        sort: Sort,
        admit: impl FnOnce() -> bool,
    ) -> Result<Place<F>, Refusal>
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        charge::post();
        // For a box of either type.
        assert!(Class::of::<F>() == Class::of::<Boxed>(), "it is not boxed");
        let (id, placed) = match self.cache.find_of::<F>(profiles, handler, color, sort) {
            Some(profile) => {
                let id = profile.id();
                let placed = self.node_if(profile, sort, admit);
                if placed.is_err() {
                    self.refuse_recorded();
                }
                (id, placed.map(|(node, profile)| (node, Ok(profile))))
            }
            None => {
                let placed = self.node_if(ProfileOf::overflow(sort), sort, admit);
                let placed = placed.map(|(node, profile)| (node, Err(profile)));
                (ProfileId::OVERFLOW, placed)
            }
        };
        let times = profiles.get(id).estimate();
        placed.map(|(node, profile)| Place {
            node,
            color,
            profile,
            times,
        })
    }

    /// A node for an event of this profile, if `admit` says so. If it is reserved, the profile's
    /// entry is another.
    #[inline(always)]
    fn node_if<F>(
        &mut self,
        profile: ProfileOf<F>,
        sort: Sort,
        admit: impl FnOnce() -> bool,
    ) -> Result<(Empty, ProfileOf<F>), Refusal> {
        let class = Class::of::<F>();
        let (node, profile) = match self.pool.alloc(class) {
            Some(node) => (node, profile),
            None => match self.beyond(class, sort.at_limit) {
                Some(node) => (node, profile.reserved()),
                None => return Err(Refusal::Full),
            },
        };
        if admit() {
            return Ok((node, profile));
        }
        match profile.id().is_reserved() {
            true => self.pool.depot.retire(node),
            false => self.pool.free(node),
        }
        Err(Refusal::NotAdmitted)
    }

    /// A reserved node, if the event may have one.
    #[cold]
    #[inline(never)]
    fn beyond(&self, class: Class, at_limit: AtLimit) -> Option<Empty> {
        let depot = &self.pool.depot;
        let may = match at_limit {
            AtLimit::Refused => false,
            AtLimit::Reserve => depot.has_reserve(),
            AtLimit::Own => true,
        };
        may.then(|| depot.reserve(class))
    }

    /// Makes an event that is [the runtime's own](AtLimit::Own).
    pub(crate) fn make_own<F>(
        &mut self,
        profiles: &Profiles,
        handler: Option<&'static Handler>,
        color: Color,
        f: F,
        sort: Sort,
    ) -> (Event, Times)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        match self.make(profiles, handler, color, f, sort.at(AtLimit::Own), |f| f) {
            Ok(made) => made,
            Err(_) => unreachable!("its own events are never refused"),
        }
    }

    /// Whether the next event is sure to be made; see [`Pool::has_room`].
    pub(crate) fn has_room(&mut self) -> bool {
        self.pool.has_room()
    }

    /// Reserved nodes that are in use, in the whole runtime.
    pub(crate) fn reserved(&self) -> usize {
        self.pool.depot.reserved()
    }

    #[inline(always)]
    pub(crate) fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }
}
