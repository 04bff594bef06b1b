//! One suite for the contract, run over every backend; and what needs a process of its own.

mod cancel;
mod full;
mod process;
mod seeds;
mod sleep;
mod starve;
mod streams;
mod world;

use self::world::World;
use super::uring::Flavor;
use super::{Backend, Config, EventSource, SimNet};

/// Each test takes a world on the backend under test.
macro_rules! suite {
    ($($module:ident: $($test:ident),+;)+) => {
        suite!(@on uring, |config| ring(Flavor::Deferred, config), $($module: $($test),+;)+);
        suite!(@on uring_cooperative, |config| ring(Flavor::Cooperative, config),
            $($module: $($test),+;)+);
        suite!(@on uring_bare, |config| ring(Flavor::Bare, config), $($module: $($test),+;)+);
        suite!(@on uring_tiny, tiny_ring, $($module: $($test),+;)+);
        suite!(@on epoll, |config| kernel(Backend::Epoll, config), $($module: $($test),+;)+);
        suite!(@on sim, |config| sim(1, usize::MAX, config), $($module: $($test),+;)+);
        suite!(@on sim_in_pieces, |config| sim(2, 700, config), $($module: $($test),+;)+);
    };
    (@on $backend:ident, $make:expr, $($module:ident: $($test:ident),+;)+) => {
        mod $backend {
            use super::*;
            $($(
                #[test]
                fn $test() {
                    $module::$test(&|config: &Config| ($make)(config));
                }
            )+)+
        }
    };
}

suite! {
    streams: round_trip, large_send_to_a_slow_reader, pipelined_small_receives, end_of_stream,
        closed_at_once_after_the_end, half_closed, shut_down_by_us, reset_by_us, peer_reset,
        reset_races_with_receive, send_to_a_closed_peer, send_of_nothing, send_of_parts, connect_and_talk,
        connect_refused, connect_to_nowhere, port_in_use, port_free_again, port_shared,
        limit_is_kept, portions_of_all_sizes, answers_go_out_at_once, sent_by_another_core,
        connections_by_the_thousand, many_at_once, accept_goes_on_after_dead_ones,
        misuse_is_noticed, descriptors_stay_here, what_needs_no_operation;
    cancel: cancel_accept, cancel_recv, cancel_readable, cancel_send, cancel_connect,
        cancel_twice_and_late, cancel_with_more_to_read, cancel_races_with_receives,
        cancel_races_with_sends, cancel_races_with_accepts, dropped_with_everything_under_way;
    full: more_completes_than_is_polled, those_who_send_much_keep_nobody_waiting,
        more_starts_than_is_polled, all_that_has_happened_is_told_after_catching_up;
    starve: all_buffers_held, hung_up_while_starved, fewer_buffers_than_connections,
        buffers_outlive_the_backend, canceled_while_starved, parked_once;
    sleep: doorbell_wakes_a_sleeper, doorbell_before_the_wait, doorbell_seen_by_a_poll,
        doorbell_coalesces, doorbell_outlives_the_backend, waits_as_long_as_told,
        readable_again_after_reading, a_buffer_that_nobody_waits_for_wakes_nobody;
}

type Make<'a> = &'a dyn Fn(&Config) -> World;

fn ring(flavor: Flavor, config: &Config) -> World {
    World::new(
        EventSource::with_flavor(flavor, config).expect("this kernel has io_uring"),
        None,
    )
}

/// Queues so short that they are always full.
fn tiny_ring(config: &Config) -> World {
    ring(
        Flavor::Deferred,
        &Config {
            submissions: 4,
            completions: 16,
            ..config.clone()
        },
    )
}

fn kernel(choice: Backend, config: &Config) -> World {
    World::new(
        EventSource::new(choice, config)
            .expect("this kernel has epoll")
            .0,
        None,
    )
}

fn sim(seed: u64, move_bytes_max: usize, config: &Config) -> World {
    let net = SimNet::new(seed);
    net.set_move_bytes_max(move_bytes_max);
    World::new(
        EventSource::new(Backend::Sim(net.clone()), config)
            .expect("needs nothing")
            .0,
        Some(net),
    )
}
