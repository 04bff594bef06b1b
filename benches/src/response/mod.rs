//! Response times of servers whose requests compute, beside those of an ideal queue.
//!
//! ```text
//! cargo bench -p mely-bench --bench response              # all rows, for half an hour
//! cargo bench -p mely-bench --bench response -- --help    # one row, other loads, a chart
//! ```
//!
//! **Open load.** A seed decides the schedule of the requests ([`load`]): a Poisson process. Each
//! is sent at its time, even if earlier ones are not answered yet, so a slow server gets no less to
//! do. A request names the iterations of one loop that it computes ([`wire`]). Iterations are
//! counted: time in which a thread has lost its processor does not pass for work.
//!
//! **Ratios.** The run's own send times and services are given to an ideal queue ([`ideal`]), which
//! has as many servers as the peer has workers, and loses no time. It is first come, first served,
//! and serves one request of a connection at a time. The table has mean, median and 99th percentile
//! of the responses, in multiples of the ideal queue's. Beside them stands the processor time of
//! the server's process per request, in us and as a multiple of the mean service. The bimodal
//! service is 0.5 times the mean for 90 % of the requests, and 5.5 times for 10 %.
//!
//! **The generator** ([`generator`]) shares the processors with the workers, as a thread of
//! real-time priority. At each request and each answer it takes a processor for some microseconds.
//! That is part of the ratios of all peers alike; its share of one processor is in the column
//! "gen %". The column "late us" is how late it sends, at the 99th percentile. The ideal queue is
//! given the times of sending, so a late request does not falsify a ratio, but the arrivals are then
//! not the Poisson process that was asked for. If the generator is late by more than 5 % of the mean
//! service, the run is void. A sleeping thread does not wake within 5 us. So the generator spins
//! shortly before each request, for at most 20 us and 5 % of one processor ([`realtime`]), and
//! lateness below 50 us voids no run.
//!
//! **Peers** ([`peers`]) are servers in processes of their own, of the program `respond`. Rows named
//! `posts-...` have no I/O: a foreign thread posts to colors of schedulers ([`posts`]), and the
//! generator's processor time is subtracted. Each round measures `mely` twice. The second time, as
//! `mely, again`, is a control: differences as large as between the two mean nothing.
//!
//! **Other measurements**: with `--late` ([`late`]) clients connect while a core is in a handler of
//! 3 s; with `--pipeline` ([`pipeline`]) a client sends three requests in one packet.
//!
//! ```text
//! random.rs      all chance, from a seed
//! load.rs        rows, and the schedule of their requests
//! wire.rs        requests, answers, and the loop that servers compute
//! ideal.rs       the ideal queue
//! score.rs       a run judged by it
//! realtime.rs    the generator's thread
//! generator.rs   sends and receives, by connections
//! posts.rs       sends and receives, by posts
//! peers/         the servers: a file each
//! options.rs     the command line
//! table.rs       interleaved repetitions, medians, the table and the JSON lines
//! chart.rs       99th percentiles over the load
//! late.rs        clients that come while a core is in a long handler
//! pipeline.rs    three requests in one packet
//! ```

pub mod chart;
pub mod generator;
pub mod ideal;
pub mod late;
pub mod load;
pub mod options;
pub mod peers;
pub mod pipeline;
pub mod posts;
pub mod random;
pub mod realtime;
pub mod score;
pub mod table;
pub mod wire;

use self::options::{Mode, Options};
use crate::machine;
use crate::web::servers::Running;
use std::path::PathBuf;
use std::process::Command;

/// Where the program of the peers is, and how many workers it has.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The program `respond`, of this package, or one that calls [`respond`] with its arguments.
    pub respond: PathBuf,
    /// Workers of each server.
    pub cores: usize,
}

impl Bench {
    /// Starts a peer's server on the first `cores` processors.
    ///
    /// # Errors
    /// If it does not run, or does not listen in time.
    pub fn start(&self, peer: &str, cores: usize) -> Result<Running, String> {
        let mut command = Command::new(&self.respond);
        command.arg(peer).arg(cores.to_string());
        Running::of(command, &Vec::from_iter(0..cores))
    }
}

/// What the program `respond` does: a server, or one run of posts.
///
/// # Errors
/// Arguments of neither, and what fails.
pub fn respond(arguments: &[String]) -> Result<(), String> {
    match arguments {
        [first, rest @ ..] if first == posts::ARGUMENT => posts::child(rest),
        [peer, workers] => {
            let workers = workers.parse().ok().filter(|&workers| workers > 0);
            let workers: usize = workers.ok_or("WORKERS: not a count")?;
            let peer = peers::find(peer).ok_or_else(|| {
                let names = options::peer_names();
                format!("{peer}: no such server; there are {names}")
            })?;
            let served = (peer.serve)(workers);
            served.map_err(|error| format!("{}: {error}", peer.name))
        }
        _ => Err("usage: respond PEER WORKERS".to_owned()),
    }
}

/// Measures as the command line says, with the servers of the program `respond`.
///
/// # Errors
/// A server or a scheduler that fails; more cores than there are; a chart that cannot be written.
pub fn measure_all(respond: PathBuf, options: &Options) -> Result<(), String> {
    let has = machine::cores();
    let cores = options.cores.unwrap_or(has);
    if cores > has {
        return Err(format!(
            "--cores {cores}: this process has {has} processors"
        ));
    }
    mely::net::raise_open_file_limit().map_err(|error| error.to_string())?;
    let bench = Bench { respond, cores };
    match options.mode {
        Mode::Late => return late::measure(&bench, &options.servers(), options.json),
        Mode::Pipeline => return pipeline::measure(&bench, &options.servers(), options.json),
        Mode::Table => {}
    }
    if !options.json {
        let absent = match cfg!(asio) {
            true => "",
            false => " asio is left out: Debian's libasio-dev was not there at build time.",
        };
        println!(
            "{cores} workers; medians of {} interleaved rounds of {} requests, the first tenth not \
             counted. mean, p50, p99: response times as multiples of the ideal queue's. CPU: of the \
             server, per request; as a multiple of the mean service.{absent}\n",
            options.rounds, options.requests
        );
        table::print_head();
    }
    let measured = table::measure(&bench, options)?;
    if let Some(file) = &options.chart {
        std::fs::write(file, chart::svg(&measured))
            .map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(())
}
