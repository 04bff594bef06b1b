//! An event in memory: a header, and its closure behind it.
//!
//! ```text
//! 0        8        16       24       28       32       40
//! | next   | link   | color  | tag    | count  | times  | closure ...
//! ```
//!
//! A node is one, two or four cache lines: its [`Class`] is known at compile time from the type of
//! the closure. A closure that is larger still, or aligned to more than a word, is boxed, and the
//! node holds the box. Nodes come from pools ([`super::pool`]) and are type-stable: a node's memory
//! stays a node of its class until the runtime is gone.
//!
//! Who may touch a node: whoever owns it. That is, in turn, a pool, the [`Empty`] it hands out, the
//! [`Event`] that becomes of it, and the chunk or FIFO that the event is moved into
//! ([`super::fifo`]). None of them can be copied.

use super::tag::{ProfileId, Tag};
use super::times::Times;
use crate::sync::{CellMut, UnsafeCell};
use crate::{Color, Cx};
use std::marker::PhantomData;
use std::mem::{align_of, size_of};
use std::ptr::NonNull;

/// Everything of an event but its closure.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Header {
    /// The next event of the same color-queue or chunk; in a mailbox, a chunk's last node points
    /// back to its first.
    pub(super) next: *mut Node,
    /// Used in a chunk, and in a mailbox: see [`super::fifo`].
    pub(super) link: Link,
    /// The color's value.
    color: u64,
    tag: Tag,
    /// On the first node of a chunk of several: events in the chunk.
    pub(super) count: u32,
    /// What this event adds to its color's time-left: set when posted, and exactly this is
    /// subtracted when it leaves, although estimates change in between.
    pub(super) times: Times,
}

/// What a node is linked by, or what it sums, besides its place in a FIFO.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) union Link {
    /// In a mailbox, on a chunk's last node: the last node of the chunk pushed before, or null.
    pub(super) older: *mut Node,
    /// On the first node of a chunk of several: the chunk's summed times.
    pub(super) sums: Times,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Link")
    }
}

/// The part of a node that all classes have; the closure's memory is behind it.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Node {
    header: UnsafeCell<Header>,
}

/// Most bytes of a closure that is not boxed.
pub(crate) const CLOSURE_BYTES_MAX: usize = 216;

/// How large a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class(u8);

impl Class {
    pub(crate) const COUNT: usize = 3;
    pub(crate) const ALL: [Class; Class::COUNT] = [Class(0), Class(1), Class(2)];
    /// For a closure of up to so many bytes.
    const CLOSURE_BYTES: [usize; Class::COUNT] = [24, 88, CLOSURE_BYTES_MAX];

    /// That of closures of type `F`: the smallest they fit into, or that a box fits into.
    pub(crate) const fn of<F>() -> Class {
        let mut class = 0;
        while class < Class::COUNT {
            if fits::<F>(Class::CLOSURE_BYTES[class]) {
                return Class(class as u8);
            }
            class += 1;
        }
        Class(0)
    }

    #[inline(always)]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// Bytes of a node: whole cache lines.
    pub(crate) const fn node_bytes(self) -> usize {
        (size_of::<Node>() + Class::CLOSURE_BYTES[self.index()]).next_multiple_of(64)
    }
}

const fn fits<F>(bytes: usize) -> bool {
    size_of::<F>() <= bytes && align_of::<F>() <= align_of::<usize>()
}

/// Whether closures of type `F` are boxed.
pub(crate) const fn is_boxed<F>() -> bool {
    !fits::<F>(CLOSURE_BYTES_MAX)
}

#[cfg(not(loom))]
const _: () = {
    assert!(Class::ALL[0].node_bytes() == 64);
    assert!(Class::ALL[1].node_bytes() == 128);
    assert!(Class::ALL[2].node_bytes() == 256);
};
const _: () = assert!(size_of::<Node>().is_multiple_of(align_of::<usize>()));

impl Node {
    pub(super) fn new() -> Node {
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
        }
    }

    /// The header, exclusively.
    ///
    /// # Safety
    /// The caller owns the node (module text) and has no other borrow of its header.
    #[inline(always)]
    pub(super) unsafe fn header<'a>(node: *mut Node) -> CellMut<'a, Header> {
        // SAFETY: nodes are type-stable, so the pointer is valid; exclusivity is the caller's.
        unsafe { (*node).header.borrow_mut() }
    }

    /// Where the closure is, or its box.
    #[inline(always)]
    fn closure<F>(node: NonNull<Node>) -> *mut F {
        node.as_ptr().wrapping_add(1).cast()
    }
}

