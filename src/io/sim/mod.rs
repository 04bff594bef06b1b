//! The simulated backend: no kernel and no clock, an in-memory network that a seed can replay.
//!
//! - `net.rs`: the network itself: listeners, streams, what each call on them does;
//! - `client.rs`: the network as tests see it: faults to inject, clients to connect;
//! - `disk.rs`: the files, which no operation here is about, since their calls take time;
//! - `ops.rs`: operations as the caller starts and ends them;
//! - `poll.rs`: steps of operations, in an order that the seed decides;
//! - here: the state.
//!
//! `wait` returns at once: whoever drives a simulation decides when time passes. What the contract
//! leaves open (which of several operations completes first, how much a receive or a send moves at
//! once) is drawn from the seed; the rest, and so a whole run on one thread, is determined by it.

mod client;
mod disk;
mod net;
mod ops;
mod poll;

use std::collections::VecDeque;
use std::fmt;

pub use self::client::{SimCall, SimClient, SimNet};
pub use self::disk::SimDisk;
pub(crate) use self::disk::{HowOpened, NodeKind, NodeStat, SimHandle};
use super::{Completion, Config, Doorbell, Home, Ledger, Op, Operation, Slab, operation::Terminal};
use crate::random::Random;

/// One simulated core's event source.
pub(super) struct Sim {
    net: SimNet,
    home: Home,
    ops: Slab<Operation>,
    /// Terminal completions made outside `poll`.
    ready: VecDeque<Completion>,
    /// A receive found bytes and no buffer for them.
    starved: bool,
    /// The state of the network in which no operation of ours could get anywhere.
    settled: Option<u64>,
    /// Somebody is to be told when something comes.
    pub(super) watched: bool,
    /// What has come is not to be had by others yet.
    hidden: bool,
    random: Random,
    doorbell: Doorbell,
    ledger: Ledger,
}

impl Sim {
    /// A backend on `net`, and what to say about it.
    pub(super) fn new(net: SimNet, config: &Config) -> (Sim, String) {
        let doorbell = Doorbell::flag();
        let (seed, random) = net.with(|net| (net.seed, net.random.fork()));
        let sim = Sim {
            net,
            home: Home::new(config, doorbell.clone()),
            ops: Slab::new(),
            ready: VecDeque::new(),
            starved: false,
            settled: None,
            watched: false,
            hidden: false,
            random,
            doorbell,
            ledger: Ledger::default(),
        };
        (sim, format!("seed {seed}"))
    }

    pub(super) fn net(&self) -> &SimNet {
        &self.net
    }

    pub(super) fn doorbell(&self) -> Doorbell {
        self.doorbell.clone()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.ops.len() + self.ready.len()
    }

    /// The operation is over.
    fn finish(&mut self, op: Op, end: Terminal) -> Option<Completion> {
        let operation = self.ops.remove(op)?;
        self.ledger.end(operation.fd, operation.kind());
        Some(operation.end(end))
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim")
            .field("in_flight", &self.in_flight())
            .field("starved", &self.starved)
            .finish_non_exhaustive()
    }
}
