//! Events of several colors: one that has the states of all of them, and nobody else meanwhile.
//!
//! An event is posted to each of the colors, all of them in one place of the order
//! ([`crate::sched::together`]). Each but the last holds its color when its turn has come, and the
//! last one runs what was asked for, with all of the states. Then the colors go on. If all states
//! are of one color there is nothing to wait for: an event is posted like any other.
//!
//! **What can never happen.** A state that somebody else has meanwhile: its color is held, from the
//! event that was posted to it until the end, or it is the color of the event that runs. Two that
//! wait for each other: of two such posts one comes first in all colors that they share, in
//! whatever order they name them. A core that waits: the colors that are held already are put aside
//! like any that are held ([`crate::gate`]).
//!
//! (Verona's `when` has the same order, by a lock of two phases for each behavior; the Mely paper
//! leaves events of several colors to future work.)

pub(crate) mod read;
pub(crate) mod read_states;
pub(crate) mod states;

use self::states::sealed::{Handles, TakeHandles, ToHandles};
use self::states::{Helds, InColors, StatePlace, States};
use crate::ask::{Asked, JoinHandle};
use crate::event::node::{AtLimit, Sort};
use crate::host::holding::Held;
use crate::host::inner::Inner;
use crate::host::poster::Poster;
use crate::host::quiesce::Until;
use crate::post::{Post, at_limit_of, until_of};
use crate::rejected::Rejected;
use crate::sched::together::Arrive;
use crate::sync::{Arc, Mutex};
use crate::{Color, Cx, Handler, Reason};

/// What the events of all colors have in common.
///
/// It is of a type of its own for each `F`, so that the time of each is learned by itself.
struct Meeting<H, R: Send + 'static, F> {
    colors: usize,
    handles: H,
    /// [`run`], of the states that the handles are of.
    run: Run<H, R, F>,
    waiting: Mutex<Gathered<R, F>>,
}

type Run<H, R, F> = fn(Asked<R>, F, &mut Cx, &H, &mut Helds);

struct Gathered<R: Send + 'static, F> {
    helds: Helds,
    /// None once it runs.
    body: Option<(Asked<R>, F)>,
}

impl<H, R, F> Arrive for Meeting<H, R, F>
where
    H: Handles,
    R: Send + 'static,
    F: Send + 'static,
{
    const SORT: Sort = Sort::ORDINARY;

    fn arrive(self: Arc<Self>, cx: &mut Cx) {
        cx.publish();
        let mut waiting = self.waiting.lock().unwrap();
        if waiting.helds.len() + 1 < self.colors {
            return waiting.helds.add(Held::take(cx));
        }
        let mut helds = std::mem::replace(&mut waiting.helds, Helds::none());
        let (asked, f) = waiting.body.take().expect("the last one arrives once");
        drop(waiting);
        helds.complete();
        cx.worker().core.acts_for_all();
        (self.run)(asked, f, cx, &self.handles, &mut helds);
    }
}

/// States that are lent; put back when this is dropped.
struct LoanOfAll<'a, H: TakeHandles> {
    handles: &'a H,
    by: InColors<'a>,
    values: H::Values,
    poisoned: bool,
}

impl<H: TakeHandles> Drop for LoanOfAll<'_, H> {
    fn drop(&mut self) {
        let LoanOfAll {
            handles,
            by,
            values,
            poisoned,
        } = self;
        handles.put_back(by, values, *poisoned);
    }
}

/// Runs `f` with all states, in an event of the one color that is not held. What it returns goes to
/// `asked`.
fn run<S, R, F>(asked: Asked<R>, f: F, cx: &mut Cx, handles: &S::Handles, helds: &mut Helds)
where
    S: States,
    R: Send + 'static,
    F: for<'a> FnOnce(S::Mut<'a>, &mut Cx) -> R,
{
    asked.run(cx, |cx| {
        let mut loan = LoanOfAll {
            handles,
            by: InColors { cx, helds },
            values: Default::default(),
            poisoned: false,
        };
        if let Err(refused) = handles.take(&mut loan.by, &mut loan.values) {
            panic!("{refused}");
        }
        loan.poisoned = true;
        let result = f(S::lend(&mut loan.values), loan.by.cx);
        loan.poisoned = false;
        result
    });
}

/// Several states of one runtime, and their colors.
struct Target<H> {
    handles: H,
    /// The handler of the first state whose handle has one ([`Colored::via`](crate::Colored::via)).
    handler: Option<&'static Handler>,
    inner: Arc<Inner>,
    /// When the runtime refuses it.
    until: Until,
    at_limit: AtLimit,
    states: StatesByColor,
}

/// The numbers of some states, in the order of their colors.
struct StatesByColor {
    numbers: Vec<(Color, usize)>,
    colors: usize,
}

