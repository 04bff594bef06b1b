//! The floor of the web bench: an epoll server that does nothing but find the blank line and write
//! a response that was built beforehand. One thread a core, each with its own listener
//! (`SO_REUSEPORT`) and its own connections for good. `minimal ADDR:PORT DIR CORES`
//!
//! With one file in DIR every request is answered with it, whatever it asks for.

use mely_bench::machine;
use mely_bench::web::responses::Responses;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use std::error::Error;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;

const LISTENER: u64 = u64::MAX;
const EVENTS_MAX: usize = 256;
const REQUEST_BYTES_MAX: usize = 4096;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [addr, dir, cores] = &arguments[..] else {
        return Err("usage: minimal ADDR:PORT DIR CORES".into());
    };
    mely::net::raise_open_file_limit()?;
    let mut addr: SocketAddr = addr.parse()?;
    let responses: &'static Responses = Box::leak(Box::new(Responses::read(Path::new(dir))?));
    let mut threads = Vec::new();
    for core in 0..cores.parse()? {
        let listener = listener(addr)?;
        // The port that port 0 became is the others' too.
        addr = net::getsockname(&listener)?.try_into()?;
        threads.push(std::thread::spawn(move || {
            machine::pin(core);
            serve(&listener, responses)
        }));
    }
    println!("listening on {addr}");
    std::io::stdout().flush()?;
    for thread in threads {
        thread.join().expect("no thread panics")?;
    }
    Ok(())
}

fn listener(addr: SocketAddr) -> Result<OwnedFd> {
    let family = match addr {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&listener, true)?;
    sockopt::set_socket_reuseport(&listener, true)?;
    net::bind(&listener, &addr)?;
    net::listen(&listener, 4096)?;
    Ok(listener)
}

/// One connection, under the number of its descriptor.
struct Conn {
    fd: OwnedFd,
    /// A request that has arrived in part.
    request: Vec<u8>,
    /// What is left of a response that the kernel did not take at once.
    left: &'static [u8],
}

fn serve(listener: &OwnedFd, responses: &'static Responses) -> Result<()> {
    let poll = epoll::create(CreateFlags::CLOEXEC)?;
    let key = EventData::new_u64(LISTENER);
    epoll::add(&poll, listener, key, EventFlags::IN)?;
    let mut conns: Vec<Option<Conn>> = Vec::new();
    let mut events = Vec::with_capacity(EVENTS_MAX);
    let mut buffer = [0; REQUEST_BYTES_MAX];
    loop {
        match epoll::wait(&poll, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events.drain(..) {
            let key = event.data.u64();
            if key == LISTENER {
                accept(&poll, listener, &mut conns)?;
            } else if let Some(conn) = &mut conns[key as usize]
                && conn.go_on(&poll, key, responses, &mut buffer).is_err()
            {
                // Dropping the descriptor closes it, and takes it out of the poll.
                conns[key as usize] = None;
            }
        }
    }
}

fn accept(poll: &OwnedFd, listener: &OwnedFd, conns: &mut Vec<Option<Conn>>) -> Result<()> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    loop {
        let fd = match net::accept_with(listener, flags) {
            Ok(fd) => fd,
            Err(Errno::AGAIN) => return Ok(()),
            Err(Errno::INTR | Errno::CONNABORTED) => continue,
            Err(error) => return Err(error.into()),
        };
        let key = fd.as_raw_fd() as usize;
        epoll::add(poll, &fd, EventData::new_u64(key as u64), EventFlags::IN)?;
        if conns.len() <= key {
            conns.resize_with(key + 1, || None);
        }
        conns[key] = Some(Conn {
            fd,
            request: Vec::new(),
            left: &[],
        });
    }
}

impl Conn {
    /// Does what can be done. An error: the connection is over.
    fn go_on(
        &mut self,
        poll: &OwnedFd,
        key: u64,
        responses: &'static Responses,
        buffer: &mut [u8; REQUEST_BYTES_MAX],
    ) -> std::result::Result<(), Errno> {
        if !self.left.is_empty() {
            return self.send(poll, key, self.left);
        }
        let (_, got) = net::recv(&self.fd, &mut buffer[..], RecvFlags::empty())?;
        let bytes = &buffer[..got];
        if bytes.is_empty() || self.request.len() > REQUEST_BYTES_MAX {
            return Err(Errno::PIPE);
        }
        // Clients here ask one thing at a time: the blank line is the end of what has arrived.
        if self.request.is_empty() && bytes.ends_with(b"\r\n\r\n") {
            return self.send(poll, key, responses.answer(bytes));
        }
        self.request.extend_from_slice(bytes);
        if self.request.ends_with(b"\r\n\r\n") {
            let response = responses.answer(&self.request);
            self.request.clear();
            return self.send(poll, key, response);
        }
        Ok(())
    }

    fn send(
        &mut self,
        poll: &OwnedFd,
        key: u64,
        bytes: &'static [u8],
    ) -> std::result::Result<(), Errno> {
        let waited = !self.left.is_empty();
        let sent = match net::send(&self.fd, bytes, SendFlags::NOSIGNAL) {
            Ok(sent) => sent,
            Err(Errno::AGAIN) => 0,
            Err(error) => return Err(error),
        };
        self.left = &bytes[sent..];
        let waits = !self.left.is_empty();
        if waits != waited {
            let flags = if waits {
                EventFlags::OUT
            } else {
                EventFlags::IN
            };
            epoll::modify(poll, &self.fd, EventData::new_u64(key), flags)?;
        }
        Ok(())
    }
}
