//! Which states an event reads at once.

use super::states::sealed::{Handles, ToHandles};
use crate::colored::read::Reading;
use crate::{Colored, Cx, Reason};

/// States that an event can read together, of types that are `Sync`: those of
/// [`States`](crate::state::States), and `&Colored<T>`. The closure gets the same with `&T` in the
/// place of `&mut T`. See [`Cx::read`].
pub trait ReadStates: sealed::ReadStates {}

impl<S: sealed::ReadStates> ReadStates for S {}

/// What has come of one of the states; none until its color's turn.
pub(crate) type Read<T> = Option<Result<Reading<T>, Reason>>;

/// Handles of states, to be read.
pub(crate) mod sealed {
    use super::{Cx, Handles, Reason, ToHandles};

    pub trait ReadStates: ToHandles<Handles: ReadHandles> {
        /// What the event gets.
        type Ref<'a>;
        fn lend(reads: &<Self::Handles as ReadHandles>::Reads) -> Self::Ref<'_>;
    }

    #[allow(
        private_interfaces,
        reason = "nobody outside can name what this module has"
    )]
    pub trait ReadHandles: Handles {
        type Reads: Default + Send;
        /// Begins to read the state of this number, which is of the running color, unless that was
        /// done before. False if it is too early.
        fn begin(&self, number: usize, cx: &mut Cx, reads: &mut Self::Reads) -> bool;
        /// Why one of them cannot be read.
        fn refused(reads: &Self::Reads) -> Option<Reason>;
    }
}

use sealed::ReadHandles;

fn begin<T: Send + Sync + 'static>(state: &Colored<T>, cx: &mut Cx, read: &mut Read<T>) -> bool {
    if read.is_none() {
        *read = state.begin_reading(cx).transpose();
    }
    read.is_some()
}

fn refused<T: Send + 'static>(read: &Read<T>) -> Option<Reason> {
    read.as_ref()?.as_ref().err().copied()
}

fn lend<T: Send + 'static>(read: &Read<T>) -> &T {
    match read {
        Some(Ok(reading)) => reading.value(),
        _ => unreachable!("all of them are read, and none is refused"),
    }
}

#[allow(private_interfaces, reason = "as above")]
impl<T: Send + Sync + 'static> ReadHandles for Vec<Colored<T>> {
    type Reads = Vec<Read<T>>;

    fn begin(&self, number: usize, cx: &mut Cx, reads: &mut Self::Reads) -> bool {
        reads.resize_with(self.len(), || None);
        begin(&self[number], cx, &mut reads[number])
    }

    fn refused(reads: &Self::Reads) -> Option<Reason> {
        reads.iter().find_map(refused)
    }
}

impl<T: Send + Sync + 'static> sealed::ReadStates for Vec<Colored<T>> {
    type Ref<'a> = Vec<&'a T>;

    fn lend(reads: &Vec<Read<T>>) -> Vec<&T> {
        reads.iter().map(lend).collect()
    }
}

impl<T: Send + Sync + 'static> sealed::ReadStates for Vec<&Colored<T>> {
    type Ref<'a> = Vec<&'a T>;

    fn lend(reads: &Vec<Read<T>>) -> Vec<&T> {
        reads.iter().map(lend).collect()
    }
}

impl<T: Send + Sync + 'static> sealed::ReadStates for &[Colored<T>] {
    type Ref<'a> = Vec<&'a T>;

    fn lend(reads: &Vec<Read<T>>) -> Vec<&T> {
        reads.iter().map(lend).collect()
    }
}

impl<T: Send + Sync + 'static> sealed::ReadStates for &Colored<T> {
    type Ref<'a> = &'a T;

    fn lend(reads: &(Read<T>,)) -> &T {
        lend(&reads.0)
    }
}

impl<T: Send + Sync + 'static, const N: usize> sealed::ReadStates for [&Colored<T>; N] {
    type Ref<'a> = [&'a T; N];

    fn lend(reads: &Vec<Read<T>>) -> [&T; N] {
        std::array::from_fn(|i| lend(&reads[i]))
    }
}

/// A tuple of states, each of a type of its own.
macro_rules! tuple {
    ($($state:ident $n:tt),+) => {
        #[allow(private_interfaces, reason = "as above")]
        impl<$($state: Send + Sync + 'static),+> ReadHandles for ($(Colored<$state>,)+) {
            type Reads = ($(Read<$state>,)+);

            fn begin(&self, number: usize, cx: &mut Cx, reads: &mut Self::Reads) -> bool {
                match number {
                    $($n => begin(&self.$n, cx, &mut reads.$n),)+
                    _ => unreachable!("the number of a state"),
                }
            }

            fn refused(reads: &Self::Reads) -> Option<Reason> {
                let each = [$(refused(&reads.$n)),+];
                each.into_iter().flatten().next()
            }
        }

        impl<$($state: Send + Sync + 'static),+> sealed::ReadStates for ($(&Colored<$state>,)+) {
            type Ref<'a> = ($(&'a $state,)+);

            fn lend(reads: &<Self::Handles as ReadHandles>::Reads) -> Self::Ref<'_> {
                ($(lend(&reads.$n),)+)
            }
        }
    };
}

tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
