//! Asio: asio.cpp, which is given the loop that all peers compute.

use super::super::wire::{TIMER_MS, compute};
use super::{Result, listening};
use std::ffi::c_int;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

unsafe extern "C" {
    /// Serves with `workers` threads for ever. Calls `listening` with the port once, and `compute`
    /// with the iterations of each request, from any of its threads. Returns the error
    /// number of a refusal.
    fn mely_bench_asio_respond(
        workers: c_int,
        timer_ms: u64,
        listening: extern "C" fn(u16),
        compute: extern "C" fn(u64),
    ) -> c_int;
}

extern "C" fn say_listening(port: u16) {
    listening(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).expect("standard output takes it");
}

extern "C" fn compute_there(iterations: u64) {
    compute(iterations);
}

/// One `io_context` that `workers` threads run.
pub(super) fn serve(workers: usize) -> Result<()> {
    mely::net::raise_open_file_limit()?;
    let workers = c_int::try_from(workers)?;
    // SAFETY: both functions may be called from any thread.
    match unsafe { mely_bench_asio_respond(workers, TIMER_MS, say_listening, compute_there) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error).into()),
    }
}
