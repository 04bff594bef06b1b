//! Names of the lines that cores share, for reports: each is a region's, by an index in there.

use super::charge;
use crate::event::counts::Counts;
use crate::event::profile::Profiles;
use crate::host::inner::Inner;
use crate::shared::Shared;
use crate::shared::idle::Idle;

/// Names the larger things first: what is named later counts.
pub(super) fn name_lines(inner: &Inner) {
    charge::name(inner, "runtime", 0);
    charge::name_count(inner, "references", 0);
    charge::name_count(&*inner.shared, "references", 1);
    charge::name(&*inner.quiesce, "quiesce", 0);
    charge::name(&inner.quiesce.groups[..], "resting", 0);
    if let Some(recorder) = &inner.shared.recorder {
        charge::name(&**recorder, "recorder", 0);
    }
    shared(&inner.shared);
}

fn shared(shared: &Shared) {
    charge::name(shared, "shared", 0);
    charge::name(&shared.slots.slots[..], "slot", 0);
    profiles(&shared.profiles);
    charge::name(&shared.gates, "gates", 0);
    charge::name(&shared.foreign.makers[..], "maker", 0);
    charge::name(&*shared.depot, "depot", 0);
    idle(&shared.idle);
    for (at, core) in shared.cores.iter().enumerate() {
        charge::name(&**core, "core", at);
        charge::name(&core.lock, "lock", at);
        charge::name(&core.pokes, "pokes", at);
        charge::name(&core.hint, "hint", at);
        charge::name(&core.progress, "progress", at);
        charge::name(&core.steal_costs, "steal_costs", at);
        charge::name(&core.busy, "busy", at);
        charge::name(&core.stats, "stats", at);
        let Counts(counts) = &core.counts;
        charge::name(&counts[..], "counts", at);
    }
}

fn profiles(profiles: &Profiles) {
    charge::name(&profiles.table[..], "profiles", 0);
    let known = profiles.known.lock().unwrap();
    for (at, profile) in known.profiles.iter().enumerate() {
        charge::name(&**profile, "profile", at);
    }
}

fn idle(idle: &Idle) {
    charge::name(&idle.sleepers.0[..], "sleepers", 0);
    charge::name(&idle.vigil, "vigil", 0);
    for (at, count) in idle.searchers.0.iter().enumerate() {
        charge::name(count, "searching", at);
    }
    charge::name(&idle.wake_cost, "wake_cost", 0);
    charge::name(&idle.bells.due.0[..], "bells_due", 0);
    for (at, hook) in idle.bells.hooks.iter().enumerate() {
        charge::name(hook, "bell", at);
    }
}