impl StatesByColor {
    fn new(numbers: Vec<(Color, usize)>) -> StatesByColor {
        let colors = numbers.chunk_by(|a, b| a.0 == b.0).count();
        StatesByColor { numbers, colors }
    }

    /// How many colors they have.
    fn colors(&self) -> usize {
        self.colors
    }

    fn each_color(&self) -> Vec<Color> {
        let mut colors: Vec<Color> = self.numbers.iter().map(|of| of.0).collect();
        colors.dedup();
        colors
    }

    /// Those of this color.
    fn of(&self, color: Color) -> impl Iterator<Item = usize> {
        let first = self.numbers.partition_point(|of| of.0 < color);
        let of_color = self.numbers[first..].iter();
        of_color.take_while(move |of| of.0 == color).map(|of| of.1)
    }
}

/// Whether an event is refused that could not have a state, since that is poisoned as of now.
/// Otherwise it is posted and panics.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IfPoisoned {
    Refused,
    Posted,
}

impl<H: Handles> Target<H> {
    /// Of states that can be had together.
    fn of<P>(
        by: &P,
        states: impl ToHandles<Handles = H>,
        poisoned: IfPoisoned,
    ) -> Result<Target<H>, Reason>
    where
        P: Post + ?Sized,
    {
        let handles = states.handles();
        let mut places: Vec<(usize, StatePlace<'_>)> =
            handles.places().into_iter().enumerate().collect();
        let first = &places.first().ok_or(Reason::NoState)?.1;
        let inner = Arc::clone(first.inner);
        let handler = places.iter().find_map(|of| of.1.handler);
        if places.iter().any(|of| !Arc::ptr_eq(of.1.inner, &inner)) {
            return Err(Reason::TwoRuntimes);
        }
        places.sort_unstable_by_key(|(_, place)| (place.color, place.address));
        let twice = |pair: &&[(usize, StatePlace<'_>)]| pair[0].1.address == pair[1].1.address;
        if let Some(pair) = places.windows(2).find(twice) {
            return Err(Reason::Twice(pair[0].1.color));
        }
        if poisoned == IfPoisoned::Refused && places.iter().any(|of| of.1.is_poisoned) {
            return Err(Reason::Poisoned);
        }
        let numbers = places.iter().map(|(number, place)| (place.color, *number));
        let states = StatesByColor::new(numbers.collect());
        Ok(Target {
            until: until_of(by, &inner),
            at_limit: at_limit_of(by, &inner),
            inner,
            handler,
            states,
            handles,
        })
    }

    /// The color of all states, if they have one.
    fn one_color(&self) -> Option<Color> {
        (self.states.colors() == 1).then(|| self.states.numbers[0].0)
    }

    /// Posts to one color the event that `event` makes of the handles, the order of the states and
    /// `f`, or gives `f` back.
    fn post_to<F, G>(
        self,
        handler: Option<&'static Handler>,
        color: Color,
        sort: Sort,
        f: F,
        event: impl FnOnce(H, StatesByColor, F) -> G,
    ) -> Result<(), Rejected<F>>
    where
        G: FnOnce(&mut Cx) + Send + 'static,
    {
        // If it is refused, the last handles of the states are not dropped in there.
        let mut parts = Some((self.handles, self.states));
        let wrap = |f| {
            let (handles, states) = parts.take().expect("wrapped once");
            event(handles, states, f)
        };
        let sort = sort.at(self.at_limit);
        Poster::of(&self.inner).post_sort_until(self.until, handler, color, f, sort, wrap)
    }

    /// Posts an event to each of the colors, or gives `f` back. `meeting` makes their common part
    /// of the handles, the order of the states and `f`.
    fn post<F, A>(
        self,
        handler: Option<&'static Handler>,
        f: F,
        meeting: impl FnOnce(H, StatesByColor, F) -> Arc<A>,
    ) -> Result<(), Rejected<F>>
    where
        A: Arrive,
    {
        if let Some(color) = self.one_color() {
            let event = |handles, states, f| {
                let arrives = meeting(handles, states, f);
                move |cx: &mut Cx| arrives.arrive(cx)
            };
            return self.post_to(handler, color, A::SORT, f, event);
        }
        let colors = self.states.each_color();
        // As above.
        let mut parts = Some((self.handles, self.states));
        let wrap = |f| {
            let (handles, states) = parts.take().expect("wrapped once");
            meeting(handles, states, f)
        };
        let (poster, at_limit) = (Poster::of(&self.inner), self.at_limit);
        poster.post_together(handler, self.until, &colors, f, at_limit, wrap)
    }
}

/// Posts `f`, which gets all states, or gives it back. What it returns goes to `asked`.
fn post<S, R, F>(target: Target<S::Handles>, asked: Asked<R>, f: F) -> Result<(), Rejected<F>>
where
    S: States,
    R: Send + 'static,
    F: for<'a> FnOnce(S::Mut<'a>, &mut Cx) -> R + Send + 'static,
{
    let handler = target.handler;
    if let Some(color) = target.one_color() {
        let event = |handles, _, f| {
            move |cx: &mut Cx| run::<S, R, F>(asked, f, cx, &handles, &mut Helds::none())
        };
        return target.post_to(handler, color, Sort::ORDINARY, f, event);
    }
    target.post(handler, f, |handles, states, f| {
        let colors = states.colors();
        Arc::new(Meeting {
            colors,
            handles,
            run: run::<S, R, F>,
            waiting: Mutex::new(Gathered {
                helds: Helds::for_all_but_one_of(colors),
                body: Some((asked, f)),
            }),
        })
    })
}

fn with_all<P, S, R, F>(
    by: &P,
    states: S,
    poisoned: IfPoisoned,
    f: F,
) -> Result<JoinHandle<R>, Rejected<F>>
where
    P: Post + ?Sized,
    S: States,
    R: Send + 'static,
    F: for<'a> FnOnce(S::Mut<'a>, &mut Cx) -> R + Send + 'static,
{
    let target = match Target::of(by, states, poisoned) {
        Ok(target) => target,
        Err(refused) => {
            return Err(Rejected::new(refused, f));
        }
    };
    let (asked, handle) = Asked::new(&target.inner);
    post::<S, R, F>(target, asked, f)?;
    Ok(handle)
}

impl Cx {
    /// Posts `f` to the colors of several states at once: it runs once, in an event that has all of
    /// them, and that is atomic for every event of each of their colors.
    /// What it returns is to be had by the handle, which may be dropped.
    ///
    /// ```
    /// use mely::{Color, Colored, Runtime};
    /// let sums = Runtime::builder().build()?.run_until(|cx, finish| {
    ///     let from = Colored::new(cx, Color::from(1), 100);
    ///     let to = Colored::new(cx, Color::from(2), 0);
    ///     // Nobody sees the money in neither account, or in both.
    ///     cx.with_all([&from, &to], |[from, to], _cx| {
    ///         *from -= 30;
    ///         *to += 30;
    ///     });
    ///     cx.with_all((&from, &to), move |(from, to), _cx| finish.finish((*from, *to)));
    /// })?;
    /// assert_eq!(sums, (70, 30));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Order
    /// It has a place in *each* of the colors, as a [`post`](Self::post) to that color has: after
    /// what was posted there before, and before what is posted there after. Of two that share
    /// colors, one comes first in all of them, in whatever order they name their states: so they
    /// never wait for each other. A color waits from its turn until `f` has run; nothing else does.
    /// It runs as an event of one of the colors, of which is not said.
    ///
    /// The states must not include one whose color is held until `f` has run: they would wait for
    /// each other.
    ///
    /// It runs under the handler of the first state whose handle has one
    /// ([`Colored::via`](crate::Colored::via)). There is an event under that handler for each of
    /// the colors, of which one runs `f`: so the handler's [profile](crate::metrics::Profile)
    /// counts as many events.
    ///
    /// If `f` panics all of the states are poisoned. If one of them is already, the event panics.
    ///
    /// # Panics
    /// At the builder's limit of queued events; see [`Poster::try_with_all`]. Also if there is
    /// no state, or one of them twice, or if they are of two runtimes; and if they are of another
    /// runtime, which has ended.
    #[track_caller]
    pub fn with_all<S, R, F>(&self, states: S, f: F) -> JoinHandle<R>
    where
        S: States,
        R: Send + 'static,
        F: for<'a> FnOnce(S::Mut<'a>, &mut Cx) -> R + Send + 'static,
    {
        self.surely(|by| with_all(by, states, IfPoisoned::Posted, f))
    }
}

impl Poster {
    /// Posts `f` to the colors of several states at once, as [`Cx::with_all`], or gives it back.
    /// They may be of another runtime.
    ///
    /// # Errors
    /// As [`Post::try_post`](crate::Post::try_post); and
    /// [`Reason::NoState`](crate::Reason::NoState), [`Reason::Twice`](crate::Reason::Twice) or
    /// [`Reason::TwoRuntimes`](crate::Reason::TwoRuntimes) if the states cannot be had together,
    /// and [`Reason::Poisoned`](crate::Reason::Poisoned) if one of them is poisoned.
    pub fn try_with_all<S, R, F>(&self, states: S, f: F) -> Result<JoinHandle<R>, Rejected<F>>
    where
        S: States,
        R: Send + 'static,
        F: for<'a> FnOnce(S::Mut<'a>, &mut Cx) -> R + Send + 'static,
    {
        with_all(self, states, IfPoisoned::Refused, f)
    }
}
