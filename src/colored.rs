//! State that belongs to a color.
//!
//! # Why this is sound
//!
//! A [`Colored<T>`] hands out `&mut T` without a lock. Three checks make that exclusive:
//!
//! 1. *Runtime and exact color.* The value is reached only through a handler context, and only if
//!    that context runs an event of this very runtime and this very color (the 64-bit value, not
//!    the slot). The scheduler runs the events of a color one at a time, so at most one thread is
//!    past this check at any moment; and a context does not leave its thread, nor does user code
//!    get one outside an event. Successive events of a color are ordered by the core lock or by the
//!    same thread, so what one wrote the next one sees.
//! 2. *A borrow flag.* Within that one event the value might be asked for again while it is lent:
//!    the second request is refused.
//! 3. *`T: Send`*, since the color may move between cores.
//!
//! The value is dropped by an event of its color. Once the runtime was asked to stop it takes no
//! more posts from outside, and then a thread that is none of its cores drops the value in place if
//! it drops the last handle: nobody else can then reach it.

use crate::callback::Callback;
use crate::host::inner::Inner;
use crate::host::poster::{PostError, Poster};
use crate::host::unique::UniqueColor;
use crate::post::Post;
use crate::sync::{Arc, CountedArc, UnsafeCell, fault};
use crate::{Color, Cx, Handler};
use std::fmt;

/// State owned by a color: handlers of that color, and only they, get `&mut T`.
///
/// A handle; clones name the same state. When the last is gone, the state is dropped in its color.
///
/// ```
/// use mely::{Color, Colored, Handler, Runtime};
/// static COUNT: Handler = Handler::new("count");
/// Runtime::builder().build()?.run(|cx| {
///     let hits = Colored::new(cx, Color::from(9), 0u64);
///     for _ in 0..10 {
///         hits.post_as(cx, &COUNT, |hits, _cx| *hits += 1);
///     }
///     // Same color, posted later: runs after them.
///     hits.post(cx, |hits, cx| {
///         assert_eq!(*hits, 10);
///         cx.stop();
///     });
///     // Not this color: refused.
///     assert!(hits.with(cx, |hits, _| *hits).is_err());
/// })?;
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
    cell: CountedArc<Cell<T>>,
}

struct Cell<T: Send + 'static> {
    inner: Arc<Inner>,
    color: Color,
    /// The color, if it is the state's own.
    unique: Option<UniqueColor>,
    loan: UnsafeCell<Loans>,
    /// A cell of its own, because the other one is looked at while this one is lent. Taken by the
    /// drop only.
    value: UnsafeCell<Option<T>>,
}

#[derive(Default)]
struct Loans {
    lent: bool,
    poisoned: bool,
}

// SAFETY: the module text: the state is reached by one thread at a time, and `T: Send`.
unsafe impl<T: Send> Send for Cell<T> {}
// SAFETY: as above; through a shared reference the state is reached by `with` only.
unsafe impl<T: Send> Sync for Cell<T> {}

/// Why access to a [`Colored`] was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// The state belongs to another runtime than the handler that asked.
    OtherRuntime,
    /// The handler that asked runs in another color.
    OtherColor {
        /// The color of the state.
        state: Color,
        /// The color of the handler.
        handler: Color,
    },
    /// The state is already lent, further up the stack.
    Lent,
    /// A handler panicked while it had the state.
    Poisoned,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::OtherRuntime => f.write_str("the state belongs to another runtime"),
            Refused::OtherColor { state, handler } => write!(
                f,
                "the state belongs to color {state} and the handler runs in color {handler}"
            ),
            Refused::Lent => f.write_str("the state is already lent to this event"),
            Refused::Poisoned => f.write_str("a handler panicked while it had the state"),
        }
    }
}

impl std::error::Error for Refused {}

