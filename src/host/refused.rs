//! Why an event cannot have a state.

use crate::Color;
use std::fmt;

/// Why access to a [`Colored`](crate::Colored) was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// The state belongs to another runtime than the handler that asked.
    OtherRuntime,
    /// The handler that asked runs in another color.
    OtherColor {
        /// The color of the state.
        state: Color,
        /// The color of the handler.
        handler: Color,
    },
    /// The state is already lent, further up the stack.
    Lent,
    /// A handler panicked while it had the state; see
    /// [`Colored::clear_poison`](crate::Colored::clear_poison).
    Poisoned,
    /// No state was given: an event of none would have no color.
    NoState,
    /// The same state was given twice, of this color.
    Twice(Color),
    /// The states belong to two runtimes.
    TwoRuntimes,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::OtherRuntime => f.write_str("the state belongs to another runtime"),
            Refused::OtherColor { state, handler } => write!(
                f,
                "the state belongs to color {state} and the handler runs in color {handler}"
            ),
            Refused::Lent => f.write_str("the state is already lent to this event"),
            Refused::Poisoned => f.write_str("a handler panicked while it had the state"),
            Refused::NoState => f.write_str("an event of no states has no color"),
            Refused::Twice(color) => write!(f, "the same state twice, of color {color}"),
            Refused::TwoRuntimes => f.write_str("states of two runtimes cannot be had together"),
        }
    }
}

impl std::error::Error for Refused {}
