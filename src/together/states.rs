//! Which states an event has at once, and how they are lent to it.

use crate::Color;
use crate::Colored;
use crate::colored::Lent;
use crate::host::holding::Held;
use crate::host::inner::Inner;
use crate::in_color::Refused;
use crate::sync::Arc;

/// States that an event can have together: an array of references to [`Colored`]s of one type, a
/// slice or a `Vec` of them, or a tuple of two or three references, of any types. See
/// [`Cx::with_all`](crate::Cx::with_all).
pub trait States: sealed::States {}

impl<S: sealed::States> States for S {}

/// The colors that are held for an event.
pub(crate) struct Helds(Vec<Held>);

impl Helds {
    pub(super) fn new() -> Helds {
        Helds(Vec::new())
    }

    pub(super) fn add(&mut self, held: Held) {
        self.0.push(held);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// That of this color, which is one of them.
    fn of(&mut self, color: Color) -> &mut Held {
        let of_color = self.0.iter_mut().find(|held| held.color() == color);
        of_color.expect("each color of the states is held")
    }
}

/// What is asked of a state before it is lent.
pub(crate) struct StatePlace<'a> {
    pub(super) color: Color,
    pub(super) inner: &'a Arc<Inner>,
    /// Which state it is.
    pub(super) address: usize,
}

/// Handles of states, of whatever number.
pub(crate) mod sealed {
    use super::{Helds, Refused, StatePlace};

    pub trait States {
        type Handles: Handles;
        /// What the event gets.
        type Mut<'a>;
        fn handles(self) -> Self::Handles;
        fn lend(values: &mut <Self::Handles as Handles>::Values) -> Self::Mut<'_>;
    }

    #[allow(
        private_interfaces,
        reason = "nobody outside can name what this module has"
    )]
    pub trait Handles: Clone + Send + Sync + 'static {
        type Values: Default;
        fn places(&self) -> Vec<StatePlace<'_>>;
        /// Takes the values out. What was taken is in `values` also if one is refused.
        fn take(&self, helds: &mut Helds, values: &mut Self::Values) -> Result<(), Refused>;
        /// Puts back what was taken.
        fn put_back(&self, helds: &mut Helds, values: &mut Self::Values, poisoned: bool);
    }
}

use sealed::Handles;

pub(super) fn place<T: Send + 'static>(state: &Colored<T>) -> StatePlace<'_> {
    StatePlace {
        color: state.color(),
        inner: &state.poster().inner,
        address: state.address(),
    }
}

fn take<T: Send + 'static>(
    state: &Colored<T>,
    helds: &mut Helds,
    value: &mut Option<Lent<T>>,
) -> Result<(), Refused> {
    *value = Some(state.take_held(helds.of(state.color()))?);
    Ok(())
}

fn put_back<T: Send + 'static>(
    state: &Colored<T>,
    helds: &mut Helds,
    value: &mut Option<Lent<T>>,
    poisoned: bool,
) {
    if let Some(value) = value.take() {
        state.put_back_held(helds.of(state.color()), value, poisoned);
    }
}

fn lend<T>(value: &mut Option<Lent<T>>) -> &mut T {
    value.as_mut().expect("it was taken")
}

#[allow(private_interfaces, reason = "as above")]
impl<T: Send + 'static> Handles for Vec<Colored<T>> {
    type Values = Vec<Option<Lent<T>>>;

    fn places(&self) -> Vec<StatePlace<'_>> {
        self.iter().map(place).collect()
    }

    fn take(&self, helds: &mut Helds, values: &mut Self::Values) -> Result<(), Refused> {
        values.resize_with(self.len(), || None);
        let mut each = self.iter().zip(values);
        each.try_for_each(|(state, value)| take(state, helds, value))
    }

    fn put_back(&self, helds: &mut Helds, values: &mut Self::Values, poisoned: bool) {
        for (state, value) in self.iter().zip(values) {
            put_back(state, helds, value, poisoned);
        }
    }
}

impl<T: Send + 'static> sealed::States for Vec<Colored<T>> {
    type Handles = Vec<Colored<T>>;
    type Mut<'a> = Vec<&'a mut T>;

    fn handles(self) -> Self::Handles {
        self
    }

    fn lend(values: &mut Vec<Option<Lent<T>>>) -> Vec<&mut T> {
        values.iter_mut().map(lend).collect()
    }
}

