//! Posts that take their places in several colors at once.
//!
//! Of two such posts, one comes first in all colors that they share: whoever makes one has the
//! runtime's one lock for that, from its first event to its last. The events go straight into the
//! mailboxes, so they are there when the lock is released. The color that runs has its mail
//! appended first, and then its event like any post to itself.

use super::core::Core;
use super::section::Section;
use crate::color::SlotId;
use crate::event::maker::{Maker, Refusal};
use crate::event::node::{AtLimit, Event, Sort};
use crate::shared::Shared;
use crate::shared::remote::mail;
use crate::sync::{Arc, MutexGuard, fault};
use crate::{Color, Cx, Handler};

/// What an event does that was posted together with others.
pub(crate) trait Arrive: Send + Sync + 'static {
    /// Of its events.
    const SORT: Sort;

    fn arrive(self: Arc<Self>, cx: &mut Cx);
}

/// The event of one of the colors.
fn arrival<A: Arrive>(arrives: &Arc<A>) -> impl FnOnce(&mut Cx) + Send + 'static + use<A> {
    let arrives = Arc::clone(arrives);
    move |cx: &mut Cx| arrives.arrive(cx)
}

impl Shared {
    /// Makes an event for each of these colors. The first may be refused, and with it all: `f`
    /// comes back then. `wrap` makes of it what the events have in common, and `admit` is asked
    /// when nothing else can refuse them any more.
    #[allow(clippy::too_many_arguments, reason = "as for a single event")]
    pub(crate) fn make_together<F, A: Arrive>(
        &self,
        maker: &mut Maker,
        handler: Option<&'static Handler>,
        colors: &[Color],
        f: F,
        at_limit: AtLimit,
        wrap: impl FnOnce(F) -> Arc<A>,
        admit: impl FnOnce() -> bool,
    ) -> Result<Vec<(Color, Event)>, (F, Refusal)> {
        let (profiles, sort) = (&self.profiles, A::SORT.at(at_limit));
        let mut made = None;
        let wrap = |f| arrival(made.insert(wrap(f)));
        let (first, _) = maker.make_if(profiles, handler, colors[0], f, sort, wrap, admit)?;
        let mut events = Vec::with_capacity(colors.len());
        events.push((colors[0], first));
        for &color in &colors[1..] {
            let event = arrival(made.as_ref().expect("the first was made"));
            let (event, _) = maker.make_own(profiles, handler, color, event, sort);
            events.push((color, event));
        }
        Ok(events)
    }

    /// Nobody else posts to several colors meanwhile.
    fn lock_together(&self) -> Option<MutexGuard<'_, ()>> {
        (!fault("places taken one by one")).then(|| self.together.lock().unwrap())
    }

    /// Publishes events made by a foreign thread, at one place in all their colors.
    pub(crate) fn publish_together(&self, events: Vec<(Color, Event)>) {
        let mut bells = Vec::new();
        let locked = self.lock_together();
        for (color, event) in events {
            mail::post(self, self.slots.map.slot(color), event, &mut bells);
        }
        drop(locked);
        self.idle.bells.ring_all(&bells);
    }
}

impl Core {
    /// Posts an event to each of these colors, in one place in all of them; see
    /// [`Shared::make_together`]. The closure comes back at the limit of events.
    pub(crate) fn post_together<F, A: Arrive>(
        &mut self,
        handler: Option<&'static Handler>,
        colors: &[Color],
        f: F,
        at_limit: AtLimit,
        wrap: impl FnOnce(F) -> Arc<A>,
    ) -> Result<(), F> {
        let shared = Arc::clone(&self.shared);
        let maker = &mut self.maker;
        let made = shared.make_together(maker, handler, colors, f, at_limit, wrap, || true);
        let events = made.map_err(|(f, _)| f)?;
        self.publish_together(events);
        Ok(())
    }

    /// Publishes events that this core has made, at one place in all their colors, and after
    /// whatever it has posted before.
    fn publish_together(&mut self, events: Vec<(Color, Event)>) {
        self.flush();
        self.ledger.posted += events.len() as u64;
        let shared = Arc::clone(&self.shared);
        let locked = shared.lock_together();
        for (color, event) in events {
            let slot = shared.slots.map.slot(color);
            if self.current.slot.is(slot) {
                self.append_behind_mail(slot, event);
            } else {
                mail::post(&shared, slot, event, &mut self.bells);
            }
        }
        drop(locked);
        self.ring();
    }

    /// Appends an event to those of the running color, after what is in its mailbox.
    fn append_behind_mail(&mut self, slot: SlotId, mut event: Event) {
        if !fault("own mail not appended first") {
            self.append_own_mail(slot);
        }
        let times = event.times();
        self.running.push(event, times);
    }

    /// Appends what is in the running color's mailbox to its events. Nothing that the running event
    /// posts to its color goes before that, then.
    fn append_own_mail(&mut self, slot: SlotId) {
        *self.checkout.running() = self.running.put_down();
        let section = Section::enter(&self.shared, self.id);
        section.append_mail_to_running(slot, self.checkout.running());
        drop(section);
        self.running.take_up(self.checkout.running());
    }

    /// The running event is the last of several that were posted together, and does what they were
    /// posted for, in its own color. What the others' colors have posted to it is in its mailbox,
    /// and goes before what it posts.
    pub(crate) fn acts_for_all(&mut self) {
        if let Some(slot) = self.current.slot.get()
            && !fault("mail left behind by the last")
        {
            self.append_own_mail(slot);
        }
    }
}