impl Refused {
    /// Whether the event that runs may reach what belongs to this color of this runtime.
    #[inline(always)]
    pub(crate) fn check(cx: &Cx, inner: &Arc<Inner>, color: Color) -> Result<(), Refused> {
        let same_runtime = Arc::ptr_eq(inner, &cx.worker_ref().inner);
        if same_runtime && cx.color() == color {
            return Ok(());
        }
        Err(Refused::because(same_runtime, color, cx.color()))
    }

    /// Apart, because it is rare.
    #[cold]
    fn because(same_runtime: bool, state: Color, handler: Color) -> Refused {
        if !same_runtime {
            return Refused::OtherRuntime;
        }
        Refused::OtherColor { state, handler }
    }
}

impl<T: Send + 'static> Colored<T> {
    /// State `value` of `color`, in the runtime of `by`.
    pub fn new(by: &(impl Post + ?Sized), color: Color, value: T) -> Colored<T> {
        Colored::make(by.to_poster().inner, color, None, value)
    }

    /// State `value` of a color that nobody else has, for as long as the state is there; the color
    /// starts on this core.
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
        Colored::make(cx.poster().inner, color, Some(unique), value)
    }

    fn make(inner: Arc<Inner>, color: Color, unique: Option<UniqueColor>, value: T) -> Colored<T> {
        let cell = Cell {
            inner,
            color,
            unique,
            loan: UnsafeCell::new(Loans::default()),
            value: UnsafeCell::new(Some(value)),
        };
        Colored {
            cell: CountedArc::new(cell),
        }
    }

    /// The color the state belongs to.
    pub fn color(&self) -> Color {
        self.cell.color
    }

    /// Posts `f` to the state's color; it runs with the state, in the state's own runtime also if
    /// `by` is of another.
    ///
    /// Returns nothing with a [`Cx`], and with a [`Poster`] a `Result` that gives the closure back,
    /// as [`Poster::post`] does.
    ///
    /// The event panics, with all that [`OnPanic`](crate::OnPanic) says, if the state is poisoned.
    ///
    /// # Panics
    /// With a [`Cx`]: at the builder's limit of queued events; and if the state is of another
    /// runtime that has ended. [`try_post`](Self::try_post) or a `Poster` tell instead.
    pub fn post<P, F>(&self, by: &P, f: F) -> P::Posted<F>
    where
        P: Post + ?Sized,
        F: FnOnce(&mut T, &mut Cx) + Send + 'static,
    {
        P::posted(self.post_event(by, None, f))
    }

    /// Like [`post`](Self::post), under a handler.
    ///
    /// # Panics
    /// As [`post`](Self::post).
    pub fn post_as<P, F>(&self, by: &P, handler: &'static Handler, f: F) -> P::Posted<F>
    where
        P: Post + ?Sized,
        F: FnOnce(&mut T, &mut Cx) + Send + 'static,
    {
        P::posted(self.post_event(by, Some(handler), f))
    }

    /// Like [`post`](Self::post), and gives the closure back where that panics.
    ///
    /// # Errors
    /// As [`Poster::post`].
    pub fn try_post<P, F>(&self, by: &P, f: F) -> Result<(), PostError<F>>
    where
        P: Post + ?Sized,
        F: FnOnce(&mut T, &mut Cx) + Send + 'static,
    {
        self.post_event(by, None, f)
    }

    /// Like [`try_post`](Self::try_post), under a handler.
    ///
    /// # Errors
    /// As [`Poster::post`].
    pub fn try_post_as<P, F>(
        &self,
        by: &P,
        handler: &'static Handler,
        f: F,
    ) -> Result<(), PostError<F>>
    where
        P: Post + ?Sized,
        F: FnOnce(&mut T, &mut Cx) + Send + 'static,
    {
        self.post_event(by, Some(handler), f)
    }

    fn post_event<P, F>(
        &self,
        by: &P,
        handler: Option<&'static Handler>,
        f: F,
    ) -> Result<(), PostError<F>>
    where
        P: Post + ?Sized,
        F: FnOnce(&mut T, &mut Cx) + Send + 'static,
    {
        let color = self.cell.color;
        let wrap = |f| {
            let this = self.clone();
            move |cx: &mut Cx| this.lend(cx, f)
        };
        if by.runtime() == Arc::as_ptr(&self.cell.inner).cast() {
            return by.post_wrapped(handler, color, f, wrap);
        }
        let own = Poster {
            inner: Arc::clone(&self.cell.inner),
        };
        own.post_wrapped(handler, color, f, wrap)
    }

    /// A callback that runs `f` with the state, in its color and under `handler`. It holds a
    /// handle.
    ///
    /// The event panics, with all that [`OnPanic`](crate::OnPanic) says, if the state is poisoned.
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
        let this = self.clone();
        let event = move |cx: &mut Cx| this.lend(cx, f);
        Callback::new(Some(handler), self.cell.color, event)
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
        let this = self.clone();
        let event =
            move |cx: &mut Cx, value: V| this.lend(cx, move |state, cx| f(state, cx, value));
        Callback::new(Some(handler), self.cell.color, event)
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
        let this = self.clone();
        let event = move |cx: &mut Cx, value: V| this.lend(cx, |state, cx| f(state, cx, value));
        Callback::new(Some(handler), self.cell.color, event)
    }

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

    /// Lends the state to `f`, if the running handler is of the state's color.
    ///
    /// # Errors
    /// [`Refused`] says why not; `f` was not called.
    pub fn with<R>(&self, cx: &mut Cx, f: impl FnOnce(&mut T, &mut Cx) -> R) -> Result<R, Refused> {
        let cell = &*self.cell;
        Refused::check(cx, &cell.inner, cell.color)?;
        // SAFETY: we are inside an event, since nothing else is given a `Cx`, and one of this
        // runtime and color (module text, 1), so no other thread is here; and no user code runs
        // while this borrow lives.
        let mut loan = unsafe { cell.loan.borrow_mut() };
        if loan.lent {
            return Err(Refused::Lent);
        }
        if loan.poisoned {
            return Err(Refused::Poisoned);
        }
        loan.lent = true;
        loan.end();
        let loan = Loan(cell);
        // SAFETY: no other thread is here, as above; and `lent`, which no frame of ours further up
        // had set, keeps every other access away until the loan ends.
        let mut value = unsafe { cell.value.borrow_mut() };
        let result = f(value.as_mut().expect("taken by the last drop only"), cx);
        value.end();
        loan.end();
        Ok(result)
    }
}

