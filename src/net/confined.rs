//! A cell without a lock: a value that belongs to a core.
//!
//! Each half of a connection's state is in a cell: what is its color's in an
//! [`InColor`](crate::in_color), and what is its home core's in an [`AtHome`]. Whoever wants the
//! value shows something that exists once, and cannot use it otherwise for as long as the value is
//! borrowed: here it is `&mut Here`, which the driver of the core has. Whoever has the lock of that
//! driver can show it.
//!
//! # Why this is sound
//!
//! `AtHome` does not ask which thread it is on:
//!
//! 1. *One token a core.* [`Here::claim`] gives the token of a core of a runtime once. A token
//!    cannot be copied.
//! 2. *The right token.* The cell checks that the token is its own core's, and the value is
//!    borrowed for as long as the token is.
//!
//! The value goes from thread to thread with the token, so it is `Send`. The cell keeps its runtime
//! alive, so no other can have its address.

use crate::color::CoreId;
use crate::host::inner::Inner;
use crate::in_color::{Confined, Key};
use crate::net::registry::Registry;
use crate::sync::{Arc, CellMut};
use std::fmt;

/// A value that the driver of one core reaches, and nobody else.
pub(super) struct AtHome<T>(Confined<OfCore, T>);

/// The key of a value of a core of a runtime.
struct OfCore {
    inner: Arc<Inner>,
    core: CoreId,
}

/// The cores of a value and of the token that was shown for it.
struct Elsewhere(CoreId, CoreId);

// SAFETY: one token fits, by the module text.
unsafe impl Key for OfCore {
    type Proof = Here;
    type Refusal = Elsewhere;

    #[inline(always)]
    fn check(&self, here: &Here) -> Result<(), Elsewhere> {
        if self.core != here.core || !Arc::ptr_eq(&self.inner, &here.inner) {
            return Err(Elsewhere(self.core, here.core));
        }
        Ok(())
    }
}

impl<T> AtHome<T> {
    /// A value of this core of the runtime.
    pub(super) fn new(inner: Arc<Inner>, core: CoreId, value: T) -> AtHome<T> {
        AtHome(Confined::with_key(OfCore { inner, core }, value))
    }

    /// The core whose driver reaches it.
    pub(super) fn core(&self) -> CoreId {
        self.0.key().core
    }

    /// The value, for as long as the token is not used for anything else.
    ///
    /// # Panics
    /// If the token is another core's, or another runtime's.
    #[inline(always)]
    pub(super) fn borrow<'a>(&'a self, here: &'a mut Here) -> CellMut<'a, T> {
        match self.0.borrow(here) {
            Ok(value) => value,
            Err(elsewhere) => elsewhere.refuse(),
        }
    }
}

impl Elsewhere {
    #[cold]
    fn refuse(&self) -> ! {
        let Elsewhere(value, asked) = self;
        panic!(
            "what is at home on core {value} was asked for by core {asked} of this or another \
             runtime"
        );
    }
}

/// What a core's driver shows for the values that are at home there.
//
// Neither `Clone` nor `Copy`, and made in `claim` only: see the module text.
pub(super) struct Here {
    inner: Arc<Inner>,
    core: CoreId,
}

impl Here {
    /// The token of this core.
    ///
    /// # Panics
    /// If it was claimed before: a runtime runs once, so a core has one driver.
    pub(super) fn claim(inner: &Arc<Inner>, core: CoreId) -> Here {
        let is_first = Registry::of_runtime(inner).claim(core);
        assert!(is_first, "core {core} has a driver already");
        Here {
            inner: Arc::clone(inner),
            core,
        }
    }
}

impl fmt::Debug for Here {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Here")
            .field("core", &self.core)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use super::*;
    use crate::sim::Simulation;
    use crate::{Color, Cx, Runtime};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    const COLOR: Color = Color::new(1 << 40);

    /// A simulated runtime of two cores.
    fn simulation() -> Simulation {
        let builder = Runtime::builder().cores(2);
        builder.simulate(1).unwrap()
    }

    /// What `f` returns in an event of this color.
    fn in_event<R, F>(simulation: &mut Simulation, color: Color, f: F) -> R
    where
        R: Send + 'static,
        F: FnOnce(&mut Cx) -> R + Send + 'static,
    {
        let event = move |cx: &mut Cx, finish: crate::runtime::Finish<R>| {
            cx.post(color, move |cx| finish.finish(f(cx)));
        };
        simulation.run_until(event).unwrap()
    }

    /// Whether the core that asks is refused: its driver has its token.
    fn is_refused(cell: &AtHome<u8>, cx: &mut Cx) -> bool {
        let refused = crate::net::Driver::with(cx.worker(), |driver, _| {
            let here = &mut driver.here;
            catch_unwind(AssertUnwindSafe(|| *cell.borrow(here) += 1)).is_err()
        });
        refused.unwrap()
    }

    #[test]
    fn a_value_at_a_core_is_reached_by_that_core() {
        let mut simulation = simulation();
        let inner = Arc::clone(&simulation.poster().inner);
        let asked = in_event(&mut simulation, COLOR, move |cx| {
            let (core, cores) = (cx.core(), cx.cores());
            let mut all: Vec<_> = (0..cores)
                .map(|core| AtHome::new(Arc::clone(&inner), CoreId::of(core), 0))
                .collect();
            let refused: Vec<_> = all.iter().map(|cell| is_refused(cell, cx)).collect();
            let values: Vec<_> = all.iter_mut().map(|cell| *cell.0.get_mut()).collect();
            (core, refused, values)
        });
        let (core, refused, values) = asked;
        let others: Vec<_> = (0..2).map(|other| other != core).collect();
        assert_eq!(refused, others);
        let reached: Vec<_> = others.iter().map(|&other| u8::from(!other)).collect();
        assert_eq!(values, reached);
    }

    #[test]
    fn the_same_core_of_another_runtime_is_refused() {
        let inner = Arc::clone(&simulation().poster().inner);
        let cells = [0, 1].map(|core| AtHome::new(Arc::clone(&inner), CoreId::of(core), 0));
        let refused = in_event(&mut simulation(), COLOR, move |cx| {
            cells.map(|cell| is_refused(&cell, cx))
        });
        assert_eq!(refused, [true, true]);
    }

    /// Each core's driver has it.
    #[test]
    fn a_core_has_one_token() {
        let inner = Arc::clone(&simulation().poster().inner);
        for core in 0..2 {
            let claim = || Here::claim(&inner, CoreId::of(core));
            assert!(catch_unwind(AssertUnwindSafe(claim)).is_err());
        }
        let runtime = Runtime::builder().cores(2).build().unwrap();
        let claimed = [0, 1].map(|core| Here::claim(&runtime.inner, CoreId::of(core)));
        assert_eq!(claimed.map(|here| here.core.index()), [0, 1]);
        assert!(
            catch_unwind(AssertUnwindSafe(|| Here::claim(
                &runtime.inner,
                CoreId::of(1)
            )))
            .is_err()
        );
    }
}
