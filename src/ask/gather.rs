//! One reply of many.

use super::reply::{Cancel, NoReply, Replies, Reply, ReplyCell};
use crate::sync::{Arc, Mutex};
use std::sync::PoisonError;

/// What the replies have in common.
struct Gathering<R: Send + 'static> {
    parts: Mutex<Parts<R>>,
    /// Settled by the last of them.
    whole: Arc<ReplyCell<Vec<Result<R, NoReply>>>>,
}

struct Parts<R> {
    come: Vec<Option<Result<R, NoReply>>>,
    missing: usize,
}

impl<R: Send + 'static> Gathering<R> {
    fn come(&self, number: usize, result: Result<R, NoReply>) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.come[number] = Some(result);
        parts.missing -= 1;
        if parts.missing > 0 {
            return;
        }
        let come = std::mem::take(&mut parts.come);
        drop(parts);
        let come = come.into_iter().map(|part| part.expect("none is missing"));
        self.whole.settle(come.collect());
    }
}

/// One reply of many: all that they come to, in the order in which they are given, whatever order
/// they come in. Those that panic or are dropped are errors among the others. What is asked of
/// different colors runs in parallel.
///
/// Dropped, it cancels all that have not begun.
///
/// ```
/// use mely::{Color, Handler, NoReply, Runtime, gather};
/// static SUM: Handler = Handler::new("sum");
/// let sum = Runtime::builder().build()?.run_until(|cx, finish| {
///     let colors = (1..=100).map(Color::from);
///     let replies = colors.map(|color| cx.ask(color, move |_cx| color.value()));
///     type All = Vec<Result<u64, NoReply>>;
///     let sum = SUM.on_value(Color::from(7), move |_cx, all: Result<All, NoReply>| {
///         let all = all.expect("it comes when all have");
///         assert_eq!(all[41], Ok(42));
///         finish.finish(all.into_iter().flatten().sum::<u64>());
///     });
///     gather(replies).then(cx, sum);
/// })?;
/// assert_eq!(sum, 5_050);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn gather<R: Send + 'static>(
    replies: impl IntoIterator<Item = Reply<R>>,
) -> Reply<Vec<Result<R, NoReply>>> {
    // All of them first: what makes them is the user's, and may panic.
    let replies: Vec<Reply<R>> = replies.into_iter().collect();
    let first = replies.first().map_or(0, Reply::runtime);
    let same = replies.iter().all(|reply| reply.runtime() == first);
    let whole = Arc::new(ReplyCell::new());
    if replies.is_empty() {
        whole.settle(Vec::new());
    }
    let gathering = Arc::new(Gathering {
        parts: Mutex::new(Parts {
            come: replies.iter().map(|_| None).collect(),
            missing: replies.len(),
        }),
        whole: Arc::clone(&whole),
    });
    let mut canceled: Vec<Arc<dyn Cancel>> = Vec::with_capacity(replies.len());
    for (number, reply) in replies.into_iter().enumerate() {
        let (cell, parts) = reply.into_parts();
        canceled.extend(parts);
        canceled.push(Arc::<dyn Replies<R>>::clone(&cell));
        let gathering = Arc::clone(&gathering);
        let come = move |result| gathering.come(number, result);
        // Where the whole goes is not known yet.
        cell.cell().deliver(Box::new(come), false);
    }
    Reply::of_parts(whole, canceled, if same { first } else { 0 })
}
