//! The stealing-queue: the colors of one core's core-queue that are worth a steal, in three bands
//! of penalized time-left (Mely section IV-B). Within a band they are in the
//! order in which they came, but for those that hurried, whatever their time-left.

use super::list::List;
use super::slots::Colors;
use crate::color::SlotId;
use crate::policy::worth::{BANDS, Band};
use crate::sync::fault;

/// See the module text.
#[derive(Debug, Default)]
pub(crate) struct StealingQueue {
    bands: [List; BANDS],
    /// Summed time-left of the colors in it, in ns.
    pub(crate) worth_ns: u64,
}

impl StealingQueue {
    /// The highest band that has any color.
    pub(crate) fn highest(&self) -> Option<Band> {
        let mut bands = Band::ALL.into_iter();
        bands.find(|&band| self.head(band).is_some())
    }

    /// The first color of a band.
    #[inline(always)]
    pub(crate) fn head(&self, band: Band) -> Option<SlotId> {
        self.bands[band.index()].head()
    }

    /// Puts a queued color into a band.
    #[inline(never)]
    pub(crate) fn put(&mut self, colors: &mut Colors<'_>, id: SlotId, band: Band) {
        let mut queue = colors.at(id);
        queue.band = Some(band);
        self.worth_ns += u64::from(queue.worth_ns());
        queue.end();
        self.bands[band.index()].push_back(&mut colors.in_band(), id);
    }

    /// Puts a color at the head of its band, if it is in one.
    pub(crate) fn put_first(&mut self, colors: &mut Colors<'_>, id: SlotId) {
        let band = colors.at(id).band;
        if let Some(band) = band {
            let list = &mut self.bands[band.index()];
            list.remove(&mut colors.in_band(), id);
            list.push_front(&mut colors.in_band(), id);
        }
    }

    /// Takes a color out of its band, if it is in one.
    #[inline(never)]
    pub(crate) fn take_out(&mut self, colors: &mut Colors<'_>, id: SlotId) {
        let mut queue = colors.at(id);
        let Some(band) = queue.band.take() else {
            return;
        };
        if !fault("band not counted") {
            self.worth_ns -= u64::from(queue.worth_ns());
        }
        queue.end();
        self.bands[band.index()].remove(&mut colors.in_band(), id);
    }

    /// Checks the bands against those colors of the core-queue that are in one.
    #[cfg(any(test, debug_assertions, loom))]
    pub(crate) fn assert_valid(&self, colors: &mut Colors<'_>, queued: &[SlotId]) {
        let mut expected: [Vec<SlotId>; BANDS] = Default::default();
        let mut worth_ns = 0;
        for &id in queued {
            let queue = colors.at(id);
            if let Some(band) = queue.band {
                expected[band.index()].push(id);
                worth_ns += u64::from(queue.worth_ns());
            }
        }
        assert_eq!(self.worth_ns, worth_ns, "worthy colors");
        for (band, mut expected) in self.bands.iter().zip(expected) {
            let mut members = band.members(&mut colors.in_band());
            members.sort();
            expected.sort();
            assert_eq!(members, expected, "what is in a band says so");
        }
    }
}
