//! Without the feature `tls`: what `secured` has, for connections that are under none.

use super::{ColorHalf, Conn};
use crate::io::{RecvBuf, SendBuf};
use crate::{Cx, Handler};
use std::io;
use std::sync::Arc;

pub(super) static HANDSHAKE: Handler = Handler::new("mely: received");

pub(super) type OfColor = Option<std::convert::Infallible>;
pub(super) type OnSecured = std::convert::Infallible;

impl ColorHalf {
    #[inline(always)]
    pub(in crate::net) fn seal<W>(&mut self, _: &W) -> Option<Option<Vec<SendBuf>>> {
        None
    }

    #[inline(always)]
    pub(in crate::net) fn shakes_hands(&self) -> bool {
        false
    }

    pub(super) fn take_handshake(&mut self) -> Option<OnSecured> {
        self.secured
    }
}

impl Conn {
    #[inline(always)]
    pub(super) fn unless_secured(
        self: &Arc<Conn>,
        _: &mut Cx,
        result: io::Result<RecvBuf>,
    ) -> Option<io::Result<RecvBuf>> {
        Some(result)
    }

    #[inline(always)]
    pub(in crate::net) fn deliver_kept(self: &Arc<Conn>, _: &mut Cx) -> bool {
        false
    }

    #[inline(always)]
    pub(super) fn give_kept(self: &Arc<Conn>, _: &mut Cx) {}

    pub(in crate::net) fn say_end(self: &Arc<Conn>, _: &mut Cx) {}
}