impl<T: Send + 'static> sealed::States for &[Colored<T>] {
    type Handles = Vec<Colored<T>>;
    type Mut<'a> = Vec<&'a mut T>;

    fn handles(self) -> Self::Handles {
        self.to_vec()
    }

    fn lend(values: &mut Vec<Option<Lent<T>>>) -> Vec<&mut T> {
        values.iter_mut().map(lend).collect()
    }
}

impl<T: Send + 'static, const N: usize> sealed::States for [&Colored<T>; N] {
    type Handles = Vec<Colored<T>>;
    type Mut<'a> = [&'a mut T; N];

    fn handles(self) -> Self::Handles {
        self.into_iter().cloned().collect()
    }

    fn lend(values: &mut Vec<Option<Lent<T>>>) -> [&mut T; N] {
        let mut values = values.iter_mut();
        std::array::from_fn(|_| lend(values.next().expect("one for each state")))
    }
}

#[allow(private_interfaces, reason = "as above")]
impl<A: Send + 'static, B: Send + 'static> Handles for (Colored<A>, Colored<B>) {
    type Values = (Option<Lent<A>>, Option<Lent<B>>);

    fn places(&self) -> Vec<StatePlace<'_>> {
        vec![place(&self.0), place(&self.1)]
    }

    fn take(&self, helds: &mut Helds, values: &mut Self::Values) -> Result<(), Refused> {
        take(&self.0, helds, &mut values.0)?;
        take(&self.1, helds, &mut values.1)
    }

    fn put_back(&self, helds: &mut Helds, values: &mut Self::Values, poisoned: bool) {
        put_back(&self.0, helds, &mut values.0, poisoned);
        put_back(&self.1, helds, &mut values.1, poisoned);
    }
}

impl<A: Send + 'static, B: Send + 'static> sealed::States for (&Colored<A>, &Colored<B>) {
    type Handles = (Colored<A>, Colored<B>);
    type Mut<'a> = (&'a mut A, &'a mut B);

    fn handles(self) -> Self::Handles {
        (self.0.clone(), self.1.clone())
    }

    fn lend(values: &mut (Option<Lent<A>>, Option<Lent<B>>)) -> (&mut A, &mut B) {
        (lend(&mut values.0), lend(&mut values.1))
    }
}

#[allow(private_interfaces, reason = "as above")]
impl<A, B, C> Handles for (Colored<A>, Colored<B>, Colored<C>)
where
    A: Send + 'static,
    B: Send + 'static,
    C: Send + 'static,
{
    type Values = (Option<Lent<A>>, Option<Lent<B>>, Option<Lent<C>>);

    fn places(&self) -> Vec<StatePlace<'_>> {
        vec![place(&self.0), place(&self.1), place(&self.2)]
    }

    fn take(&self, helds: &mut Helds, values: &mut Self::Values) -> Result<(), Refused> {
        take(&self.0, helds, &mut values.0)?;
        take(&self.1, helds, &mut values.1)?;
        take(&self.2, helds, &mut values.2)
    }

    fn put_back(&self, helds: &mut Helds, values: &mut Self::Values, poisoned: bool) {
        put_back(&self.0, helds, &mut values.0, poisoned);
        put_back(&self.1, helds, &mut values.1, poisoned);
        put_back(&self.2, helds, &mut values.2, poisoned);
    }
}

impl<A, B, C> sealed::States for (&Colored<A>, &Colored<B>, &Colored<C>)
where
    A: Send + 'static,
    B: Send + 'static,
    C: Send + 'static,
{
    type Handles = (Colored<A>, Colored<B>, Colored<C>);
    type Mut<'a> = (&'a mut A, &'a mut B, &'a mut C);

    fn handles(self) -> Self::Handles {
        (self.0.clone(), self.1.clone(), self.2.clone())
    }

    fn lend(values: &mut <Self::Handles as Handles>::Values) -> Self::Mut<'_> {
        (
            lend(&mut values.0),
            lend(&mut values.1),
            lend(&mut values.2),
        )
    }
}
