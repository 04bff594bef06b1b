//! Cells without a lock: a value that belongs to a color, or to a core.
//!
//! Each half of a connection's state is in one of two cells. Whoever wants the value shows
//! something that exists once, and cannot use it otherwise for as long as the value is borrowed:
//!
//! | cell | what is shown | who has it |
//! |---|---|---|
//! | [`InColor`] | `&mut Cx` | the event that runs |
//! | [`AtHome`] | `&mut Here` | the driver of the core |
//!
//! # Why this is sound
//!
//! `InColor` is the rule of [`Colored`](crate::Colored), with a borrow in place of its flag:
//!
//! 1. *Runtime and exact color.* Nothing but an event is given a context that can be borrowed
//!    mutably, and a context does not leave its event's thread. The cell checks that the event is
//!    one of its own runtime and color. The scheduler runs the events of a color one at a time, and
//!    each sees what those before it wrote.
//! 2. *One context an event.* The value is borrowed for as long as the context is, so the compiler
//!    refuses to borrow it again and to call anything with the context. What is called without one
//!    (a closure that is dropped, say) cannot reach a cell.
//!
//! `AtHome` does not ask which thread it is on:
//!
//! 1. *One token a core.* [`Here::claim`] gives the token of a core of a runtime once. A token
//!    cannot be copied.
//! 2. *The right token.* The cell checks that the token is its own core's, and the value is
//!    borrowed for as long as the token is.
//!
//! Both values go from thread to thread, with the color and with the token, so they are `Send`.
//! Both cells keep their runtime alive, so no other can have its address.

use crate::host::inner::Inner;
use crate::host::poster::Poster;
use crate::net::registry::Registry;
use crate::sync::{Arc, CellMut, UnsafeCell, check};
use crate::{Color, Cx, Refused};
use std::fmt;

/// A value that events of one color reach, and nobody else.
pub(super) struct InColor<T> {
    poster: Poster,
    color: Color,
    value: UnsafeCell<T>,
}

// SAFETY: one at a time reaches the value (the module text), on whatever thread, and `T: Send`.
unsafe impl<T: Send> Send for InColor<T> {}
// SAFETY: as above; a shared reference reaches the value in no other way.
unsafe impl<T: Send> Sync for InColor<T> {}

impl<T> InColor<T> {
    /// A value of this color, in the poster's runtime.
    pub(super) fn new(poster: Poster, color: Color, value: T) -> InColor<T> {
        InColor {
            poster,
            color,
            value: UnsafeCell::new(value),
        }
    }

    pub(super) fn color(&self) -> Color {
        self.color
    }

    /// Posts to the runtime whose color it is.
    pub(super) fn poster(&self) -> &Poster {
        &self.poster
    }

    /// Whether the event that runs may have the value.
    #[inline(always)]
    pub(super) fn check(&self, cx: &Cx) -> Result<(), Refused> {
        let current = &cx.worker_ref().core.current;
        check!(current.slot.is_some(), "outside an event");
        Refused::check(cx, &self.poster.inner, self.color)
    }

    /// The value, for as long as the context is not used for anything else.
    #[inline(always)]
    pub(super) fn borrow<'a>(&'a self, cx: &'a mut Cx) -> Result<CellMut<'a, T>, Refused> {
        self.check(cx)?;
        // SAFETY: this is the one event that may have the value (checked), and its one context
        // stays borrowed for as long as what is returned.
        Ok(unsafe { self.value.borrow_mut() })
    }

