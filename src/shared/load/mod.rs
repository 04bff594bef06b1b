//! What a core shows to others of its work: what it has to give in its [`hint`], what it is doing
//! in its [`progress`]; [`steal_costs`] is what is measured, [`stats`] what is counted.

pub(crate) mod hint;
pub(crate) mod progress;
pub(crate) mod stats;
pub(crate) mod steal_costs;
