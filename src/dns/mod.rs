//! Host names looked up by mely's own sockets, with a cache; a feature of that name.
//!
//! A [`Resolver`] asks the servers of its [`Config`], by default the system's, over UDP and, for
//! answers that do not fit, TCP. Without one, names go to the system's resolver
//! ([`net::resolve`](crate::net::resolve)), which occupies a thread for each. Everything here works
//! in a simulation, where the server is a part of the program.
//!
//! ```
//! use mely::dns::{Config, Resolver};
//! use mely::{Color, Runtime};
//! let found = Runtime::builder().build()?.run_until(|cx, finish| {
//!     let config = Config::system().expect("readable files");
//!     let resolver = Resolver::new(cx, config);
//!     resolver.use_for_connect(cx); // from now on
//!     let found = resolver.resolve(cx, "localhost");
//!     cx.spawn(Color::from(1), async move { finish.finish(found.await) });
//! })?;
//! assert!(found??.iter().all(|ip| ip.is_loopback()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A lookup is a task of the resolver's color. It asks for both families at the same time, each
//! query from a port of its own and with a number that cannot be guessed. Lookups of a name that is
//! being looked up wait for that one.

mod cache;
mod exchange;
mod message;

use self::cache::Cache;
use self::exchange::ask;
use self::message::{Family, Found};
use crate::Cx;
use crate::ask::{Asked, JoinHandle};
use crate::host::unique::UniqueColor;
use crate::net::{Lookup, set_lookup};
use crate::sync::Mutex;
use crate::task::with_cx;
use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// What a [`Resolver`] goes by. [`Config::system`] reads the system's; the default has no servers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Who is asked, the first one first.
    pub servers: Vec<SocketAddr>,
    /// What is put behind a name with fewer dots than `ndots`, before the name alone is tried.
    pub search: Vec<String>,
    /// See `search`; 1.
    pub ndots: usize,
    /// How long a server has for an answer; 5 s.
    pub timeout: Duration,
    /// How often all servers are asked in turn; 2.
    pub attempts: usize,
    /// Names that no server is asked for, as in `/etc/hosts`.
    pub hosts: Vec<(String, IpAddr)>,
    /// The most answers that are kept, for as long as they hold; 10,000.
    pub cache_entries_max: usize,
    /// The most names that are looked up at the same time; 1,000.
    pub lookups_max: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            servers: Vec::new(),
            search: Vec::new(),
            ndots: 1,
            timeout: Duration::from_secs(5),
            attempts: 2,
            hosts: Vec::new(),
            cache_entries_max: 10_000,
            lookups_max: 1_000,
        }
    }
}

impl Config {
    /// Reads `/etc/resolv.conf` and `/etc/hosts`, as they are now. A file that does not exist is
    /// empty; without a server, 127.0.0.1 is asked.
    ///
    /// # Errors
    /// If a file cannot be read or understood, with its path.
    pub fn system() -> io::Result<Config> {
        const RESOLV: &str = "/etc/resolv.conf";
        let text = read(RESOLV)?;
        let system = resolv_conf::Config::parse(text).map_err(|error| {
            io::Error::new(ErrorKind::InvalidData, format!("{RESOLV}: {error}"))
        })?;
        let server = |ip: &resolv_conf::ScopedIp| match ip {
            resolv_conf::ScopedIp::V4(ip) => Some(SocketAddr::from((*ip, 53))),
            resolv_conf::ScopedIp::V6(ip, None) => Some(SocketAddr::from((*ip, 53))),
            // By a link's name.
            resolv_conf::ScopedIp::V6(..) => None,
        };
        let mut servers: Vec<SocketAddr> = system.nameservers.iter().filter_map(server).collect();
        if servers.is_empty() {
            servers.push((Ipv4Addr::LOCALHOST, 53).into());
        }
        let search = system.get_last_search_or_domain().cloned();
        Ok(Config {
            servers,
            search: search.collect(),
            ndots: system.ndots as usize,
            timeout: Duration::from_secs(system.timeout.max(1).into()),
            attempts: system.attempts.max(1) as usize,
            hosts: hosts(&read("/etc/hosts")?),
            ..Config::default()
        })
    }

