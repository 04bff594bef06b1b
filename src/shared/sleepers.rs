//! Which cores sleep, and the protocol of sleeping.
//!
//! **To sleep**, a core (1) turns the word of its pokes from `EMPTY` to `PARKED`; a poke that came
//! first makes this fail; (2) joins the set of those that sleep, [`Shared::sleepers`]; (3) fences;
//! (4) looks once more at what could be stolen from the others; (5) waits in the kernel for its
//! doorbell, a completion or a timer.
//!
//! **To make work known**, a core (1) publishes its hint; (2) fences; (3) looks for a sleeper; (4)
//! turns the word of that core's pokes from `PARKED` to `EMPTY`, and if it was the one who did,
//! rings. Steps 2 to 4 are needed only when the hint rises past what a wake-up costs.
//! (That may fall while a core sleeps. Who has work worth it by then wakes at its next critical
//! section.)
//!
//! The two fences are each between the own write and the look at the other's, so at least one of
//! the two sees the other: the sleeper finds the hint or the waker finds the sleeper. A poke needs
//! neither: it goes into the word of the pokes itself, which says whether to ring. Doorbells ring
//! after unlocking, and a doorbell that rings before the wait makes the wait return at once.
//!
//! A wake-up may cost the waker more than a request does. So the hint must promise at least
//! [`Shared::wake_cost`], and while a core searches, as each does that was just woken, nobody is
//! woken: the search ends with another look, and if there is more than it can do, it wakes the
//! next. For the same reason step 4 of going to sleep is left out while as many cores search as
//! may: each of them has a look of its own to come, after it is counted out.

use super::Shared;
use crate::ablation::{Rule, without};
use crate::color::CoreId;
use crate::sync::atomic::{Ordering, fence};
use crate::sync::fault;

/// Wakes the sleeper nearest to `core`; false if nobody sleeps.
pub(crate) fn wake_nearest(shared: &Shared, core: CoreId, bells: &mut Vec<CoreId>) -> bool {
    for &(other, _) in &shared.core(core).victims {
        if shared.sleepers.contains(other) && shared.core(other).pokes.unpark() {
            bells.push(other);
            return true;
        }
    }
    false
}

/// A color was poked whose owner may be inside a long handler: wakes somebody to take it from
/// there.
pub(crate) fn rescue(
    shared: &Shared,
    owner: CoreId,
    waker: Option<CoreId>,
    bells: &mut Vec<CoreId>,
) {
    if !shared.policy.stealing
        || without(Rule::Rescue)
        || Some(owner) == waker
        || fault("nobody sent to the rescue")
    {
        return;
    }
    let progress = &shared.core(owner).progress;
    if progress.is_long() {
        // Pairs with the fence of a core on its way to sleep: it sees poke and handler, or we see
        // it asleep.
        fence(Ordering::SeqCst);
        if shared.sleepers.any() {
            wake_nearest(shared, owner, bells);
        }
    }
}

/// A core has been inside its quantum for longer than anybody thought: wakes somebody to take what
/// waits there, if there is anything.
pub(crate) fn relieve(shared: &Shared, core: CoreId, bells: &mut Vec<CoreId>) {
    let stuck = &shared.core(core);
    let waits = stuck.hint.stealable() > 0 || stuck.pokes.any();
    if shared.policy.stealing && !without(Rule::Relieve) && waits && shared.sleepers.any() {
        wake_nearest(shared, core, bells);
    }
}
