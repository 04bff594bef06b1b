//! Posts in a row: when what a long event posts may wait for the next post.
//!
//! What a long event posts is published at once, post by post, because it might go on for long
//! after. That costs several times the post; and since others come for each, it costs the more the
//! more cores there are. Events that are long *because* they post (a broadcast, say) are spared it.
//! If an event takes little time for each post after its first one, and was over soon after its
//! last one, its posts are *in a row*. What publishing takes is not counted: it is the others' that
//! come for what is published.
//!
//! A handler owes a number of *lone* posts, which are published by themselves: [`TRIAL_EVENTS`] in
//! the beginning. Each post in a row is one less. What it posts beyond that may wait for the next
//! posts of the same event, until the outbox is full or the event is over. If it does go on for
//! long after, what it has posted has waited. Then it owes as many as that event has posted, twice,
//! and [`TRIAL_EVENTS`] more: so one that always ends like this is published post by post.

use super::numbers::{EVENT_NS, STEAL_NS, TRIAL_EVENTS};

/// What a long event has posted since its first post was published.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// Events that the core had posted by then.
    posted: u64,
    /// Lone posts that its handler owed.
    lone: u64,
    /// What it took since, up to the last publishing and without that.
    own_ns: u64,
    /// When something was published last.
    published_ns: u64,
}

impl Row {
    /// The first post was published just now. `posted`: by the core, that one included.
    pub(crate) fn begin(now_ns: u64, posted: u64, lone: u32) -> Row {
        Row {
            posted,
            lone: lone.into(),
            own_ns: 0,
            published_ns: now_ns,
        }
    }

    /// Further posts were published.
    pub(crate) fn publish(&mut self, began_ns: u64, now_ns: u64) {
        self.own_ns += began_ns - self.published_ns;
        self.published_ns = now_ns;
    }

    /// Whether its next posts may wait for each other. `posted`: by the core, up to now.
    pub(crate) fn may_wait(&self, posted: u64) -> bool {
        posted - self.posted >= self.lone && !self.is_slow(posted, 0)
    }

    /// The event is over: the lone posts that its handler owes now. After the last publishing it
    /// may have taken what its other posts took, or what the posts to one color take that are
    /// published together, which are `together` at most.
    pub(crate) fn end(self, now_ns: u64, posted: u64, together: usize) -> u32 {
        let posts = posted - self.posted;
        let tail_ns = now_ns - self.published_ns;
        let together_ns = allowed_ns(together as u64);
        let owed = if tail_ns > together_ns.max(self.own_ns) || self.is_slow(posted, tail_ns) {
            u64::from(TRIAL_EVENTS) + 2 * posts
        } else {
            self.lone.saturating_sub(posts)
        };
        u32::try_from(owed).unwrap_or(u32::MAX)
    }

    fn is_slow(&self, posted: u64, tail_ns: u64) -> bool {
        self.own_ns + tail_ns > allowed_ns(posted - self.posted)
    }
}

/// What posts in a row may take.
fn allowed_ns(posts: u64) -> u64 {
    u64::from(STEAL_NS) + posts * u64::from(EVENT_NS)
}
