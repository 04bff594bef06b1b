//! Which states an event has at once, and how they are lent to it.

use crate::colored::Lent;
use crate::host::holding::Held;
use crate::host::inner::Inner;
use crate::rejected::Reason;
use crate::sync::Arc;
use crate::{Color, Colored, Cx, Handler};

/// States that an event can have together; see [`Cx::with_all`](crate::Cx::with_all).
///
/// | states | what the closure gets |
/// |---|---|
/// | `[&Colored<T>; N]` | `[&mut T; N]` |
/// | `Vec<&Colored<T>>`, `Vec<Colored<T>>`, `&[Colored<T>]` | `Vec<&mut T>` |
/// | `(&Colored<A>,)`, `(&Colored<A>, &Colored<B>)`, and so with three | `(&mut A,)`, `(&mut A, &mut B)`, and so with three |
pub trait States: sealed::States {}

impl<S: sealed::States> States for S {}

/// The colors that are held for an event, all but the one in which it runs.
pub(crate) struct Helds(Vec<Held>);

/// An event of several colors: its context, for the one in which it runs, and the others.
pub(crate) struct InColors<'a> {
    pub(super) cx: &'a mut Cx,
    pub(super) helds: &'a mut Helds,
}

impl Helds {
    pub(super) fn none() -> Helds {
        Helds(Vec::new())
    }

    pub(super) fn for_all_but_one_of(colors: usize) -> Helds {
        Helds(Vec::with_capacity(colors - 1))
    }

    pub(super) fn add(&mut self, held: Held) {
        self.0.push(held);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// All are there: from now on they are found.
    pub(super) fn complete(&mut self) {
        self.0.sort_unstable_by_key(Held::color);
    }

    /// That of this color; none, if the event runs in it.
    fn of(&mut self, color: Color) -> Option<&mut Held> {
        let at = self.0.binary_search_by_key(&color, Held::color).ok()?;
        self.0.get_mut(at)
    }
}

/// What is asked of a state before it is lent.
pub(crate) struct StatePlace<'a> {
    pub(super) color: Color,
    pub(super) inner: &'a Arc<Inner>,
    /// Which state it is.
    pub(super) address: usize,
    pub(super) is_poisoned: bool,
    pub(super) handler: Option<&'static Handler>,
}

/// Handles of states, of whatever number.
pub(crate) mod sealed {
    use super::{InColors, Reason, StatePlace};

    /// What is given as states.
    pub trait ToHandles {
        type Handles: Handles;
        fn handles(self) -> Self::Handles;
    }

    #[allow(
        private_interfaces,
        reason = "nobody outside can name what this module has"
    )]
    pub trait Handles: Clone + Send + Sync + 'static {
        fn places(&self) -> Vec<StatePlace<'_>>;
    }

    pub trait States: ToHandles<Handles: TakeHandles> {
        /// What the event gets.
        type Mut<'a>;
        fn lend(values: &mut <Self::Handles as TakeHandles>::Values) -> Self::Mut<'_>;
    }

    #[allow(
        private_interfaces,
        reason = "nobody outside can name what this module has"
    )]
    pub trait TakeHandles: Handles {
        type Values: Default;
        /// Takes the values out. What was taken is in `values` also if one is refused.
        fn take(&self, by: &mut InColors<'_>, values: &mut Self::Values) -> Result<(), Reason>;
        /// Puts back what was taken.
        fn put_back(&self, by: &mut InColors<'_>, values: &mut Self::Values, poisoned: bool);
    }
}

use sealed::{Handles, TakeHandles, ToHandles};

fn place<T: Send + 'static>(state: &Colored<T>) -> StatePlace<'_> {
    StatePlace {
        color: state.color(),
        inner: &state.poster().inner,
        address: state.address(),
        is_poisoned: state.is_poisoned(),
        handler: state.handler(),
    }
}

fn take<T: Send + 'static>(
    state: &Colored<T>,
    by: &mut InColors<'_>,
    value: &mut Option<Lent<T>>,
) -> Result<(), Reason> {
    *value = Some(match by.helds.of(state.color()) {
        Some(held) => state.take_held(held),
        None => state.take(by.cx),
    }?);
    Ok(())
}

fn put_back<T: Send + 'static>(
    state: &Colored<T>,
    by: &mut InColors<'_>,
    value: &mut Option<Lent<T>>,
    poisoned: bool,
) {
    let Some(value) = value.take() else { return };
    match by.helds.of(state.color()) {
        Some(held) => state.put_back_held(held, value, poisoned),
        None => state.put_back(by.cx, value, poisoned),
    }
}

fn lend<T>(value: &mut Option<Lent<T>>) -> &mut T {
    value.as_mut().expect("it was taken")
}

