//! mely as its users write a server: a session a connection.

use super::super::wire::{Cutter, First, Request, TIMER_MS, compute};
use super::{Result, listening};
use mely::net::{Acceptors, Backend, RecvBuf, Session, Stream};
use mely::runtime::Stealing;
use mely::{Builder, Color, Cx, Handler, Runtime};
use std::io;
use std::time::Duration;

static RESPOND: Handler = Handler::new("respond");
static TIMER: Handler = Handler::new("timer");
static CONNECT: Handler = Handler::new("connect");
static STOP: Handler = Handler::new("stop");

struct Requests {
    stream: Stream,
    cutter: Cutter,
}

impl Session for Requests {
    fn data(&mut self, cx: &mut Cx, data: RecvBuf) {
        let mut has_failed = false;
        self.cutter.cut(&data, |bytes| {
            let request = Request::of(&bytes);
            let begun = begin(cx, &self.stream, request);
            compute(request.iterations);
            let written = self.stream.write(cx, bytes.to_vec());
            has_failed |= begun.and(written.map_err(io::Error::other)).is_err();
        });
        if has_failed {
            self.stream.abort(cx);
        }
    }
}

fn begin(cx: &mut Cx, stream: &Stream, request: Request) -> io::Result<()> {
    match request.first {
        First::Nothing => Ok(()),
        First::Write => {
            let written = stream.write(cx, request.bytes().to_vec());
            written.map_err(io::Error::other)
        }
        First::Timer => {
            let due = Duration::from_millis(TIMER_MS);
            let _ = cx.timer(due, TIMER.on(cx.color(), |_cx| ()));
            Ok(())
        }
        First::Connect => {
            let connected = CONNECT.on_value(cx.color(), |_cx, connection| drop(connection));
            cx.connect(request.addr(), Duration::from_secs(10), connected)
        }
    }
}

fn start(cx: &mut Cx, stop: impl Fn() + Send + 'static) -> io::Result<()> {
    let addr = "127.0.0.1:0";
    let open = |_: &mut Cx, stream, _: &_| Requests {
        stream,
        cutter: Cutter::default(),
    };
    let listener = cx.serve(addr, Acceptors::PerCore, &RESPOND, open)?;
    listening(listener.local_addr().ip().unwrap())?;
    cx.on_stop_signal(STOP.on_each(Color::DEFAULT, move |_cx, ()| stop()))
}

fn serve_as(builder: Builder, workers: usize) -> Result<()> {
    mely::net::raise_open_file_limit()?;
    let runtime = builder.cores(workers).build()?;
    let served = runtime.run_until(|cx, finish| {
        let stop = finish.clone();
        if let Err(error) = start(cx, move || stop.finish(Ok(()))) {
            finish.finish(Err(error));
        }
    })?;
    Ok(served?)
}

/// With the builder's defaults.
pub(super) fn serve(workers: usize) -> Result<()> {
    serve_as(Runtime::builder(), workers)
}

/// On epoll.
pub(super) fn serve_by_epoll(workers: usize) -> Result<()> {
    serve_as(Runtime::builder().backend(Backend::Epoll), workers)
}

/// Without stealing: connections stay on their cores.
pub(super) fn serve_without_stealing(workers: usize) -> Result<()> {
    serve_as(Runtime::builder().stealing(Stealing::OFF), workers)
}
