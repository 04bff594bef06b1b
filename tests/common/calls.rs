//! Connections whose sessions are closures.

use mely::net::{RecvBuf, Session, Stream};
use mely::{Colored, Cx, Handler};
use std::io;

type OnData = Box<dyn FnMut(&mut Cx, &Stream, io::Result<Option<RecvBuf>>) + Send>;
type OnDrained = Box<dyn FnMut(&mut Cx, &Stream) + Send>;

/// A session that calls one closure with received bytes, with `None` at the end of the peer's
/// stream, and with the error of any other end; and another one when all is sent.
pub struct Calls {
    stream: Option<Stream>,
    half_open: bool,
    on_data: OnData,
    on_drained: OnDrained,
}

impl Calls {
    pub fn new<F>(on_data: F) -> Calls
    where
        F: FnMut(&mut Cx, &Stream, io::Result<Option<RecvBuf>>) + Send + 'static,
    {
        Calls {
            stream: None,
            half_open: false,
            on_data: Box::new(on_data),
            on_drained: Box::new(|_, _| ()),
        }
    }

    /// Ignores what comes.
    pub fn none() -> Calls {
        Calls::new(|_, _, _| ())
    }

    pub fn on_drained<F>(mut self, on_drained: F) -> Calls
    where
        F: FnMut(&mut Cx, &Stream) + Send + 'static,
    {
        self.on_drained = Box::new(on_drained);
        self
    }

    /// The connection stays open after the end of the peer's stream, and after a stop.
    pub fn half_open(mut self) -> Calls {
        self.half_open = true;
        self
    }

    pub fn serve(self, stream: Stream, handler: &'static Handler) -> Colored<Calls> {
        self.open(stream, handler, |_, _| ())
    }

    /// Serves, and calls `f` first, in the event that opens the session.
    pub fn open<F>(mut self, stream: Stream, handler: &'static Handler, f: F) -> Colored<Calls>
    where
        F: FnOnce(&mut Cx, &Stream) + Send + 'static,
    {
        stream.serve(handler, move |cx, stream, _| {
            stream.set_half_open(cx, self.half_open).unwrap();
            f(cx, &stream);
            self.stream = Some(stream);
            self
        })
    }

    pub fn stream(&self) -> &Stream {
        self.stream.as_ref().expect("it is served, and not taken")
    }

    /// The stream; from then on the session ignores what comes.
    pub fn take_stream(&mut self) -> Stream {
        self.stream.take().expect("it is served, and not taken")
    }
}

impl Session for Calls {
    fn data(&mut self, cx: &mut Cx, data: RecvBuf) {
        if let Some(stream) = &self.stream {
            (self.on_data)(cx, stream, Ok(Some(data)));
        }
    }

    fn drained(&mut self, cx: &mut Cx) {
        if let Some(stream) = &self.stream {
            (self.on_drained)(cx, stream);
        }
    }

    fn end(&mut self, cx: &mut Cx, end: io::Result<()>) {
        if let Some(stream) = &self.stream {
            (self.on_data)(cx, stream, end.map(|()| None));
        }
    }
}