impl Header {
    #[inline(always)]
    pub(super) fn profile(&self) -> ProfileId {
        self.tag.profile()
    }

    pub(super) fn color(&self) -> Color {
        Color::of_kind(self.tag.kind(), self.color)
    }
}

/// A profile whose vtable is that of `F`: what an event with such a closure is of.
#[derive(Debug)]
pub(crate) struct ProfileOf<F>(ProfileId, PhantomData<fn(F)>);

impl<F> ProfileOf<F> {
    /// # Safety
    /// The profile's vtable is that of `F`, or that of `F` in reserved nodes.
    #[inline(always)]
    pub(super) unsafe fn new(id: ProfileId) -> ProfileOf<F> {
        ProfileOf(id, PhantomData)
    }

    #[inline(always)]
    pub(super) fn id(&self) -> ProfileId {
        self.0
    }
}

/// A node without a closure.
#[derive(Debug)]
#[must_use]
pub(crate) struct Empty {
    node: NonNull<Node>,
    class: Class,
}

impl Empty {
    /// # Safety
    /// The caller owns the node, which is of this class and holds no closure, and gives it up.
    #[inline(always)]
    pub(super) unsafe fn new(node: NonNull<Node>, class: Class) -> Empty {
        Empty { node, class }
    }

    /// Gives the node up; who gets it owns it.
    #[inline(always)]
    pub(super) fn into_parts(self) -> (NonNull<Node>, Class) {
        (self.node, self.class)
    }

    /// What is in it means nothing any more.
    #[cfg(miri)]
    pub(super) fn forget_content(&self) {
        let lines = self.node.cast::<std::mem::MaybeUninit<[u8; 64]>>();
        for i in 0..self.class.node_bytes() / 64 {
            // SAFETY: owned, and of this size.
            unsafe { lines.add(i).write(std::mem::MaybeUninit::uninit()) };
        }
    }

    /// Makes an event of it, which runs `f`. (A reserved node takes a profile of reserved nodes: it
    /// goes back where its profile's vtable says.)
    #[inline(always)]
    pub(super) fn fill<F>(self, color: Color, profile: ProfileOf<F>, times: Times, f: F) -> Event {
        assert!(self.class == Class::of::<F>(), "a node of another class");
        {
            // SAFETY: owned.
            let mut header = unsafe { Node::header(self.node.as_ptr()) };
            header.color = color.value();
            header.tag = Tag::new(profile.id(), color.kind());
            header.times = times;
        }
        if const { is_boxed::<F>() } {
            let boxed = Box::into_raw(Box::new(f));
            // SAFETY: owned, and a thin box is one word.
            unsafe { Node::closure::<*mut F>(self.node).write(boxed) };
        } else {
            // SAFETY: owned; the class has room for an `F`, at a multiple of a word.
            unsafe { Node::closure::<F>(self.node).write(f) };
        }
        Event(self.node)
    }
}

/// A node with a closure: an event that is in no chunk and in no FIFO. Dropped, its memory and its
/// closure would leak: whoever has one passes it on.
#[derive(Debug)]
#[must_use]
pub(crate) struct Event(NonNull<Node>);

impl Event {
    /// # Safety
    /// The caller owns the node, which holds a closure, and gives it up.
    #[inline(always)]
    pub(super) unsafe fn new(node: NonNull<Node>) -> Event {
        Event(node)
    }

    /// Gives the node up; who gets it owns it.
    #[inline(always)]
    pub(super) fn into_node(self) -> NonNull<Node> {
        self.0
    }

