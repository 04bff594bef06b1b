//! Cells without a lock: a value that belongs to a color, or to whoever else has it alone.
//!
//! Whoever wants the value shows something that exists once, and cannot use it otherwise for as
//! long as the value is borrowed. For a value in a color that is `&mut Cx`, which the event that
//! runs has, or `&mut Ended`, when the runtime has ended. [`Confined`] is such a cell, and its
//! [`Key`] says what is to be shown; [`InColor`] is that of a color.
//!
//! # Why a color's is sound
//!
//! 1. *Runtime and exact color.* Nothing but an event is given a context that can be borrowed
//!    mutably, and a context does not leave its event's thread. The cell checks that the event is
//!    one of its own runtime and color (the 64-bit value, not the slot). The scheduler runs the
//!    events of a color one at a time, and each sees what those before it wrote.
//! 2. *One context an event.* The value is borrowed for as long as the context is, so the compiler
//!    refuses to borrow it again and to call anything with the context. What is called without one
//!    (a closure that is dropped, say) cannot reach a cell: it may find the context of a task
//!    ([`crate::task`]), but not while anybody uses that.
//! 3. *One hold.* While a color is held ([`Held`]) no event of it runs. Who has the hold has the
//!    values of the color instead of its events.
//! 4. *One end.* An [`Ended`] is given once for a runtime, when no core runs any more. The values
//!    that it is shown for (of a connection and of a task) are no states of a
//!    [`Colored`](crate::Colored), and it is only for those that a hold is shown.
//!
//! The value goes from thread to thread with the color, so it is `Send`. The cell keeps its runtime
//! alive, so no other can have its address.

use crate::host::holding::Held;
use crate::host::inner::{Ended, Inner};
use crate::host::poster::Poster;
use crate::rejected::Reason;
use crate::sync::{Arc, CellMut, UnsafeCell, check};
use crate::{Color, Cx};

/// A value that events of one color reach, and nobody else.
pub(crate) type InColor<T> = Confined<OfColor, T>;

/// Which proof opens a cell.
///
/// # Safety
/// Of the proofs that fit a key one exists at a time, and each is shown after those before it were
/// used: the threads they are on have synchronized.
pub(crate) unsafe trait Key {
    /// What is shown.
    type Proof: ?Sized;
    /// Why that does not fit.
    type Refusal;

    /// Whether it fits.
    fn check(&self, proof: &Self::Proof) -> Result<(), Self::Refusal>;
}

/// A value that is reached by showing the proof that fits its key.
pub(crate) struct Confined<K, T> {
    key: K,
    value: UnsafeCell<T>,
}

// SAFETY: one at a time reaches the value, by the promise of `Key`, on whatever thread.
unsafe impl<K: Send, T: Send> Send for Confined<K, T> {}
// SAFETY: as above; a shared reference reaches the value in no other way.
unsafe impl<K: Sync, T: Send> Sync for Confined<K, T> {}

impl<K: Key, T> Confined<K, T> {
    pub(crate) fn with_key(key: K, value: T) -> Confined<K, T> {
        Confined {
            key,
            value: UnsafeCell::new(value),
        }
    }

    pub(crate) fn key(&self) -> &K {
        &self.key
    }

    /// Whether the value can be had for this proof.
    #[inline(always)]
    pub(crate) fn check(&self, proof: &K::Proof) -> Result<(), K::Refusal> {
        self.key.check(proof)
    }

    /// The value, for as long as the proof is not used for anything else.
    #[inline(always)]
    pub(crate) fn borrow<'a>(
        &'a self,
        proof: &'a mut K::Proof,
    ) -> Result<CellMut<'a, T>, K::Refusal> {
        self.check(proof)?;
        // SAFETY: this is the one proof that fits (checked), and it stays borrowed for as long as
        // what is returned.
        Ok(unsafe { self.value.borrow_mut() })
    }

    /// The value, which nobody else can reach.
    pub(crate) fn get_mut(&mut self) -> CellMut<'_, T> {
        self.value.get_mut()
    }
}

/// The key of a value in a color of a runtime.
pub(crate) struct OfColor {
    poster: Poster,
    color: Color,
}

// SAFETY: the module text.
unsafe impl Key for OfColor {
    type Proof = Cx;
    type Refusal = Reason;

