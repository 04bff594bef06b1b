//! Whole conversations with a connection, without a socket.

mod connection;
mod conversations;
pub(crate) mod driver;
mod generate;
mod loading;
mod properties;
mod reference;
