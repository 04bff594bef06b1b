//! The examples that serve clients on sockets. Each test names its event source: see `test.sh`. The
//! allocator is that of `examples/store/`.

#[path = "../common/mod.rs"]
mod common;

mod chat;
mod proxy;
mod store;
