//! What happens when a handler panics.

use crate::{Color, Cx};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a runtime does about a panic of a handler; see
/// [`Builder::on_panic`](crate::Builder::on_panic).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnPanic {
    /// The runtime stops, and `run` returns the panic as an error.
    #[default]
    Stop,
    /// The event is dropped and the runtime goes on. State the event was given by a
    /// [`Colored`](crate::Colored) is poisoned for good: later events for it panic too. A
    /// connection whose callback panicked is closed; a listener goes on.
    DropEvent,
}

/// A panic of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PanicReport {
    /// The handler's name, or the closure's type.
    pub handler: &'static str,
    /// The color of the event.
    pub color: Color,
    /// The core it ran on.
    pub core: usize,
    /// The panic's message, if it was text.
    pub message: String,
}

impl std::fmt::Display for PanicReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let PanicReport {
            handler,
            color,
            core,
            message,
        } = self;
        write!(
            f,
            "handler `{handler}` of color {color} panicked on core {core}: {message}"
        )
    }
}

/// Runs events, or other code of the user's; a panic becomes an error.
#[inline(always)]
pub(crate) fn catching<R>(run: impl FnOnce() -> R) -> Result<R, Box<dyn Any + Send>> {
    // In a model a panic is a finding, of the model's or of loom's, and must reach loom.
    if cfg!(loom) {
        return Ok(run());
    }
    catch_unwind(AssertUnwindSafe(run))
}

/// What a panic says, if it is text.
pub(crate) fn message_of(payload: Box<dyn Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => match payload.downcast::<&'static str>() {
            Ok(text) => (*text).to_owned(),
            Err(payload) => {
                discard_payload(payload);
                "(not text)".to_owned()
            }
        },
    }
}

/// Drops the payload of a panic.
pub(crate) fn discard_payload(payload: Box<dyn Any + Send>) {
    if let Err(another) = catching(|| drop(payload)) {
        // The payload of that panic may panic when it is dropped, too: it is leaked instead.
        std::mem::forget(another);
    }
}

/// The running event has panicked.
#[cold]
pub(crate) fn caught(cx: &mut Cx, payload: Box<dyn Any + Send>) {
    let report = PanicReport {
        handler: cx.handler(),
        color: cx.color(),
        core: cx.core(),
        message: message_of(payload),
    };
    let worker = cx.worker();
    worker.core.end_recorded(true);
    worker.core.end_event();
    let core = worker.core.id;
    worker.core.shared.core(core).stats.panics.add(1);
    let inner = worker.inner.clone();
    inner.panicked(report);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Panics this many times when it is dropped: with another one.
    struct Panics(u32);

    impl Drop for Panics {
        fn drop(&mut self) {
            if self.0 > 0 {
                std::panic::panic_any(Panics(self.0 - 1));
            }
        }
    }

    #[test]
    fn a_message_is_made_of_whatever_payload() {
        assert_eq!(message_of(Box::new("text")), "text");
        assert_eq!(message_of(Box::new("more text".to_owned())), "more text");
        assert_eq!(message_of(Box::new(7)), "(not text)");
        assert_eq!(message_of(Box::new(Panics(2))), "(not text)");
    }
}
