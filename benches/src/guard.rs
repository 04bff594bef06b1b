//! Makes a run that went wrong end the command: most schedulers swallow a panic of a task, and then
//! wait for ever for an event that was lost.

use std::process::exit;
use std::sync::{Mutex, Once};
use std::thread;
use std::time::{Duration, Instant};

/// The present run, and when it is given up.
static RUN: Mutex<Option<(String, Instant)>> = Mutex::new(None);

/// Guards one run, until dropped.
#[derive(Debug)]
pub struct Guard(());

/// From now on a panic of any thread, or this run's taking longer than `limit`, ends the process.
pub fn guard(what: String, limit: Duration) -> Guard {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            print(info);
            eprintln!("the run of {} failed", running());
            exit(1);
        }));
        thread::spawn(watch);
    });
    *RUN.lock().expect("no panic while held") = Some((what, Instant::now() + limit));
    Guard(())
}

fn running() -> String {
    // Not waited for: this also runs in panics.
    let run = RUN.try_lock().ok();
    run.and_then(|run| run.as_ref().map(|(what, _)| what.clone()))
        .unwrap_or_else(|| "something".to_owned())
}

fn watch() {
    loop {
        thread::sleep(Duration::from_secs(1));
        let run = RUN.lock().expect("no panic while held");
        if let Some((what, deadline)) = &*run
            && Instant::now() > *deadline
        {
            eprintln!("the run of {what} does not end: an event was lost");
            exit(1);
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        *RUN.lock().expect("no panic while held") = None;
    }
}
