//! The requests and answers of the bench, and the loop that servers compute.
//!
//! A request is 16 bytes: a number and how many iterations to compute, each 8 bytes in the order of
//! the machine. The answer is the same 16 bytes. The requests of one connection are answered one at
//! a time and in their order.

use crate::workloads::spin;
use std::net::{Ipv4Addr, SocketAddr};

/// The size of a request, and of its answer.
pub const REQUEST_BYTES: usize = 16;

/// The bytes of a request.
pub type Bytes = [u8; REQUEST_BYTES];

/// Iterations have the bits below.
const FIRST_SHIFT: u32 = 56;

/// A handler's first act, before it computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// Nothing: it computes at once.
    Nothing,
    /// It writes: the request is answered twice, before and after.
    Write,
    /// It sets a timer of [`TIMER_MS`].
    Timer,
    /// It begins to connect to a port of this machine, whose number is the request's.
    Connect,
}

/// The timer of [`First::Timer`], in ms.
pub const TIMER_MS: u64 = 50;

impl First {
    /// All of them, in the order of their codes.
    pub const ALL: [First; 4] = [First::Nothing, First::Write, First::Timer, First::Connect];

    /// As in tables.
    pub fn name(self) -> &'static str {
        match self {
            First::Nothing => "computes",
            First::Write => "writes first",
            First::Timer => "sets a timer first",
            First::Connect => "connects first",
        }
    }
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its number; for [`First::Connect`] a port.
    pub id: u64,
    /// The handler's first act.
    pub first: First,
    /// How long to compute: below 2^56.
    pub iterations: u64,
}

impl Request {
    /// A request that only computes.
    pub fn new(id: u64, iterations: u64) -> Request {
        Request {
            id,
            first: First::Nothing,
            iterations,
        }
    }

    /// The bytes of this request.
    pub fn bytes(self) -> Bytes {
        let mut bytes = [0; REQUEST_BYTES];
        let second = (self.first as u64) << FIRST_SHIFT | self.iterations;
        bytes[..8].copy_from_slice(&self.id.to_ne_bytes());
        bytes[8..].copy_from_slice(&second.to_ne_bytes());
        bytes
    }

    /// The request of these bytes; an unknown code of [`First`] is [`First::Nothing`].
    pub fn of(bytes: &Bytes) -> Request {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_ne_bytes(word)
        };
        let (id, second) = (word(0), word(8));
        let first = First::ALL.get((second >> FIRST_SHIFT) as usize);
        Request {
            id,
            first: first.copied().unwrap_or(First::Nothing),
            iterations: second & ((1 << FIRST_SHIFT) - 1),
        }
    }

    /// Where [`First::Connect`] connects to.
    pub fn addr(self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.id as u16))
    }
}

/// Computes: the same loop for all peers, counted and never by the clock, so that time in which a
/// thread is preempted does not pass for work.
pub fn compute(iterations: u64) {
    let mut left = iterations;
    while left > 0 {
        let part = u32::try_from(left).unwrap_or(u32::MAX);
        spin::spin(part);
        left -= u64::from(part);
    }
}

/// How long an iteration of [`compute`] takes at this moment, undisturbed, in ns.
pub fn iteration_ns() -> f64 {
    spin::step_ns()
}

/// Cuts the bytes of a connection into requests.
#[derive(Debug, Default)]
pub struct Cutter {
    /// The beginning of a request.
    rest: Vec<u8>,
}

impl Cutter {
    /// Calls `each` with each request that is whole with these bytes, in their order.
    pub fn cut(&mut self, bytes: &[u8], mut each: impl FnMut(Bytes)) {
        self.rest.extend_from_slice(bytes);
        let mut left = &self.rest[..];
        while let Some((request, others)) = left.split_first_chunk() {
            each(*request);
            left = others;
        }
        self.rest.drain(..self.rest.len() - left.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_were_written() {
        for first in First::ALL {
            let request = Request {
                id: 4711,
                first,
                iterations: 3_000_000_000,
            };
            assert_eq!(Request::of(&request.bytes()), request);
        }
        assert_eq!(Request::new(80, 0).addr(), ([127, 0, 0, 1], 80).into());
    }

    #[test]
    fn requests_are_whole_wherever_bytes_are_cut() {
        let sent: Vec<Bytes> = (0..5).map(|id| Request::new(id, id).bytes()).collect();
        let bytes = sent.concat();
        for size in 1..bytes.len() {
            let (mut cutter, mut cut) = (Cutter::default(), Vec::new());
            for part in bytes.chunks(size) {
                cutter.cut(part, |request| cut.push(request));
            }
            assert_eq!(cut, sent);
        }
    }
}
