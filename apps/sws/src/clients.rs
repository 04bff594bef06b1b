//! Who is connected: Accept and DecClientAccepted of the paper, and the end of the server.

use crate::args::Accept;
use crate::leaving::Leaving;
use crate::places::Places;
use crate::server::Server;
use crate::session::{CLOSE, Session};
use crate::voice::{QUIET, Voice};
use crate::{NAME, clock, out, process, signals, source};
use mely::net::{Acceptors, Incoming, Listener};
use mely::runtime::PanicReport;
use mely::state::WeakColored;
use mely::{Color, Colored, Cx, Handler, Poster};
use mely_apps_common::cores;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

static ACCEPT: Handler = Handler::new("Accept");
static DEC_CLIENT_ACCEPTED: Handler = Handler::new("DecClientAccepted");
static STOP: Handler = Handler::new("Stop");

/// The paper's color of Accept.
pub(crate) const ACCEPT_COLOR: Color = Color::new(1);
/// What the runtime opens to hear signals.
const SIGNAL_DESCRIPTORS: u64 = 4;

/// The state of [`ACCEPT_COLOR`].
pub(crate) struct Clients {
    server: &'static Server,
    listener: Option<Listener>,
    places: Places,
    /// Those that are served, by the number that Accept gave them.
    open: HashMap<u64, Colored<Session>>,
    /// Those that are about to be told that there is no room.
    refused: HashMap<u64, Colored<Session>>,
    /// Those that had their last answer.
    leaving: Leaving<Colored<Session>>,
    next: u64,
    stopping: bool,
    /// Somebody may still be accepted.
    listening: bool,
    voice: Voice,
    /// What [`Voice`] holds back is said when a timer fires that was set.
    says_later: bool,
}

/// What the listener's callback holds: dropped with it, when nobody will be accepted any more.
struct Door {
    clients: Colored<Clients>,
    poster: Poster,
}

impl Drop for Door {
    fn drop(&mut self) {
        // Refused once the runtime was asked to stop: then nobody waits for it.
        let _ = self
            .clients
            .via(&STOP)
            .try_post(&self.poster, Clients::door_closed);
    }
}

/// Listens, and announces it. An error is the reason why the server cannot run.
pub(crate) fn start(cx: &mut Cx, server: &'static Server) -> io::Result<SocketAddr> {
    let places = plan(cx, server).map_err(io::Error::other)?;
    let clients = Clients {
        server,
        listener: None,
        places,
        open: HashMap::new(),
        refused: HashMap::new(),
        leaving: Leaving::new(places.leaving as usize),
        next: 0,
        stopping: false,
        listening: true,
        voice: Voice::default(),
        says_later: false,
    };
    let clients = Colored::new(cx, ACCEPT_COLOR, clients);
    let _ = server.clients.set(clients.downgrade());
    let acceptors = match server.args.accept {
        Accept::PerCore => Acceptors::PerCore,
        Accept::Single => Acceptors::Single,
    };
    let door = Door {
        clients: clients.clone(),
        poster: cx.poster(),
    };
    let on_accept = clients.on_each(&ACCEPT, move |clients, cx, incoming| {
        clients.accept(cx, &door.clients, incoming);
    });
    if let Some(said) = cores::told(&server.poster.stats()) {
        out::try_say(NAME, said);
    }
    let (source, reason) = source::told(&cx.poster().backends());
    if !reason.is_empty() {
        out::try_say(NAME, format_args!("runs on {source}, since {reason}"));
    }
    let _ = server.backend.set((source, reason));
    let listener = cx.listen(server.args.listen, acceptors, on_accept)?;
    let addr = listener.local_addr();
    let me = clients.clone();
    cx.on_stop_signal(clients.on_each(&STOP, move |clients, cx, ()| clients.stop(cx, &me)))?;
    signals::install()?;
    let keep = move |clients: &mut Clients, _: &mut Cx| clients.listener = Some(listener);
    clients
        .via(&ACCEPT)
        .try_post(cx, keep)
        .map_err(io::Error::other)?;
    if let Some(warning) = places.warning(server.args.clients_max as u64) {
        out::try_say(NAME, warning);
    }
    if let Err(error) = out::try_print(&format!("listening on {addr}\n")) {
        out::try_say(
            NAME,
            format_args!("listening on {addr}; standard output: {error}"),
        );
    }
    Ok(addr.ip().expect("an IP address was asked for"))
}

/// A handler has panicked. A connection whose handler it was is closed, and gives its place back.
/// Without Accept's state no client can be accepted: then the server ends.
pub(crate) fn panicked(server: &Server, panic: &PanicReport) {
    let (handler, color) = (panic.handler, panic.color);
    if color == ACCEPT_COLOR {
        let _ = server.failed.set(panic.clone());
        return server.poster.stop();
    }
    out::try_say(
        NAME,
        format_args!("handler {handler} panicked: its connection is closed"),
    );
    if let Some(clients) = server.clients.get().and_then(WeakColored::upgrade) {
        let ends = move |clients: &mut Clients, cx: &mut Cx| clients.end_after_panic(cx, color);
        // Refused if the clients' state is gone, or its own event has panicked.
        let _ = clients.via(&CLOSE).try_post(&server.poster, ends);
    }
}

