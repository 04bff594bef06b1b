//! What happens when a handler panics.
//!
//! | piece | owns | where |
//! |---|---|---|
//! | the event | its closure, which the panic drops | `Host::catch` ends the event, and calls [`caught`] |
//! | the *note* | place and message of the thread's last panic | written by the hook, taken by the function that catches |
//! | the *hook* | nothing: it calls the one that was set before it | [`watch`] sets it once in a process |
//! | the report | a [`PanicReport`] | [`Inner::panicked`](super::inner::Inner::panicked) |
//! | the policy | whether the run goes on | [`OnPanic`] |
//!
//! [`crate::colored`] says how states are poisoned, and `net::conn::lent` how connections are
//! reset. A value that the panic leaves to a later event is a [`LateDrop`].
//!
//! **One report, and no text twice.** Only a hook of `std::panic` learns where a panic happened,
//! and only the runtime knows handler and color. So the runtime sets a hook. It calls the hook that
//! was set before it, and notes the place. If the hook before is std's own, place and message are
//! on standard error already, and the report is one line beside them, with handler and color. Any
//! other hook may write anything or nothing, so then the line has the message too. With
//! [`Builder::panic_hook`](crate::Builder::panic_hook) the runtime writes nothing.
//!
//! **No core waits for a reader.** Before std's hook or the runtime writes on a core, the hook
//! polls standard error. If that does not take a line at once, nothing is written, and the next
//! report that is written has the number of those that were not. (A write may wait all the same if
//! another thread of the process fills the pipe after the poll, or if std's hook has more than
//! [`LINE_BYTES_MAX`] to write, as a backtrace. A hook of the program's is called in any case.)
//!
//! **What can never happen.**
//!
//! - A panic of a handler ends a core. Handlers are called inside of `catch` only.
//! - A color stays held because of a panic. A hold is a value, and the panic drops it wherever it
//!   is; the level of a hold is gone before its continuation begins.
//! - A drop by the runtime turns one panic into two, which would end the process. The callbacks,
//!   sessions and futures that have panicked are dropped inside of a `catch` of their own.

use crate::cx::has_host;
use crate::sched::step::Host;
use crate::sync::relaxed::{AtomicU64, Ordering};
use crate::{Color, Cx};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::any::Any;
use std::cell::Cell;
use std::io;
use std::panic::{
    AssertUnwindSafe, PanicHookInfo, catch_unwind, resume_unwind, set_hook, take_hook,
};
use std::sync::Once;
use std::thread::panicking;

/// What a runtime does about a panic of a handler; see
/// [`Builder::on_panic`](crate::Builder::on_panic).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnPanic {
    /// The panic ends its event, and the runtime goes on: so no peer takes a server down by a
    /// request that a handler panics at. State that the event was given by a
    /// [`Colored`](crate::Colored) is poisoned until
    /// [`clear_poison`](crate::Colored::clear_poison). A connection whose callback or session
    /// panicked is reset; a listener goes on.
    ///
    /// A panic of the event that [`Runtime::run`](crate::Runtime::run) is given ends the run all
    /// the same: a program that cannot begin is not left waiting.
    #[default]
    DropEvent,
    /// The runtime stops, and `run` returns the panic as an error. For tests, in which a failed
    /// assertion is to end the run; simulations do so unless told otherwise.
    Stop,
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
    /// Where it panicked, as `file:line:column`. None if it is not known: the program has set a
    /// hook of its own (`std::panic::set_hook`) after its first run had begun.
    pub location: Option<String>,
    /// The panic's message, if it was text.
    pub message: String,
}

impl PanicReport {
    /// All but the message.
    fn event(&self) -> impl std::fmt::Display {
        let PanicReport {
            handler,
            color,
            core,
            location,
            ..
        } = self;
        let at = location.iter().flat_map(|location| [" at ", location]);
        let at: String = at.collect();
        format!("handler `{handler}` of color {color} panicked on core {core}{at}")
    }

    /// Writes it to standard error, if that takes it at once. `is_written`: std's hook has written
    /// the message there.
    pub(super) fn write(&self, stops: bool, is_written: bool) {
        let became = if stops {
            "run stopped"
        } else {
            "event dropped"
        };
        let event = self.event();
        write_line(match is_written {
            true => format!("mely: {became}: {event}"),
            false => format!("mely: {became}: {event}: {}", self.message),
        });
    }
}

