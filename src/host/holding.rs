//! Holding a color, below all that a user sees of it: how an event through a hold arrives, how a
//! hold's last event is published, a hold that nobody else knows of, and one that readers share.

use super::inner::Inner;
use super::worker::{Worker, lend_current};
use crate::event::node::Sort;
use crate::gate::{Arrival, HoldId, HoldNumber};
use crate::shared::remote::mail;
use crate::sync::Arc;
use crate::sync::atomic::Ordering;
use crate::{Color, Cx, Handler};

/// What an event through a hold does first: it finds out what it may do.
pub(crate) fn arrive<F>(
    cx: &mut Cx,
    handler: Option<&'static Handler>,
    hold: HoldId,
    ends: bool,
    f: F,
) where
    F: FnOnce(&mut Cx) + Send + 'static,
{
    let core = &mut cx.worker().core;
    match core.arrive(hold, ends) {
        Arrival::Runs => f(cx),
        // A late continuation is dropped here, in the color.
        Arrival::Late if ends => drop(f),
        Arrival::Late => f(cx),
        Arrival::Waits(place) => core.wait(handler, place, move |cx: &mut Cx| {
            arrive(cx, handler, hold, ends, f);
        }),
    }
}

/// Publishes a hold's last event, from any thread: it counts as posted since the hold was made.
pub(crate) fn publish_last<F>(
    inner: &Arc<Inner>,
    color: Color,
    handler: Option<&'static Handler>,
    f: F,
) where
    F: FnOnce(&mut Cx) + Send + 'static,
{
    let here = lend_current(Arc::as_ptr(inner), f, |worker, f| {
        worker.core.post_last(handler, color, f);
    });
    let Err(f) = here else { return };
    if inner.ended() {
        // Cut short: nobody would run it, and nobody might drop it.
        return drop(f);
    }
    let shared = &inner.shared;
    shared.gates.ended_outside.fetch_add(1, Ordering::Relaxed);
    let (event, _) = shared
        .foreign
        .with(|maker| maker.make_own(&shared.profiles, handler, color, f, Sort::PASSING));
    mail::publish(shared, color, event);
}

/// A color that is held, by a hold that nobody else knows of and no deadline ends: no event of the
/// color begins until this is dropped. There is one at a time of a color, since an event makes it.
#[derive(Debug)]
pub(crate) struct Held {
    inner: Arc<Inner>,
    color: Color,
    id: HoldId,
}

impl Held {
    /// Holds the color of the running event, which does nothing more in its color.
    pub(crate) fn take(cx: &mut Cx) -> Held {
        let Worker { core, inner, .. } = cx.worker();
        Held {
            inner: Arc::clone(inner),
            id: core.hold(),
            color: core.current.color(),
        }
    }

    pub(crate) fn color(&self) -> Color {
        self.color
    }

    /// Whether it is a color of this runtime that is held.
    pub(crate) fn is_of(&self, inner: &Inner) -> bool {
        std::ptr::eq(&*self.inner, inner)
    }
}

impl Drop for Held {
    /// The color goes on.
    fn drop(&mut self) {
        let id = self.id;
        publish_last(&self.inner, self.color, None, move |cx| {
            arrive(cx, None, id, true, |_cx| ());
        });
    }
}

/// A color that is held for readers of one of its states: others may read meanwhile. It is not
/// ended by being dropped.
#[derive(Debug)]
pub(crate) struct SharedHold(HoldNumber);

impl SharedHold {
    /// Holds the color of the running event, which may read.
    pub(crate) fn take(cx: &mut Cx) -> SharedHold {
        SharedHold(cx.worker().core.share())
    }

    /// Runs `f` in the color, and ends the hold with that. From any thread.
    pub(crate) fn end<F>(self, inner: &Arc<Inner>, color: Color, f: F)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let hold = self.0;
        publish_last(inner, color, None, move |cx| {
            cx.worker().core.end_shared(hold);
            f(cx);
        });
    }
}
