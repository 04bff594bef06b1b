//! A closed-loop load injector for web servers, event-based on mely itself, as the Mely paper has
//! it (section V-C1): virtual clients that connect, ask for some files, and connect again; a
//! master that starts several injectors together and gathers what they measured.
//!
//! Everything but `load`, `run` and `master` is free of I/O or does one kind of it, so that it is
//! tested without a server.
//!
//! | module | what it knows |
//! |---|---|
//! | `args`, `work` | the command line; what is to be asked for, as words that a master can send |
//! | `file_set` | which files there are, what is in them, how popular they are |
//! | `response` | one response, from whatever pieces it arrives in |
//! | `measure`, `report` | what is counted, and how it is told |
//! | `server_cpu` | how much processor time a process has used |
//! | `load` | the virtual clients as events, one color a core |
//! | `run` | warm-up, measured time, the end |
//! | `master` | several injectors, started together |
//!
//! How its cores and its descriptors are set and how anything is printed is in `mely-apps-common`,
//! for the server does it likewise.

// They panic when the output is gone.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod args;
mod file_set;
mod load;
mod master;
mod measure;
mod report;
mod response;
mod run;
mod server_cpu;
#[cfg(test)]
mod tests;
mod work;

use args::{Args, Command, Role};
use mely::Runtime;
use mely::runtime::{OnPanic, Stealing};
use mely_apps_common::{cores, files, out};
use std::process::ExitCode;

/// What its messages begin with.
const NAME: &str = "injector";

fn main() -> ExitCode {
    let command = match args::parse(std::env::args_os().skip(1)) {
        Ok(command) => command,
        Err(error) => {
            out::say(NAME, format_args!("{error}\nTry 'injector --help'."));
            return ExitCode::from(2);
        }
    };
    let done = match command {
        Command::Help => print(args::HELP),
        Command::Files { dir, set } => set.write_to(&dir).map_err(Into::into),
        Command::Inject(args) => inject(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            out::say(NAME, error);
            ExitCode::FAILURE
        }
    }
}

fn inject(args: &Args) -> master::Result<()> {
    let files_max = files::limit(NAME);
    if let Role::Alone(work) = &args.role {
        work.fits(files_max)?;
    }
    // The load is even by construction, and a connection that stays on its core costs least.
    let builder = Runtime::builder().stealing(Stealing::OFF);
    // A load that has lost a part of itself measures nothing.
    let builder = builder.on_panic(OnPanic::Stop);
    let builder = cores::set(builder, args.cores);
    let runtime = builder.build().map_err(|error| cores::refused(&error))?;
    let observer = runtime.poster();
    let said = || {
        if let Some(said) = cores::told(&observer.stats()) {
            out::say(NAME, said);
        }
    };
    let outcome = match &args.role {
        Role::Alone(work) => {
            let (work, pids) = (work.clone(), args.server_pids.clone());
            runtime.run_until(move |cx, finish| {
                run::start(cx, work, 0, pids, move |_cx, outcome| {
                    finish.finish(outcome);
                });
            })??
        }
        Role::Master {
            listen,
            injectors,
            work,
        } => master::lead(
            runtime,
            *listen,
            *injectors,
            work.clone(),
            args.server_pids.clone(),
            {
                let wanted = *injectors;
                move |addr| out::try_say(NAME, format_args!("waiting for {wanted} on {addr}"))
            },
        )?,
        Role::Join(master) => {
            return master::join(runtime, *master, files_max).inspect(|()| said());
        }
    };
    said();
    if args.json {
        print(&format!("{}\n", report::json(&outcome)))?;
    } else {
        print(&report::text(&outcome))?;
    }
    let responses = outcome.measure.responses();
    if outcome.measure.errors.silent > 0 {
        let (Role::Alone(work) | Role::Master { work, .. }) = &args.role else {
            unreachable!("who joins has returned");
        };
        let silence = work.silence_max;
        return Err(format!(
            "nothing came from the server for {silence:?} (--silence), after {responses} responses"
        )
        .into());
    }
    match responses {
        0 => Err("no request was answered: is --target the server?".into()),
        _ => Ok(()),
    }
}

/// Figures that nobody gets are an error, however well they were measured.
fn print(text: &str) -> master::Result<()> {
    out::print(text).map_err(|error| format!("standard output: {error}").into())
}
