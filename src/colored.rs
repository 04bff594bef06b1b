//! State that belongs to a color.
//!
//! # Why this is sound
//!
//! A [`Colored<T>`] hands out `&mut T` without a lock, and the context along with it. So the value
//! itself is taken out of its cell ([`crate::in_color`]) while it is lent, and put back after that:
//! it is in a box, which is moved. If it is asked for again meanwhile, it is not there. Who panics
//! while having it puts it back as poisoned.
//!
//! The value is dropped by an event of its color. Once the runtime was asked to stop it takes no
//! more posts from outside, and then a thread that is none of its cores drops the value in place if
//! it drops the last handle: nobody else can then reach it.

pub(crate) mod read;
#[cfg(not(loom))]
pub(crate) mod weak;

use crate::ask::{Asked, JoinHandle};
use crate::callback::Callback;
use crate::host::holding::Held;
use crate::host::panics::LateDrop;
use crate::host::poster::Poster;
use crate::host::unique::UniqueColor;
use crate::in_color::InColor;
use crate::post::{Post, post_wrapped};
use crate::rejected::Rejected;
use crate::sync::relaxed::{AtomicBool, Ordering};
use crate::sync::{CellMut, CountedArc, fault};
use crate::{Color, Cx, Handler, Reason};
use std::fmt;
use std::sync::{Arc, Weak};
use std::thread::panicking;

/// State owned by a color: handlers of that color, and only they, get `&mut T`.
///
/// A handle; clones name the same state. When the last is gone, the state is dropped in its color.
///
/// **Poison.** If an event panics while it has the state, the change that it was making may be half
/// done: the state is *poisoned*, as that of a [`Mutex`](std::sync::Mutex) is. From then on
/// [`with`](Self::with) and the `try_` calls are refused with
/// [`Reason::Poisoned`](crate::Reason::Poisoned). The other calls ([`post`](Self::post),
/// [`ask`](Self::ask), a callback) are accepted, and their events panic without running their
/// closures. These panics are reported and counted, and a caller that asked gets
/// [`JoinError::Panicked`](crate::task::JoinError::Panicked). Other events of the color run. The
/// program ends the poison by [`clear_poison`](Self::clear_poison). A panic of a reader poisons
/// nothing.
///
/// ```
/// use mely::{Color, Colored, Handler, Runtime};
/// static COUNT: Handler = Handler::new("count");
/// let counted = Runtime::builder().build()?.run_until(|cx, finish| {
///     let hits = Colored::new(cx, Color::from(9), 0u64);
///     for _ in 0..10 {
///         hits.via(&COUNT).post(cx, |hits, _cx| *hits += 1);
///     }
///     // Not this color: refused.
///     assert!(hits.with(cx, |hits, _| *hits).is_err());
///     // Same color, posted later: runs after them.
///     hits.post(cx, move |hits, _cx| finish.finish(*hits));
/// })?;
/// assert_eq!(counted, 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The state itself cannot be reached without a context, so the compiler refuses the rest:
///
/// ```compile_fail
/// # use mely::{Color, Colored, Runtime};
/// # Runtime::builder().build().unwrap().run(|cx| {
/// let hits = Colored::new(cx, Color::from(9), 0u64);
/// *hits += 1; // no `DerefMut`
/// # }).unwrap();
/// ```
pub struct Colored<T: Send + 'static> {
    cell: CountedArc<ColoredCell<T>>,
    /// The handler of the events that are posted through this handle.
    handler: Option<&'static Handler>,
}

struct ColoredCell<T: Send + 'static> {
    state: InColor<Lendable<T>>,
    /// Set in the color, by an event that panicked while it had the state, and cleared by the
    /// program. It decides about no access to the value: that is for the color to do.
    poisoned: AtomicBool,
    /// The color, if it is the state's own.
    unique: Option<UniqueColor>,
}

