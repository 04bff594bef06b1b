//! How an event is run and dropped, for each closure type: what is known of it at run time.

use super::node::{Event, InPlace, Sort, Stored, is_boxed};
use super::pool::Pool;
use crate::Cx;
use std::marker::PhantomData;

/// A context, which has the pool of the thread that runs its events. The layer above that has
/// threads says where, so that the call costs an event nothing.
pub(crate) trait HasPool {
    /// The pool, for one call that runs no user code.
    fn pool(&mut self) -> &mut Pool;
}

/// What the scheduler knows of a closure type: how to run and to drop it, and its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vtable {
    /// Takes the closure, or its box, out, gives the node back to the running thread's pool, runs
    /// the closure.
    /// To be called with an event whose profile has this vtable.
    pub(crate) run: unsafe fn(Event, &mut Cx),
    /// The same if the node is reserved: it goes back to the reserve.
    pub(crate) run_reserved: unsafe fn(Event, &mut Cx),
    /// Takes the closure out and drops it; with the same event.
    pub(crate) discard: unsafe fn(Event),
    pub(crate) type_name: fn() -> &'static str,
    /// Whether these closures are boxed.
    pub(crate) is_boxed: bool,
    /// Whether these events pass gates ([`crate::gate`]).
    pub(crate) passes: bool,
}

/// The vtable of `F`, at an address that serves as the key of `F`'s profile.
pub(crate) struct VtableOf<F>(PhantomData<F>);

impl<F: FnOnce(&mut Cx) + Send + 'static> VtableOf<F> {
    const VTABLE: &'static Vtable = &Self::vtable(false);
    const PASSING: &'static Vtable = &Self::vtable(true);

    /// That of events of this sort.
    #[inline(always)]
    pub(crate) const fn of(sort: Sort) -> &'static Vtable {
        match sort.passes {
            false => Self::VTABLE,
            true => Self::PASSING,
        }
    }

    const fn vtable(passes: bool) -> Vtable {
        if is_boxed::<F>() {
            Self::stored::<Box<F>>(passes)
        } else {
            Self::stored::<InPlace<F>>(passes)
        }
    }

    const fn stored<S: Stored<F>>(passes: bool) -> Vtable {
        Vtable {
            run: run::<F, S, false>,
            run_reserved: run::<F, S, true>,
            discard: discard::<F, S>,
            type_name: std::any::type_name::<F>,
            is_boxed: is_boxed::<F>(),
            passes,
        }
    }
}

/// # Safety
/// The event was made of an `F`, which lies in its node as an `S`; the node is reserved or not.
unsafe fn run<F: FnOnce(&mut Cx), S: Stored<F>, const RESERVED: bool>(event: Event, cx: &mut Cx) {
    // SAFETY: the caller's promise. The node is free before the closure runs, so that the closure's
    // own first post finds it in the cache.
    let (stored, node) = unsafe { event.take::<S>() };
    let pool = cx.pool();
    if RESERVED {
        pool.depot.retire(node);
    } else {
        pool.free(node);
    }
    stored.call(cx);
}

/// # Safety
/// The event was made of an `F`, which lies in its node as an `S`.
unsafe fn discard<F, S: Stored<F>>(event: Event) {
    // SAFETY: the caller's promise. The node's memory goes with the runtime.
    let (stored, _) = unsafe { event.take::<S>() };
    drop(stored);
}