impl std::fmt::Display for PanicReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.event(), self.message)
    }
}

/// A pipe that is ready takes this many bytes without a wait (`PIPE_BUF`).
const LINE_BYTES_MAX: usize = 4096;

/// Reports that were not written since the last one that was.
static UNWRITTEN: AtomicU64 = AtomicU64::new(0);

/// Whether standard error takes [`LINE_BYTES_MAX`] bytes at once. A broken pipe does, with an
/// error.
fn stderr_is_ready() -> bool {
    if cfg!(miri) {
        return true;
    }
    let stderr = io::stderr();
    let mut polled = [PollFd::new(&stderr, PollFlags::OUT)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
}

fn write_line(mut line: String) {
    if !stderr_is_ready() {
        UNWRITTEN.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let suffix = match UNWRITTEN.swap(0, Ordering::Relaxed) {
        0 => String::new(),
        before => format!(" ({before} panics before it were not written)"),
    };
    line.truncate(line.floor_char_boundary(LINE_BYTES_MAX - 1 - suffix.len()));
    line += &suffix;
    // It panics if standard error is broken: then nothing can be told.
    if let Err(panic) = catching(|| eprintln!("{line}")) {
        drop(panic);
    }
}

/// What the hook has noted of a panic.
#[derive(Debug)]
struct Note {
    location: Option<String>,
    /// If it is text.
    message: Option<String>,
    /// std's hook has written it to standard error.
    is_written: bool,
}

impl Note {
    fn is_of(&self, message: &str) -> bool {
        self.message.as_deref().unwrap_or(NOT_TEXT) == message
    }
}

std::thread_local! {
    /// The last panic of this thread, until that is caught.
    static NOTED: Cell<Option<Note>> = const { Cell::new(None) };
    /// The thread is no core, and its panics are noted all the same.
    static NOTES: Cell<bool> = const { Cell::new(false) };
}

fn take_note() -> Option<Note> {
    NOTED.take()
}

/// Has panics noted from now on, in this process.
pub(crate) fn watch() {
    static SET: Once = Once::new();
    // Then a hook cannot be set, and there will be another run.
    if panicking() {
        return;
    }
    SET.call_once(|| {
        let before = take_hook();
        // The first call has put std's own in its place.
        let own = take_hook();
        let is_own = is_same(&*before, &*own);
        set_hook(Box::new(move |info| note(info, &*before, is_own)));
    });
}

type Hook = dyn Fn(&PanicHookInfo<'_>) + Send + Sync;

/// Whether both are one function. Both are std's boxes: so those of std's own hook have no bytes,
/// and one table. A hook that is taken for another one than it is only has its message written
/// twice.
fn is_same(one: &Hook, other: &Hook) -> bool {
    std::ptr::eq(one, other)
}

/// The hook: notes the panic, and calls the hook that was set before.
fn note(info: &PanicHookInfo<'_>, before: &Hook, is_own: bool) {
    let on_core = has_host();
    // Where panics abort, this is the last that is heard of it.
    let may_wait = !on_core || cfg!(panic = "abort");
    let writes = !is_own || may_wait || stderr_is_ready();
    if writes {
        before(info);
    }
    if !on_core && !NOTES.try_with(Cell::get).unwrap_or(false) {
        return;
    }
    let note = Note {
        location: info.location().map(ToString::to_string),
        message: info.payload_as_str().map(str::to_owned),
        is_written: is_own && writes,
    };
    // Else the thread is about to end.
    let _ended = NOTED.try_with(|noted| noted.set(Some(note)));
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

/// A panic that was caught to go on elsewhere, with its note.
pub(crate) struct Caught {
    payload: Box<dyn Any + Send>,
    note: Option<Note>,
}

impl Caught {
    /// Runs code of the user's, on any thread.
    pub(crate) fn catching<R>(run: impl FnOnce() -> R) -> Result<R, Caught> {
        let before = NOTES.replace(true);
        let result = catching(run);
        NOTES.set(before);
        result.map_err(|payload| Caught {
            payload,
            note: take_note(),
        })
    }

    /// Goes on, on this thread.
    pub(crate) fn resume(self) -> ! {
        NOTED.set(self.note);
        resume_unwind(self.payload)
    }
}

/// Code of the user's, piece by piece: each piece runs also if one before it has panicked. The
/// first panic goes on at the end.
#[derive(Default)]
pub(crate) struct InTurn(Option<Caught>);

impl InTurn {
    pub(crate) fn run<R>(&mut self, run: impl FnOnce() -> R) -> Option<R> {
        match catching(run) {
            Ok(result) => Some(result),
            Err(payload) => {
                self.caught(payload);
                None
            }
        }
    }

    #[cold]
    fn caught(&mut self, payload: Box<dyn Any + Send>) {
        let note = take_note();
        if self.0.is_none() {
            self.0 = Some(Caught { payload, note });
        } else {
            discard_payload(payload);
        }
    }

    pub(crate) fn has_panicked(&self) -> bool {
        self.0.is_some()
    }

    /// Resumes the first panic, if there was one.
    pub(crate) fn end(self) {
        if let Some(first) = self.0 {
            first.resume();
        }
    }

    /// The payload of the first panic.
    pub(crate) fn into_payload(self) -> Option<Box<dyn Any + Send>> {
        self.0.map(|first| first.payload)
    }

    /// The first panic.
    pub(crate) fn into_caught(self) -> Option<Caught> {
        self.0
    }
}

/// What is said of a payload that is no text.
const NOT_TEXT: &str = "(not text)";

/// What a panic says, if it is text.
pub(crate) fn message_of(payload: Box<dyn Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => match payload.downcast::<&'static str>() {
            Ok(text) => (*text).to_owned(),
            Err(payload) => {
                discard_payload(payload);
                NOT_TEXT.to_owned()
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

/// A value of the user's that is dropped later than its owner, as by an event of its color. If a
/// panic has taken the owner, the value is dropped while a panic unwinds, too. So a stream in it
/// resets its connection, and a handle in it that cancels on drop cancels as by a panic.
pub(crate) struct LateDrop<T> {
    value: Option<T>,
    after_panic: bool,
}

impl<T> LateDrop<T> {
    pub(crate) fn new(value: T, after_panic: bool) -> LateDrop<T> {
        LateDrop {
            value: Some(value),
            after_panic,
        }
    }

    /// The owner is dropped now.
    pub(crate) fn of_owner(value: T) -> LateDrop<T> {
        LateDrop::new(value, panicking())
    }
}

impl<T> Drop for LateDrop<T> {
    fn drop(&mut self) {
        let Some(value) = self.value.take() else {
            return;
        };
        if panicking() {
            return drop_unwinding(value);
        }
        if !self.after_panic || cfg!(loom) {
            return drop(value);
        }
        let mut drops = InTurn::default();
        // The panic is past. This one stands for it: no hook hears of it, and it ends here.
        let _unwound = catching(|| {
            let mut value = Some(value);
            let _unwinding = OnDrop(|| {
                drops.run(|| drop(value.take()));
            });
            resume_unwind(Box::new(()))
        });
        drops.end();
    }
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Drops a value of the user's while a panic unwinds. That panic stays the one that is reported.
pub(crate) fn drop_unwinding<T>(value: T) {
    let note = take_note();
    if let Err(another) = catching(|| drop(value)) {
        discard_payload(another);
    }
    NOTED.set(note);
}

/// The running event has panicked.
#[cold]
pub(crate) fn caught(cx: &mut Cx, payload: Box<dyn Any + Send>) {
    // First: to drop the payload is to run code of the user's.
    let note = take_note();
    let message = message_of(payload);
    let note = note.filter(|note| note.is_of(&message));
    let is_written = note.as_ref().is_some_and(|note| note.is_written);
    let report = PanicReport {
        handler: cx.handler(),
        color: cx.color(),
        core: cx.core(),
        location: note.and_then(|note| note.location),
        message,
    };
    cx.worker().core.count_panic();
    cx.end_event();
    let inner = cx.worker().inner.clone();
    inner.panicked(report, is_written);
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