    #[inline(always)]
    fn check(&self, cx: &Cx) -> Result<(), Reason> {
        let current = &cx.worker_ref().core.current;
        check!(current.slot.is_some(), "outside an event");
        Reason::check(cx, &self.poster.inner, self.color)
    }
}

impl<T> InColor<T> {
    /// A value of this color, in the poster's runtime.
    pub(crate) fn new(poster: Poster, color: Color, value: T) -> InColor<T> {
        Confined::with_key(OfColor { poster, color }, value)
    }

    pub(crate) fn color(&self) -> Color {
        self.key.color
    }

    /// Posts to the runtime whose color it is.
    pub(crate) fn poster(&self) -> &Poster {
        &self.key.poster
    }

    /// The value, of a color that is held, for as long as nobody ends that.
    pub(crate) fn borrow_held<'a>(&'a self, held: &'a mut Held) -> Result<CellMut<'a, T>, Reason> {
        if !held.is_of(&self.key.poster.inner) {
            return Err(Reason::OtherRuntime);
        }
        let (state, handler) = (self.key.color, held.color());
        if handler != state {
            return Err(Reason::OtherColor { state, handler });
        }
        // SAFETY: the color is held (checked), and the event that has it held is done with it: so
        // no event has a context of this color to show until `held` is gone, which stays borrowed
        // for as long as what is returned. There is one `held` at a time: another could only be
        // taken by an event of the color. Whoever was given it has synchronized with that event.
        Ok(unsafe { self.value.borrow_mut() })
    }

    /// Calls `visit` with the value, for callers whose context is shared.
    ///
    /// `visit` captures nothing, and what it is given outlives all contexts: so it has no context,
    /// and cannot come here again.
    pub(crate) fn visit<A: 'static, R>(
        &self,
        cx: &Cx,
        argument: A,
        visit: fn(&mut T, A) -> R,
    ) -> Result<R, Reason> {
        self.check(cx)?;
        // SAFETY: this is the one event that may have the value (checked). No borrow of it is
        // alive: its context would be borrowed mutably, and is shared here. None begins before
        // `visit` returns: see above.
        let mut value = unsafe { self.value.borrow_mut() };
        Ok(visit(&mut value, argument))
    }

    /// The value, of a runtime that has ended.
    ///
    /// # Panics
    /// If it was another runtime that has ended.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn borrow_after_the_end<'a>(&'a self, ended: &'a mut Ended<'_>) -> CellMut<'a, T> {
        assert!(
            ended.is_of(&self.key.poster.inner),
            "another runtime has ended"
        );
        // SAFETY: no core runs, so nobody has a context to show; this is the one proof of that, and
        // it stays borrowed for as long as what is returned. Nobody shows a hold: one may outlast a
        // run that was cut short, but no value is reached by holds and asked for here (4.).
        unsafe { self.value.borrow_mut() }
    }
}

impl Reason {
    /// Whether the event that runs may reach what belongs to this color of this runtime.
    #[inline(always)]
    pub(crate) fn check(cx: &Cx, inner: &Arc<Inner>, color: Color) -> Result<(), Reason> {
        let same_runtime = Arc::ptr_eq(inner, &cx.worker_ref().inner);
        if same_runtime && cx.color() == color {
            return Ok(());
        }
        Err(Reason::because(same_runtime, color, cx.color()))
    }

    /// Apart, because it is rare.
    #[cold]
    fn because(same_runtime: bool, state: Color, handler: Color) -> Reason {
        if !same_runtime {
            return Reason::OtherRuntime;
        }
        Reason::OtherColor { state, handler }
    }
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use super::*;
    use crate::Runtime;
    use crate::sim::Simulation;

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
    fn refused(mut simulation: Simulation, cell: InColor<u8>, color: Color) -> Reason {
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
            let expected = Reason::OtherColor {
                state: COLOR,
                handler: other,
            };
            assert_eq!(refused(simulation, cell, other), expected);
        }
    }

    #[test]
    fn events_of_the_same_color_in_another_runtime_are_refused() {
        let cell = InColor::new(simulation().poster(), COLOR, 1);
        assert_eq!(refused(simulation(), cell, COLOR), Reason::OtherRuntime);
    }
}