struct Lendable<T> {
    /// None while it is lent, and before it is [filled in](Colored::fill).
    value: Option<Box<T>>,
    is_filled: bool,
    /// Who hears of the first panic that poisons it.
    on_poison: Option<Weak<dyn OnPoison>>,
    /// While the value is read; see [`read`].
    shared: Option<read::Shared>,
}

/// What depends on a state, as the connection of a session does.
pub(crate) trait OnPoison: Send + Sync {
    /// An event has panicked while it had the state.
    fn poisoned(self: Arc<Self>);
}

impl<T: Send + 'static> ColoredCell<T> {
    /// Takes the value out of the cell that was borrowed.
    fn take(&self, mut state: CellMut<'_, Lendable<T>>) -> Result<Box<T>, Reason> {
        if self.poisoned.load(Ordering::Relaxed) {
            return Err(Reason::Poisoned);
        }
        let missing = match state.is_filled {
            true => Reason::Lent,
            false => Reason::NotOpen,
        };
        state.value.take().ok_or(missing)
    }

    /// Puts it back.
    fn put_back(&self, mut state: CellMut<'_, Lendable<T>>, value: Box<T>, panicked: bool) {
        state.value = Some(value);
        if panicked {
            self.poisoned.store(true, Ordering::Relaxed);
            let hears = state.on_poison.take().and_then(|hears| hears.upgrade());
            if let Some(hears) = hears {
                hears.poisoned();
            }
        }
    }
}

