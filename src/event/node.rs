//! An event in memory: one cache line with its closure in it.
//!
//! ```text
//! 0        8        16       24       28       32    36    40            64
//! | next   | link   | color  | tag    | count  |   times   | closure     |
//! ```
//!
//! A closure of up to three words lives in the node; a larger one is boxed and the node holds the
//! box. Nodes come from per-core pools ([`super::pool`]) and are type-stable: a node's memory stays
//! a node until the runtime is gone.
//!
//! Who may touch a node: whoever holds it. That is, in turn, the poster that made it, the color's
//! mailbox (nobody), and whoever owns the private part of the color ([`crate::sched::slots`]).

use super::tag::{ProfileId, Tag};
use super::times::{Times, Totals};
use crate::sync::{CellMut, UnsafeCell};
use crate::{Color, Cx};
use std::mem::{MaybeUninit, align_of, size_of};
use std::ptr::NonNull;

/// Words of closure that fit into a node.
const INLINE_WORDS: usize = 3;

/// An event. See the module text for the layout.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Node {
    header: UnsafeCell<Header>,
    payload: UnsafeCell<Payload>,
}

type Payload = MaybeUninit<[usize; INLINE_WORDS]>;

/// Everything of an event but its closure.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Header {
    /// The next event of the same color-queue or chunk; in a mailbox, a chunk's last node points
    /// back to its first.
    pub(crate) next: *mut Node,
    /// Used in a chunk, and in a mailbox: see [`crate::sched::mail`].
    pub(crate) link: Link,
    /// The color's value.
    pub(crate) color: u64,
    pub(crate) tag: Tag,
    /// On the first node of a chunk of several: events in the chunk.
    pub(crate) count: u32,
    /// What this event adds to its color's time-left: set when posted, and exactly this is
    /// subtracted when it leaves, although estimates change in between.
    pub(crate) times: Times,
}

/// What a node is linked by, or what it sums, besides its place in a FIFO.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union Link {
    /// In a mailbox, on a chunk's last node: the last node of the chunk pushed before, or null.
    pub(crate) older: *mut Node,
    /// On the first node of a chunk of several: the chunk's summed times.
    pub(crate) sums: Times,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Link")
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Node>() == 64);

