//! How do clients talk to each other? A chat server with rooms; each client is a session of its
//! own.
//! `cargo run --release --example chat -- 127.0.0.1:7000`, then `nc 127.0.0.1 7000`; Ctrl-C stops.
//!
//! A line is said to all in the room; `/name NAME` and `/join ROOM` do what they say. What is said
//! waits in the room until a member has been sent what came before, so a slow member costs nobody
//! anything. **Whoever is behind by more than `BEHIND_BYTES_MAX` is sent away.** So much waits for
//! a member in the room, and so much on the way; and who speaks is not read until the room has got
//! it.

use mely::net::{Acceptors, Addr, Lines, RecvBuf, Session, Stream};
use mely::state::WeakColored;
use mely::{Color, Colored, Cx, Handler, Hold, Poster, Runtime};
use std::hash::{BuildHasher, RandomState};
use std::{collections::HashMap, io, mem, sync::Arc};

static MEMBER: Handler = Handler::new("member");
static ROOM: Handler = Handler::new("room");
static STOP: Handler = Handler::new("stop");

const LINE_BYTES_MAX: usize = 1 << 10;
const BEHIND_BYTES_MAX: usize = 256 << 10;
/// Bytes of a member's or a room's name, which all are told again and again. A longer one is cut.
const NAME_MAX: usize = 32;

/// Its members, by their colors.
type Room = HashMap<Color, Seat>;
/// Colors that share out the rooms by name, and which name belongs to which. Empty rooms are gone.
type Rooms = (Vec<Colored<HashMap<Vec<u8>, Room>>>, RandomState);

/// A member as the room sees it.
struct Seat {
    member: WeakColored<Member>,
    unsent: Vec<u8>,
    /// The member has not said yet that it was sent what came before.
    busy: bool,
}

impl Seat {
    /// Whether the member keeps up.
    fn say(&mut self, cx: &mut Cx, text: &[u8]) -> bool {
        self.unsent.extend_from_slice(text);
        if self.unsent.len() > BEHIND_BYTES_MAX {
            // Also one who is being closed and does not read.
            self.member.post(cx, |member, cx| member.stream.abort(cx));
        } else if !self.busy {
            self.send(cx);
        }
        self.unsent.len() <= BEHIND_BYTES_MAX
    }

    fn send(&mut self, cx: &mut Cx) {
        let batch = mem::take(&mut self.unsent);
        self.busy = !batch.is_empty();
        if self.busy {
            self.member.post(cx, move |member, cx| {
                if member.stream.write(cx, batch).is_err() {
                    member.stream.abort(cx); // Behind in many rooms.
                }
            });
        }
    }
}

struct Member {
    name: Vec<u8>,
    room: Vec<u8>,
    lines: Lines,
    stream: Stream,
    me: WeakColored<Member>,
    rooms: Arc<Rooms>,
    poster: Poster,
}

impl Member {
    /// Posts to the member's room.
    fn post(&self, f: impl FnOnce(&mut Room, &mut Cx, Color) + Send + 'static) {
        let (shards, hasher) = &*self.rooms;
        let shard = &shards[hasher.hash_one(&self.room) as usize % shards.len()];
        let (name, me) = (self.room.clone(), self.me.color());
        let event = move |rooms: &mut HashMap<Vec<u8>, Room>, cx: &mut Cx| {
            let mut room = rooms.remove(&name).unwrap_or_default();
            f(&mut room, cx, me);
            if !room.is_empty() {
                rooms.insert(name, room);
            }
        };
        // Refused at the end of the runtime, when nobody is left to hear of it.
        let _ = shard.via(&ROOM).try_post(&self.poster, event);
    }

    fn say(&self, parts: &[&[u8]]) {
        let text = parts.concat();
        self.post(move |room, cx, _| room.retain(|_, seat| seat.say(cx, &text)));
    }

    fn join(&self) {
        let seat = Seat {
            member: self.me.clone(),
            unsent: Vec::new(),
            busy: false,
        };
        self.post(move |room, _, me| drop(room.insert(me, seat)));
        self.say(&[b"* ", &self.name, b" joined ", &self.room, b"\n"]);
    }

    fn leave(&self) {
        self.post(|room, _, me| drop(room.remove(&me)));
        self.say(&[b"* ", &self.name, b" left ", &self.room, b"\n"]);
    }

    /// The next bytes of this member wait until its room has got all that the member has said.
    fn wait(&self, hold: Hold) {
        self.post(move |_, _, _| hold.resume(|_| ()));
    }
}

impl Session for Member {
    fn data(&mut self, cx: &mut Cx, data: RecvBuf) {
        let cut = |name: &[u8]| name[..name.len().min(NAME_MAX)].to_vec();
        self.lines.push(&data);
        loop {
            match self.lines.next_line().map(|line| line.map(<[u8]>::to_vec)) {
                Ok(Some(line)) => match line.split_at_checked(6) {
                    Some((b"/name ", name)) => self.name = cut(name),
                    Some((b"/join ", room)) => {
                        self.leave();
                        self.wait(cx.hold());
                        self.room = cut(room);
                        self.join();
                    }
                    _ => self.say(&[&self.name, b": ", &line, b"\n"]),
                },
                Ok(None) => break,
                Err(too_long) => {
                    let _ = self.stream.write(cx, format!("* {too_long}\n"));
                    return self.stream.close(cx);
                }
            }
        }
        self.wait(cx.hold());
    }

    fn drained(&mut self, _cx: &mut Cx) {
        self.post(|room, cx, me| room.get_mut(&me).into_iter().for_each(|seat| seat.send(cx)));
    }

    fn end(&mut self, cx: &mut Cx, end: io::Result<()>) {
        // At a stop, too: a close would wait for clients to read.
        if end.is_err() {
            self.stream.abort(cx);
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Listens until the runtime ends. Returns the address.
pub(crate) fn listen(cx: &mut Cx, addr: Addr) -> io::Result<Addr> {
    let shard = |number| Colored::new(cx, Color::from(number), HashMap::new());
    let rooms: Arc<Rooms> = Arc::new(((1..=16).map(shard).collect(), RandomState::new()));
    let listener = cx.serve(addr, Acceptors::PerCore, &MEMBER, move |cx, stream, me| {
        let member = Member {
            name: b"guest".into(),
            room: b"lobby".into(),
            lines: Lines::new(LINE_BYTES_MAX),
            stream,
            me: me.clone(),
            rooms: Arc::clone(&rooms),
            poster: cx.poster(),
        };
        member.join();
        member
    })?;
    Ok(listener.local_addr())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let addr = std::env::args().nth(1);
    let addr = addr.as_deref().unwrap_or("127.0.0.1:7000").parse()?;
    mely::net::raise_open_file_limit()?;
    let served = Runtime::builder().build()?.run_until(move |cx, finish| {
        let stop = finish.clone();
        let on_stop = STOP.on_each(Color::DEFAULT, move |_cx, ()| stop.finish(Ok(())));
        match cx.on_stop_signal(on_stop).and_then(|()| listen(cx, addr)) {
            Ok(addr) => println!("listening on {addr}"),
            Err(error) => finish.finish(Err(error)),
        }
    })?;
    Ok(served?)
}