    /// Calls `visit` with the value, for callers whose context is shared.
    ///
    /// `visit` captures nothing, and what it is given outlives all contexts: so it has no context,
    /// and cannot come here again.
    pub(super) fn visit<A: 'static, R>(
        &self,
        cx: &Cx,
        argument: A,
        visit: fn(&mut T, A) -> R,
    ) -> Result<R, Refused> {
        self.check(cx)?;
        // SAFETY: this is the one event that may have the value (checked). No borrow of it is
        // alive: its context would be borrowed mutably, and is shared here. None begins before
        // `visit` returns: see above.
        let mut value = unsafe { self.value.borrow_mut() };
        Ok(visit(&mut value, argument))
    }

    /// The value, when the runtime has ended.
    ///
    /// # Safety
    /// No core of the runtime runs, and none will. The caller has no other borrow of the value, and
    /// nobody else takes one.
    pub(super) unsafe fn borrow_after_the_end(&self) -> CellMut<'_, T> {
        // SAFETY: no event runs, so nobody has a context to show; the rest is the caller's promise.
        unsafe { self.value.borrow_mut() }
    }
}

/// A value that the driver of one core reaches, and nobody else.
pub(super) struct AtHome<T> {
    inner: Arc<Inner>,
    core: u32,
    value: UnsafeCell<T>,
}

// SAFETY: one at a time reaches the value (the module text), on whatever thread, and `T: Send`.
unsafe impl<T: Send> Send for AtHome<T> {}
// SAFETY: as above; a shared reference reaches the value in no other way.
unsafe impl<T: Send> Sync for AtHome<T> {}

impl<T> AtHome<T> {
    /// A value of this core of the runtime.
    pub(super) fn new(inner: Arc<Inner>, core: u32, value: T) -> AtHome<T> {
        AtHome {
            inner,
            core,
            value: UnsafeCell::new(value),
        }
    }

    /// The core whose driver reaches it.
    pub(super) fn core(&self) -> u32 {
        self.core
    }

    /// The value, for as long as the token is not used for anything else.
    ///
    /// # Panics
    /// If the token is another core's, or another runtime's.
    #[inline(always)]
    pub(super) fn borrow<'a>(&'a self, here: &'a mut Here) -> CellMut<'a, T> {
        if self.core != here.core || !Arc::ptr_eq(&self.inner, &here.inner) {
            self.refuse(here);
        }
        // SAFETY: this is the one token of the value's core (checked), and it stays borrowed for as
        // long as what is returned.
        unsafe { self.value.borrow_mut() }
    }

    #[cold]
    fn refuse(&self, here: &Here) -> ! {
        panic!(
            "what is at home on core {} was asked for by core {} of this or another runtime",
            self.core, here.core
        );
    }

    /// The value, which nobody else can reach.
    pub(super) fn get_mut(&mut self) -> CellMut<'_, T> {
        // SAFETY: the cell is borrowed mutably for as long as what is returned.
        unsafe { self.value.borrow_mut() }
    }
}

/// What a core's driver shows for the values that are at home there.
//
// Neither `Clone` nor `Copy`, and made in `claim` only: see the module text.
pub(super) struct Here {
    inner: Arc<Inner>,
    core: u32,
}

