//! Callbacks: handler, color and closure in one value (the papers' `cwrap`).

use crate::{Color, Handler};

/// A closure with the handler it counts under and the color it runs in.
///
/// The color lives in the callback and not in the call that registers it, so that a module can take
/// callbacks and call them back without knowing their color (libasync-smp §3.2). `F` is
/// `FnOnce(&mut Cx)` for what [`Cx::post_callback`](crate::Cx::post_callback) takes, and takes a
/// further argument where an operation delivers a result.
///
/// Made by [`Handler::on`], or by [`Callback::anonymous`].
#[derive(Clone, Copy, Debug)]
pub struct Callback<F> {
    pub(crate) handler: Option<&'static Handler>,
    pub(crate) color: Color,
    pub(crate) f: F,
}

impl<F> Callback<F> {
    pub(crate) const fn new(handler: Option<&'static Handler>, color: Color, f: F) -> Self {
        Callback { handler, color, f }
    }

    /// A callback without a handler of its own: its times are kept by closure type.
    pub const fn anonymous(color: Color, f: F) -> Self {
        Callback::new(None, color, f)
    }

    /// The color its events will have.
    pub const fn color(&self) -> Color {
        self.color
    }
}

impl Handler {
    /// A callback that runs `f` under this handler in `color`; see [`Callback`].
    ///
    /// ```
    /// use mely::{Color, Cx, Handler};
    /// static GREET: Handler = Handler::new("greet");
    /// let callback = GREET.on(Color::from(7), |cx: &mut Cx| assert_eq!(cx.handler(), "greet"));
    /// assert_eq!(callback.color(), Color::from(7));
    /// ```
    pub const fn on<F>(&'static self, color: Color, f: F) -> Callback<F> {
        Callback::new(Some(self), color, f)
    }
}
