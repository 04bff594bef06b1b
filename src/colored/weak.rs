//! Handles that do not keep the state.

use super::{Colored, ColoredCell};
use crate::callback::Callback;
use crate::sync::{CountedArc, CountedWeak};
use crate::{Color, Cx, Handler};
use std::fmt;

/// A handle to the state of a [`Colored`] that does not keep it: for caches, and for state that
/// knows of the state which owns it.
///
/// `Clone + Send + Sync`. For what it does not offer (asking, [`with`](Colored::with), a post from
/// other threads) [`upgrade`](Self::upgrade) it. The drop of the last `Colored` drops the state in
/// its color, however many of these there are; what is left for them is some memory, and nothing of
/// the state's own.
///
/// ```
/// use mely::state::WeakColored;
/// use mely::{Color, Colored, Runtime};
///
/// struct Child {
///     /// Who owns it: with a `Colored` neither would ever be dropped.
///     parent: WeakColored<Parent>,
/// }
/// struct Parent {
///     child: Option<Colored<Child>>,
///     news: u32,
/// }
///
/// let news = Runtime::builder().build()?.run_until(|cx, finish| {
///     let parent = Colored::new(cx, Color::from(1), Parent { child: None, news: 0 });
///     let child = Child { parent: parent.downgrade() };
///     let child = Colored::new(cx, Color::from(2), child);
///     child.post(cx, |child, cx| {
///         // None once the parent is gone.
///         if let Some(parent) = child.parent.upgrade() {
///             parent.post(cx, |parent, _cx| parent.news += 1);
///         }
///     });
///     let its = child.clone();
///     parent.post(cx, |parent, _cx| parent.child = Some(its));
///     child.post(cx, move |_, cx| {
///         parent.post(cx, move |parent, _cx| finish.finish(parent.news));
///     });
/// })?;
/// assert_eq!(news, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct WeakColored<T: Send + 'static> {
    cell: CountedWeak<ColoredCell<T>>,
    color: Color,
    handler: Option<&'static Handler>,
}

impl<T: Send + 'static> Colored<T> {
    /// A handle that does not keep the state.
    pub fn downgrade(&self) -> WeakColored<T> {
        WeakColored {
            cell: CountedArc::downgrade(&self.cell),
            color: self.color(),
            handler: self.handler,
        }
    }
}

impl<T: Send + 'static> WeakColored<T> {
    /// A handle that keeps the state; none if the last one has been dropped, also if the state
    /// itself, whose drop is an event of its color, still waits for that.
    ///
    /// Whoever drops what this returns may be dropping the last handle: from any thread, the state
    /// is dropped as [`Colored`] says.
    pub fn upgrade(&self) -> Option<Colored<T>> {
        let cell = self.cell.upgrade()?;
        Some(Colored {
            cell,
            handler: self.handler,
        })
    }

    /// Lends the state to `f`, if it is there, in an event of its color.
    fn lend(&self, cx: &mut Cx, f: impl FnOnce(&mut T, &mut Cx)) {
        if let Some(state) = self.upgrade() {
            state.lend(cx, f);
        }
    }

    /// The color of the state.
    pub fn color(&self) -> Color {
        self.color
    }

    /// Posts `f` as [`Colored::post`] does. If the state is gone, `f` is dropped at once.
    ///
    /// # Panics
    /// As [`Colored::post`].
    #[track_caller]
    pub fn post<F>(&self, cx: &Cx, f: F)
    where
        F: FnOnce(&mut T, &mut Cx) + Send + 'static,
    {
        if let Some(state) = self.upgrade() {
            state.post(cx, f);
        }
    }

    /// A callback as [`Colored::on`] makes it, which does not keep the state: if that is gone by
    /// then, nothing is called. For timers of a state that keeps their handles.
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
        Callback::new(Some(handler), self.color, event)
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
        let event = move |cx: &mut Cx, value: V| this.lend(cx, |state, cx| f(state, cx, value));
        Callback::new(Some(handler), self.color, event)
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
        Callback::new(Some(handler), self.color, event)
    }
}

impl<T: Send + 'static> Clone for WeakColored<T> {
    fn clone(&self) -> Self {
        WeakColored {
            cell: CountedWeak::clone(&self.cell),
            color: self.color,
            handler: self.handler,
        }
    }
}

impl<T: Send + 'static> fmt::Debug for WeakColored<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakColored")
    }
}
