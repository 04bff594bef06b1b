//! Whole conversations with a connection, without a socket.

mod loading;