impl<T: Send + 'static> Colored<T> {
    /// State `value` of `color`, in the runtime of `by`.
    pub fn new(by: &(impl Post + ?Sized), color: Color, value: T) -> Colored<T> {
        Colored::make(by.to_poster(), color, None, Some(value))
    }

    /// State `value` of a color that nobody else has, for as long as the state is there; the
    /// color starts on this core.
    ///
    /// ```
    /// use mely::{Colored, Runtime};
    /// let sum = Runtime::builder().build()?.run_until(|cx, finish| {
    ///     let sum = Colored::new_unique(cx, 0);
    ///     assert_ne!(sum.color(), Colored::new_unique(cx, 0).color());
    ///     for n in 1..=10 {
    ///         sum.post(cx, move |sum, _cx| *sum += n);
    ///     }
    ///     sum.post(cx, move |sum, _cx| finish.finish(*sum));
    /// })?;
    /// assert_eq!(sum, 55);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new_unique(cx: &mut Cx, value: T) -> Colored<T> {
        let unique = cx.unique_color();
        let color = unique.color();
        Colored::make(cx.poster(), color, Some(unique), Some(value))
    }

    /// A state that an event of its color is to [fill in](Self::fill): before any other event is
    /// posted for it.
    pub(crate) fn unfilled(poster: Poster, color: Color) -> Colored<T> {
        Colored::make(poster, color, None, None)
    }

    /// Fills in what `value` returns. If it panics, the state is poisoned. From now on `hears` is
    /// told of a poison.
    pub(crate) fn fill(
        &self,
        cx: &mut Cx,
        hears: Weak<dyn OnPoison>,
        value: impl FnOnce(&mut Cx) -> T,
    ) -> Result<(), Reason> {
        self.cell.state.check(cx)?;
        let panics = Poisons(&self.cell.poisoned);
        let value = value(cx);
        std::mem::forget(panics);
        let mut state = self.cell.state.borrow(cx)?;
        (state.value, state.on_poison) = (Some(Box::new(value)), Some(hears));
        state.is_filled = true;
        Ok(())
    }

    fn make(
        poster: Poster,
        color: Color,
        unique: Option<UniqueColor>,
        value: Option<T>,
    ) -> Colored<T> {
        let state = Lendable {
            is_filled: value.is_some(),
            value: value.map(Box::new),
            on_poison: None,
            shared: None,
        };
        let cell = ColoredCell {
            state: InColor::new(poster, color, state),
            poisoned: AtomicBool::new(false),
            unique,
        };
        Colored {
            cell: CountedArc::new(cell),
            handler: None,
        }
    }

    pub(crate) fn poster(&self) -> &Poster {
        self.cell.state.poster()
    }

    /// The color the state belongs to.
    pub fn color(&self) -> Color {
        self.cell.state.color()
    }

    /// Returns a handle of the same state whose events run under `handler`: they have its
    /// annotations, and its name in the [`Profile`](crate::metrics::Profile). It costs as much as a
    /// clone, so keep it where much is posted.
    ///
    /// ```
    /// use mely::{Color, Colored, Handler, Runtime};
    /// static DEPOSIT: Handler = Handler::new("deposit");
    /// let named = Runtime::builder().build()?.run_until(|cx, finish| {
    ///     let account = Colored::new(cx, Color::from(4711), 0);
    ///     account.via(&DEPOSIT).post(cx, move |balance, cx| {
    ///         *balance += 10;
    ///         finish.finish(cx.handler());
    ///     });
    /// })?;
    /// assert_eq!(named, "deposit");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn via(&self, handler: &'static Handler) -> Colored<T> {
        Colored {
            handler: Some(handler),
            ..self.clone()
        }
    }

    pub(crate) fn handler(&self) -> Option<&'static Handler> {
        self.handler
    }

    /// Whether an event panicked while it had the state, and the poison was not cleared since.
    ///
    /// From anywhere; elsewhere than in the state's color, the answer may be old by the time that
    /// it is there. A `try_` call asks this itself.
    pub fn is_poisoned(&self) -> bool {
        self.cell.poisoned.load(Ordering::Relaxed)
    }

    /// Ends the poison: from now on events have the state again, as the one that panicked has left
    /// it. As [`Mutex::clear_poison`](std::sync::Mutex::clear_poison).
    ///
    /// Call it in an event of the state's color that mends the state, as the one below does: no
    /// other event runs between the two. Events for the state that run before that one panic;
    /// events that run after it have the mended state.
    ///
    /// ```
    /// use mely::{Color, Colored, Rejected, Reason, Runtime};
    ///
    /// let lines = Runtime::builder().build()?.run_until(|cx, finish| {
    ///     let room = Colored::new(cx, Color::from(7), vec!["hello"]);
    ///     room.try_post(cx, |_lines, _cx| panic!("at one message of one peer"));
    ///     let again = room.clone();
    ///     cx.post(room.color(), move |cx| {
    ///         // Known by now: this event is of the same color.
    ///         let refused = again.try_post(cx, |lines, _cx| lines.push("lost"));
    ///         assert!(matches!(refused, Err(Rejected { reason: Reason::Poisoned, .. })));
    ///         again.clear_poison();
    ///         again.with(cx, |lines, _cx| *lines = vec!["welcome back"]).expect("its color");
    ///         again.post(cx, |lines, _cx| lines.push("and go on"));
    ///         again.post(cx, move |lines, _cx| finish.finish(lines.join(", ")));
    ///     });
    /// })?;
    /// assert_eq!(lines, "welcome back, and go on");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn clear_poison(&self) {
        self.cell.poisoned.store(false, Ordering::Relaxed);
    }

    /// Posts `f` to the state's color; it runs with the state. The state may be of another runtime
    /// than `cx`.
    ///
    /// The event panics, with all that [`OnPanic`](crate::runtime::OnPanic) says, if the state is
    /// poisoned.
    ///
    /// # Panics
    /// As [`Cx::post`]. If the state is of another runtime: at that one's limit of queued events,
    /// which has no reserve for others, and if it has ended. [`try_post`](Self::try_post) gives `f`
    /// back instead.
    #[track_caller]
    pub fn post<F>(&self, cx: &Cx, f: F)
    where
        F: FnOnce(&mut T, &mut Cx) + Send + 'static,
    {
        cx.surely(|by| self.post_event(by, f));
    }

    /// Like [`post`](Self::post), and gives the closure back where that panics, or the event would.
    ///
    /// # Errors
    /// As [`Post::try_post`](crate::Post::try_post); and
    /// [`Reason::Poisoned`](crate::Reason::Poisoned) if the state is poisoned. (If it is poisoned
    /// by an event that runs later than this call and before `f`, the event panics.)
    pub fn try_post<P, F>(&self, by: &P, f: F) -> Result<(), Rejected<F>>
    where
        P: Post + ?Sized,
        F: FnOnce(&mut T, &mut Cx) + Send + 'static,
    {
        self.post_event(by, self.unless_poisoned(f)?)
    }

    /// The closure, or why its event could not have the state, as of now.
    pub(crate) fn unless_poisoned<F>(&self, f: F) -> Result<F, Rejected<F>> {
        match self.is_poisoned() {
            true => Err(Rejected::new(Reason::Poisoned, f)),
            false => Ok(f),
        }
    }

    /// Posts `f` to the state's color, as [`post`](Self::post), and returns a handle for the value
    /// that `f` will return.
    ///
    /// If the state is poisoned the event panics, and the result is
    /// [`JoinError::Panicked`](crate::task::JoinError::Panicked).
    ///
    /// # Panics
    /// As [`post`](Self::post).
    ///
    /// ```
    /// use mely::{Color, Colored, Handler, Runtime};
    /// static TOLD: Handler = Handler::new("told");
    /// let left = Runtime::builder().build()?.run_until(|cx, finish| {
    ///     let account = Colored::new(cx, Color::from(4711), 100u64);
    ///     let asked = account.ask(cx, |balance, _cx| {
    ///         *balance -= 7;
    ///         *balance
    ///     });
    ///     let told = TOLD.on_value(Color::from(7), move |_cx, left| finish.finish(left));
    ///     asked.then(cx, told);
    /// })?;
    /// assert_eq!(left, Ok(93));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn ask<R, F>(&self, cx: &Cx, f: F) -> JoinHandle<R>
    where
        R: Send + 'static,
        F: FnOnce(&mut T, &mut Cx) -> R + Send + 'static,
    {
        cx.surely(|by| self.ask_event(by, f))
    }

    /// Like [`ask`](Self::ask), and gives the closure back where that panics, or the event would.
    ///
    /// # Errors
    /// As [`try_post`](Self::try_post).
    pub fn try_ask<P, R, F>(&self, by: &P, f: F) -> Result<JoinHandle<R>, Rejected<F>>
    where
        P: Post + ?Sized,
        R: Send + 'static,
        F: FnOnce(&mut T, &mut Cx) -> R + Send + 'static,
    {
        self.ask_event(by, self.unless_poisoned(f)?)
    }

    fn ask_event<P, R, F>(&self, by: &P, f: F) -> Result<JoinHandle<R>, Rejected<F>>
    where
        P: Post + ?Sized,
        R: Send + 'static,
        F: FnOnce(&mut T, &mut Cx) -> R + Send + 'static,
    {
        let (asked, handle) = Asked::new(&self.cell.state.poster().inner);
        let wrap = |f| {
            let cell = CountedArc::clone(&self.cell);
            move |cx: &mut Cx| asked.run(cx, |cx| cell.lend(cx, f))
        };
        self.post_wrapped(by, self.handler, f, wrap)?;
        Ok(handle)
    }

    fn post_event<P, F>(&self, by: &P, f: F) -> Result<(), Rejected<F>>
    where
        P: Post + ?Sized,
        F: FnOnce(&mut T, &mut Cx) + Send + 'static,
    {
        let wrap = |f| {
            let cell = CountedArc::clone(&self.cell);
            move |cx: &mut Cx| cell.lend(cx, f)
        };
        self.post_wrapped(by, self.handler, f, wrap)
    }

    /// Posts `wrap(f)` to the state's color, or gives `f` back. `wrap` runs no user code.
    #[inline]
    pub(crate) fn post_wrapped<P, F, G>(
        &self,
        by: &P,
        handler: Option<&'static Handler>,
        f: F,
        wrap: impl FnOnce(F) -> G,
    ) -> Result<(), Rejected<F>>
    where
        P: Post + ?Sized,
        G: FnOnce(&mut Cx) + Send + 'static,
    {
        post_wrapped(by, self.poster(), handler, self.color(), f, wrap)
    }

    /// A callback that runs `f` with the state, in its color and under `handler`. It holds a
    /// handle.
    ///
    /// The event panics, with all that [`OnPanic`](crate::runtime::OnPanic) says, if the state is
    /// poisoned.
    ///
    /// ```
    /// use mely::{Color, Colored, Handler, Runtime};
    /// use std::time::Duration;
    /// static TICK: Handler = Handler::new("tick");
    /// let ticks = Runtime::builder().build()?.run_until(|cx, finish| {
    ///     let ticks = Colored::new(cx, Color::from(9), 0);
    ///     let tick = ticks.on(&TICK, move |ticks, _cx| {
    ///         *ticks += 1;
    ///         finish.finish(*ticks);
    ///     });
    ///     cx.timer(Duration::from_millis(1), tick);
    /// })?;
    /// assert_eq!(ticks, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on<F>(
        &self,
        handler: &'static Handler,
        f: F,
    ) -> Callback<impl FnOnce(&mut Cx) + Send + 'static + use<T, F>>
    where
        F: FnOnce(&mut T, &mut Cx) + Send + 'static,
    {
        let cell = CountedArc::clone(&self.cell);
        let event = move |cx: &mut Cx| cell.lend(cx, f);
        Callback::new(Some(handler), self.color(), event)
    }

    /// Like [`on`](Self::on), for what delivers one result.
    pub fn on_value<V, F>(
        &self,
        handler: &'static Handler,
        f: F,
    ) -> Callback<impl FnOnce(&mut Cx, V) + Send + 'static + use<T, V, F>>
    where
        V: 'static,
        F: FnOnce(&mut T, &mut Cx, V) + Send + 'static,
    {
        let cell = CountedArc::clone(&self.cell);
        let event =
            move |cx: &mut Cx, value: V| cell.lend(cx, move |state, cx| f(state, cx, value));
        Callback::new(Some(handler), self.color(), event)
    }

    /// Like [`on`](Self::on), for what delivers many results.
    pub fn on_each<V, F>(
        &self,
        handler: &'static Handler,
        mut f: F,
    ) -> Callback<impl FnMut(&mut Cx, V) + Send + 'static + use<T, V, F>>
    where
        V: 'static,
        F: FnMut(&mut T, &mut Cx, V) + Send + 'static,
    {
        let cell = CountedArc::clone(&self.cell);
        let event = move |cx: &mut Cx, value: V| cell.lend(cx, |state, cx| f(state, cx, value));
        Callback::new(Some(handler), self.color(), event)
    }

    /// Lends the state to `f`, in an event that is of its color.
    ///
    /// # Panics
    /// If the state is poisoned.
    pub(crate) fn lend<R>(&self, cx: &mut Cx, f: impl FnOnce(&mut T, &mut Cx) -> R) -> R {
        self.cell.lend(cx, f)
    }

    /// Lends the state to `f`, if the running handler is of the state's color.
    ///
    /// # Errors
    /// [`Reason`](crate::Reason) says why not; `f` was not called.
    pub fn with<R>(&self, cx: &mut Cx, f: impl FnOnce(&mut T, &mut Cx) -> R) -> Result<R, Reason> {
        self.cell.with(cx, f)
    }
}

