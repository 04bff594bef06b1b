//! The web bench: what a request costs SWS, beside a floor, hyper and nginx.
//!
//! ```text
//! responses.rs   the files that the floor and hyper serve, in memory
//! servers.rs     a server as a process of its own: started, pinned, ended
//! nginx.rs       the same for nginx, which has to be configured
//! loads.rs       which load on which cores makes which row; one run of the injector
//! table.rs       interleaved repetitions, medians, the table and the JSON lines
//! ```

pub mod loads;
pub mod nginx;
pub mod responses;
pub mod servers;
pub mod table;
