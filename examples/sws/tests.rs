//! Whole conversations with a connection, without a socket.

mod connection;
mod conversations;
mod driver;
mod generate;
mod loading;
mod properties;
mod reference;
