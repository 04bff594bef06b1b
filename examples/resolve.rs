//! How do I look up host names? Prints the addresses of each name; all are looked up together.
//! `cargo run --release --example resolve -- example.org localhost`
//!
//! It asks the servers of the system, or those that are named: `@127.0.0.1:53 example.org`. After
//! `resolver.use_for_connect(cx)`, `cx.connect` would look names up by it, too.

use mely::dns::{Config, Resolver};
use mely::task::{join_all, with_cx};
use mely::{Color, Runtime};
use std::{env, error::Error};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = env::args().skip(1);
    let (servers, names): (Vec<_>, Vec<_>) = arguments.partition(|it| it.starts_with('@'));
    if names.is_empty() {
        return Err("usage: resolve [@SERVER]... NAME..., a server as 127.0.0.1:53".into());
    }
    let mut config = Config::system()?;
    if !servers.is_empty() {
        let servers = servers.iter().map(|server| server[1..].parse());
        config.servers = servers.collect::<Result<_, _>>()?;
    }
    // Beyond this many, a lookup is refused. Each has two sockets.
    config.lookups_max = config.lookups_max.max(names.len());
    mely::net::raise_open_file_limit()?;

    let lookups = names.clone();
    let found = Runtime::builder().build()?.run_until(|cx, finish| {
        let resolver = Resolver::new(cx, config);
        cx.spawn(Color::DEFAULT, async move {
            let look_up = |name| with_cx(|cx| resolver.resolve(cx, name));
            let all = join_all(lookups.into_iter().map(look_up));
            finish.finish(all.await);
        });
    })?;
    let mut missing = 0;
    for (name, found) in names.iter().zip(found?) {
        match found? {
            Ok(addrs) => {
                let addrs: Vec<_> = addrs.iter().map(ToString::to_string).collect();
                println!("{name} {}", addrs.join(" "));
            }
            Err(error) => {
                missing += 1;
                eprintln!("{error}"); // it names the host
            }
        }
    }
    match missing {
        0 => Ok(()),
        _ => Err(format!("{missing} of {} names not found", names.len()).into()),
    }
}
