//! SWS as its clients meet it: the real program in a process of its own, served over loopback to
//! clients of every kind, on both backends of the kernel.
//!
//! | module | what it holds |
//! |---|---|
//! | `setup`, `server` | start the program, run it, measure it, stop it |
//! | `site`, `client`, `swarm` | files to serve; one client that looks closely; a thousand that are quick |
//! | the others | the tests |
//!
//! Everything ends by itself: sockets have timeouts, waits have deadlines, and the kernel ends a
//! server that has outlived both.

// `#[test]`s are private, and so is everything here; nothing is an API.
#![allow(unreachable_pub, missing_debug_implementations)]

mod client;
mod descriptors;
mod errors;
mod garbage;
mod http;
mod limits;
mod load;
mod output;
mod root;
mod server;
mod setup;
mod shutdown;
mod site;
mod slow;
mod startup;
mod swarm;
mod vanish;

/// Makes one test of each function for each backend of the kernel.
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {
        mod io_uring {
            $(#[test] fn $name() {
                if crate::setup::kernel_has_io_uring() {
                    super::$name("io_uring");
                }
            })+
        }
        mod epoll {
            $(#[test] fn $name() { super::$name("epoll"); })+
        }
    };
}
use on_both;
