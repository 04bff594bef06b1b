//! Text edits: they insert and never remove, so that they nest, and add no lines, so that line
//! numbers stay.

use std::cmp::Reverse;
use std::ops::Range;

/// Stands in an [`Edit`]'s texts for the question whether its mutant runs.
pub(crate) const MUTANT: &str = "MUTANT?";

/// Texts that go before and after a piece of the source.
#[derive(Clone, Debug)]
pub(crate) struct Edit {
    /// The piece, in bytes. An empty piece is a place.
    pub(crate) range: Range<usize>,
    pub(crate) before: String,
    pub(crate) after: String,
}

/// A file with its mutants in it.
#[derive(Debug, Default)]
pub(crate) struct Rewritten {
    pub(crate) text: String,
    /// What was inserted, in bytes, and the mutant it is of, in this order.
    pub(crate) inserted: Vec<(Range<usize>, u32)>,
}

impl Rewritten {
    /// The mutant whose text this place is in.
    pub(crate) fn mutant_at(&self, byte: usize) -> Option<u32> {
        let after = self
            .inserted
            .partition_point(|(range, _)| range.end <= byte);
        let (range, mutant) = self.inserted.get(after)?;
        range.contains(&byte).then_some(*mutant)
    }
}

/// Puts mutants into a file. Of two with the same piece the first is the outer one.
pub(crate) fn rewrite<'e>(source: &str, edits: impl Iterator<Item = (u32, &'e Edit)>) -> Rewritten {
    let mut inserts = Vec::new();
    for (nth, (id, edit)) in edits.enumerate() {
        let Range { start, end } = edit.range;
        let nth = nth as isize;
        // At one place: what ends there, the innermost first; then what stands there; then what
        // begins, the outermost first.
        if start == end {
            inserts.push(((start, 1, Reverse(0), nth), id, &edit.before));
        } else {
            inserts.push(((start, 2, Reverse(end), nth), id, &edit.before));
            inserts.push(((end, 0, Reverse(start), -nth), id, &edit.after));
        }
    }
    inserts.sort_unstable_by_key(|(place, ..)| *place);
    let mut rewritten = Rewritten::default();
    let mut copied = 0;
    for ((at, ..), id, text) in inserts {
        rewritten.text.push_str(&source[copied..at]);
        copied = at;
        let begin = rewritten.text.len();
        let question = format!("crate::sync::mutant({id})");
        rewritten.text.push_str(&text.replace(MUTANT, &question));
        rewritten.inserted.push((begin..rewritten.text.len(), id));
    }
    rewritten.text.push_str(&source[copied..]);
    rewritten
}
