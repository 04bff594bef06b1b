//! Memory that is asked for before it is needed ([`prefetch`]). A processor reads ahead where lines
//! lie in a row. Colors and the nodes of events are scattered, and each says where the next one is:
//! without prefetches a core would wait for one miss after another. A prefetch accesses nothing, so
//! the memory may be another core's by then.
//!
//! | asked for | when | in |
//! |---|---|---|
//! | the event some places behind, in a row that one core has posted to one color | an event is popped | the jumps of [`Running::pop`](super::fifo::Running::pop) |
//! | nodes of the next four turns | an event is begun, in a quantum of a deep queue | [`Ahead`], here |
//! | colors some way behind the head of a deep core-queue, and their first events | colors are checked out | [`Scout`](crate::shared::queue::core_queue::Scout) |
//! | the line of a color | an event for it goes into the outbox | `Core::put_out` |
//! | the first event of a color | a thief takes it | `Section::move_to` |
//! | a node to come, to be written | a node is allocated | [`Pool::alloc`](super::pool::Pool::alloc) |
//!
//! *Some places* are [`PREFETCH_LEAD`](crate::memory::PREFETCH_LEAD). A queue is deep from
//! [`DEEP_EVENTS`] on: what is in a near cache anyway is not worth the instructions.
//!
//! **Walks.** Where posts to many colors alternate, the steps from one event of a color to the next
//! can only be taken one after the other. Of several colors they overlap: while one color of the
//! checkout has its turn, the next four are *walked*. With each event that runs one of them goes a
//! node further. A walked node belongs to a color that is checked out and has not had its turn, so
//! no other core has it or takes it. A walk ends at the latest when its turn begins, and all
//! of them end before the turns change.

use super::fifo::Fifo;
use super::node::Node;
use crate::ablation::{Rule, without};
use crate::memory::prefetch;
use crate::policy::numbers::DEEP_EVENTS;
use crate::sync::charge;

/// Whether a queue is deep: of a core that has checked this many `colors` out, of which the first
/// has `first` events, and that has `queued` events besides.
#[inline(always)]
pub(crate) fn is_deep(queued: u64, colors: usize, first: u32) -> bool {
    // As if the others had as many: all of them are not counted.
    let waiting = queued + colors as u64 * u64::from(first);
    cfg!(loom)
        || !without(Rule::Ahead) && first as usize >= WALKS && colors > 1 && waiting >= DEEP_EVENTS
}

/// How many colors are walked at once: a miss takes as long as some four short events. Of a color
/// with fewer events there is little to walk: the first one's memory is here when it is checked
/// out.
const WALKS: usize = if cfg!(loom) { 1 } else { 4 };

/// Goes from node to node of a FIFO.
#[derive(Debug)]
struct Walk {
    /// The last one that was asked for.
    node: *mut Node,
    /// Behind it are at least this many.
    left: u32,
}

impl Walk {
    const OVER: Walk = Walk {
        node: std::ptr::null_mut(),
        left: 0,
    };
}

/// See the module text.
#[derive(Debug)]
pub(crate) struct Ahead {
    walks: [Walk; WALKS],
    /// The turn that each is of.
    turns: [usize; WALKS],
    /// The walk that went on last.
    last: usize,
    /// The first turn that is not walked yet.
    next_turn: usize,
}

impl Ahead {
    pub(crate) const fn new() -> Ahead {
        Ahead {
            walks: [Walk::OVER; WALKS],
            turns: [0; WALKS],
            last: 0,
            next_turn: 0,
        }
    }

