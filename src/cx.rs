//! The handler context, as a type, and how the runtime reaches what is behind one.
//!
//! A context stands for a *host*: what runs events on a thread. What that is, and what a context
//! can do, is the runtime's to say ([`Behind`]): the scheduler only hands the context to events.
//! Code without a context reaches the thread's host by [`lend_current`], and code inside a future
//! reaches the context by [`Cx::with_lent`].
//!
//! # Why that is sound
//!
//! A [`Host`] is an address and not a reference, so that a user's `&mut Cx` does not claim the host
//! exclusively: a poster used inside the handler goes to the same host.
//!
//! 1. *Valid.* [`Cx::with`] makes the address, of a host that it has borrowed until it returns.
//!    Copies of the address are in contexts, which nobody can keep after the call they are lent to,
//!    and in [`HERE`]. Only `with`, and calls inside of it, write to `HERE`, and each writes back
//!    what it found when it ends ([`Restore`]). A run on a machine leaves such calls in the middle,
//!    for those of other cores on the same thread, which must not find what is not theirs: so
//!    `outside` empties `HERE` for as long.
//! 2. *Of that type.* There is one type that is [`Behind`] contexts.
//! 3. *On its thread.* A context is neither `Send` nor `Sync`, and `HERE` is the thread's.
//! 4. *Exclusive.* A borrow of a host lives for one call into the runtime, and no such call runs
//!    user code, which might call again, while the borrow lives. That is for the runtime to keep,
//!    wherever it borrows its host: the compiler cannot see two borrows by two ways.
//! 5. *One context an event.* Who has `&mut Cx` has the event's only one; [`crate::in_color`] goes
//!    by that. [`Cx::lend_while`] borrows the event's own for as long as a second may stand for it.
//!    [`Cx::with_lent`] makes that second one, of an address that it takes out of `HERE` and puts
//!    back at its end: whoever asks in between finds nothing.

use crate::sync::thread_local;
use std::cell::Cell;
use std::ptr::NonNull;

/// What a handler can do: post events, ask where it is, open connections, stop the runtime.
///
/// A context belongs to the core that runs the handler and does not leave it: it is neither `Send`
/// nor `Sync`. To post from elsewhere take a [`Poster`](crate::Poster) along. Nor is it `Sized`, so
/// that nobody can put another core's in its place:
///
/// ```compile_fail,E0277
/// fn exchange(one: &mut mely::Cx, other: &mut mely::Cx) {
///     std::mem::swap(one, other);
/// }
/// ```
#[repr(C)]
pub struct Cx {
    host: Host,
    _unsized: [()],
}

/// What is behind a context.
///
/// # Safety
/// There is one such type, as which whoever looks behind a context takes what is there.
pub(crate) unsafe trait Behind {}

/// Where the host behind a context is; see the module text.
#[derive(Clone, Copy)]
#[repr(C)]
struct Host(NonNull<()>);

impl Host {
    /// Calls `f` with a context of this host.
    #[inline(always)]
    fn with_cx<R>(mut self, f: impl FnOnce(&mut Cx) -> R) -> R {
        let cx = std::ptr::slice_from_raw_parts_mut(&raw mut self, 0) as *mut Cx;
        // SAFETY: a `Cx` with no elements is laid out as a `Host`, and this one is borrowed for the
        // call.
        f(unsafe { &mut *cx })
    }

    #[inline(always)]
    fn reach<H: Behind>(&self) -> &H {
        // SAFETY: valid, an `H`, on its thread and not borrowed exclusively, by the module text.
        unsafe { self.0.cast().as_ref() }
    }

    #[inline(always)]
    fn reach_mut<H: Behind>(&mut self) -> &mut H {
        // SAFETY: valid, an `H`, on its thread and not borrowed otherwise, by the module text.
        unsafe { self.0.cast().as_mut() }
    }
}

