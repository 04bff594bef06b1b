//! The chat server of `examples/chat.rs`, against clients on sockets.

#[path = "../../examples/chat.rs"]
#[allow(dead_code, reason = "its `main` is not called")]
mod example;

use crate::common::wire::any_port;
use crate::common::{Bound, LONG, backends, cores};
use mely::Poster;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::channel;
use std::thread;

/// Stops the runtime when the clients are done, also by a panic.
struct Stop(Poster);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Runs `clients` against a chat server on each of the kernel's backends.
fn with_chat(what: &'static str, clients: fn(SocketAddr)) {
    for backend in backends() {
        let _bound = Bound::new(what);
        let runtime = cores(2).backend(backend).build().unwrap();
        let stop = Stop(runtime.poster());
        let (tell, addr) = channel();
        let clients = thread::spawn(move || {
            let _stop = stop;
            clients(addr.recv().unwrap());
        });
        let outcome = runtime.run(move |cx| {
            let addr = example::listen(cx, any_port().into()).unwrap();
            tell.send(addr.ip().unwrap()).unwrap();
        });
        clients.join().unwrap();
        outcome.unwrap();
    }
}

struct Client(BufReader<TcpStream>);

impl Client {
    /// A client that is in the room.
    fn join(addr: SocketAddr, name: &str, room: &str) -> Client {
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        let mut client = Client(BufReader::new(stream));
        client.say(&format!("/name {name}\r\n/join {room}"));
        client.hear_until(&format!("* {name} joined {room}"));
        client
    }

    fn say(&mut self, line: &str) {
        let line = format!("{line}\n");
        self.0.get_mut().write_all(line.as_bytes()).unwrap();
    }

    /// The next line that is not of the lobby, where all begin: what is said in one room is in no
    /// order with what is said in another.
    fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).unwrap();
            assert_eq!(line.pop(), Some('\n'), "the end, after {line:?}");
            if !line.ends_with(" lobby") {
                return line;
            }
        }
    }

    /// Everything up to this line.
    fn hear_until(&mut self, last: &str) -> Vec<String> {
        let mut heard = Vec::new();
        while heard.last().is_none_or(|line| line != last) {
            heard.push(self.hear());
        }
        heard
    }

    /// Everything up to the end of the stream, or to an error.
    fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let _ = self.0.read_to_end(&mut rest);
        rest
    }
}

#[test]
fn a_room_hears_what_is_said_in_it_in_order() {
    with_chat("rooms", |addr| {
        let mut ann = Client::join(addr, "ann", "red");
        let mut bob = Client::join(addr, "bob", "red");
        let mut cat = Client::join(addr, "cat", "blue");
        assert_eq!(ann.hear(), "* bob joined red");
        let lines: Vec<_> = (0..1_000).map(|number| format!("line {number}")).collect();
        ann.say(&lines.join("\n"));
        for line in &lines {
            assert_eq!(bob.hear(), format!("ann: {line}"));
            assert_eq!(ann.hear(), format!("ann: {line}"));
        }
        cat.say("/join red");
        // Nothing that was said before, and nothing of another room.
        assert_eq!(cat.hear_until("* cat joined red"), ["* cat joined red"]);
        assert_eq!(
            [ann.hear(), bob.hear()],
            ["* cat joined red", "* cat joined red"]
        );
        drop(bob);
        assert_eq!(
            [ann.hear(), cat.hear()],
            ["* bob left red", "* bob left red"]
        );
        cat.say("hello");
        assert_eq!(ann.hear(), "cat: hello");
    });
}

/// One who does not read is sent away; those who read miss nothing.
#[test]
fn a_slow_member_is_sent_away_and_costs_nobody_anything() {
    with_chat("a slow member", |addr| {
        let mut ann = Client::join(addr, "ann", "room");
        let mut bob = Client::join(addr, "bob", "room");
        let mut slow = Client::join(addr, "slow", "room");
        ann.hear_until("* slow joined room");
        bob.hear_until("* slow joined room");
        let long = "x".repeat(1_000);
        let mut said = 0_u64;
        // As much as the kernel takes for who does not read, and what the room keeps.
        'flood: loop {
            let batch: Vec<_> = (said..said + 64).map(|n| format!("{n} {long}")).collect();
            said += 64;
            ann.say(&batch.join("\n"));
            let mut heard = 0;
            while heard < batch.len() {
                let (line, same) = (ann.hear(), bob.hear());
                assert_eq!(line, same);
                if line == "* slow left room" {
                    break 'flood;
                }
                assert_eq!(line, format!("ann: {}", batch[heard]));
                heard += 1;
            }
            assert!(said < 1 << 20, "still there after {said} lines");
        }
        // What was sent before it was sent away.
        assert!(slow.rest().len() < (said as usize) * (long.len() + 32));
        bob.say("still here");
        ann.hear_until("bob: still here");
    });
}

#[test]
fn a_line_that_is_too_long_ends_its_connection_only() {
    with_chat("a long line", |addr| {
        let mut ann = Client::join(addr, "ann", "room");
        let mut bob = Client::join(addr, "bob", "room");
        ann.hear_until("* bob joined room");
        bob.say("one");
        bob.hear_until("bob: one");
        // Exactly what the server reads, so that nothing is left unread when it closes.
        bob.0.get_mut().write_all(&[b'x'; 1_025]).unwrap();
        let rest = String::from_utf8(bob.rest()).unwrap();
        let told = "* a line is longer than the limit of 1024 bytes\n";
        assert!(rest.ends_with(told), "{rest:?}");
        ann.hear_until("* bob left room");
        ann.say("still here");
        assert_eq!(ann.hear(), "ann: still here");
    });
}

/// Each is told to all with every line.
#[test]
fn names_are_cut() {
    with_chat("long names", |addr| {
        let (long, cut) = ("n".repeat(100), "n".repeat(32));
        let mut ann = Client::join(addr, "ann", &cut);
        // The room's name is cut as well: it is Ann's.
        ann.say(&format!("/name {long}\n/join {long}\nhello"));
        assert_eq!(ann.hear_until(&format!("{cut}: hello")).len(), 2);
    });
}
