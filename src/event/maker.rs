//! Making events: what posting threads do before anything is shared, on cores and elsewhere.

use super::node::{Class, Empty, Event, ProfileOf, Sort, is_boxed};
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
    /// Events are made beyond the limit, too.
    is_beyond: bool,
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
#[derive(Debug)]
#[must_use = "dropped, the memory is out of use until the runtime is gone"]
pub(crate) struct Place<F> {
    node: Empty,
    color: Color,
    /// None: no profile was left.
    profile: Option<ProfileOf<F>>,
    sort: Sort,
    times: Times,
}

impl<F: FnOnce(&mut Cx) + Send + 'static> Place<F> {
    fn new(
        profiles: &Profiles,
        node: Empty,
        color: Color,
        profile: Option<ProfileOf<F>>,
        sort: Sort,
    ) -> Place<F> {
        // For a box of either type.
        assert!(Class::of::<F>() == Class::of::<Boxed>(), "it is not boxed");
        let id = profile.as_ref().map_or(ProfileId::OVERFLOW, ProfileOf::id);
        Place {
            node,
            color,
            profile,
            sort,
            times: profiles.get(id).estimate(),
        }
    }

    /// The event that runs `f`.
    pub(crate) fn fill(self, f: Box<F>) -> (Event, Times) {
        let (node, color, times) = (self.node, self.color, self.times);
        let event = match self.profile {
            Some(profile) => node.fill_boxed(color, profile, times, f),
            None => {
                let f: Boxed = f;
                node.fill(color, ProfileOf::overflow(self.sort), times, f)
            }
        };
        (event, times)
    }
}

impl Maker {
    pub(crate) fn new(depot: &Arc<Depot>) -> Maker {
        Maker {
            pool: Pool::new(Arc::clone(depot)),
            cache: ProfileCache::new(),
            is_beyond: false,
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
            // Written out here: handed to a function, the closure would lie on the stack in every
            // post, and be read back before its parts have arrived there.
            let times = profiles.get(ProfileId::OVERFLOW).estimate();
            let node = match self.node_if(Class::of::<Boxed>(), admit) {
                Ok(node) => node,
                Err(refusal) if self.goes_beyond(refusal) => {
                    let node = self.pool.depot.reserve(Class::of::<Boxed>());
                    let f: Boxed = Box::new(wrap(f));
                    let profile = ProfileOf::overflow(sort.reserved());
                    return Ok((node.fill(color, profile, times, f), times));
                }
                Err(refusal) => return Err((f, refusal)),
            };
            let f: Boxed = Box::new(wrap(f));
            return Ok((node.fill(color, ProfileOf::overflow(sort), times, f), times));
        };
        let times = profiles.get(profile.id()).estimate();
        // After the profile: before it, a post took 12 instructions more.
        match self.node_if(Class::of::<G>(), admit) {
            Ok(node) => Ok((node.fill(color, profile, times, wrap(f)), times)),
            Err(refusal) => {
                self.refuse_recorded();
                match self.beyond::<G>(profiles, handler, color, sort, refusal) {
                    // The closure is not handed down, as above.
                    Some(place) => Ok(Maker::fill_reserved(profiles, color, sort, place, wrap(f))),
                    None => Err((f, refusal)),
                }
            }
        }
    }

    /// Whether an event that was refused is made all the same: inside of
    /// [`set_beyond`](Self::set_beyond), while there is a reserve.
    fn goes_beyond(&self, refusal: Refusal) -> bool {
        refusal == Refusal::Full && self.is_beyond && self.pool.depot.has_reserve()
    }

