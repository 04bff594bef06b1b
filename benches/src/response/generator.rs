//! The generator of a run by connections: sends each request at its time, even if earlier ones are
//! not answered, and receives the answers.

use super::load::Due;
use super::realtime::{self, Clock};
use super::score::{Run, Times, first_counted};
use super::wire::{Bytes, Cutter, REQUEST_BYTES, Request};
use crate::machine;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Without any answer for so long, after the last request, a run is given up.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Few: a request may become due while they are looked at.
const EVENTS_MAX: usize = 16;

struct Conn {
    stream: TcpStream,
    /// Requests that are sent and not answered.
    asked: VecDeque<usize>,
    answers: Cutter,
}

/// Connections to a server.
pub struct Clients {
    conns: Vec<Conn>,
    poll: OwnedFd,
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clients")
            .field("connections", &self.conns.len())
            .finish_non_exhaustive()
    }
}

/// Sends a request and waits for its answer, for at most `limit`.
///
/// # Errors
/// A wrong answer, none in time, or a failed connection.
pub fn ask(stream: &mut TcpStream, request: Request, limit: Duration) -> Result<(), String> {
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::WouldBlock => {
            format!(
                "request {}: no answer for {} s",
                request.id,
                limit.as_secs()
            )
        }
        _ => format!("request {}: {error}", request.id),
    };
    stream.set_read_timeout(Some(limit)).map_err(failed)?;
    stream.write_all(&request.bytes()).map_err(failed)?;
    let mut answer: Bytes = [0; REQUEST_BYTES];
    stream.read_exact(&mut answer).map_err(failed)?;
    match answer == request.bytes() {
        true => Ok(()),
        false => Err(format!("{request:?} was answered by {answer:?}")),
    }
}

/// A connection whose segments wait for no others.
///
/// # Errors
/// A refused connection.
pub fn connect(addr: SocketAddr) -> Result<TcpStream, String> {
    let stream = TcpStream::connect(addr).and_then(|stream| {
        stream.set_nodelay(true)?;
        Ok(stream)
    });
    stream.map_err(|error| format!("{addr}: {error}"))
}

impl Clients {
    /// Opens `connections` connections and makes one request by each, so that the server has
    /// accepted all.
    ///
    /// # Errors
    /// A connection that fails, or a wrong answer.
    pub fn connect(addr: SocketAddr, connections: usize) -> Result<Clients, String> {
        let failed = |error: Errno| format!("epoll: {error}");
        let poll = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        let mut conns = Vec::new();
        for number in 0..connections {
            let mut stream = connect(addr)?;
            ask(&mut stream, Request::new(number as u64, 1), SILENCE_MAX)?;
            stream
                .set_nonblocking(true)
                .map_err(|error| error.to_string())?;
            let key = EventData::new_u64(number as u64);
            epoll::add(&poll, &stream, key, EventFlags::IN).map_err(failed)?;
            conns.push(Conn {
                stream,
                asked: VecDeque::new(),
                answers: Cutter::default(),
            });
        }
        Ok(Clients { conns, poll })
    }

    /// Sends each request when it is due, spinning `spin_ns` before it, until all are answered.
    /// `cpu` tells the server's processor time.
    ///
    /// # Errors
    /// A connection that ended or takes no more, an answer that is wrong or not in its place, or a
    /// server that fell silent.
    pub fn run(
        mut self,
        schedule: &[Due],
        iteration_ns: f64,
        spin_ns: u64,
        cpu: impl Fn() -> Result<Duration, String> + Sync,
    ) -> Result<Run, String> {
        let requests: Vec<Request> = (0..)
            .zip(schedule)
            .map(|(id, due)| Request::new(id, (due.service_ns as f64 / iteration_ns) as u64))
            .collect();
        // A thread of its own: the calling one keeps its priority.
        std::thread::scope(|scope| {
            let generator = scope.spawn(|| {
                realtime::become_realtime();
                self.generate(schedule, &requests, spin_ns, &cpu)
            });
            generator.join().expect("the generator does not panic")
        })
    }

    fn generate(
        &mut self,
        schedule: &[Due],
        requests: &[Request],
        spin_ns: u64,
        cpu: &dyn Fn() -> Result<Duration, String>,
    ) -> Result<Run, String> {
        let mut times = vec![Times::default(); schedule.len()];
        let mut before = (Duration::ZERO, Duration::ZERO);
        let (mut next, mut answered) = (0, 0);
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX];
        let clock = Clock::start();
        while answered < schedule.len() {
            let wait_ns = match schedule.get(next) {
                None => SILENCE_MAX.as_nanos() as u64,
                Some(due) => {
                    if next == first_counted(schedule.len()) {
                        before = (cpu()?, machine::thread_cpu_time());
                    }
                    let now_ns = clock.ns();
                    if due.at_ns <= now_ns {
                        times[next].sent_ns = now_ns;
                        self.conns[due.source].send(next, requests[next])?;
                        next += 1;
                        continue;
                    }
                    (due.at_ns - now_ns).saturating_sub(spin_ns)
                }
            };
            let got = match wait(&self.poll, &mut events, wait_ns) {
                Ok(0) if next == schedule.len() => {
                    return Err(format!(
                        "{answered} of {next} requests were answered, and then none for {} s",
                        SILENCE_MAX.as_secs()
                    ));
                }
                Ok(got) => got,
                Err(Errno::INTR) => 0,
                Err(error) => return Err(format!("epoll: {error}")),
            };
            for event in &events[..got] {
                let conn = &mut self.conns[event.u64 as usize];
                answered += conn.receive(requests, &mut times, clock)?;
            }
        }
        Ok(Run {
            times,
            cpu: cpu()?.saturating_sub(before.0),
            generator: machine::thread_cpu_time() - before.1,
        })
    }
}

