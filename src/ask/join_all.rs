//! One handle of many.

use super::cell::{JoinCell, Joined};
use super::{JoinError, JoinHandle};
use crate::host::panics::InTurn;
use crate::sync::{Arc, Mutex};
use std::sync::PoisonError;

/// Many handles that were joined. Each cell has a callback with a reference to this, until it is
/// settled or detached: so the references in both directions end.
struct All<T> {
    of: Vec<Arc<dyn Joined<T>>>,
    results: Mutex<Results<T>>,
    /// Settled by the last of them.
    whole: JoinCell<Vec<Result<T, JoinError>>>,
}

struct Results<T> {
    come: Vec<Option<Result<T, JoinError>>>,
    missing: usize,
}

impl<T> All<T> {
    fn come(&self, number: usize, result: Result<T, JoinError>) {
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        results.come[number] = Some(result);
        results.missing -= 1;
        if results.missing > 0 {
            return;
        }
        let come = std::mem::take(&mut results.come);
        drop(results);
        let come = come.into_iter().map(|part| part.expect("none is missing"));
        self.whole.settle(come.collect());
    }
}

impl<T: Send> Joined<Vec<Result<T, JoinError>>> for All<T> {
    fn cell(&self) -> &JoinCell<Vec<Result<T, JoinError>>> {
        &self.whole
    }

    fn cancel(self: Arc<Self>) {
        let mut cancels = InTurn::default();
        for of in &self.of {
            cancels.run(|| Arc::clone(of).cancel());
        }
        cancels.end();
    }

    fn detach(&self) {
        self.whole.detach();
        let mut drops = InTurn::default();
        for of in &self.of {
            drops.run(|| of.detach());
        }
        drops.end();
    }
}

/// Joins handles into one, which gives all results in argument order. Those of events, tasks or
/// work that panic or are dropped are errors among the others. Events of different colors run in
/// parallel. Of no handles the result is there at once.
///
/// [`JoinHandle::cancel`] of it cancels all, and dropping it detaches all. Whether a handle that is
/// joined was to [cancel when it is dropped](JoinHandle::cancel_on_drop) does not matter any more.
///
/// ```
/// use mely::task::{JoinError, join_all};
/// use mely::{Color, Handler, Runtime};
/// static SUM: Handler = Handler::new("sum");
/// let sum = Runtime::builder().build()?.run_until(|cx, finish| {
///     let colors = (1..=100).map(Color::from);
///     let asked = colors.map(|color| cx.ask(color, move |_cx| color.value()));
///     type All = Vec<Result<u64, JoinError>>;
///     let sum = SUM.on_value(Color::from(7), move |_cx, all: Result<All, JoinError>| {
///         let all = all.expect("it comes when all have");
///         assert_eq!(all[41], Ok(42));
///         finish.finish(all.into_iter().flatten().sum::<u64>());
///     });
///     join_all(asked).then(cx, sum);
/// })?;
/// assert_eq!(sum, 5_050);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn join_all<T: Send + 'static>(
    handles: impl IntoIterator<Item = JoinHandle<T>>,
) -> JoinHandle<Vec<Result<T, JoinError>>> {
    // All of them first: the iterator is user code, and may panic.
    let handles: Vec<JoinHandle<T>> = handles.into_iter().collect();
    let first = handles.first().map_or(0, JoinHandle::runtime);
    let same = handles.iter().all(|handle| handle.runtime() == first);
    let of: Vec<_> = handles.into_iter().map(JoinHandle::into_joined).collect();
    let missing = of.len();
    let all = Arc::new(All {
        results: Mutex::new(Results {
            come: of.iter().map(|_| None).collect(),
            missing,
        }),
        of,
        whole: JoinCell::new(),
    });
    if missing == 0 {
        all.whole.settle(Vec::new());
    }
    for (number, of) in all.of.iter().enumerate() {
        let its = Arc::clone(&all);
        let come = move |result| its.come(number, result);
        // Where the whole goes is not known yet.
        of.cell().deliver(Box::new(come), false);
    }
    JoinHandle::of(all, if same { first } else { 0 })
}
