//! Steps of operations, in an order that the seed decides.

use std::io;
use std::time::Duration;

use rustix::io::Errno;

use super::super::operation::is_about_one_connection;
use super::super::{Addr, Brings, Completion, Done, Op, State, operation::Terminal};
use super::Sim;

/// What came of one attempt.
enum PollStep {
    /// Nothing, until the network changes.
    Blocked,
    /// Something that nobody needs to be told.
    Moved,
    More(Done),
    Over(Terminal),
}

impl Sim {
    pub(in crate::io) fn poll(
        &mut self,
        out: &mut Vec<Completion>,
        limit: usize,
    ) -> io::Result<()> {
        let full = out.len().saturating_add(limit);
        self.home.reclaim();
        if self.starved && self.home.has_free() {
            self.starved = false;
            self.settled = None;
        }
        while out.len() < full
            && let Some(completion) = self.ready.pop_front()
        {
            out.push(completion);
        }
        // Rounds of one step for each operation, until a round gets nowhere.
        while out.len() < full && self.settled != Some(self.version()) {
            let before = self.version();
            let mut moved = false;
            for op in self.shuffled() {
                if out.len() >= full {
                    return Ok(());
                }
                match self.step(op) {
                    PollStep::Blocked => continue,
                    PollStep::Moved => {}
                    PollStep::More(done) => {
                        if let Some(operation) = self.ops.get(op) {
                            out.push(Completion {
                                token: operation.token,
                                done,
                                more: true,
                            });
                        }
                    }
                    PollStep::Over(end) => {
                        let completion = self.finish(op, end);
                        out.extend(completion);
                    }
                }
                moved = true;
            }
            if !moved {
                // Changes of other cores meanwhile have changed the version: another round.
                self.settled = Some(before);
            }
        }
        Ok(())
    }

    /// As with a ring, whose owner may not be asked again yet.
    pub(in crate::io) fn bring_out(&mut self) -> Brings {
        self.hidden = self.has_work() && self.random.below(3) == 0;
        match self.hidden {
            true => Brings::Later,
            false => Brings::All,
        }
    }

    pub(in crate::io) fn take(
        &mut self,
        out: &mut Vec<Completion>,
        limit: usize,
    ) -> io::Result<()> {
        match self.hidden {
            true => Ok(()),
            false => self.poll(out, limit),
        }
    }

    /// There is no kernel to be asked, and a poll with room goes on until nothing is left.
    pub(in crate::io) fn catch_up(&mut self) -> io::Result<usize> {
        Ok(self.ops.len() + self.ready.len())
    }

    pub(in crate::io) fn has_more(&self) -> bool {
        self.starved || !self.ready.is_empty()
    }

    pub(in crate::io) fn has_work(&self) -> bool {
        !self.ready.is_empty()
            || (!self.ops.is_empty() && self.settled != Some(self.version()))
            || (self.starved && self.home.has_free())
    }

    /// Sleeping is for those who have a clock.
    pub(in crate::io) fn wait(&mut self, _timeout: Option<Duration>) -> io::Result<()> {
        if cfg!(miri) {
            // There the simulator has real threads, which run one at a time.
            std::thread::yield_now();
        }
        self.doorbell.take_flag();
        if self.starved {
            // The returner rings, as with the other backends.
            self.home.starve();
        }
        Ok(())
    }

    fn version(&self) -> u64 {
        self.net.with(|net| net.version)
    }

    fn shuffled(&mut self) -> Vec<Op> {
        let mut order: Vec<Op> = self.ops.keys().collect();
        for last in (1..order.len()).rev() {
            let other = self.random.below(last + 1);
            order.swap(last, other);
        }
        order
    }

    fn step(&mut self, op: Op) -> PollStep {
        let Some(operation) = self.ops.get_mut(op) else {
            return PollStep::Blocked;
        };
        let fd = operation.fd;
        let net = &self.net;
        let res = match &mut operation.state {
            State::Accept => net
                .with(|net| net.accept(fd))
                .map(|fd| PollStep::More(Done::Accepted(Ok(fd)))),
            State::Ready(_) => net
                .with(|net| net.take_notice(fd))
                .map(|()| PollStep::More(Done::Ready(Ok(())))),
            State::Recv => match self.home.fill(|space| net.with(|net| net.recv(fd, space))) {
                None => {
                    self.starved = true;
                    return PollStep::Blocked;
                }
                Some(Ok(buf)) if buf.is_end() => Ok(PollStep::Over(Terminal::Eof)),
                Some(Ok(buf)) => Ok(PollStep::More(Done::Received(Ok(buf)))),
                Some(Err(errno)) => Err(errno),
            },
            State::Send {
                buf, sent_bytes, ..
            } => net
                .with(|net| net.send(fd, buf.rest(*sent_bytes)))
                .map(|sent| {
                    *sent_bytes += sent;
                    let all = *sent_bytes == buf.len();
                    if all {
                        PollStep::Over(Terminal::Ok)
                    } else {
                        PollStep::Moved
                    }
                }),
            State::Connect { addr } => match Addr::from_any((**addr).clone()) {
                Ok(addr) => net
                    .with(|net| net.connect(fd, &addr))
                    .map(|()| PollStep::Over(Terminal::Ok)),
                Err(_) => Err(Errno::INVAL),
            },
            State::File { .. } => unreachable!("it is not started here, but on the disk"),
        };
        match res {
            Ok(step) => step,
            Err(Errno::AGAIN) => PollStep::Blocked,
            Err(Errno::INTR) => PollStep::Moved,
            // The kernel's way of saying that a pool is empty passes, and is not told.
            Err(Errno::NOBUFS) => PollStep::Moved,
            Err(errno) if self.is_accept(op) && is_about_one_connection(errno) => PollStep::Moved,
            Err(errno) => PollStep::Over(Terminal::Failed(errno)),
        }
    }

    fn is_accept(&self, op: Op) -> bool {
        self.ops
            .get(op)
            .is_some_and(|operation| matches!(operation.state, State::Accept))
    }
}