/// A loan of the state. If it is dropped, and not ended, whoever had the state panicked.
//
// Not told by asking whether the thread panics: a loan in a `Drop`, while some other panic unwinds,
// may end well.
struct Loan<'a, T: Send + 'static>(&'a Cell<T>);

impl<T: Send + 'static> Loan<'_, T> {
    fn end(self) {
        // SAFETY: still inside the event that took the loan; the loaned reference is dead.
        unsafe { self.0.loan.borrow_mut() }.lent = false;
        std::mem::forget(self);
    }
}

impl<T: Send + 'static> Drop for Loan<'_, T> {
    fn drop(&mut self) {
        // SAFETY: as in `end`.
        let mut loan = unsafe { self.0.loan.borrow_mut() };
        loan.lent = false;
        loan.poisoned = true;
    }
}

impl<T: Send + 'static> Drop for Cell<T> {
    fn drop(&mut self) {
        // SAFETY: the last handle is gone.
        let value = unsafe { self.value.borrow_mut() }.take();
        let poster = Poster {
            inner: self.inner.clone(),
        };
        // Not accepted (ended): the closure comes back and is dropped here with the value, which
        // nobody else can reach.
        if !fault("state dropped in place") {
            match self.unique.take() {
                None => drop(poster.post_own(self.color, move |_cx| drop(value))),
                // A color of its own is given back when the state is gone.
                Some(unique) => drop(poster.post_own(self.color, move |_cx| {
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
        }
    }
}

impl<T: Send + 'static> fmt::Debug for Colored<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Colored")
            .field("color", &self.cell.color)
            .finish_non_exhaustive()
    }
}
