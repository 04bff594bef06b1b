//! Without the feature `record` there is no recorder and no log: types without a value stand for
//! them, so that nothing asks at run time, and no code of a recording is compiled.

#![allow(dead_code, reason = "only a log reads them")]

use super::Loot;
use crate::Color;
use crate::sync::Arc;
#[cfg(feature = "sim")]
use crate::{clock::Clock, sync::charge::FreeClock};
use mely_topology::Distance;

#[derive(Debug)]
pub(crate) enum Recorder {}

impl Recorder {
    #[cfg(feature = "sim")]
    pub(crate) fn go_by(&self, _time: Time) {
        match *self {}
    }

    pub(crate) fn finish(&self, _cores_left: usize) {
        match *self {}
    }
}

/// The time in a recording.
#[cfg(feature = "sim")]
#[derive(Debug)]
pub(crate) enum Time {
    Virtual(Clock),
    Machine(FreeClock),
}

#[derive(Debug)]
pub(crate) struct Log(Recorder);

/// The post that an event is of: no bits of its tag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cause;

impl Cause {
    pub(crate) const BITS: u32 = 0;

    pub(crate) const fn bits(self) -> u32 {
        0
    }

    pub(crate) const fn from_bits(_bits: u32) -> Cause {
        Cause
    }
}

#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) name: String,
    pub(crate) is_handler: bool,
    pub(crate) time_ns: u64,
    pub(crate) penalty: u64,
    pub(crate) working_set_bytes: Option<u64>,
}

impl Log {
    pub(crate) fn of_core(recorder: &Arc<Recorder>, _core: usize) -> Log {
        match **recorder {}
    }

    pub(crate) fn of_outside(recorder: &Arc<Recorder>, _n: usize) -> Log {
        match **recorder {}
    }

    pub(crate) fn is_over(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn begin(
        &mut self,
        _profile: usize,
        _definition: impl FnOnce() -> Definition,
        _color: Color,
        _cause: Cause,
        _long: bool,
    ) {
        match self.0 {}
    }

    pub(crate) fn end(&mut self, _panicked: bool) {
        match self.0 {}
    }

    pub(crate) fn waits(&mut self) {
        match self.0 {}
    }

    pub(crate) fn post(
        &mut self,
        _profile: usize,
        _definition: impl FnOnce() -> Definition,
        _color: Color,
    ) -> Cause {
        match self.0 {}
    }

    pub(crate) fn refused(&mut self) {
        match self.0 {}
    }

    pub(crate) fn park(&mut self) {
        match self.0 {}
    }

    pub(crate) fn rise(&mut self) {
        match self.0 {}
    }

    pub(crate) fn wake(&mut self, _core: usize) {
        match self.0 {}
    }

    pub(crate) fn steal(
        &mut self,
        _victim: usize,
        _distance: Distance,
        _stuck: bool,
        _cost_ns: u64,
        _loot: &[Loot],
        _definition: impl Fn(usize) -> Definition,
    ) {
        match self.0 {}
    }

    pub(crate) fn hold(&mut self, _id: u64, _shared: bool) {
        match self.0 {}
    }

    pub(crate) fn hold_over(&mut self, _id: u64) {
        match self.0 {}
    }
}