impl Here {
    /// The token of this core.
    ///
    /// # Panics
    /// If it was claimed before: a runtime runs once, so a core has one driver.
    pub(super) fn claim(inner: &Arc<Inner>, core: u32) -> Here {
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
    use crate::{Cores, Runtime};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    const COLOR: Color = Color::new(1 << 40);

    /// A simulated runtime of two cores.
    fn simulation() -> Simulation {
        let builder = Runtime::builder().cores(Cores::Count(2));
        builder.simulate(1).unwrap()
    }

    /// What `f` returns in an event of this color.
    fn in_event<R, F>(simulation: &mut Simulation, color: Color, f: F) -> R
    where
        R: Send + 'static,
        F: FnOnce(&mut Cx) -> R + Send + 'static,
    {
        let event = move |cx: &mut Cx, finish: crate::Finish<R>| {
            cx.post(color, move |cx| finish.finish(f(cx)));
        };
        simulation.run_until(event).unwrap()
    }

    #[test]
    fn a_value_in_a_color_is_reached_by_events_of_the_color() {
        let mut simulation = simulation();
        let cell = InColor::new(simulation.poster(), COLOR, 1);
        let reached = in_event(&mut simulation, COLOR, move |cx| {
            cell.check(cx).unwrap();
            *cell.borrow(cx).unwrap() += 2;
            *cell.borrow(cx).unwrap() += 4;
            cell.visit(cx, 8, |value, more| *value += more).unwrap();
            let visited = cell.visit(cx, (), |value, ()| *value);
            (visited, *cell.borrow(cx).unwrap())
        });
        assert_eq!(reached, (Ok(15), 15));
    }

    /// Runs all the ways to the value, of this color, in an event of another.
    fn refused(mut simulation: Simulation, cell: InColor<u8>, color: Color) -> Refused {
        let all = in_event(&mut simulation, color, move |cx| {
            let visited = cell.visit(cx, (), |_, ()| panic!("visited"));
            let borrowed = cell.borrow(cx).map(|_| ());
            [cell.check(cx), borrowed, visited]
        });
        let refused = all[0].unwrap_err();
        assert_eq!(all, [Err(refused); 3]);
        refused
    }

    #[test]
    fn events_of_another_color_are_refused() {
        let map = &simulation().poster().inner.shared.slots.map;
        let shares_slot = |other: &Color| map.slot(*other) == map.slot(COLOR);
        let mut others = (1..).map(|more| Color::new(COLOR.value() + more));
        let same_slot = others.find(shares_slot).unwrap();
        for other in [same_slot, Color::new(7), Color::DEFAULT] {
            let simulation = simulation();
            let cell = InColor::new(simulation.poster(), COLOR, 1);
            let expected = Refused::OtherColor {
                state: COLOR,
                handler: other,
            };
            assert_eq!(refused(simulation, cell, other), expected);
        }
    }

    #[test]
    fn events_of_the_same_color_in_another_runtime_are_refused() {
        let cell = InColor::new(simulation().poster(), COLOR, 1);
        assert_eq!(refused(simulation(), cell, COLOR), Refused::OtherRuntime);
    }

    /// This core's token, which its driver has.
    fn here(cx: &mut Cx) -> &mut Here {
        &mut crate::net::Driver::of(&mut cx.worker().source)
            .unwrap()
            .here
    }

    /// Whether the core that asks is refused.
    fn is_refused(cell: &AtHome<u8>, cx: &mut Cx) -> bool {
        let here = here(cx);
        catch_unwind(AssertUnwindSafe(|| *cell.borrow(here) += 1)).is_err()
    }

    #[test]
    fn a_value_at_a_core_is_reached_by_that_core() {
        let mut simulation = simulation();
        let inner = simulation.poster().inner;
        let asked = in_event(&mut simulation, COLOR, move |cx| {
            let (core, cores) = (cx.core() as u32, cx.cores() as u32);
            let mut all: Vec<_> = (0..cores)
                .map(|core| AtHome::new(Arc::clone(&inner), core, 0))
                .collect();
            let refused: Vec<_> = all.iter().map(|cell| is_refused(cell, cx)).collect();
            let values: Vec<_> = all.iter_mut().map(|cell| *cell.get_mut()).collect();
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
        let inner = simulation().poster().inner;
        let cells = [0, 1].map(|core| AtHome::new(Arc::clone(&inner), core, 0));
        let refused = in_event(&mut simulation(), COLOR, move |cx| {
            cells.map(|cell| is_refused(&cell, cx))
        });
        assert_eq!(refused, [true, true]);
    }

    /// Each core's driver has it.
    #[test]
    fn a_core_has_one_token() {
        let inner = simulation().poster().inner;
        for core in 0..2 {
            let claim = || Here::claim(&inner, core);
            assert!(catch_unwind(AssertUnwindSafe(claim)).is_err());
        }
        let runtime = Runtime::builder().cores(Cores::Count(2)).build().unwrap();
        let claimed = [0, 1].map(|core| Here::claim(&runtime.inner, core));
        assert_eq!(claimed.map(|here| here.core), [0, 1]);
        assert!(catch_unwind(AssertUnwindSafe(|| Here::claim(&runtime.inner, 1))).is_err());
    }
}