/// How many clients there is room for.
fn plan(cx: &Cx, server: &Server) -> Result<Places, String> {
    let clients = server.args.clients_max as u64;
    let cores = cx.cores() as u64;
    // Where /proc is hidden: what it takes, and some to spare.
    let open = process::descriptors().unwrap_or(8 + 4 * cores);
    // The listeners are yet to be made, and what hears signals.
    let open = open + cores + SIGNAL_DESCRIPTORS;
    let places = Places::plan(clients, open, server.files_max)?;
    let _ = server.places.set(places);
    Ok(places)
}

impl Clients {
    /// Accept.
    fn accept(&mut self, cx: &mut Cx, me: &Colored<Clients>, incoming: io::Result<Incoming>) {
        let incoming = match incoming {
            Ok(incoming) => incoming,
            // The runtime goes on a little later.
            Err(error) => {
                let mut text = format!("accept: {error}: who comes now waits");
                if error.raw_os_error() == Some(libc::EMFILE) {
                    text += &format!(" (the limit of open files is {})", self.server.files_max);
                }
                return self.say(cx, me, text);
            }
        };
        let server = self.server;
        let refused = self.open.len() as u64 >= self.places.clients;
        let counter = if refused {
            &server.rejected
        } else {
            &server.accepted
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let number = self.next;
        self.next += 1;
        let session = Session::open(server, incoming, me.clone(), number, refused);
        if !refused {
            if self.stopping {
                // Who came before the end may have asked before it.
                session.via(&CLOSE).post(cx, Session::wind_down);
            }
            self.open.insert(number, session);
            self.count();
            return;
        }
        self.refused.insert(number, session);
        let clients = server.args.clients_max as u64;
        self.say(cx, me, self.places.full(clients));
    }

    /// A client has had its last answer: from now on it only takes a descriptor, until it closes.
    pub(crate) fn leaves(me: &Colored<Clients>, cx: &mut Cx, number: u64) {
        let dec = move |c: &mut Clients, cx: &mut Cx| c.dec_client_accepted(cx, number, true);
        // Refused only once the runtime has ended, here and below.
        me.via(&DEC_CLIENT_ACCEPTED).post(cx, dec);
        // One color does this for all clients: with one turn in each round of theirs it would fall
        // behind.
        cx.hurry(ACCEPT_COLOR);
    }

    /// A connection has closed.
    pub(crate) fn closed(me: &Colored<Clients>, cx: &mut Cx, number: u64) {
        let dec = move |c: &mut Clients, cx: &mut Cx| c.dec_client_accepted(cx, number, false);
        me.via(&DEC_CLIENT_ACCEPTED).post(cx, dec);
        cx.hurry(ACCEPT_COLOR);
    }

    /// DecClientAccepted: makes room for another client.
    fn dec_client_accepted(&mut self, cx: &mut Cx, number: u64, lingers: bool) {
        let session = self.open.remove(&number);
        let session = session.or_else(|| self.refused.remove(&number));
        match session {
            Some(session) if lingers => self.wait_for(cx, number, session),
            _ => self.leaving.remove(number),
        }
        self.count();
        if self.stopping {
            self.end_if_empty(cx);
        }
    }

    /// Waits for a client to close, as long as not too many others do.
    fn wait_for(&mut self, cx: &mut Cx, number: u64, session: Colored<Session>) {
        if let Some(oldest) = self.leaving.add(number, session) {
            self.server.cut.fetch_add(1, Ordering::Relaxed);
            oldest
                .via(&CLOSE)
                .post(cx, |s: &mut Session, cx| s.close(cx, true));
        }
    }

    /// Closes the connection of this color, whose state a panic has left half changed.
    fn end_after_panic(&mut self, cx: &mut Cx, color: Color) {
        let leaving = self.refused.values().chain(self.leaving.members());
        let mut sessions = self.open.values().chain(leaving);
        if let Some(session) = sessions.find(|session| session.color() == color) {
            let session = session.clone();
            CLOSE
                .on(color, move |cx| {
                    session.clear_poison();
                    let _ = session.with(cx, |session, cx| session.close(cx, true));
                })
                .post(cx);
        }
    }

    /// For the figures.
    fn count(&self) {
        let (open, leaving) = (self.open.len() as u64, self.leaving.len() as u64);
        self.server.open.store(open, Ordering::Relaxed);
        self.server.leaving.store(leaving, Ordering::Relaxed);
    }

    /// Says something, unless it was said just before: then a little later how often.
    fn say(&mut self, cx: &mut Cx, me: &Colored<Clients>, message: String) {
        match self.voice.hear(message, clock::now()) {
            Some(message) => out::try_say(NAME, message),
            None => self.say_later(cx, me),
        }
    }

    fn say_later(&mut self, cx: &mut Cx, me: &Colored<Clients>) {
        if std::mem::replace(&mut self.says_later, true) {
            return;
        }
        let its = me.clone();
        let due = me.on(&ACCEPT, move |clients, cx| {
            for message in clients.voice.due(clock::now()) {
                out::try_say(NAME, message);
            }
            clients.says_later = false;
            if clients.voice.holds_back() {
                clients.say_later(cx, &its);
            }
        });
        cx.timer(QUIET, due);
    }

    /// Nobody will be accepted any more.
    fn door_closed(&mut self, cx: &mut Cx) {
        self.listening = false;
        if self.stopping {
            self.end_if_empty(cx);
        }
    }

    /// A signal asks to stop: no new clients, but for those who wait to be accepted; all finish the
    /// request under way.
    fn stop(&mut self, cx: &mut Cx, me: &Colored<Clients>) {
        if std::mem::replace(&mut self.stopping, true) {
            return;
        }
        if let Some(listener) = self.listener.take() {
            listener.close();
        }
        // Nobody needs their places any more.
        self.leaving.let_all_in();
        let finish_ms = self.server.args.finish_timeout_ms;
        let open = self.open.len();
        if !self.is_empty() {
            out::try_say(
                NAME,
                format_args!(
                    "asked to stop: {open} clients, {finish_ms} ms to finish \
                     (--finish-timeout-ms); asked again, it ends at once"
                ),
            );
        }
        for session in self.open.values() {
            session.via(&CLOSE).post(cx, Session::wind_down);
        }
        let finish = Duration::from_millis(finish_ms);
        cx.timer(finish, me.on(&STOP, Clients::give_up));
    }

    fn is_empty(&self) -> bool {
        self.open.is_empty() && self.refused.is_empty() && self.leaving.len() == 0
    }

    fn end_if_empty(&mut self, cx: &mut Cx) {
        if !self.listening && self.is_empty() {
            for message in self.voice.rest(clock::now()) {
                out::try_say(NAME, message);
            }
            cx.stop();
        }
    }

    /// Those who have not finished are cut: the runtime waits for sends, and a client that does not
    /// read would make it wait in vain.
    fn give_up(&mut self, cx: &mut Cx) {
        let leaving = self.refused.values().chain(self.leaving.members());
        for session in self.open.values().chain(leaving) {
            session.via(&CLOSE).post(cx, Session::cut_off);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use mely::Runtime;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::sync::OnceLock;
    use std::sync::mpsc::channel;

    /// The text that a client gets until it is closed; none if it is reset.
    fn told(client: &mut TcpStream) -> String {
        let limit = Some(Duration::from_secs(30));
        client.set_read_timeout(limit).unwrap();
        let mut text = String::new();
        match client.read_to_string(&mut text) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => String::new(),
            read => read.map(|_| text).unwrap(),
        }
    }

    #[test]
    fn a_panic_costs_its_connection_only_and_gives_its_place_back() {
        let args = Args {
            listen: ([127, 0, 0, 1], 0).into(),
            ..Args::default()
        };
        let served: &'static OnceLock<&'static Server> = Box::leak(Box::default());
        let builder = Runtime::builder().cores(1);
        let builder = builder.panic_hook(|panic| panicked(served.get().unwrap(), panic));
        let runtime = builder.build().unwrap();
        let poster = runtime.poster();
        let server = Server::new(crate::builtin::site(), args, 1_024, runtime.poster());
        let server: &'static Server = Box::leak(Box::new(server));
        let _ = served.set(server);
        let (tell, addr) = channel();
        let clients = std::thread::spawn(move || {
            let addr = addr.recv().unwrap();
            let open = || server.open.load(Ordering::Relaxed);
            let eventually = |expected| {
                while open() != expected {
                    std::thread::sleep(Duration::from_millis(1));
                }
            };
            let [mut panics, mut goes_on] = [(); 2].map(|()| TcpStream::connect(addr).unwrap());
            eventually(2);
            let clients = server.clients.get().unwrap().upgrade().unwrap();
            let plant = |clients: &mut Clients, cx: &mut Cx| {
                // The first that came.
                clients.open[&0].post(cx, |_session, _cx| panic!("planted"));
            };
            clients.try_post(&poster, plant).unwrap();
            assert_eq!(told(&mut panics), "");
            eventually(1);
            let request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            goes_on.write_all(request).unwrap();
            assert!(told(&mut goes_on).starts_with("HTTP/1.1 200"));
            poster.stop();
        });
        let begin = move |cx: &mut Cx| tell.send(start(cx, server).unwrap()).unwrap();
        runtime.run(begin).unwrap();
        clients.join().unwrap();
        assert!(server.failed.get().is_none());
    }
}
