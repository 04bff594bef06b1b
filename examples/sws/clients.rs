//! Who is connected: Accept and DecClientAccepted of the paper, and the end of the server.

use crate::args::Accept;
use crate::server::Server;
use crate::session::{CLOSE, Session};
use crate::{NAME, out};
use mely::net::{Acceptors, Incoming, Listener, listen};
use mely::{Color, Colored, Cx, Handler};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

static ACCEPT: Handler = Handler::new("Accept");
static DEC_CLIENT_ACCEPTED: Handler = Handler::new("DecClientAccepted");
static STOP: Handler = Handler::new("Stop");

/// The paper's color of Accept.
const ACCEPT_COLOR: Color = Color::new(1);
/// How long connections have to finish once the server was told to stop.
const FINISH: Duration = Duration::from_secs(5);

/// The state of [`ACCEPT_COLOR`].
pub(crate) struct Clients {
    server: &'static Server,
    listener: Option<Listener>,
    /// By the number that Accept gave them.
    open: HashMap<u64, Colored<Session>>,
    next: u64,
    stopping: bool,
}

/// Listens, and announces it. An error is the reason why the server cannot run.
pub(crate) fn start(cx: &mut Cx, server: &'static Server) -> io::Result<SocketAddr> {
    let clients = Clients {
        server,
        listener: None,
        open: HashMap::new(),
        next: 0,
        stopping: false,
    };
    let clients = Colored::new(cx, ACCEPT_COLOR, clients);
    let acceptors = match server.args.accept {
        Accept::PerCore => Acceptors::PerCore,
        Accept::Single => Acceptors::Single,
    };
    let its = clients.clone();
    let on_accept = move |cx: &mut Cx, incoming| {
        let _ = its.with(cx, |clients, cx| clients.accept(cx, &its, incoming));
    };
    if let Some(report) = cx.backends().first() {
        let _ = server
            .backend
            .set((report.name().to_owned(), report.refused().join("; ")));
    }
    let listener = listen(
        cx,
        server.args.listen,
        acceptors,
        ACCEPT.on(ACCEPT_COLOR, on_accept),
    )?;
    let addr = listener.local_addr();
    let its = clients.clone();
    cx.on_stop_signal(STOP.on(ACCEPT_COLOR, move |cx: &mut Cx| {
        let _ = its.with(cx, |clients, cx| clients.stop(cx, &its));
    }))?;
    let keep = move |clients: &mut Clients, _: &mut Cx| clients.listener = Some(listener);
    clients
        .post_as(cx, &ACCEPT, keep)
        .map_err(io::Error::other)?;
    if let Err(error) = out::print(&format!("listening on {addr}\n")) {
        out::try_say(
            NAME,
            format_args!("listening on {addr}; standard output: {error}"),
        );
    }
    Ok(addr)
}

impl Clients {
    /// Accept.
    fn accept(&mut self, cx: &mut Cx, me: &Colored<Clients>, incoming: io::Result<Incoming>) {
        let incoming = match incoming {
            Ok(incoming) => incoming,
            Err(error) => {
                // The runtime goes on a little later: connections wait in the kernel meanwhile.
                out::try_say(NAME, format_args!("accept: {error}"));
                return;
            }
        };
        let server = self.server;
        let refused = self.open.len() >= server.args.clients_max || self.stopping;
        let counter = if refused {
            &server.rejected
        } else {
            &server.accepted
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let number = self.next;
        self.next += 1;
        let session = Session::open(cx, server, incoming, me.clone(), number, refused);
        if !refused {
            server.open.fetch_add(1, Ordering::Relaxed);
            self.open.insert(number, session);
        }
    }

    /// A connection has closed.
    pub(crate) fn closed(me: &Colored<Clients>, cx: &mut Cx, number: u64) {
        let dec = move |c: &mut Clients, cx: &mut Cx| c.dec_client_accepted(cx, number);
        // Refused only once the runtime has ended.
        let _ = me.post_as(cx, &DEC_CLIENT_ACCEPTED, dec);
    }

    /// DecClientAccepted.
    fn dec_client_accepted(&mut self, cx: &mut Cx, number: u64) {
        if self.open.remove(&number).is_some() {
            self.server.open.fetch_sub(1, Ordering::Relaxed);
        }
        if self.stopping && self.open.is_empty() {
            cx.stop();
        }
    }

    /// SIGINT or SIGTERM: no new clients; those there finish the request under way.
    fn stop(&mut self, cx: &mut Cx, me: &Colored<Clients>) {
        if std::mem::replace(&mut self.stopping, true) {
            return;
        }
        self.listener = None;
        if self.open.is_empty() {
            cx.stop();
            return;
        }
        for session in self.open.values() {
            let _ = session.post_as(cx, &CLOSE, Session::wind_down);
        }
        let me = me.clone();
        let give_up = move |cx: &mut Cx| {
            let _ = me.with(cx, Clients::give_up);
        };
        cx.timer(FINISH, STOP.on(ACCEPT_COLOR, give_up));
    }

    /// Those who have not finished are cut: the runtime waits for sends, and a client that does not
    /// read would make it wait in vain.
    fn give_up(&mut self, cx: &mut Cx) {
        for session in self.open.values() {
            let _ = session.post_as(cx, &CLOSE, |s: &mut Session, cx| s.close(cx, true));
        }
    }
}
