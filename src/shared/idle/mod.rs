//! Cores that are idle: how they search and sleep, how they are woken, and why no wake-up is lost.
//!
//! A core without work searches ([`searchers`]), and then sleeps ([`Idle::sleepers`]) in the kernel
//! until a completion, a timer or its doorbell ([`bells`]). [`notify`] wakes cores, for every
//! [reason](Why) there is. What a wake-up costs ([`wake_cost`]) decides what is worth one. While
//! all sleep, the [`lookout`] watches the event source of a core that is inside an event, and the
//! watchdog sleeps too ([`vigil`]).
//!
//! # No wake-up is lost
//!
//! **The one argument.** Two threads each write a word of their own, fence, and look at the word of
//! the other. The SeqCst fences are in one order: the thread whose fence is second sees what the
//! other wrote before its own. So at least one of the two sees the other. Wherever a core goes to
//! sleep beside one that has something to tell, both do so:
//!
//! | one writes, and fences | looks at | the other writes, and fences | looks at |
//! |---|---|---|---|
//! | to sleep: parks its pokes, joins the sleepers | hints, pokes and long events of the others | to make work known: its hint, or its long event ([`notify`]) | the sleepers |
//! | to end a search: counts itself out | the searchers, then as the waker | the same in another group | the searchers |
//! | to sleep: the same | the number of working cores, how far the runtime is | to change that ([`Shared::wake_all`]) | parked pokes |
//! | to sleep: the same | the sources of cores in long events ([`lookout`]) | to begin such an event: says so | the sleepers |
//! | the watchdog: says that it sleeps | busy cores | a core becomes busy ([`vigil`]) | whether it sleeps |
//!
//! **To sleep**, a core (1) turns the word of its pokes from `EMPTY` to `PARKED`; a poke that came
//! first makes this fail; (2) joins the sleepers; (3) fences; (4) looks once more; (5) waits in the
//! kernel. A *poke* needs no fence: it goes into the word of step 1 itself, which says whether to
//! ring ([`crate::shared::remote::poke`]).
//!
//! **To wake a core**, another (1) publishes; (2) fences; (3) looks for a sleeper; (4) turns the
//! word of that core's pokes from `PARKED` to `EMPTY`. The one thread that makes this change *owes*
//! the ring, which comes after all locks are released. A ring before the wait makes the wait return
//! at once. (2) is needed only when the hint rises to a wake-up's cost. (That may fall while a core
//! sleeps. A core that has work worth it by then wakes one at its next critical section.)
//!
//! **The last to search looks last.** A wake-up may cost the waker more than a request does. So
//! while a core searches, as each does that was just woken, none is woken for work: the search ends
//! with another look, and if there is more than the core can do, it wakes the next. A core that
//! goes to sleep looks as well, unless as many of its group search as may: each of those has a look
//! of its own to come, after it is counted out.

pub(crate) mod bells;
pub(crate) mod core_set;
pub(crate) mod lookout;
mod notify;
pub(crate) mod searchers;
pub(crate) mod vigil;
pub(crate) mod wake_cost;

pub(crate) use self::notify::{Why, Worth, notify};

use self::bells::Bells;
use self::core_set::CoreSet;
use self::lookout::Lookout;
use self::searchers::Searchers;
use self::vigil::Vigil;
use self::wake_cost::WakeCost;
#[cfg(doc)]
use crate::shared::Shared;
use crossbeam_utils::CachePadded;
use std::sync::OnceLock;

/// What all threads see of the cores that are idle.
#[derive(Debug)]
pub(crate) struct Idle {
    pub(crate) sleepers: CoreSet,
    pub(crate) searchers: Searchers,
    pub(crate) bells: Bells,
    pub(crate) vigil: CachePadded<Vigil>,
    /// Where sources are watched; see [`lookout`].
    pub(crate) lookout: OnceLock<Box<dyn Lookout>>,
    /// Something has come to the sources of these cores.
    pub(crate) to_visit: CoreSet,
    /// On a line of its own, like everything here that changes: every core reads it.
    pub(crate) wake_cost: CachePadded<WakeCost>,
}

impl Idle {
    /// Of a runtime with this number of cores, none of which is idle. `at_once`: see
    /// [`Vigil::at_once`].
    pub(crate) fn new(cores: usize, at_once: bool, wake_cost: WakeCost) -> Idle {
        Idle {
            sleepers: CoreSet::none_of(cores),
            searchers: Searchers::none_of(cores),
            bells: Bells::of(cores),
            vigil: CachePadded::new(Vigil::new(at_once)),
            lookout: OnceLock::new(),
            to_visit: CoreSet::none_of(cores),
            wake_cost: CachePadded::new(wake_cost),
        }
    }

    /// Whether a core searches, or sleeps.
    pub(crate) fn any(&self) -> bool {
        self.searchers.any() || self.sleepers.any()
    }
}