impl<T: Send + 'static> ColoredCell<T> {
    /// Lends the state to `f`, in an event that is of its color.
    ///
    /// # Panics
    /// If the state is poisoned.
    fn lend<R>(&self, cx: &mut Cx, f: impl FnOnce(&mut T, &mut Cx) -> R) -> R {
        match self.with(cx, f) {
            Ok(result) => result,
            Err(refused) => panic!("{refused}"),
        }
    }

    fn with<R>(&self, cx: &mut Cx, f: impl FnOnce(&mut T, &mut Cx) -> R) -> Result<R, Reason> {
        let value = self.take(self.state.borrow(cx)?)?;
        let mut loan = Loan {
            cell: self,
            cx,
            value: Some(value),
        };
        let value = loan.value.as_mut().expect("taken by the end of the loan");
        let result = f(value, loan.cx);
        loan.end(false);
        Ok(result)
    }
}

/// The state while somebody has it.
pub(crate) type Lent<T> = Box<T>;

impl<T: Send + 'static> Colored<T> {
    /// Which state it is.
    pub(crate) fn address(&self) -> usize {
        CountedArc::as_ptr(&self.cell).addr()
    }

    /// Takes the state out, in an event of its color.
    pub(crate) fn take(&self, cx: &mut Cx) -> Result<Lent<T>, Reason> {
        self.cell.take(self.cell.state.borrow(cx)?)
    }

    /// Puts it back, in the same event.
    pub(crate) fn put_back(&self, cx: &mut Cx, value: Lent<T>, panicked: bool) {
        let state = self.cell.state.borrow(cx).expect("still the same event");
        self.cell.put_back(state, value, panicked);
    }

    /// Takes the state out of a color that is held.
    pub(crate) fn take_held(&self, held: &mut Held) -> Result<Lent<T>, Reason> {
        self.cell.take(self.cell.state.borrow_held(held)?)
    }

    /// Puts it back.
    pub(crate) fn put_back_held(&self, held: &mut Held, value: Lent<T>, panicked: bool) {
        let state = self.cell.state.borrow_held(held);
        let state = state.expect("the hold that it was taken with");
        self.cell.put_back(state, value, panicked);
    }
}

