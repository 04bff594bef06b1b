//! Posts in a row: when what a long event posts may wait for the next post.
//!
//! What a long event posts is published at once, post by post, because it might go on for long
//! after. That costs several times the post; and since others come for each, it costs the more the
//! more cores there are. Events that are long *because* they post (a broadcast, say) are spared it.
//! If an event takes little time for each post after its first one, and was over soon after its
//! last one, its posts are *in a row*. What publishing takes is not counted: it is the others' that
//! come for what is published.
//!
//! A handler owes a number of *lone* posts, which are published by themselves: [`LONE_POSTS`] in
//! the beginning. Each post in a row is one less. What it posts beyond that may wait for the next
//! posts of the same event, until there are [`ROW_MAX`] or the event is over. If it does go on for
//! long after, what it has posted has waited. Then it owes as many as that event has posted, twice,
//! and [`LONE_POSTS`] more: so one that always ends like this is published post by post.

use super::outbox::OUTBOX_MAX;
use crate::event::profile::LONE_POSTS;

/// Colors whose posts in a row are published together. To publish to a color of a core that is far
/// takes up to a microsecond, and cores that sleep are rung after the last of them.
pub(super) const ROW_MAX: usize = if cfg!(loom) { OUTBOX_MAX } else { 64 };
/// Time allowed for each post, in ns.
const POST_NS: u64 = 100;
/// Time allowed on top, once an event, in ns.
const POSTS_NS: u64 = 1_000;
/// Time allowed after the last publishing, in ns, if its posts did not take longer: what the posts
/// to one color take that are published together.
const TAIL_NS: u64 = POSTS_NS + OUTBOX_MAX as u64 * POST_NS;

const LONE_POSTS_MAX: u64 = 1 << 20;

/// What a long event has posted since its first post was published.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
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
    pub(super) fn begin(now_ns: u64, posted: u64, lone: u32) -> Row {
        Row {
            posted,
            lone: lone.into(),
            own_ns: 0,
            published_ns: now_ns,
        }
    }

    /// Further posts were published.
    pub(super) fn publish(&mut self, began_ns: u64, now_ns: u64) {
        self.own_ns += began_ns - self.published_ns;
        self.published_ns = now_ns;
    }

    /// Whether its next posts may wait for each other. `posted`: by the core, up to now.
    pub(super) fn may_wait(&self, posted: u64) -> bool {
        posted - self.posted >= self.lone && !self.is_slow(posted, 0)
    }

    /// The event is over: the lone posts that its handler owes now.
    pub(super) fn end(self, now_ns: u64, posted: u64) -> u32 {
        let posts = posted - self.posted;
        let tail_ns = now_ns - self.published_ns;
        let owed = if tail_ns > TAIL_NS.max(self.own_ns) || self.is_slow(posted, tail_ns) {
            (u64::from(LONE_POSTS) + 2 * posts).min(LONE_POSTS_MAX)
        } else {
            self.lone.saturating_sub(posts)
        };
        owed as u32
    }

    fn is_slow(&self, posted: u64, tail_ns: u64) -> bool {
        self.own_ns + tail_ns > POSTS_NS + (posted - self.posted) * POST_NS
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// An event that owes `lone`, posts `posts` in `own_ns` after its first one, publishes them at
    /// once, which takes a long time, and goes on for `tail_ns`.
    fn owed(lone: u32, posts: u64, own_ns: u64, tail_ns: u64) -> u32 {
        let mut row = Row::begin(1_000_000, 7, lone);
        let began_ns = 1_000_000 + own_ns;
        row.publish(began_ns, began_ns + 5_000_000);
        row.end(began_ns + 5_000_000 + tail_ns, 7 + posts)
    }

    #[test]
    fn posts_in_a_row_are_owed_no_longer() {
        assert_eq!(owed(LONE_POSTS, 10, 0, 0), 54);
        assert_eq!(owed(54, 54, 0, 0), 0);
        assert_eq!(owed(0, 1_000, 0, 0), 0);
        assert_eq!(owed(LONE_POSTS, 0, 0, 1_000), 64);
        // At most 100 ns each, and 1,000.
        assert_eq!(owed(20, 10, 2_000, 0), 10);
        assert_eq!(owed(20, 10, 0, 2_000), 10);
        assert_eq!(owed(20, 10, 1_000, 1_000), 10);
    }

    #[test]
    fn who_goes_on_for_long_owes_more_than_the_next_event_posts() {
        assert_eq!(owed(20, 10, 2_001, 0), 84);
        assert_eq!(owed(0, 10, 1_001, 1_000), 84);
        assert_eq!(owed(0, 0, 0, 1_001), 64);
        // However fast it was before.
        assert_eq!(owed(0, 1_000, 0, 26_600), 0);
        assert_eq!(owed(0, 1_000, 0, 26_601), 2_064);
        assert_eq!(owed(0, 1_000, 30_000, 30_000), 0);
        assert_eq!(owed(0, 1_000, 30_000, 30_001), 2_064);
        assert_eq!(owed(2_064, 1_000, 0, 26_601), 2_064);
        assert_eq!(owed(0, 1 << 30, 0, 1 << 40), 1 << 20);
    }

    #[test]
    fn posts_wait_for_each_other_beyond_the_lone_ones() {
        let mut row = Row::begin(500, 7, 3);
        assert_eq!(
            [7, 9, 10, 1_000].map(|posted| row.may_wait(posted)),
            [false, false, true, true]
        );
        row.publish(500 + 1_300, 9_000);
        assert!(row.may_wait(10));
        // Not while they are slow.
        row.publish(9_001, 10_000);
        assert!(!row.may_wait(10) && row.may_wait(11));
        assert!(Row::begin(500, 7, 0).may_wait(7));
    }
}
