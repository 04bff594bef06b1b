//! Receiving datagrams in a task.

use super::ready::told;
use crate::net::{Datagram, DatagramSocket};
use crate::task::yield_now;
use std::io;

impl DatagramSocket {
    /// Waits for a datagram, in a task. Dropped before it is ready, the future has taken none. Where
    /// many have come, it lets other events of the color run after every sixteen.
    ///
    /// # Errors
    /// As the system tells them, such as a refusal by the address of an earlier
    /// [`send`](Self::send); `ECANCELED` when the runtime is asked to stop while it waits; one whose
    /// source is [`Reason::NoContext`](crate::Reason::NoContext) outside of tasks.
    pub async fn recv(&self) -> io::Result<Datagram> {
        if self.is_turn_over() {
            yield_now().await;
        }
        loop {
            if let Some(datagram) = self.try_recv()? {
                return Ok(datagram);
            }
            // What comes between these two is told at once.
            told(|cx, asked| self.arrives(cx, asked)).await?;
        }
    }
}
