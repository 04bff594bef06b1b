//! Readers: events that have states together with other readers, and never beside a writer.
//!
//! An event is posted to each of the colors, as for events of several colors ([`super`]). When its
//! turn has come it begins to read the states of its color ([`crate::colored::read`]), or waits at
//! the color's gate. The last one posts what was asked for to a color of its own. So readers run in
//! parallel, and can be stolen, while the colors themselves wait.

use super::read_states::ReadStates;
use super::read_states::sealed::ReadHandles;
use super::{IfPoisoned, StatesByColor, Target};
use crate::ask::{Asked, JoinHandle};
use crate::event::node::Sort;
use crate::host::poster::Poster;
use crate::post::Post;
use crate::rejected::Rejected;
use crate::sched::together::Arrive;
use crate::sync::{Arc, Mutex};
use crate::{Cx, Handler};

/// Posts what reads.
type Body<H> = Box<dyn FnOnce(&mut Cx, <H as ReadHandles>::Reads) + Send>;

/// What the events of all colors have in common.
struct Readers<H: ReadHandles> {
    handles: H,
    states: StatesByColor,
    begun: Mutex<Begun<H>>,
}

struct Begun<H: ReadHandles> {
    reads: H::Reads,
    /// Colors whose turn has not come.
    left: usize,
    /// None once it is posted.
    body: Option<Body<H>>,
}

impl<H: ReadHandles> Arrive for Readers<H> {
    const SORT: Sort = Sort::PASSING;

    fn arrive(self: Arc<Self>, cx: &mut Cx) {
        let (may, place) = cx.worker().core.may_read();
        if self.states.colors() > 1 {
            cx.publish();
        }
        let mut begun = self.begun.lock().unwrap();
        let color = cx.color();
        let mut begin = |number| self.handles.begin(number, cx, &mut begun.reads);
        // Those that have begun go on if it is too early for another state of the color.
        if !may || !self.states.of(color).all(&mut begin) {
            drop(begun);
            let again = move |cx: &mut Cx| self.arrive(cx);
            return cx.worker().core.wait(None, place, again);
        }
        cx.worker().core.reads(place);
        begun.left -= 1;
        if begun.left > 0 {
            return;
        }
        let reads = std::mem::take(&mut begun.reads);
        let body = begun.body.take().expect("the last one arrives once");
        drop(begun);
        body(cx, reads);
    }
}

/// Runs `f` with what is read, in a color of its own; then the reading is over.
fn read_apart<V, R, F>(
    cx: &mut Cx,
    handler: Option<&'static Handler>,
    asked: Asked<R>,
    reading: V,
    f: F,
) where
    V: Send + 'static,
    R: Send + 'static,
    F: FnOnce(&V, &mut Cx) -> R + Send + 'static,
{
    let own = cx.unique_color();
    let color = own.color();
    // Of a type of its own for each `f`, so that its time is learned by itself.
    let event = move |cx: &mut Cx| {
        asked.run(cx, |cx| f(&reading, cx));
        drop((reading, own));
    };
    cx.worker().core.post_own(handler, color, event);
}

/// Posts `f`, which reads all states, or gives it back. What it returns goes to `asked`.
fn post_all<S, R, F>(target: Target<S::Handles>, asked: Asked<R>, f: F) -> Result<(), Rejected<F>>
where
    S: ReadStates,
    R: Send + 'static,
    F: for<'a> FnOnce(S::Ref<'a>, &mut Cx) -> R + Send + 'static,
{
    let handler = target.handler;
    target.post(None, f, |handles, states, f| {
        let body = move |cx: &mut Cx, reads: <S::Handles as ReadHandles>::Reads| {
            read_apart(cx, handler, asked, reads, move |reads, cx| {
                if let Some(refused) = <S::Handles as ReadHandles>::refused(reads) {
                    panic!("{refused}");
                }
                f(S::lend(reads), cx)
            });
        };
        Arc::new(Readers {
            handles,
            begun: Mutex::new(Begun {
                reads: Default::default(),
                left: states.colors(),
                body: Some(Box::new(body)),
            }),
            states,
        })
    })
}

