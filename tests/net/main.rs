//! Connections. Each test names its event source: see `test.sh`.

#[path = "../common/mod.rs"]
mod common;

mod addresses;
mod aio;
mod datagrams;
mod framing;
mod hyper;
mod joined;
mod late;
mod names;
mod pipe;
mod serve;
mod stages;
mod streams;
mod tls;
mod visits;
