//! The models; see the crate's documentation.

#[cfg(not(loom))]
#[test]
fn compiled_without_loom() {
    panic!(
        "no model was explored: run `RUSTFLAGS=\"--cfg loom\" cargo test --profile loom -p mely-loom-tests`"
    );
}

#[cfg(loom)]
mod bounded;
#[cfg(loom)]
mod causal_order;
#[cfg(loom)]
mod colored;
#[cfg(loom)]
mod complete;
#[cfg(loom)]
mod event_source;
#[cfg(loom)]
mod holds;
#[cfg(loom)]
mod joins;
#[cfg(loom)]
mod keep_alive;
#[cfg(loom)]
mod migration;
#[cfg(loom)]
mod nodes;
#[cfg(loom)]
mod pairs;
#[cfg(loom)]
mod parking;
#[cfg(loom)]
mod post_and_return;
#[cfg(loom)]
mod post_and_steal;
#[cfg(loom)]
mod profiles;
#[cfg(loom)]
mod readers;
#[cfg(loom)]
mod ringing;
#[cfg(loom)]
mod shutdown;
#[cfg(loom)]
mod sources;
#[cfg(loom)]
mod spin_lock;
#[cfg(loom)]
mod stealing;
#[cfg(loom)]
mod support;
#[cfg(loom)]
mod takeover;
#[cfg(loom)]
mod tasks;
#[cfg(loom)]
mod together;
#[cfg(loom)]
mod unique_colors;
#[cfg(loom)]
mod waking;
#[cfg(loom)]
mod watchdog;
#[cfg(loom)]
mod working;