    /// Memory from the reserve for an event that was refused, if it [goes
    /// beyond](Self::goes_beyond).
    #[cold]
    #[inline(never)]
    fn beyond<F>(
        &mut self,
        profiles: &Profiles,
        handler: Option<&'static Handler>,
        color: Color,
        sort: Sort,
        refusal: Refusal,
    ) -> Option<(Empty, Option<ProfileOf<F>>)>
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        // First: to look for the profile records a post.
        self.goes_beyond(refusal)
            .then(|| self.reserve(profiles, handler, color, sort))
    }

    /// Memory from the reserve, and the profile, if there is one.
    #[cold]
    #[inline(never)]
    fn reserve<F>(
        &mut self,
        profiles: &Profiles,
        handler: Option<&'static Handler>,
        color: Color,
        sort: Sort,
    ) -> (Empty, Option<ProfileOf<F>>)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let profile = self
            .cache
            .find_of::<F>(profiles, handler, color, sort.reserved());
        let class = match profile {
            Some(_) => Class::of::<F>(),
            None => Class::of::<Boxed>(),
        };
        (self.pool.depot.reserve(class), profile)
    }

    /// The event that runs `f`, in memory from the reserve.
    #[inline(always)]
    fn fill_reserved<F>(
        profiles: &Profiles,
        color: Color,
        sort: Sort,
        (node, profile): (Empty, Option<ProfileOf<F>>),
        f: F,
    ) -> (Event, Times)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        match profile {
            Some(profile) => {
                let times = profiles.get(profile.id()).estimate();
                (node.fill(color, profile, times, f), times)
            }
            None => {
                let times = profiles.get(ProfileId::OVERFLOW).estimate();
                let (f, profile): (Boxed, _) = (Box::new(f), ProfileOf::overflow(sort.reserved()));
                (node.fill(color, profile, times, f), times)
            }
        }
    }

    /// Sets whether events may be made beyond the limit of events, as long as there is a reserve
    /// for that; returns what was set before.
    pub(crate) fn set_beyond(&mut self, is_beyond: bool) -> bool {
        std::mem::replace(&mut self.is_beyond, is_beyond)
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
        let profile = self.cache.find_of::<F>(profiles, handler, color, sort);
        match self.node_if(Class::of::<F>(), admit) {
            Ok(node) => Ok(Place::new(profiles, node, color, profile, sort)),
            Err(refusal) => {
                if profile.is_some() {
                    self.refuse_recorded();
                }
                if self.goes_beyond(refusal) {
                    return Ok(self.place_reserved(profiles, handler, color, sort));
                }
                Err(refusal)
            }
        }
    }

    /// Memory for such an event that cannot be refused: see [`make_own`](Self::make_own).
    pub(crate) fn place_own<F>(
        &mut self,
        profiles: &Profiles,
        handler: Option<&'static Handler>,
        color: Color,
        sort: Sort,
    ) -> Place<F>
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        if let Ok(place) = self.place_if(profiles, handler, color, sort, || true) {
            return place;
        }
        self.place_reserved(profiles, handler, color, sort)
    }

    #[cold]
    fn place_reserved<F>(
        &mut self,
        profiles: &Profiles,
        handler: Option<&'static Handler>,
        color: Color,
        sort: Sort,
    ) -> Place<F>
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let (node, profile) = self.reserve(profiles, handler, color, sort);
        Place::new(profiles, node, color, profile, sort.reserved())
    }

    /// A node, if `admit` says so.
    #[inline(always)]
    fn node_if(&mut self, class: Class, admit: impl FnOnce() -> bool) -> Result<Empty, Refusal> {
        let node = self.pool.alloc(class).ok_or(Refusal::Full)?;
        if !admit() {
            self.pool.free(node);
            return Err(Refusal::NotAdmitted);
        }
        Ok(node)
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
        sort: Sort,
    ) -> (Event, Times)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        if const { is_boxed::<F>() } {
            let place = self.place_own(profiles, handler, color, sort);
            return place.fill(Box::new(f));
        }
        match self.make(profiles, handler, color, f, sort, |f| f) {
            Ok(made) => made,
            Err(f) => {
                let place = self.reserve(profiles, handler, color, sort);
                Maker::fill_reserved(profiles, color, sort, place, f)
            }
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