    #[inline(always)]
    fn header(&self) -> CellMut<'_, Header> {
        // SAFETY: owned; the callers end the borrow before anything else is done.
        unsafe { Node::header(self.0.as_ptr()) }
    }

    #[inline(always)]
    pub(crate) fn times(&self) -> Times {
        self.header().times
    }

    /// The color's value, and the tag.
    #[inline(always)]
    pub(crate) fn color_and_tag(&self) -> (u64, Tag) {
        let header = self.header();
        (header.color, header.tag)
    }

    /// Takes the event apart.
    ///
    /// # Safety
    /// It was made of an `F`.
    #[inline(always)]
    unsafe fn take<F>(self) -> (F, Empty) {
        // For loom, which sees cells only.
        self.header().end();
        let f = if const { is_boxed::<F>() } {
            // SAFETY: written by `fill::<F>`, as the caller promises, and read once.
            let boxed = unsafe { Node::closure::<*mut F>(self.0).read() };
            // SAFETY: made by `fill`.
            unsafe { *Box::from_raw(boxed) }
        } else {
            // SAFETY: as above.
            unsafe { Node::closure::<F>(self.0).read() }
        };
        let class = Class::of::<F>();
        (
            f,
            Empty {
                node: self.0,
                class,
            },
        )
    }
}

/// What the scheduler knows of a closure type: how to run and to drop it, and its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vtable {
    /// Takes the closure out, gives the node back to the running core's pool, runs the closure.
    /// To be called with an event whose profile has this vtable.
    pub(crate) run: unsafe fn(Event, &mut Cx),
    /// Takes the closure out and drops it; with the same event.
    pub(crate) discard: unsafe fn(Event),
    pub(crate) type_name: fn() -> &'static str,
    /// Whether these closures are boxed.
    pub(crate) is_boxed: bool,
}

/// The vtable of `F`, at an address that serves as the key of `F`'s profile.
pub(crate) struct VtableOf<F>(PhantomData<F>);

impl<F: FnOnce(&mut Cx) + Send + 'static> VtableOf<F> {
    pub(crate) const VTABLE: &'static Vtable = &Vtable {
        run: run::<F>,
        discard: discard::<F>,
        type_name: std::any::type_name::<F>,
        is_boxed: is_boxed::<F>(),
    };

    /// The same for an event in a reserved node ([`super::pool`]).
    pub(crate) const RESERVED: &'static Vtable = &Vtable {
        run: run_reserved::<F>,
        ..*Self::VTABLE
    };
}

/// # Safety
/// The event was made of an `F`.
unsafe fn run<F: FnOnce(&mut Cx)>(event: Event, cx: &mut Cx) {
    // SAFETY: the caller's promise. The node is free before the closure runs, so that the closure's
    // own first post finds it in the cache.
    let (f, node) = unsafe { event.take::<F>() };
    cx.worker().core.free(node);
    f(cx);
}

/// # Safety
/// The event was made of an `F`, in a reserved node.
unsafe fn run_reserved<F: FnOnce(&mut Cx)>(event: Event, cx: &mut Cx) {
    // SAFETY: the caller's promise.
    let (f, node) = unsafe { event.take::<F>() };
    cx.worker().core.retire(node);
    f(cx);
}

/// # Safety
/// The event was made of an `F`.
unsafe fn discard<F>(event: Event) {
    // SAFETY: the caller's promise. The node's memory goes with the runtime.
    drop(unsafe { event.take::<F>() }.0);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_class_is_taken_that_has_room() {
        let of = |bytes| match bytes {
            0 => (Class::of::<()>(), is_boxed::<()>()),
            24 => (Class::of::<[u64; 3]>(), is_boxed::<[u64; 3]>()),
            25 => (Class::of::<[u8; 25]>(), is_boxed::<[u8; 25]>()),
            88 => (Class::of::<[u64; 11]>(), is_boxed::<[u64; 11]>()),
            96 => (Class::of::<[u64; 12]>(), is_boxed::<[u64; 12]>()),
            216 => (Class::of::<[u8; 216]>(), is_boxed::<[u8; 216]>()),
            217 => (Class::of::<[u8; 217]>(), is_boxed::<[u8; 217]>()),
            _ => unreachable!(),
        };
        for (bytes, node_bytes, boxed) in [
            (0, 64, false),
            (24, 64, false),
            (25, 128, false),
            (88, 128, false),
            (96, 256, false),
            (216, 256, false),
            (217, 64, true),
        ] {
            let (class, is_boxed) = of(bytes);
            assert_eq!(
                (class.node_bytes(), is_boxed),
                (node_bytes, boxed),
                "{bytes}"
            );
        }
        #[repr(align(16))]
        struct Aligned;
        assert!(is_boxed::<Aligned>(), "aligned to more than a word");
    }
}
