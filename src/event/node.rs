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
//! Who may touch a node: whoever owns it, by its [`Owned`]. That is, in turn, a pool, the [`Empty`]
//! it hands out, the [`Event`] that becomes of it, and the chunk or FIFO that the event is moved
//! into ([`super::fifo`]). None of them can be copied.

use super::tag::{ProfileId, Tag};
use super::times::Times;
use crate::sync::{CellMut, UnsafeCell, charge};
use crate::{Color, Cx};
use std::marker::PhantomData;
use std::mem::{MaybeUninit, align_of, size_of};
use std::ptr::NonNull;

/// Everything of an event but its closure.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Header {
    /// The next event of the same color-queue or chunk; in a mailbox, a chunk's last node points
    /// back to its first.
    pub(super) next: *mut Node,
    /// Of a chunk: on its last node, in a mailbox, the last node of the chunk pushed before, or
    /// null; on the first one of several, as an address, the chunk's summed times. Else where to
    /// [jump](super::fifo::JUMP): a node farther behind in the row, or this one.
    pub(super) link: *mut Node,
    /// The color's value.
    color: u64,
    tag: Tag,
    /// On the first node of a chunk of several: events in the chunk.
    pub(super) count: u32,
    /// What this event adds to its color's time-left: set when posted, and exactly this is
    /// subtracted when it leaves, although estimates change in between.
    pub(super) times: Times,
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
    /// Bytes of the largest closure of each.
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
    fn new() -> Node {
        Node {
            header: UnsafeCell::new(Header {
                next: std::ptr::null_mut(),
                link: std::ptr::null_mut(),
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
}

/// Memory of a node with a closure of up to this many words.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct Room<const WORDS: usize> {
    node: Node,
    closure: [MaybeUninit<usize>; WORDS],
}

impl<const WORDS: usize> Room<WORDS> {
    const CLASS: Class = {
        let mut class = 0;
        while Class::CLOSURE_BYTES[class] != WORDS * size_of::<usize>() {
            class += 1;
        }
        assert!(Class(class as u8).node_bytes() == size_of::<Room<WORDS>>());
        Class(class as u8)
    };

    pub(super) fn new() -> Room<WORDS> {
        Room {
            node: Node::new(),
            closure: [MaybeUninit::uninit(); WORDS],
        }
    }
}

/// A node, by whoever owns it. Dropped, the memory is out of use until the runtime is gone.
#[repr(transparent)]
#[derive(Debug)]
#[must_use]
pub(super) struct Owned(NonNull<Node>);

// SAFETY: there is one of a node, and closures in nodes are `Send` (the bound of `Maker::make`).
unsafe impl Send for Owned {}

impl Owned {
    /// # Safety
    /// The caller owns the node, and gives it up.
    #[inline(always)]
    pub(super) unsafe fn from_raw(node: NonNull<Node>) -> Owned {
        Owned(node)
    }

    /// Where it is.
    #[inline(always)]
    pub(super) fn at(&self) -> *mut Node {
        self.0.as_ptr()
    }

    #[inline(always)]
    pub(super) fn header(&mut self) -> CellMut<'_, Header> {
        // SAFETY: owned, and borrowed mutably for as long as its header.
        unsafe { Node::header(self.0.as_ptr()) }
    }

    /// Where what is stored of the closure is.
    #[inline(always)]
    fn closure<S>(&self) -> *mut S {
        self.0.as_ptr().wrapping_add(1).cast()
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
    /// The profile's vtable is one of `F`'s.
    #[inline(always)]
    pub(super) unsafe fn new(id: ProfileId) -> ProfileOf<F> {
        ProfileOf(id, PhantomData)
    }

    #[inline(always)]
    pub(super) fn id(&self) -> ProfileId {
        self.0
    }

    /// The same for an event in a reserved node.
    #[inline(always)]
    pub(super) fn reserved(self) -> ProfileOf<F> {
        ProfileOf(self.0.reserved(), PhantomData)
    }
}

/// A node without a closure.
#[derive(Debug)]
#[must_use]
pub(crate) struct Empty {
    node: Owned,
    class: Class,
}

impl Empty {
    /// A node in this memory.
    pub(super) fn new<const WORDS: usize>(place: &'static mut Room<WORDS>) -> Empty {
        Empty {
            node: Owned(NonNull::from(place).cast()),
            class: Room::<WORDS>::CLASS,
        }
    }

    /// # Safety
    /// The node is of this class.
    #[inline(always)]
    pub(super) unsafe fn of_class(node: Owned, class: Class) -> Empty {
        Empty { node, class }
    }

    pub(super) fn class(&self) -> Class {
        self.class
    }

    /// Where it is.
    #[cfg(all(test, not(loom)))]
    pub(super) fn at(&self) -> *mut Node {
        self.node.at()
    }

    #[inline(always)]
    pub(super) fn into_parts(self) -> (Owned, Class) {
        (self.node, self.class)
    }

    /// What was stored in it means nothing any more. (Its header is one all the time: of a lone
    /// event the link is read too.)
    #[cfg(miri)]
    pub(super) fn forget_content(&self) {
        let words = self.node.closure::<MaybeUninit<u64>>();
        let bytes = self.class.node_bytes() - size_of::<Node>();
        for i in 0..bytes / size_of::<u64>() {
            // SAFETY: owned, and of this size.
            unsafe { words.add(i).write(MaybeUninit::uninit()) };
        }
    }

    /// Makes an event of it, which runs `f`. (A reserved node takes the profile's entry for
    /// reserved nodes, by which it goes back.)
    #[inline(always)]
    pub(super) fn fill<F>(
        mut self,
        color: Color,
        profile: ProfileOf<F>,
        times: Times,
        f: F,
    ) -> Event {
        self.set_header(color, profile.id(), times);
        if const { is_boxed::<F>() } {
            self.store(Box::new(f));
        } else {
            self.store(InPlace(f));
        }
        Event(self.node)
    }

    /// Like [`fill`](Self::fill), with a closure that is boxed, and that is not moved any more.
    pub(super) fn fill_boxed<F>(
        mut self,
        color: Color,
        profile: ProfileOf<F>,
        times: Times,
        f: Box<F>,
    ) -> Event {
        assert!(is_boxed::<F>(), "it is run as what lies in the node");
        self.set_header(color, profile.id(), times);
        self.store(f);
        Event(self.node)
    }

    #[inline(always)]
    fn set_header(&mut self, color: Color, profile: ProfileId, times: Times) {
        let at = self.node.at();
        let mut header = self.node.header();
        header.link = at;
        header.color = color.value();
        header.tag = Tag::new(profile, color.kind());
        header.times = times;
    }

    /// Writes what is to lie in the node.
    #[inline(always)]
    fn store<S>(&mut self, stored: S) {
        assert!(!is_boxed::<S>(), "it would have no room");
        assert!(self.class == Class::of::<S>(), "a node of another class");
        charge::write_bytes(self.node.closure::<S>().cast(), size_of::<S>());
        // SAFETY: owned; the class has room for an `S`, at a multiple of a word.
        unsafe { self.node.closure::<S>().write(stored) };
    }
}

/// What lies in a node of a closure of type `F`.
pub(super) trait Stored<F>: Sized {
    fn call(self, cx: &mut Cx);
}

/// The closure itself.
pub(super) struct InPlace<F>(F);

impl<F: FnOnce(&mut Cx)> Stored<F> for InPlace<F> {
    #[inline(always)]
    fn call(self, cx: &mut Cx) {
        (self.0)(cx);
    }
}

impl<F: FnOnce(&mut Cx)> Stored<F> for Box<F> {
    #[inline(always)]
    fn call(self, cx: &mut Cx) {
        // Called in its box: a closure of known size would be moved to the stack first.
        let f: Box<dyn FnOnce(&mut Cx) + '_> = self;
        f(cx);
    }
}

/// A node with a closure: an event that is in no chunk and in no FIFO. Dropped, its memory and its
/// closure would leak: whoever has one passes it on.
#[derive(Debug)]
#[must_use]
pub(crate) struct Event(Owned);

impl Event {
    /// # Safety
    /// The caller owns the node, which holds a closure, and gives it up.
    #[inline(always)]
    pub(super) unsafe fn from_raw(node: NonNull<Node>) -> Event {
        Event(Owned(node))
    }

    #[inline(always)]
    pub(super) fn into_node(self) -> Owned {
        self.0
    }

    #[inline(always)]
    pub(super) fn header(&mut self) -> CellMut<'_, Header> {
        self.0.header()
    }

    #[inline(always)]
    pub(crate) fn times(&mut self) -> Times {
        self.header().times
    }

    /// The color's value, and the tag.
    #[inline(always)]
    pub(crate) fn color_and_tag(&mut self) -> (u64, Tag) {
        let header = self.header();
        (header.color, header.tag)
    }

    /// Takes the event apart.
    ///
    /// # Safety
    /// An `S` lies in its node.
    #[inline(always)]
    pub(super) unsafe fn take<S>(mut self) -> (S, Empty) {
        // For loom, which sees cells only.
        self.header().end();
        charge::read_bytes(self.0.closure::<S>().cast(), size_of::<S>());
        // SAFETY: written by `store::<S>`, as the caller promises, and read once.
        let stored = unsafe { self.0.closure::<S>().read() };
        let class = Class::of::<S>();
        (
            stored,
            Empty {
                node: self.0,
                class,
            },
        )
    }
}

/// What sort of event a closure becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sort {
    /// It passes gates ([`crate::gate`]).
    pub(crate) passes: bool,
    pub(super) at_limit: AtLimit,
}

/// What becomes of an event at the limit of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtLimit {
    /// It is refused.
    Refused,
    /// It takes a node of the reserve ([`super::pool`]), while that is left to handlers: of posts
    /// that return no `Result`.
    Reserve,
    /// It takes one in any case: a timer's, or one of the runtime's own. A connection that is not
    /// closed, or a closure that is dropped in the wrong place, would cost more than an event.
    Own,
}

impl Sort {
    pub(crate) const ORDINARY: Sort = Sort {
        passes: false,
        at_limit: AtLimit::Refused,
    };

    pub(crate) const PASSING: Sort = Sort {
        passes: true,
        ..Sort::ORDINARY
    };

    pub(crate) const fn at(self, at_limit: AtLimit) -> Sort {
        Sort { at_limit, ..self }
    }
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
