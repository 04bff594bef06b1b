//! The one function that wakes cores; see [the protocol](super).

use crate::ablation::{Rule, without};
use crate::color::CoreId;
use crate::policy::wake;
use crate::shared::Shared;
use crate::sync::atomic::{Ordering, fence};
use crate::sync::fault;

/// What the hint says a core's worthy colors are worth, in ns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Worth {
    /// What it said until now, whoever wrote it: the core itself, or a thief.
    pub(crate) before_ns: u64,
    pub(crate) now_ns: u64,
}

/// Why a core may have to be woken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Why {
    /// The core has published work of this worth.
    Work(Worth),
    /// The core is inside a long event, or about to be, and mail or colors wait that would wait for
    /// it, however short they are.
    Waits,
    /// The core has ended a search, or taken colors from a busy one: there may be more to steal,
    /// and what it published meanwhile it made known to no core.
    Searched,
    /// The core has mail, sent by the other one, and may be inside a long event.
    Mail { by: Option<CoreId> },
    /// The core has been inside its quantum for longer than was thought.
    Stuck,
    /// Something has come to the core's event source, and it runs an event.
    Source,
    /// Colors were linked for the core itself, which may be on its way to sleep.
    Linked,
}

impl Why {
    /// Whether a core that searches makes the wake-up unnecessary: it looks for more at its end.
    fn is_for_searchers(self) -> bool {
        matches!(self, Why::Work(_) | Why::Waits | Why::Searched)
    }

    /// Whether what was published may not be seen yet by a core on its way to sleep. Of a core that
    /// is found stuck it was seen long ago.
    fn needs_fence(self, enough_ns: u64) -> bool {
        match self {
            Why::Work(worth) => {
                !wake::is_worth_waking(worth.before_ns, enough_ns)
                    && !fault("waker's fence skipped")
            }
            Why::Waits => !fault("long handler's fence skipped"),
            Why::Searched => !fault("thief's fence skipped"),
            Why::Mail { .. } | Why::Source => true,
            Why::Stuck | Why::Linked => false,
        }
    }
}

/// Wakes a core for what is at `core`, if that is worth it: the nearest sleeper, or for
/// [`Why::Linked`] that core itself. It is added to `bells`: to be rung once no lock is held. True
/// if a sleeper was woken.
#[inline(never)]
pub(crate) fn notify(shared: &Shared, core: CoreId, reason: Why, bells: &mut Vec<CoreId>) -> bool {
    let (idle, own) = (&shared.idle, shared.core(core));
    let steals = shared.policy.stealing.enabled;
    let is_due = match reason {
        Why::Mail { by } => {
            steals
                && by != Some(core)
                && own.progress.is_long()
                && !without(Rule::Rescue)
                && !fault("nobody sent to the rescue")
        }
        Why::Stuck => {
            let waits = own.hint.stealable() > 0 || own.pokes.any();
            steals && waits && !without(Rule::Relieve)
        }
        Why::Linked => {
            // The read-modify-write orders what was published before a later `park`, whose second
            // look then finds it.
            let _ = own.pokes.any_ordered();
            if own.pokes.unpark() {
                bells.push(core);
            }
            return false;
        }
        _ => true,
    };
    if !is_due {
        return false;
    }
    if reason.needs_fence(idle.wake_cost.ns()) {
        // Pairs with the fence of a core on its way to sleep.
        fence(Ordering::SeqCst);
    }
    let searching = || reason.is_for_searchers() && idle.searchers.any();
    let is_there = || match reason {
        Why::Searched => is_more_to_steal(shared, core),
        Why::Source => own.progress.profile().is_some(),
        _ => true,
    };
    idle.sleepers.any() && !searching() && is_there() && wake_nearest(shared, core, bells)
}

/// Whether a core has work worth a wake-up: this one, or one that it steals from.
fn is_more_to_steal(shared: &Shared, core: CoreId) -> bool {
    let own = shared.core(core);
    let enough_ns = shared.idle.wake_cost.ns();
    wake::is_worth_waking(own.hint.worth_ns(), enough_ns)
        || own.victims.iter().any(|&(victim, _)| {
            let victim = shared.core(victim);
            wake::is_worth_waking(victim.hint.worth_ns(), enough_ns)
                || victim.progress.is_long() && (victim.hint.stealable() > 0 || victim.pokes.any())
        })
}

/// Wakes the sleeper nearest to `core`; false if none sleeps.
fn wake_nearest(shared: &Shared, core: CoreId, bells: &mut Vec<CoreId>) -> bool {
    for &(other, _) in &shared.core(core).victims {
        if shared.idle.sleepers.contains(other) && shared.core(other).pokes.unpark() {
            bells.push(other);
            return true;
        }
    }
    false
}

impl Shared {
    /// Wakes every core, after the phase or the number of working cores changed.
    pub(crate) fn wake_all(&self) {
        // Pairs with the fence of a core on its way to sleep: it sees the change, or we see it
        // parked.
        if !fault("fence before waking all skipped") {
            fence(Ordering::SeqCst);
        }
        for (core, shared) in self.cores.iter().enumerate() {
            if shared.pokes.unpark() {
                self.idle.bells.due.set(CoreId::of(core));
                if fault("only one woken") {
                    break;
                }
            }
        }
        self.idle.bells.ring_due();
    }
}
