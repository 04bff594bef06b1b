//! The heart: one step of one core.

use crate::Cx;
use crate::runtime::panics;

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Ran events, of its own or stolen.
    Ran,
    /// Found nothing to run anywhere.
    Idle,
}

/// One step of one core: never blocks, and is what every driver calls: the thread loop, the loom
/// models, the simulation of virtual cores, which lets others go on `between` two events.
#[inline]
pub(crate) fn turn(cx: &mut Cx, between: impl Fn(&mut Cx)) -> Turn {
    // Completions of the event source become posts.
    cx.worker().reap();
    // Return what was checked out, flush the outbox, take mail, check out the next colors.
    cx.worker().core.exchange();
    // Nothing of our own: take from the nearest that has too much.
    if cx.worker().core.is_idle() && !cx.worker().core.steal() {
        cx.worker().core.rest();
        return Turn::Idle;
    }
    cx.worker().core.end_search(true);
    // Run, with no lock held and no read-modify-write.
    let executed = cx.worker().core.executed;
    while let Err(payload) = panics::catching(|| run_quantum(cx, &between)) {
        panics::caught(cx, payload);
        between(cx);
    }
    let core = &mut cx.worker().core;
    core.end_quantum(core.executed - executed);
    Turn::Ran
}

/// Runs the events of each color of the checkout until it is empty or its batch is over.
#[inline]
fn run_quantum(cx: &mut Cx, between: &impl Fn(&mut Cx)) {
    loop {
        if cx.worker().core.is_turn_over() && !cx.worker().core.next_color() {
            return;
        }
        let Some(event) = cx.worker().core.begin_event() else {
            continue;
        };
        // SAFETY: the node was popped from a queue of ours, holds the closure of its profile, and
        // passes to `run`.
        unsafe { (event.run)(event.node, cx) };
        cx.worker().ended();
        between(cx);
    }
}