fn read<P, S, R, F>(
    by: &P,
    states: S,
    poisoned: IfPoisoned,
    f: F,
) -> Result<JoinHandle<R>, Rejected<F>>
where
    P: Post + ?Sized,
    S: ReadStates,
    R: Send + 'static,
    F: for<'a> FnOnce(S::Ref<'a>, &mut Cx) -> R + Send + 'static,
{
    let target = match Target::of(by, states, poisoned) {
        Ok(target) => target,
        Err(refused) => {
            return Err(Rejected::new(refused, f));
        }
    };
    let (asked, handle) = Asked::new(&target.inner);
    post_all::<S, R, F>(target, asked, f)?;
    Ok(handle)
}

impl Cx {
    /// Posts `f`, which reads a state, or several at once: together with other readers, and never
    /// beside an event that has `&mut T`. For what takes long, and would keep a color busy on one
    /// core: a read of one state costs some 2,000 instructions, which is about six posts.
    /// What it returns is to be had by the handle, which may be dropped.
    ///
    /// ```
    /// use mely::{Color, Colored, Handler, Runtime};
    /// static SUM: Handler = Handler::new("sum");
    /// let sum = Runtime::builder().build()?.run_until(|cx, finish| {
    ///     let table = Colored::new(cx, Color::from(9), vec![1, 2]);
    ///     table.post(cx, |table, _cx| table.push(3));
    ///     // Sees the push, and not what is posted later.
    ///     let sum = |table: &Vec<u32>, _: &mut mely::Cx| table.iter().sum::<u32>();
    ///     cx.read(&table.via(&SUM), move |table, cx| finish.finish(sum(table, cx)));
    ///     table.post(cx, |table, _cx| table.clear());
    /// })?;
    /// assert_eq!(sum, 6);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Several states:
    ///
    /// ```
    /// use mely::{Color, Colored, Runtime};
    /// let sums = Runtime::builder().build()?.run_until(|cx, finish| {
    ///     let [a, b] = [1, 2].map(|color| Colored::new(cx, Color::from(color), 50));
    ///     cx.with_all([&a, &b], |[a, b], _cx| {
    ///         *a -= 30;
    ///         *b += 30;
    ///     });
    ///     // Sees the transfer in both, and nothing between its halves.
    ///     cx.read([&a, &b], move |[a, b], _cx| finish.finish((*a, *b)));
    /// })?;
    /// assert_eq!(sums, (20, 80));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Order
    /// It has its place in each of the colors as an event of [`with_all`](Self::with_all): it sees
    /// what all events posted before have done to the states, and nothing that those posted after
    /// it do. All events of the colors that are posted after it wait until it is over, but for
    /// readers that directly follow. Those run in any order, and in parallel.
    ///
    /// `f` runs in a color of its own, which is given to nobody else meanwhile. It is posted on the
    /// core that has a state's color, and can be stolen from there as any other event: say how long
    /// it takes with a handler ([`Colored::via`](crate::Colored::via)), or let it be learned.
    ///
    /// It waits until a hold of a state's color is over, and so must not be what ends that. From
    /// the first read or hold of a runtime on, each of its events costs some 30 instructions more.
    ///
    /// A panic in `f` does not poison the states, which nobody has changed. The event panics if one
    /// of them is poisoned.
    ///
    /// # Panics
    /// As [`with_all`](Self::with_all).
    #[track_caller]
    pub fn read<S, R, F>(&self, states: S, f: F) -> JoinHandle<R>
    where
        S: ReadStates,
        R: Send + 'static,
        F: for<'a> FnOnce(S::Ref<'a>, &mut Cx) -> R + Send + 'static,
    {
        self.surely(|by| read(by, states, IfPoisoned::Posted, f))
    }
}

impl Poster {
    /// Posts `f`, which reads states, as [`Cx::read`], or gives it back. They may be of another
    /// runtime.
    ///
    /// # Errors
    /// As [`try_with_all`](Self::try_with_all).
    pub fn try_read<S, R, F>(&self, states: S, f: F) -> Result<JoinHandle<R>, Rejected<F>>
    where
        S: ReadStates,
        R: Send + 'static,
        F: for<'a> FnOnce(S::Ref<'a>, &mut Cx) -> R + Send + 'static,
    {
        read(self, states, IfPoisoned::Refused, f)
    }
}