/// Waits for at most `wait_ns`, by `epoll_pwait2`: rustix rounds timeouts up to milliseconds.
/// Returns how many events there are.
fn wait(
    poll: &OwnedFd,
    events: &mut [libc::epoll_event; EVENTS_MAX],
    wait_ns: u64,
) -> Result<usize, Errno> {
    let time = libc::timespec {
        tv_sec: (wait_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (wait_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: `events` has the places that the kernel is told of, and is writable through the call,
    // as `time` is readable. There is no signal mask, whose size is not looked at then.
    let got = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            poll.as_raw_fd(),
            events.as_mut_ptr(),
            EVENTS_MAX,
            &raw const time,
            std::ptr::null::<libc::sigset_t>(),
            0usize,
        )
    };
    // Negative after an error.
    usize::try_from(got)
        .map_err(|_| Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
}

impl Conn {
    fn send(&mut self, number: usize, request: Request) -> Result<(), String> {
        self.asked.push_back(number);
        match self.stream.write(&request.bytes()) {
            Ok(REQUEST_BYTES) => Ok(()),
            Ok(sent) => Err(format!("request {number}: {sent} bytes of it were taken")),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(format!(
                "request {number}: its connection is full, with {} requests: the server is \
                 overloaded, give it a smaller --load",
                self.asked.len()
            )),
            Err(error) => Err(format!("request {number}: {error}")),
        }
    }

    /// Returns how many requests were answered.
    fn receive(
        &mut self,
        requests: &[Request],
        times: &mut [Times],
        clock: Clock,
    ) -> Result<usize, String> {
        let mut buffer = [0; 64 * REQUEST_BYTES];
        let got = match self.stream.read(&mut buffer) {
            Ok(0) => return Err("the server closed a connection".to_owned()),
            Ok(got) => got,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
            Err(error) => return Err(format!("an answer: {error}")),
        };
        let received_ns = clock.ns();
        let (mut answered, mut wrong) = (0, None);
        self.answers.cut(&buffer[..got], |answer| {
            match self.asked.pop_front() {
                Some(number) if answer == requests[number].bytes() => {
                    times[number].received_ns = received_ns;
                    answered += 1;
                }
                due => wrong = Some((Request::of(&answer), due)),
            };
        });
        match wrong {
            None => Ok(answered),
            Some((answer, due)) => Err(format!("{answer:?} came where request {due:?} was due")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Asks a server that gives the right answer to the first request, and `answers` to the others.
    fn run(answers: &[Request], requests: u64) -> Result<Run, String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let answers = answers.to_vec();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut first: Bytes = [0; REQUEST_BYTES];
            stream.read_exact(&mut first).unwrap();
            stream.write_all(&first).unwrap();
            for answer in answers {
                stream.read_exact(&mut first).unwrap();
                stream.write_all(&answer.bytes()).unwrap();
            }
        });
        let due = |number| Due {
            at_ns: number * 1_000_000,
            source: 0,
            service_ns: 100 + number,
        };
        let schedule: Vec<Due> = (0..requests).map(due).collect();
        let clients = Clients::connect(addr, 1)?;
        let run = clients.run(&schedule, 1.0, 1_000, || Ok(Duration::ZERO));
        server.join().unwrap();
        run
    }

    fn answer(id: u64) -> Request {
        Request::new(id, 100 + id)
    }

    #[test]
    fn answers_are_taken_in_their_order() {
        let run = run(&[answer(0), answer(1), answer(2)], 3).unwrap();
        for (number, times) in (0..).zip(&run.times) {
            assert!(times.sent_ns >= number * 1_000_000);
            assert!(times.received_ns > times.sent_ns);
        }
    }

    #[test]
    fn wrong_answers_and_closed_connections_are_errors() {
        let said = run(&[answer(0), answer(2)], 3).unwrap_err();
        assert!(
            said.ends_with("came where request Some(1) was due"),
            "{said}"
        );
        let said = run(&[answer(0)], 3).unwrap_err();
        // It may be noticed by the write that follows.
        assert!(
            said.contains("closed") || said.contains("request"),
            "{said}"
        );
    }
}
