//! Readers of a state: they run together, in other colors than the state's.
//!
//! A state that is read is *shared*: the event that begins to read takes the value out of the cell,
//! and puts it behind a counted pointer ([`Share`]), from which each reader is given a clone
//! ([`Reading`]). Meanwhile the color is held ([`SharedHold`]): its other events wait, and so does
//! whoever would read after one that waits. The last reader to go posts the event that puts the
//! value back, and that ends the hold.
//!
//! **What can never happen.** Somebody with `&mut T` beside a reader: the value is not in the cell
//! while a reader has it. The event that puts it back finds it alone: each reader drops its clone
//! before it goes, and nobody joins once the last has gone.

use super::Colored;
use crate::host::holding::SharedHold;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Arc, CountedArc, Mutex, fault};
use crate::{Cx, Reason};
use std::any::Any;
use std::fmt;

/// What the state has while its value is read: a [`Share`] of its own type. Not by name, since the
/// value of a state that is never read need not be `Sync`.
pub(super) type Shared = Box<dyn Any + Send>;

/// The value, in the box that the state has it in.
#[allow(
    clippy::redundant_allocation,
    reason = "it is not moved out of its box"
)]
type Value<T> = CountedArc<Box<T>>;

/// See the module text.
struct Share<T> {
    value: Value<T>,
    readers: Arc<Readers>,
}

struct Readers {
    /// Once it is zero, it stays so.
    count: AtomicU32,
    /// Until the last goes.
    hold: Mutex<Option<SharedHold>>,
}

impl Readers {
    /// Counts one more, if the last has not gone.
    fn join(&self) -> bool {
        let one_more =
            |count| (count > 0 || fault("reader joins after the last")).then_some(count + 1);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        self.count.fetch_update(set, fetch, one_more).is_ok()
    }

    /// Counts one less. The last is given the hold, to end it: what each has done comes before what
    /// the last one does then.
    fn leave(&self) -> Option<SharedHold> {
        if self.count.fetch_sub(1, Ordering::AcqRel) > 1 {
            return None;
        }
        let hold = self.hold.lock().unwrap().take();
        Some(hold.expect("the last one goes once"))
    }
}

/// A reader's value. Nobody outside can name it.
pub struct Reading<T: Send + 'static> {
    /// Gone before the reader goes.
    value: Option<Value<T>>,
    readers: Arc<Readers>,
    state: Colored<T>,
}

impl<T: Send + 'static> Reading<T> {
    pub(crate) fn value(&self) -> &T {
        self.value.as_ref().expect("until the reader goes")
    }
}

impl<T: Send + 'static> fmt::Debug for Reading<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading").finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Drop for Reading<T> {
    fn drop(&mut self) {
        if !fault("value kept by a reader that goes") {
            self.value = None;
        }
        let Some(hold) = self.readers.leave() else {
            return;
        };
        let (inner, color) = (&self.state.poster().inner, self.state.color());
        let state = self.state.clone();
        hold.end(inner, color, move |cx| state.put_back_shared(cx));
    }
}

impl<T: Send + 'static> Colored<T> {
    /// Puts the value back, in an event of the color: no reader has it any more.
    fn put_back_shared(&self, cx: &mut Cx) {
        let mut state = self.cell.state.borrow(cx).expect("an event of its color");
        let shared = state.shared.take().expect("it was shared");
        let share: Box<Share<T>> = shared.downcast().expect("the state's own type");
        let value = CountedArc::try_unwrap(share.value).ok();
        let value = value.expect("no reader has it any more");
        self.cell.put_back(state, value, false);
    }
}

impl<T: Send + Sync + 'static> Colored<T> {
    /// Begins to read, in an event of the color that may: see
    /// [`Gates::may_read`](crate::gate::Gates::may_read). None if it is too early: the last of
    /// those who read has gone, and the value is not back.
    pub(crate) fn begin_reading(&self, cx: &mut Cx) -> Result<Option<Reading<T>>, Reason> {
        let mut state = self.cell.state.borrow(cx)?;
        if self.is_poisoned() {
            return Err(Reason::Poisoned);
        }
        if let Some(shared) = &state.shared {
            let share: &Share<T> = shared.downcast_ref().expect("the state's own type");
            return Ok(share.readers.join().then(|| self.reading(share)));
        }
        let value = state.value.take().ok_or(Reason::Lent)?;
        state.end();
        let share = Share {
            value: CountedArc::new(value),
            readers: Arc::new(Readers {
                count: AtomicU32::new(1),
                hold: Mutex::new(Some(SharedHold::take(cx))),
            }),
        };
        let reading = self.reading(&share);
        self.cell.state.borrow(cx)?.shared = Some(Box::new(share));
        Ok(Some(reading))
    }

    fn reading(&self, share: &Share<T>) -> Reading<T> {
        Reading {
            value: Some(CountedArc::clone(&share.value)),
            readers: Arc::clone(&share.readers),
            state: self.clone(),
        }
    }
}
