//! Waiting for a child in a task.

use crate::Cx;
use crate::ask::Asked;
use crate::callback::Callback;
use crate::net::child::Child;
use crate::net::control;
use crate::task::ambient::try_with_cx;
use std::io;
use std::process::ExitStatus;

impl Child {
    /// Waits for the child's end, in a task; with a [`timeout`](crate::task::timeout), say. See
    /// [`on_exit`](Self::on_exit).
    ///
    /// # Errors
    /// As [`on_exit`](Self::on_exit); one whose source is
    /// [`Reason::NoContext`](crate::Reason::NoContext) outside of tasks.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        let waits = try_with_cx(|cx| {
            let (mut asked, handle) = Asked::new(&cx.worker_ref().inner);
            let told = move |_: &mut Cx, status| asked.settle(status);
            // Nobody holds that color; the task is woken in its own.
            let watch = self.on_exit(cx, Callback::new(None, control(cx.core_id()), told))?;
            Ok::<_, io::Error>((watch.cancel_on_drop(), handle))
        });
        let (_watch, handle) = waits.map_err(io::Error::other)??;
        handle.await.unwrap_or_else(|_| Err(crate::net::ending()))
    }
}
