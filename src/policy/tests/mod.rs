//! What is chosen, as tables: inputs and what comes out. That the scheduler asks, and does so, is
//! tested on whole cores in `crate::sched`.

mod estimate;
mod head;
mod quantum;
mod row;
mod spin;
mod victim;
mod wake;
mod worth;

use super::numbers::BATCH_EVENTS;
use super::{Policy, Stealing};

const ALL: Policy = Policy {
    stealing: Stealing::ALL,
    batch: BATCH_EVENTS,
    quantum_busy_ns: 2_400,
};

const OFF: Policy = Policy {
    stealing: Stealing {
        enabled: false,
        ..Stealing::ALL
    },
    ..ALL
};

/// Without one of the heuristics.
fn without(locality: bool, time_left: bool, penalty: bool) -> Policy {
    let stealing = Stealing {
        enabled: true,
        locality: !locality,
        time_left: !time_left,
        penalty: !penalty,
    };
    Policy { stealing, ..ALL }
}
