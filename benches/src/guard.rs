//! Makes a run that went wrong end: most schedulers swallow a panic of a task, and then wait for
//! ever for an event that was lost.

use std::process::exit;
use std::thread;
use std::time::Duration;

/// From now on a panic of any thread ends the process, and so does `limit`.
pub fn guard(limit: Duration) {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        print(info);
        exit(1);
    }));
    thread::spawn(move || {
        thread::sleep(limit);
        eprintln!("the run does not end: an event was lost, or never gets its turn");
        exit(1);
    });
}