    /// Asks for one more node of a turn to come. This many turns have `begun`; `fifo` has the
    /// events of each turn that has not; a turn takes at most `batch` of them.
    ///
    /// # Safety
    /// Since the walks last [ended](Self::end), a FIFO was at most appended to before its turn.
    #[inline(never)]
    pub(crate) unsafe fn go_on<'a>(
        &mut self,
        begun: usize,
        batch: u32,
        fifo: impl FnOnce(usize) -> Option<&'a Fifo>,
    ) {
        self.last += 1;
        if self.last == WALKS {
            self.last = 0;
        }
        let (walk, turn) = (&mut self.walks[self.last], &mut self.turns[self.last]);
        if *turn < begun || walk.left == 0 {
            let next = self.next_turn.max(begun);
            let Some(fifo) = fifo(next) else {
                *walk = Walk::OVER;
                return;
            };
            let left = fifo.len().min(batch).saturating_sub(1);
            let node = fifo.at();
            (*walk, *turn) = (Walk { node, left }, next);
            self.next_turn = next + 1;
        }
        if walk.left > 0 {
            charge::reach(walk.node);
            // SAFETY: its turn has not begun, so by the caller's promise the node is still its
            // FIFO's; and there is one behind it.
            walk.node = unsafe { Node::header(walk.node) }.next;
            walk.left -= 1;
            prefetch(walk.node);
        }
    }

    /// Whether there was a walk since they last ended.
    #[inline(always)]
    pub(crate) fn is_walking(&self) -> bool {
        self.next_turn > 0
    }

    /// Ends all walks: the turns change.
    pub(crate) fn end(&mut self) {
        *self = Ahead::new();
    }

    /// The turns that are walked, and how many nodes of each are still to be asked for.
    #[cfg(all(test, not(loom)))]
    fn left(&self) -> Vec<(usize, u32)> {
        let turns = self.turns.iter().zip(&self.walks);
        turns.map(|(&turn, walk)| (turn, walk.left)).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Cx;
    use crate::event::maker::Maker;
    use crate::event::node::Sort;
    use crate::event::pool::Depot;
    use crate::event::profile::Profiles;

    /// A color for each number, with that many events; and the maker, whose pool has their nodes.
    fn colors(lens: &[u32]) -> (Vec<Fifo>, Maker) {
        let profiles = Profiles::new(false);
        let mut maker = Maker::new(&Depot::new(100, 1));
        let mut fifo = |len| {
            let mut fifo = Fifo::EMPTY;
            for _ in 0..len {
                let color = crate::Color::new(1);
                let sort = Sort::ORDINARY;
                let made = maker.make(&profiles, None, color, |_: &mut Cx| (), sort, |f| f);
                fifo.push(made.unwrap_or_else(|_| panic!("there is room")).0);
            }
            fifo
        };
        (lens.iter().map(|&len| fifo(len)).collect(), maker)
    }

    #[test]
    fn deep_are_many_events_of_several_colors_with_some_each() {
        assert!(is_deep(0, 8, 512) && !is_deep(0, 8, 511) && is_deep(8, 8, 511));
        assert!(is_deep(1 << 20, 2, 4) && !is_deep(1 << 20, 2, 3) && !is_deep(1 << 20, 1, 4));
    }

    #[test]
    fn the_next_four_turns_are_walked_by_turns_to_the_end_of_their_batch() {
        let (colors, _maker) = colors(&[9, 1, 3, 9, 20, 2]);
        let mut ahead = Ahead::new();
        let mut after = |steps, begun| {
            for _ in 0..steps {
                // SAFETY: nothing is done to them.
                unsafe { ahead.go_on(begun, 5, |turn| colors.get(turn)) };
            }
            let mut left = ahead.left();
            left.sort();
            left
        };
        // The first has its turn.
        assert_eq!(after(4, 1), [(1, 0), (2, 1), (3, 3), (4, 3)]);
        // The one that had nothing to walk makes room for the last.
        assert_eq!(after(4, 1), [(2, 0), (3, 2), (4, 2), (5, 0)]);
        assert_eq!(after(8, 1).iter().map(|(_, left)| left).sum::<u32>(), 0);
    }

    #[test]
    fn what_has_its_turn_is_walked_no_more() {
        let (colors, _maker) = colors(&[9, 9, 9, 9, 9, 9]);
        let mut ahead = Ahead::new();
        let mut walk = |begun| {
            for _ in 0..4 {
                // SAFETY: nothing is done to them.
                unsafe { ahead.go_on(begun, 5, |turn| colors.get(turn)) };
            }
        };
        walk(1);
        walk(3);
        // Of the two that have begun since one gave way, and the other is over; the rest goes on.
        let mut left = ahead.left();
        left.sort();
        assert_eq!(left, [(2, 0), (3, 2), (4, 2), (5, 3)]);
    }
}
