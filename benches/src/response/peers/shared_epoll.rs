//! Threads at one epoll: each takes one event at a time, and a connection's next event is asked for
//! when the one before is done with (`EPOLLONESHOT`). Nothing stands between a thread and the
//! kernel.

use super::super::wire::{Cutter, First, Request, TIMER_MS, compute};
use super::{Result, listening};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, MutexGuard};
use std::thread;

/// Of the listener; all others are numbers of descriptors.
const LISTENER: u64 = u64::MAX;
const RECEIVED_BYTES_MAX: usize = 4096;

/// The use of a descriptor.
enum Entry {
    Conn(OwnedFd, Cutter),
    /// A timer, or a connection of the server's own: over when it is heard of.
    Once(OwnedFd),
}

struct Server {
    poll: OwnedFd,
    listener: OwnedFd,
    /// By descriptor; without those that a thread looks after just now.
    entries: Mutex<Vec<Option<Entry>>>,
}

/// Serves with `workers` threads at one epoll.
pub(super) fn serve(workers: usize) -> Result<()> {
    mely::net::raise_open_file_limit()?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    net::bind(&listener, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    net::listen(&listener, 4096)?;
    let addr: SocketAddr = net::getsockname(&listener)?.try_into()?;
    let server = Server {
        poll: epoll::create(CreateFlags::CLOEXEC)?,
        listener,
        entries: Mutex::default(),
    };
    let key = EventData::new_u64(LISTENER);
    // A new client wakes one thread.
    epoll::add(
        &server.poll,
        &server.listener,
        key,
        EventFlags::IN | EventFlags::ET,
    )?;
    listening(addr)?;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..workers)
            .map(|_| scope.spawn(|| server.work()))
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("no thread panics"))
    })
}

impl Server {
    fn entries(&self) -> MutexGuard<'_, Vec<Option<Entry>>> {
        self.entries.lock().expect("no panic while held")
    }

    fn work(&self) -> Result<()> {
        let mut buffer = [0; RECEIVED_BYTES_MAX];
        // One: another would wait for the first, while a thread is free.
        let mut event = [epoll::Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        }];
        loop {
            match epoll::wait(&self.poll, &mut event, None) {
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            let key = event[0].data.u64();
            if key == LISTENER {
                self.accept()?;
                continue;
            }
            let entry = self.entries()[key as usize].take();
            if let Some(Entry::Conn(fd, mut requests)) = entry
                && self.respond(fd.as_fd(), &mut requests, &mut buffer).is_ok()
            {
                self.keep(Entry::Conn(fd, requests), EventFlags::IN, true)?;
            }
        }
    }

    fn accept(&self) -> Result<()> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            match net::accept_with(&self.listener, flags) {
                Ok(fd) => {
                    sockopt::set_tcp_nodelay(&fd, true)?;
                    let conn = Entry::Conn(fd, Cutter::default());
                    self.keep(conn, EventFlags::IN, false)?;
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Puts an entry into its place, and asks for its next event.
    fn keep(&self, entry: Entry, flags: EventFlags, again: bool) -> Result<()> {
        let (Entry::Conn(fd, _) | Entry::Once(fd)) = &entry;
        let at = fd.as_raw_fd() as usize;
        let mut entries = self.entries();
        if entries.len() <= at {
            entries.resize_with(at + 1, || None);
        }
        // Under the lock: the event may be another thread's at once.
        let (Entry::Conn(fd, _) | Entry::Once(fd)) = entries[at].insert(entry);
        let key = EventData::new_u64(at as u64);
        let flags = flags | EventFlags::ONESHOT;
        match again {
            true => epoll::modify(&self.poll, &*fd, key, flags)?,
            false => epoll::add(&self.poll, &*fd, key, flags)?,
        }
        Ok(())
    }

    /// An error: the connection is over.
    fn respond(
        &self,
        fd: BorrowedFd<'_>,
        requests: &mut Cutter,
        buffer: &mut [u8; RECEIVED_BYTES_MAX],
    ) -> Result<()> {
        let (_, got) = net::recv(fd, &mut buffer[..], RecvFlags::empty())?;
        if got == 0 {
            return Err("the client has left".into());
        }
        let mut responded = Ok(());
        requests.cut(&buffer[..got], |bytes| {
            let request = Request::of(&bytes);
            let begun = self.begin(fd, request);
            compute(request.iterations);
            // A socket that does not take 16 bytes has a client that does not read.
            let sent = net::send(fd, &bytes, SendFlags::NOSIGNAL);
            if let Err(error) = begun.and(sent.map_err(Into::into)) {
                responded = Err(error);
            }
        });
        responded
    }

    fn begin(&self, fd: BorrowedFd<'_>, request: Request) -> Result<()> {
        match request.first {
            First::Nothing => {}
            First::Write => {
                net::send(fd, &request.bytes(), SendFlags::NOSIGNAL)?;
            }
            First::Timer => {
                let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
                let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
                let ms = Timespec {
                    tv_sec: 0,
                    tv_nsec: TIMER_MS as i64 * 1_000_000,
                };
                let due = Itimerspec {
                    it_interval: Timespec::default(),
                    it_value: ms,
                };
                timerfd_settime(&timer, TimerfdTimerFlags::empty(), &due)?;
                self.keep(Entry::Once(timer), EventFlags::IN, false)?;
            }
            First::Connect => {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                let socket =
                    net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
                match net::connect(&socket, &request.addr()) {
                    Ok(()) | Err(Errno::INPROGRESS) => {}
                    Err(error) => return Err(error.into()),
                }
                self.keep(Entry::Once(socket), EventFlags::OUT, false)?;
            }
        }
        Ok(())
    }
}