    /// The addresses that no server has to be asked for.
    fn own(&self, name: &str) -> Option<Vec<IpAddr>> {
        let name = name.strip_suffix('.').unwrap_or(name);
        if let Ok(ip) = name.parse() {
            return Some(vec![ip]);
        }
        let its = self
            .hosts
            .iter()
            .filter(|(host, _)| host.eq_ignore_ascii_case(name));
        let its: Vec<IpAddr> = its.map(|&(_, ip)| ip).collect();
        let lower = name.to_ascii_lowercase();
        // RFC 6761, section 6.3.
        if its.is_empty() && (lower == "localhost" || lower.ends_with(".localhost")) {
            return Some(vec![Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()]);
        }
        (!its.is_empty()).then_some(its)
    }

    /// The names that are tried, in that order.
    fn names(&self, name: &str) -> Vec<String> {
        if let Some(absolute) = name.strip_suffix('.') {
            return vec![absolute.to_owned()];
        }
        let with = |end: &String| format!("{name}.{}", end.trim_matches('.'));
        let longer = self
            .search
            .iter()
            .filter(|end| !end.trim_matches('.').is_empty())
            .map(with);
        let mut names: Vec<String> = longer.collect();
        let dots = name.bytes().filter(|&byte| byte == b'.').count();
        let place = if dots >= self.ndots { 0 } else { names.len() };
        names.insert(place, name.to_owned());
        names
    }
}

fn read(path: &str) -> io::Result<String> {
    match fs::read(path) {
        Ok(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(io::Error::new(error.kind(), format!("{path}: {error}"))),
    }
}

/// The lines of a hosts file: an address and its names.
fn hosts(text: &str) -> Vec<(String, IpAddr)> {
    let mut hosts = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        let Some(Ok(ip)) = words.next().map(str::parse) else {
            continue;
        };
        hosts.extend(words.map(|name| (name.to_owned(), ip)));
    }
    hosts
}

/// Looks host names up. Clones share what they know.
#[derive(Clone)]
pub struct Resolver {
    shared: Arc<Shared>,
}

struct Shared {
    config: Config,
    /// Of all lookups.
    color: UniqueColor,
    state: Mutex<ResolverState>,
}

#[derive(Default)]
struct ResolverState {
    cache: Cache,
    /// The names that are being looked up, and who waits for it.
    under_way: HashMap<String, Vec<Asked<Outcome>>>,
}

/// What a lookup comes to; an error as its kind and text.
type Outcome = Result<Vec<IpAddr>, (ErrorKind, String)>;

impl Resolver {
    /// Makes a resolver of the runtime of `cx`.
    pub fn new(cx: &Cx, config: Config) -> Resolver {
        Resolver {
            shared: Arc::new(Shared {
                config,
                color: cx.unique_color(),
                state: Mutex::default(),
            }),
        }
    }

    /// Looks up the addresses of `host`, in the order in which they should be tried: those last that
    /// this machine has no route to. A name with a dot at its end is taken as it is; to others,
    /// [`Config::search`] is applied. Dropping the handle detaches the lookup, and `cancel` ends it.
    ///
    /// # Errors
    /// The handle's value, with the name. `NotFound`: a server says that there is no such name, or
    /// that it has no address. `TimedOut`: none has answered. Of another kind if the last server
    /// that was asked has failed; `InvalidInput` for what is no name; `WouldBlock` if
    /// [`Config::lookups_max`] names are being looked up.
    pub fn resolve(
        &self,
        cx: &mut Cx,
        host: impl Into<String>,
    ) -> JoinHandle<io::Result<Vec<IpAddr>>> {
        let (shared, host) = (Arc::clone(&self.shared), host.into());
        cx.spawn(self.shared.color.color(), async move {
            let found = shared.look_up(&host).await;
            found.map_err(|(kind, text)| io::Error::new(kind, format!("{host}: {text}")))
        })
    }

    /// From now on [`Cx::connect`], [`aio::connect`](crate::aio::connect) and
    /// [`net::resolve`](crate::net::resolve) of the runtime of `cx` look names up by this resolver.
    pub fn use_for_connect(&self, cx: &mut Cx) {
        let resolver = self.clone();
        set_lookup(
            cx,
            Lookup::new(move |cx: &mut Cx, host: &str, port: u16| {
                let (shared, host) = (Arc::clone(&resolver.shared), host.to_owned());
                cx.spawn(resolver.shared.color.color(), async move {
                    let found = shared.look_up(&host).await;
                    let found = found.map_err(|(kind, text)| {
                        io::Error::new(kind, format!("{host}:{port}: {text}"))
                    });
                    let with_port = |ip| SocketAddr::new(ip, port);
                    Ok(found?.into_iter().map(with_port).collect())
                })
            }),
        );
    }
}