impl<T: Send + 'static> ToHandles for Vec<Colored<T>> {
    type Handles = Vec<Colored<T>>;

    fn handles(self) -> Self::Handles {
        self
    }
}

impl<T: Send + 'static> ToHandles for Vec<&Colored<T>> {
    type Handles = Vec<Colored<T>>;

    fn handles(self) -> Self::Handles {
        self.into_iter().cloned().collect()
    }
}

impl<T: Send + 'static> ToHandles for &Colored<T> {
    type Handles = (Colored<T>,);

    fn handles(self) -> Self::Handles {
        (self.clone(),)
    }
}

impl<T: Send + 'static> ToHandles for &[Colored<T>] {
    type Handles = Vec<Colored<T>>;

    fn handles(self) -> Self::Handles {
        self.to_vec()
    }
}

impl<T: Send + 'static, const N: usize> ToHandles for [&Colored<T>; N] {
    type Handles = Vec<Colored<T>>;

    fn handles(self) -> Self::Handles {
        self.into_iter().cloned().collect()
    }
}

#[allow(private_interfaces, reason = "as above")]
impl<T: Send + 'static> Handles for Vec<Colored<T>> {
    fn places(&self) -> Vec<StatePlace<'_>> {
        self.iter().map(place).collect()
    }
}

#[allow(private_interfaces, reason = "as above")]
impl<T: Send + 'static> TakeHandles for Vec<Colored<T>> {
    type Values = Vec<Option<Lent<T>>>;

    fn take(&self, by: &mut InColors<'_>, values: &mut Self::Values) -> Result<(), Reason> {
        values.resize_with(self.len(), || None);
        let mut each = self.iter().zip(values);
        each.try_for_each(|(state, value)| take(state, by, value))
    }

    fn put_back(&self, by: &mut InColors<'_>, values: &mut Self::Values, poisoned: bool) {
        for (state, value) in self.iter().zip(values) {
            put_back(state, by, value, poisoned);
        }
    }
}

impl<T: Send + 'static> sealed::States for Vec<Colored<T>> {
    type Mut<'a> = Vec<&'a mut T>;

    fn lend(values: &mut Vec<Option<Lent<T>>>) -> Vec<&mut T> {
        values.iter_mut().map(lend).collect()
    }
}

impl<T: Send + 'static> sealed::States for Vec<&Colored<T>> {
    type Mut<'a> = Vec<&'a mut T>;

    fn lend(values: &mut Vec<Option<Lent<T>>>) -> Vec<&mut T> {
        values.iter_mut().map(lend).collect()
    }
}

impl<T: Send + 'static> sealed::States for &[Colored<T>] {
    type Mut<'a> = Vec<&'a mut T>;

    fn lend(values: &mut Vec<Option<Lent<T>>>) -> Vec<&mut T> {
        values.iter_mut().map(lend).collect()
    }
}

impl<T: Send + 'static, const N: usize> sealed::States for [&Colored<T>; N] {
    type Mut<'a> = [&'a mut T; N];

    fn lend(values: &mut Vec<Option<Lent<T>>>) -> [&mut T; N] {
        let mut values = values.iter_mut();
        std::array::from_fn(|_| lend(values.next().expect("one for each state")))
    }
}

/// A tuple of states, each of a type of its own.
macro_rules! tuple {
    ($($state:ident $n:tt),+) => {
        impl<$($state: Send + 'static),+> ToHandles for ($(&Colored<$state>,)+) {
            type Handles = ($(Colored<$state>,)+);

            fn handles(self) -> Self::Handles {
                ($(self.$n.clone(),)+)
            }
        }

        #[allow(private_interfaces, reason = "as above")]
        impl<$($state: Send + 'static),+> Handles for ($(Colored<$state>,)+) {
            fn places(&self) -> Vec<StatePlace<'_>> {
                vec![$(place(&self.$n)),+]
            }
        }

        #[allow(private_interfaces, reason = "as above")]
        impl<$($state: Send + 'static),+> TakeHandles for ($(Colored<$state>,)+) {
            type Values = ($(Option<Lent<$state>>,)+);

            fn take(
                &self,
                by: &mut InColors<'_>,
                values: &mut Self::Values,
            ) -> Result<(), Reason> {
                $(take(&self.$n, by, &mut values.$n)?;)+
                Ok(())
            }

            fn put_back(&self, by: &mut InColors<'_>, values: &mut Self::Values, poisoned: bool) {
                $(put_back(&self.$n, by, &mut values.$n, poisoned);)+
            }
        }

        impl<$($state: Send + 'static),+> sealed::States for ($(&Colored<$state>,)+) {
            type Mut<'a> = ($(&'a mut $state,)+);

            fn lend(values: &mut <Self::Handles as TakeHandles>::Values) -> Self::Mut<'_> {
                ($(lend(&mut values.$n),)+)
            }
        }
    };
}

tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