/// Poisons a state if this is dropped, and not forgotten.
struct Poisons<'a>(&'a AtomicBool);

impl Drop for Poisons<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A loan of the state. If it is dropped, and not ended, whoever had the state panicked.
//
// Not told by asking whether the thread panics: a loan in a `Drop`, while some other panic unwinds,
// may end well.
struct Loan<'a, T: Send + 'static> {
    cell: &'a ColoredCell<T>,
    cx: &'a mut Cx,
    value: Option<Box<T>>,
}

impl<T: Send + 'static> Loan<'_, T> {
    /// Puts the value back, if that was not done.
    fn end(&mut self, panicked: bool) {
        if let Some(value) = self.value.take() {
            let state = self.cell.state.borrow(self.cx);
            let state = state.expect("still the same event");
            self.cell.put_back(state, value, panicked);
        }
    }
}

impl<T: Send + 'static> Drop for Loan<'_, T> {
    fn drop(&mut self) {
        self.end(true);
    }
}

impl<T: Send + 'static> Drop for ColoredCell<T> {
    fn drop(&mut self) {
        let poisoned = self.poisoned.load(Ordering::Relaxed);
        let value = self.state.get_mut().value.take();
        let value = LateDrop::new(value, poisoned || panicking());
        let (poster, color) = (self.state.poster(), self.state.color());
        // Not accepted (ended): the closure comes back and is dropped here with the value, which
        // nobody else can reach.
        if !fault("state dropped in place") {
            match self.unique.take() {
                None => drop(poster.post_own(color, move |_cx| drop(value))),
                // A color of its own is given back when the state is gone.
                Some(unique) => drop(poster.post_own(color, move |_cx| {
                    drop(value);
                    drop(unique);
                })),
            }
        }
    }
}

impl<T: Send + 'static> Clone for Colored<T> {
    fn clone(&self) -> Self {
        Colored {
            cell: CountedArc::clone(&self.cell),
            handler: self.handler,
        }
    }
}

impl<T: Send + 'static> fmt::Debug for Colored<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Colored")
            .field("color", &self.color())
            .finish_non_exhaustive()
    }
}