impl Shared {
    async fn look_up(&self, host: &str) -> Outcome {
        if let Some(own) = self.config.own(host) {
            return Ok(own);
        }
        let key = host.to_ascii_lowercase();
        loop {
            let handle = {
                let state = &mut *self.state.lock().unwrap();
                let is_full = state.under_way.len() >= self.config.lookups_max;
                match state.under_way.get_mut(&key) {
                    Some(waiting) => {
                        let (asked, handle) = with_cx(|cx| Asked::new(&cx.worker_ref().inner));
                        waiting.push(asked);
                        Some(handle)
                    }
                    None if is_full => {
                        let max = self.config.lookups_max;
                        let text = format!("lookups_max: {max} names are being looked up");
                        return Err((ErrorKind::WouldBlock, text));
                    }
                    None => {
                        state.under_way.insert(key.clone(), Vec::new());
                        None
                    }
                }
            };
            match handle {
                None => {
                    let mut lead = Lead(self, &key, None);
                    let outcome = self.search(&key).await;
                    lead.2 = Some(outcome.clone());
                    return outcome;
                }
                // Without an outcome, that lookup was canceled: this one goes on by itself.
                Some(handle) => {
                    if let Ok(outcome) = handle.cancel_on_drop().await {
                        return outcome;
                    }
                }
            }
        }
    }

    /// Tries one name after the other, until one has an address or a server fails.
    async fn search(&self, host: &str) -> Outcome {
        for name in self.config.names(host) {
            let addrs = self.both(&name).await?;
            if !addrs.is_empty() {
                return Ok(addrs);
            }
        }
        Err((
            ErrorKind::NotFound,
            "no such host, or none with an address".to_owned(),
        ))
    }

    /// The addresses of both families.
    async fn both(&self, name: &str) -> Outcome {
        // Each is short, and waits most of the time: in one task, one beside the other.
        let (v6, v4) =
            exchange::join(self.family(name, Family::V6), self.family(name, Family::V4)).await;
        match (v6, v4) {
            // What is found is good, though the other family fails.
            (Ok(v6), Ok(v4)) => Ok(exchange::reachable_first(v6, v4)),
            (Ok(addrs), Err(_)) | (Err(_), Ok(addrs)) if !addrs.is_empty() => Ok(addrs),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }

    async fn family(&self, name: &str, family: Family) -> Outcome {
        const ALIASES_MAX: usize = 8;
        let mut at = name.to_owned();
        let mut ttl = Duration::MAX;
        for _ in 0..ALIASES_MAX {
            let now = with_cx(|cx| cx.now());
            let known = self.state.lock().unwrap().cache.get(&at, family, now);
            if let Some(addrs) = known {
                return Ok(addrs);
            }
            let (found, seconds) = ask(&self.config, &at, family).await?;
            ttl = ttl.min(Duration::from_secs(seconds.into()));
            let addrs = match found {
                Found::Alias(other) => {
                    at = other;
                    continue;
                }
                Found::Addrs(addrs) => addrs,
                Found::Nothing => Vec::new(),
            };
            let times = (with_cx(|cx| cx.now()), ttl);
            let most = self.config.cache_entries_max;
            let cache = &mut self.state.lock().unwrap().cache;
            cache.put(name, family, addrs.clone(), times, most);
            return Ok(addrs);
        }
        Err((ErrorKind::InvalidData, "too many aliases".to_owned()))
    }
}

/// A lookup that others may wait for: told of its outcome, or that there is none.
struct Lead<'a>(&'a Shared, &'a str, Option<Outcome>);

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let waiting = self.0.state.lock().unwrap().under_way.remove(self.1);
        for mut asked in waiting.into_iter().flatten() {
            if let Some(outcome) = &self.2 {
                asked.settle(outcome.clone());
            }
        }
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver")
            .field("config", &self.shared.config)
            .finish_non_exhaustive()
    }
}
