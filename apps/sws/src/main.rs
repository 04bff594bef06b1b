//! SWS, the Mely paper's web server: static files over HTTP/1.1, one color a connection.
//!
//! Everything here but `main` is free of I/O once the site has been read, so that each module can
//! be tested byte by byte without a socket. In the order a request meets them:
//!
//! | module | what it knows |
//! |---|---|
//! | `args` | the command line |
//! | `site`, `load`, `builtin` | the paper's cache: path to prebuilt response, filled once at start-up |
//! | `conn`, `step` | one connection, cut at the paper's handlers: read, parse, check in cache, write, close |
//! | `request`, `fields`, `host`, `path` | the request head, its framing and conditions, its host, its path |
//! | `respond`, `condition`, `status`, `bytes` | which prebuilt bytes answer a request |
//! | `outgoing`, `clock` | an answer with its date, as what the kernel gets |
//! | `server`, `clients`, `session` | the paper's handlers as events of the runtime |
//! | `places`, `leaving` | how many may be connected |
//! | `deadlines`, `acknowledged` | for how long, and whether they take what they asked for |
//! | `source`, `signals` | what the server runs on, and what ends it |
//! | `tally`, `process`, `figures`, `stats_page`, `summary` | what `/_mely` shows, and what is printed at the end |
//! | `voice` | how often anything is said |
//!
//! How its cores and its descriptors are set and how anything is printed is in `mely-apps-common`,
//! for the injector does it likewise.

// They panic when the output is gone.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod acknowledged;
mod args;
mod builtin;
mod bytes;
mod clients;
mod clock;
mod condition;
mod conn;
mod deadlines;
mod fields;
mod figures;
mod host;
mod leaving;
mod load;
mod outgoing;
mod path;
mod places;
mod process;
mod request;
mod respond;
mod server;
mod session;
mod signals;
mod site;
mod source;
mod stats_page;
mod status;
mod step;
mod summary;
mod tally;
#[cfg(test)]
mod tests;
mod voice;

use mely::net::Backend;
use mely::runtime::{BuildError, Stealing};
use mely::{RunError, Runtime};
use mely_apps_common::{cores, files, out};
use server::Server;
use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// The Mely paper's allocator (its section IV-C), for who has it:
/// `cargo run --release -p sws --features tcmalloc`. `apps/sws/allocators.sh` times it.
#[cfg(feature = "tcmalloc")]
#[global_allocator]
static ALLOCATOR: tcmalloc::TCMalloc = tcmalloc::TCMalloc;

fn main() -> ExitCode {
    let args = match args::parse(std::env::args_os().skip(1)) {
        Ok(args::Command::Serve(args)) => args,
        Ok(args::Command::Help) => return help(),
        Err(error) => {
            out::say(NAME, format_args!("{error}\nTry 'sws --help'."));
            return ExitCode::from(2);
        }
    };
    let done = site(&args).and_then(|site| serve(site, args));
    match done {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(CUT_OFF),
        Err(error) => {
            out::say(NAME, error);
            ExitCode::FAILURE
        }
    }
}

fn help() -> ExitCode {
    match out::print(args::HELP) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            out::say(NAME, format_args!("standard output: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// What is to be served; says what of it is left out.
fn site(args: &args::Args) -> Result<site::Site, Box<dyn Error>> {
    let Some(root) = &args.root else {
        return Ok(builtin::site());
    };
    let loaded = load::read_directory(root, args.limits)?;
    for warning in &loaded.warnings {
        out::say(NAME, warning);
    }
    Ok(loaded.site)
}

/// What its messages begin with.
const NAME: &str = "sws";
/// The exit code when connections were cut off.
const CUT_OFF: u8 = 3;
/// How long an idle core looks for work before it sleeps.
const SPIN: Duration = Duration::from_micros(5);

/// Serves until a signal comes, then prints the summary and what the runtime knows of each handler.
/// Gives the number of connections that were cut off.
fn serve(site: site::Site, args: args::Args) -> Result<u64, Box<dyn Error>> {
    // About what going to sleep and being woken takes of the processor. More would be a little
    // quicker to answer, and burn whatever of a core the requests leave.
    let builder = Runtime::builder().spin(SPIN);
    let mut builder = cores::set(builder, args.cores);
    if !args.stealing {
        builder = builder.stealing(Stealing::OFF);
    }
    builder = match args.backend {
        // Not said here: then the environment variable may.
        args::Backend::Auto => builder,
        args::Backend::IoUring => builder.backend(Backend::IoUring),
        args::Backend::Epoll => builder.backend(Backend::Epoll),
    };
    if let Some(file) = &args.record {
        builder = builder.record(file, args.record_mib_max << 20);
    }
    let served = Arc::new(OnceLock::<&Server>::new());
    let its = Arc::clone(&served);
    builder = builder.panic_hook(move |panic| {
        if let Some(server) = its.get() {
            clients::panicked(server, panic);
        }
    });
    let recorded = args.record.clone();
    let runtime = builder.build().map_err(|error| match &error {
        BuildError::Record(reason) => format!("--record: {reason}"),
        error => cores::refused(error),
    })?;
    let observer = runtime.poster();
    let listen = args.listen;
    let server: &'static Server = Box::leak(Box::new(Server::new(
        site,
        args,
        files::limit(NAME),
        runtime.poster(),
    )));
    let _ = served.set(server);
    let failure = Arc::new(Mutex::new(None));
    let its = Arc::clone(&failure);
    let ran = runtime.run(move |cx| {
        if let Err(error) = clients::start(cx, server) {
            *its.lock().unwrap() = Some(error);
            cx.stop();
        }
    });
    if let Some(error) = failure.lock().unwrap().take() {
        return Err(format!("cannot serve on {listen}: {error}").into());
    }
    if let Err(RunError::Start(error)) = ran {
        return Err(source::failed(&error, server.files_max).into());
    }
    let figures = server.figures();
    let summary = summary::render(&figures);
    let profile = observer.profile();
    let recording = summary::recording(recorded.as_deref(), observer.stats().recording.as_ref());
    let text = format!("{summary}\n{profile}{}{recording}", summary::STEAL_COST);
    if let Err(error) = out::print(&text) {
        // All the same a good end: what was served was served.
        out::say(NAME, format_args!("the summary is lost: {error}"));
    }
    ran?;
    if let Some(panic) = server.failed.get() {
        return Err(format!("no client can be accepted any more: {panic}").into());
    }
    Ok(figures.connections.cut_off())
}
