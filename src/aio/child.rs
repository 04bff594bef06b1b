//! Waiting for a child in a task.

use super::ready::told;
use crate::Cx;
use crate::callback::Callback;
use crate::net::child::Child;
use crate::net::control;
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
        told(|cx, mut asked| {
            let exited = move |_: &mut Cx, status| asked.settle(status);
            // Nobody holds that color; the task is woken in its own.
            self.on_exit(cx, Callback::new(None, control(cx.core_id()), exited))
        })
        .await
    }
}