impl Node {
    pub(crate) fn new() -> Node {
        Node {
            header: UnsafeCell::new(Header {
                next: std::ptr::null_mut(),
                link: Link {
                    older: std::ptr::null_mut(),
                },
                color: 0,
                tag: Tag::NONE,
                count: 0,
                times: Times::ZERO,
            }),
            payload: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// The header, exclusively.
    ///
    /// # Safety
    /// The caller holds the node (module text) and has no other borrow of its header.
    #[inline(always)]
    pub(crate) unsafe fn header<'a>(node: *mut Node) -> CellMut<'a, Header> {
        // SAFETY: nodes are type-stable, so the pointer is valid; exclusivity is the caller's.
        unsafe { (*node).header.borrow_mut() }
    }

    /// The color of the event.
    ///
    /// # Safety
    /// As for [`header`](Self::header).
    pub(crate) unsafe fn color(node: NonNull<Node>) -> Color {
        // SAFETY: the caller's promise.
        let header = unsafe { Node::header(node.as_ptr()) };
        Color::of_kind(header.tag.kind(), header.color)
    }

    /// The number and summed times of the chunk from `first` to `last`.
    ///
    /// # Safety
    /// The caller holds the chunk and has no other borrow of its first header.
    #[inline(always)]
    pub(crate) unsafe fn totals(first: *mut Node, last: *mut Node) -> Totals {
        // SAFETY: the caller's promise.
        let header = unsafe { Node::header(first) };
        if first == last {
            return Totals {
                count: 1,
                times: header.times,
            };
        }
        // SAFETY: the first node of a chunk of several holds the sums.
        let times = unsafe { header.link.sums };
        Totals {
            count: header.count,
            times,
        }
    }

    /// Moves `f` into the node.
    ///
    /// # Safety
    /// The caller holds the node and it holds no closure.
    #[inline(always)]
    unsafe fn put<F>(node: NonNull<Node>, f: F) {
        // SAFETY: valid and exclusive as the caller promises.
        let mut payload = unsafe { node.as_ref().payload.borrow_mut() };
        let place = payload.as_mut_ptr();
        if const { fits::<F>() } {
            // SAFETY: `fits` says that size and alignment suffice.
            unsafe { place.cast::<F>().write(f) }
        } else {
            // SAFETY: a thin box is one word.
            unsafe { place.cast::<*mut F>().write(Box::into_raw(Box::new(f))) }
        }
    }

    /// Moves the closure out of the node.
    ///
    /// # Safety
    /// The caller holds the node and it holds an `F` that `put` moved in.
    #[inline(always)]
    unsafe fn take<F>(node: NonNull<Node>) -> F {
        // SAFETY: valid and exclusive as the caller promises.
        let mut payload = unsafe { node.as_ref().payload.borrow_mut() };
        let place = payload.as_mut_ptr();
        if const { fits::<F>() } {
            // SAFETY: written by `put::<F>`, and read once as the caller promises.
            unsafe { place.cast::<F>().read() }
        } else {
            // SAFETY: as above; the box was made by `put::<F>`.
            unsafe { *Box::from_raw(place.cast::<*mut F>().read()) }
        }
    }
}

const fn fits<F>() -> bool {
    size_of::<F>() <= size_of::<Payload>() && align_of::<F>() <= align_of::<usize>()
}

/// What the scheduler knows of a closure type: how to run and to drop it, and its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vtable {
    /// Takes the closure out, gives the node back to the running core's pool, runs the closure.
    pub(crate) run: unsafe fn(NonNull<Node>, &mut Cx),
    /// Takes the closure out and drops it. The node stays the caller's.
    pub(crate) discard: unsafe fn(NonNull<Node>),
    pub(crate) type_name: fn() -> &'static str,
}

/// The vtable of `F`, at an address that serves as the key of `F`'s profile.
pub(crate) struct VtableOf<F>(std::marker::PhantomData<F>);

impl<F: FnOnce(&mut Cx) + Send + 'static> VtableOf<F> {
    pub(crate) const VTABLE: &'static Vtable = &Vtable {
        run: run::<F>,
        discard: discard::<F>,
        type_name: std::any::type_name::<F>,
    };

    /// The same for an event in a reserved node ([`super::pool`]).
    pub(crate) const RESERVED: &'static Vtable = &Vtable {
        run: run_reserved::<F>,
        ..*Self::VTABLE
    };
}

/// # Safety
/// The caller holds the node, which holds an `F`; both pass to this function.
unsafe fn run<F: FnOnce(&mut Cx)>(node: NonNull<Node>, cx: &mut Cx) {
    // SAFETY: the caller's promise. The node is free before the closure runs, so that the closure's
    // own first post finds it in the cache.
    let f = unsafe { Node::take::<F>(node) };
    cx.worker().core.free(node);
    f(cx);
}

/// # Safety
/// The caller holds the node, which is a reserved one and holds an `F`; both pass to this function.
unsafe fn run_reserved<F: FnOnce(&mut Cx)>(node: NonNull<Node>, cx: &mut Cx) {
    // SAFETY: the caller's promise.
    let f = unsafe { Node::take::<F>(node) };
    cx.worker().core.retire(node);
    f(cx);
}

/// # Safety
/// The caller holds the node, which holds an `F`; the closure passes to this function.
unsafe fn discard<F>(node: NonNull<Node>) {
    // SAFETY: the caller's promise.
    drop(unsafe { Node::take::<F>(node) });
}

/// Fills a node.
///
/// # Safety
/// The caller holds the node and it holds no closure.
#[inline(always)]
pub(crate) unsafe fn fill<F>(
    node: NonNull<Node>,
    color: Color,
    profile: ProfileId,
    times: Times,
    f: F,
) {
    {
        // SAFETY: held by the caller.
        let mut header = unsafe { Node::header(node.as_ptr()) };
        header.color = color.value();
        header.tag = Tag::new(profile, color.kind());
        header.times = times;
    }
    // SAFETY: held by the caller and empty.
    unsafe { Node::put(node, f) };
}
