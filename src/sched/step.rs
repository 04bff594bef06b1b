//! One step of one core: the algorithm.

use super::core::Core;
use crate::event::profile::Begun;
use crate::sync::charge;

/// Who has a core, runs its events, and knows where completions come from. The scheduler asks
/// nothing else of the layers that use it.
pub(crate) trait Host {
    fn core_mut(&mut self) -> &mut Core;

    /// Turns completions of the event source into posts, now and then; returns what was checked
    /// out, flushes the outbox, takes mail, and checks out the next colors.
    fn exchange<const RETIRED: bool>(&mut self);

    /// Runs an event.
    fn run(&mut self, event: Begun);

    /// It has run, or has panicked.
    fn end_event(&mut self);

    /// Calls `run`, which runs events. True: one of them has panicked, and is over.
    fn catch(&mut self, run: impl FnOnce(&mut Self)) -> bool;
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stepped {
    /// Ran events, of its own or stolen.
    Ran,
    /// Found nothing to run anywhere.
    Idle,
}

/// One step of one core, which works or is [`RETIRED`](super::retiring). Never blocks. Called by
/// the thread loop, the loom models, and the simulation of virtual cores. `between` is called after
/// each event, for the simulation, which lets other cores go on there.
#[inline]
pub(crate) fn step<const RETIRED: bool, H: Host + ?Sized>(
    host: &mut H,
    between: impl Fn(&mut H),
) -> Stepped {
    charge::step();
    host.exchange::<RETIRED>();
    // Nothing of our own: take from the nearest that has too much.
    if host.core_mut().has_empty_checkout() && (RETIRED || !host.core_mut().steal()) {
        host.core_mut().note_idle();
        return Stepped::Idle;
    }
    // It is no longer one of the searching cores, if it was.
    host.core_mut().end_search(true);
    // Run, with no lock held.
    let executed = host.core_mut().ledger.executed;
    let is_deep = host.core_mut().is_deep();
    while host.catch(|host| {
        if is_deep {
            run_quantum::<true, _>(host, &between)
        } else {
            run_quantum::<false, _>(host, &between)
        }
    }) {
        between(host);
    }
    let core = host.core_mut();
    core.end_quantum(core.ledger.executed - executed);
    Stepped::Ran
}

/// Gives each color of the checkout its turn, until none is left. `AHEAD`: and looks
/// [ahead](crate::event::prefetch).
#[inline]
fn run_quantum<const AHEAD: bool, H: Host + ?Sized>(host: &mut H, between: &impl Fn(&mut H)) {
    loop {
        if host.core_mut().is_turn_over() && !host.core_mut().next_color() {
            return;
        }
        if AHEAD {
            host.core_mut().look_ahead();
        }
        let Some(event) = host.core_mut().begin_event() else {
            continue;
        };
        host.run(event);
        host.end_event();
        between(host);
    }
}
