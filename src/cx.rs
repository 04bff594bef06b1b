//! The handler context, as a type. What is behind it, and what it can do, is the runtime's to say:
//! the scheduler only hands it to events.

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
    host: NonNull<()>,
    _unsized: [()],
}

/// What a [`Cx`] is made of.
#[repr(C)]
struct Content {
    host: NonNull<()>,
}

/// What is behind a context.
///
/// # Safety
/// There is one such type, as which whoever looks behind a context takes what is there.
pub(crate) unsafe trait Behind {}

impl Cx {
    /// Calls `f` with a context of this host.
    pub(crate) fn with<H: Behind, R>(host: &mut H, f: impl FnOnce(&mut Cx) -> R) -> R {
        let host = NonNull::from(host).cast();
        let mut content = Content { host };
        let cx = std::ptr::slice_from_raw_parts_mut(&raw mut content, 0) as *mut Cx;
        // SAFETY: a `Cx` with no elements is laid out as a `Content`, and this one is borrowed for
        // the call.
        f(unsafe { &mut *cx })
    }

    /// What was given to [`with`](Self::with).
    #[inline(always)]
    pub(crate) fn host(&self) -> NonNull<()> {
        self.host
    }
}