impl Cx {
    /// Calls `f` with a context of this host, which is this thread's for the time.
    pub(crate) fn with<H: Behind, R>(host: &mut H, f: impl FnOnce(&mut Cx) -> R) -> R {
        let host = Host(NonNull::from(host).cast());
        let here = Here {
            current: Some(host),
            lent: None,
        };
        Here::change(|_| here, || host.with_cx(f))
    }

    /// What was given to [`with`](Self::with), for one call into the runtime that runs no user
    /// code.
    #[inline(always)]
    pub(crate) fn behind_mut<H: Behind>(&mut self) -> &mut H {
        self.host.reach_mut()
    }

    /// As [`behind_mut`](Self::behind_mut), to look at.
    #[inline(always)]
    pub(crate) fn behind<H: Behind>(&self) -> &H {
        self.host.reach()
    }

    /// Calls `f`, which runs no user code, with what is behind a context that is shared.
    #[inline(always)]
    pub(crate) fn lend_behind<H: Behind, R>(&self, f: impl FnOnce(&mut H) -> R) -> R {
        let mut host = self.host;
        f(host.reach_mut())
    }

    /// Calls `poll`, inside of which [`with_lent`](Self::with_lent) finds this context.
    pub(crate) fn lend_while<R>(&mut self, poll: impl FnOnce() -> R) -> R {
        let lent = Some(self.host);
        Here::change(|here| Here { lent, ..here }, poll)
    }

    /// Calls `f` with the context that is lent to what this thread polls, unless `f` of another
    /// call has it.
    pub(crate) fn with_lent<R>(f: impl FnOnce(&mut Cx) -> R) -> Option<R> {
        // No `HERE`: the thread is about to end.
        let host = HERE.try_with(|here| here.get().lent).ok().flatten()?;
        let taken = |here| Here { lent: None, ..here };
        Some(Here::change(taken, || host.with_cx(f)))
    }
}

/// What code on this thread can reach without having been given a context.
#[derive(Clone, Copy)]
struct Here {
    /// The host that has this thread.
    current: Option<Host>,
    /// The host of the context that is lent to what is polled, while nobody has that context.
    lent: Option<Host>,
}

#[cfg(not(loom))]
thread_local! {
    static HERE: Cell<Here> = const { Cell::new(Here::NOTHING) };
}
// Loom's macro has no constant initializers.
#[cfg(loom)]
thread_local! {
    static HERE: Cell<Here> = Cell::new(Here::NOTHING);
}

impl Here {
    const NOTHING: Here = Here {
        current: None,
        lent: None,
    };

    /// Calls `f`, inside of which something else can be reached.
    #[inline(always)]
    fn change<R>(change: impl FnOnce(Here) -> Here, f: impl FnOnce() -> R) -> R {
        let _restore = HERE.with(|here| {
            let before = here.get();
            here.set(change(before));
            Restore(before)
        });
        f()
    }
}

/// What could be reached before. Put back also by a panic (of a hook, say): what is dropped after
/// it on this thread may post, and must not find a host that is gone.
struct Restore(Here);

impl Drop for Restore {
    fn drop(&mut self) {
        HERE.with(|here| here.set(self.0));
    }
}

/// Calls `f`, which runs no user code, with this thread's host; without one, gives `with` back.
#[inline(always)]
pub(crate) fn lend_current<H: Behind, A, R>(
    with: A,
    f: impl FnOnce(&mut H, A) -> Result<R, A>,
) -> Result<R, A> {
    // No `HERE`: the thread is about to end.
    match HERE.try_with(|here| here.get().current) {
        Ok(Some(mut host)) => f(host.reach_mut(), with),
        _ => Err(with),
    }
}

/// Whether this thread has a host: runs events, or what belongs to that.
#[cfg_attr(loom, allow(dead_code))]
pub(crate) fn has_host() -> bool {
    // No `HERE`: the thread is about to end.
    HERE.try_with(|here| here.get().current.is_some())
        .unwrap_or(false)
}

/// Runs `f` as if this thread had no host.
#[cfg(feature = "sim")]
pub(crate) fn outside<R>(f: impl FnOnce() -> R) -> R {
    Here::change(|_| Here::NOTHING, f)
}
