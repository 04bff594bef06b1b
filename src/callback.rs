//! Callbacks: handler, color and closure in one value (the papers' `cwrap`).

use crate::{Color, Cx, Handler};
use std::fmt;

/// A closure with the handler it counts under and the color it runs in.
///
/// The color lives in the callback and not in the call that registers it, so that a module can
/// take callbacks and call them back without knowing their color (libasync-smp §3.2). Its closure
/// is one of three:
///
/// | closure | made by | for |
/// |---|---|---|
/// | `FnOnce(&mut Cx)` | [`Handler::on`] | an event: [`Callback::post`], [`Cx::timer`] |
/// | `FnOnce(&mut Cx, T)` | [`Handler::on_value`] | what delivers one result: [`Cx::connect`] |
/// | `FnMut(&mut Cx, T)` | [`Handler::on_each`] | what delivers many: [`Cx::listen`] |
///
/// Without a handler: [`Callback::anonymous`], [`anonymous_value`](Callback::anonymous_value),
/// [`anonymous_each`](Callback::anonymous_each). With the state of a color:
/// [`Colored::on`](crate::Colored::on) and its like.
///
/// A module calls back once, by [`bind`](Callback::bind); a callback of many results is called
/// again by mely only, or by whoever can clone its closure. One that is dropped calls nobody.
///
/// ```
/// mod resolver {
///     use mely::{Callback, Color, Cx, Handler};
///     use std::net::Ipv4Addr;
///
///     static LOOK_UP: Handler = Handler::new("look up");
///     const NAMES: Color = Color::new(53);
///
///     /// Finds the address of `name`, and calls back with it.
///     pub fn resolve<F>(cx: &Cx, name: String, done: Callback<F>)
///     where
///         F: FnOnce(&mut Cx, Option<Ipv4Addr>) + Send + 'static,
///     {
///         let look_up = LOOK_UP.on(NAMES, move |cx| {
///             let found = (name == "localhost").then_some(Ipv4Addr::LOCALHOST);
///             // In the color of the caller.
///             done.bind(found).post(cx);
///         });
///         look_up.post(cx);
///     }
/// }
///
/// use mely::{Color, Handler, Runtime};
/// static FOUND: Handler = Handler::new("found");
/// let found = Runtime::builder().build()?.run_until(|cx, finish| {
///     let done = FOUND.on_value(Color::from(7), move |cx, addr| {
///         assert_eq!(cx.color(), Color::from(7));
///         finish.finish(addr);
///     });
///     resolver::resolve(cx, "localhost".to_owned(), done);
/// })?;
/// assert!(found.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
#[derive(Clone, Copy)]
#[must_use = "nobody is called unless it is posted or handed over"]
pub struct Callback<F> {
    pub(crate) handler: Option<&'static Handler>,
    pub(crate) color: Color,
    pub(crate) f: F,
}

impl<F> fmt::Debug for Callback<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callback")
            .field("handler", &self.handler.map(Handler::name))
            .field("color", &self.color)
            .finish_non_exhaustive()
    }
}

impl<F> Callback<F> {
    pub(crate) const fn new(handler: Option<&'static Handler>, color: Color, f: F) -> Self {
        Callback { handler, color, f }
    }

    /// A callback without a handler of its own: its times are kept by closure type.
    pub const fn anonymous(color: Color, f: F) -> Self
    where
        F: FnOnce(&mut Cx),
    {
        Callback::new(None, color, f)
    }

    /// Like [`anonymous`](Self::anonymous), for what delivers one result.
    pub const fn anonymous_value<T>(color: Color, f: F) -> Self
    where
        F: FnOnce(&mut Cx, T),
    {
        Callback::new(None, color, f)
    }

    /// Like [`anonymous`](Self::anonymous), for what delivers many results.
    pub const fn anonymous_each<T>(color: Color, f: F) -> Self
    where
        F: FnMut(&mut Cx, T),
    {
        Callback::new(None, color, f)
    }

    /// The color its events will have.
    pub const fn color(&self) -> Color {
        self.color
    }

    /// The callback with its result: an event to be posted by [`post`](Callback::post),
    /// in the callback's color and under its handler.
    pub fn bind<T>(self, value: T) -> Callback<impl FnOnce(&mut Cx) + Send + 'static>
    where
        F: FnOnce(&mut Cx, T) + Send + 'static,
        T: Send + 'static,
    {
        let Callback { handler, color, f } = self;
        Callback::new(handler, color, move |cx: &mut Cx| f(cx, value))
    }
}

impl Handler {
    /// A callback that runs `f` under this handler in `color`; see [`Callback`].
    ///
    /// ```
    /// use mely::{Color, Handler};
    /// static GREET: Handler = Handler::new("greet");
    /// let callback = GREET.on(Color::from(7), |cx| assert_eq!(cx.handler(), "greet"));
    /// assert_eq!(callback.color(), Color::from(7));
    /// ```
    pub const fn on<F>(&'static self, color: Color, f: F) -> Callback<F>
    where
        F: FnOnce(&mut Cx),
    {
        Callback::new(Some(self), color, f)
    }

    /// Like [`on`](Self::on), for what delivers one result.
    ///
    /// ```
    /// use mely::{Color, Handler, Runtime};
    /// static SAY: Handler = Handler::new("say");
    /// Runtime::builder().build()?.run(|cx| {
    ///     let say = SAY.on_value(Color::from(7), |cx, what: &str| {
    ///         println!("{what} from {}", cx.color());
    ///         cx.stop();
    ///     });
    ///     say.bind("hello").post(cx);
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn on_value<T, F>(&'static self, color: Color, f: F) -> Callback<F>
    where
        F: FnOnce(&mut Cx, T),
    {
        Callback::new(Some(self), color, f)
    }

    /// Like [`on`](Self::on), for what delivers many results.
    pub const fn on_each<T, F>(&'static self, color: Color, f: F) -> Callback<F>
    where
        F: FnMut(&mut Cx, T),
    {
        Callback::new(Some(self), color, f)
    }
}
