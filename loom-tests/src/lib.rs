//! The scheduler of mely, explored by loom, with seeded faults that must be found.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p mely-loom-tests
//! ```
//!
//! takes a minute and a half on two cores. `LOOM_MAX_PREEMPTIONS=4` explores deeper than the bounds
//! below, for hours. Without `--cfg loom` the crate has one test, which fails and says so.
//!
//! # What runs
//!
//! The code that ships. `mely::model`, which exists under `--cfg loom` only, builds small worlds out
//! of the production types: cores with an event source that completes nothing and sleeps on a
//! condition variable, 16 color slots, a clock that stands still, no spinning. Cores are loom threads
//! that call the same `drive` as a core's thread, or are stepped by hand through the same `turn`.
//! What differs in the scheduler under loom is in `mely`'s `sync.rs` and marked where it is used:
//! - the core lock is loom's mutex, because a spin lock multiplies the states (it has a model of its
//!   own here, in which the lock is taken by a compare-and-swap instead of a swap: loom would let a
//!   failed swap be the last word over the unlock that came after it);
//! - compare-and-swap loops begin with a guess instead of a look;
//! - a panic of an event is not caught, since it is a finding;
//! - batches of nodes and the outbox are small; loops that wait for others tell loom so;
//! - the counts of the `Arc`s that only keep things alive are not modelled. That of a `Colored` is.
//!
//! # What is checked
//!
//! In every model: each accepted event ran exactly once; events of a color never overlapped, and
//! each saw what the one before wrote (each writes one loom cell of its color, and every node and
//! every private part of a color is a loom cell itself); the order of each poster held; no payload
//! leaked or was dropped twice; the lists of all cores are consistent at the end; and nobody sleeps
//! for ever: whoever waits for an event that does not come, or for a core that does not leave, is a
//! deadlock, which loom reports.
//!
//! # The models, their bounds, and the faults that each must find
//!
//! At most four loom threads. Bounds are preemptions: switches away from a thread that could go on.
//!
//! | file, model | subject | bound | faults |
//! |---|---|---|---|
//! | `post_and_steal` `own_post` | the victim posts to a color while it is stolen | 3 | owner published after the unlock |
//! | `post_and_steal` `foreign_post` | a foreign thread does | 3 | poke forwarded to nobody |
//! | `post_and_return` `foreign_post` | mail for a color that is on its way back, its poke consumed by a thief | 3 | appended meanwhile and forgotten; running mark ignored |
//! | `migration` `poke` | the owner changes between a poster's look and its push; the old one never looks again | 3 | second look after a steal skipped; owner not read again; poke forwarded to nobody |
//! | `migration` `pokes_of_two_colors` | a poster takes back pokes that are not its own | 2 | pokes of other colors lost |
//! | `migration` `place` | a color is placed elsewhere while it gets mail | 2 | placed without a poke |
//! | `parking` `post_to_parked` | poke against park | 3 | parked stored; doorbell not rung |
//! | `parking` `hint_to_parked` | hint against a would-be sleeper | 2 | waker's fence; sleeper's fence; second look before parking skipped |
//! | `parking` `hint_rises_again` | the same when a thief has emptied the hint before | 2 | waker's fence skipped |
//! | `parking` `thief_raises_hint` | a thief makes the hint rise by linking mail | 2 | no look after the last search; thief's fence skipped |
//! | `parking` `nudge` | a thief links mail of a victim that goes to sleep | 3 | nudge forgotten |
//! | `parking` `forwarded_poke` | a thief that finds nothing forwards a poke to a sleeper | 1 | doorbells not rung after a search in vain |
//! | `parking` `rescue` | a post to a core that enters a long handler | 1 | nobody sent to the rescue; no look, or a plain look, before a long handler |
//! | `shutdown` `stop` | foreign posts against a request to stop | 3 | gate not checked; fence before waking all skipped |
//! | `shutdown` `exit_when_idle` | foreign posts against an end by itself | 3 | gate closed without comparing |
//! | `shutdown` `drain` | two cores post to each other while the end is decided | 3 | one wave |
//! | `causal_order` `three_parties` | cause before effect over two cores and a foreign poster | 4 | mailbox not drained before an append; outbox out of order |
//! | `colored` `last_drop` | the last handle of a `Colored` against events with it | 2 | state dropped in place |
//! | `spin_lock` `excludes_and_publishes` | the spin lock, two threads | 3 | unlocked without a release |
//!
//! A model that cannot fail proves nothing: each fault is a line of `mely` that is skipped or
//! weakened when a test asks for it, in a process of its own, and that test passes only if the model
//! fails, and with the right complaint. And each model asserts how many executions it has explored.
//!
//! # What is not modelled, and what covers it
//!
//! - More than two colors or events on the way, more than three cores, batches, bands and costs:
//!   the stress tests in mely's `tests/`.
//! - The doorbells of the real event sources: the contract suite in `src/io/tests/`.
//! - Panics, deadlines, `run` and the threads around it: tests of the public face.
//! - Raw pointers: loom sees the cells that they lead to, not their lifetimes; that is miri's.
//! - Orders weaker than loom models: it treats `SeqCst` loads and stores as acquire and release (we
//!   have only fences), and does not know of consume or of out-of-thin-air values.
//! - Statistics, estimates, measured costs and the table of handlers: `sync::relaxed`, no protocol.
//! - Preemption bounds make an exploration incomplete, and loom's reduction under a bound may miss
//!   executions within it: the seeded faults say what a bound is good for.

#[cfg(loom)]
mod explore;
#[cfg(loom)]
mod oracle;

#[cfg(loom)]
pub use explore::{Model, must_fail};
#[cfg(loom)]
pub use oracle::{Oracle, Payload};
