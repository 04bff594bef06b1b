//! What an event says of itself: the profile it counts under, the kind of its color, and, if it is
//! recorded, its post.
//!
//! ```text
//! | kind: 2 bits | post: 15 | reserved: 1 | profile: 14 |
//! ```
//!
//! The number of a profile may have that of a post above it: whoever makes an event of the profile
//! gives it the post by that.

use crate::color::ColorKind;
use crate::record::Cause;

/// The number of profiles a runtime keeps. Reached only by a program that makes handlers at run
/// time without end; further closures are boxed and share the profile [`ProfileId::OVERFLOW`].
pub(crate) const PROFILES_MAX: usize = if cfg!(any(loom, miri)) { 64 } else { 1 << 14 };
const _: () = assert!(PROFILES_MAX.is_power_of_two());

/// One of the runtime's profiles ([`super::profile::Profiles`]); as an event is made of it, with
/// the post that the event is of, if that is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProfileId(u32);

impl ProfileId {
    /// That of closures that found no profile left.
    pub(crate) const OVERFLOW: ProfileId = ProfileId(0);
    /// The same for events that pass gates ([`crate::gate`]).
    pub(crate) const OVERFLOW_PASSING: ProfileId = ProfileId(1);
    /// The first of a handler's own.
    pub(crate) const FIRST: usize = 2;
    /// Of an event in a reserved node ([`super::pool`]).
    const RESERVED: u32 = PROFILES_MAX as u32;

    /// The profile at this place of the table; none beyond it.
    pub(crate) const fn new(index: usize) -> Option<ProfileId> {
        if index < PROFILES_MAX {
            Some(ProfileId(index as u32))
        } else {
            None
        }
    }

    /// The same, for an event of this post.
    pub(super) fn caused_by(self, cause: Cause) -> ProfileId {
        ProfileId(self.0 | cause.bits() << Tag::CAUSE_SHIFT)
    }

    /// The same, for an event in a reserved node.
    pub(super) fn reserved(self) -> ProfileId {
        ProfileId(self.0 | ProfileId::RESERVED)
    }

    pub(super) fn is_reserved(self) -> bool {
        self.0 & ProfileId::RESERVED != 0
    }

    /// The profile's number. Masked, so that nothing is left to check.
    #[inline(always)]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize % PROFILES_MAX
    }

    /// Its place in the table, in which events in reserved nodes have an entry of their own.
    #[inline(always)]
    pub(super) const fn entry(self) -> usize {
        self.0 as usize % (2 * PROFILES_MAX)
    }
}

/// The profile, the post, and the kind of the color, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(u32);

impl Tag {
    const KIND_SHIFT: u32 = u32::BITS - ColorKind::BITS;
    const CAUSE_SHIFT: u32 = Tag::KIND_SHIFT - Cause::BITS;
    /// Of no event: no color is of this kind.
    pub(crate) const NONE: Tag = Tag(3 << Tag::KIND_SHIFT);

    #[inline(always)]
    pub(crate) fn new(profile: ProfileId, kind: ColorKind) -> Tag {
        Tag(profile.0 | kind.bits() << Tag::KIND_SHIFT)
    }

    /// The profile; of [`Tag::NONE`] it is [`ProfileId::OVERFLOW`].
    #[inline(always)]
    pub(crate) fn profile(self) -> ProfileId {
        ProfileId(self.0 % PROFILES_MAX as u32)
    }

    /// The profile's [entry](ProfileId::entry).
    #[inline(always)]
    pub(super) fn entry(self) -> usize {
        ProfileId(self.0).entry()
    }

    #[inline(always)]
    pub(crate) fn kind(self) -> ColorKind {
        ColorKind::from_bits(self.0 >> Tag::KIND_SHIFT)
    }

    /// The post, if it was recorded.
    pub(crate) fn cause(self) -> Cause {
        Cause::from_bits(self.0 >> Tag::CAUSE_SHIFT)
    }
}

const _: () = assert!(2 * PROFILES_MAX <= 1 << Tag::CAUSE_SHIFT);
