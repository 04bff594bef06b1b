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
//! query from a port of its own and with a number that cannot be guessed. Once one family has
//! addresses, it waits at most 50 ms for the other one (RFC 8305, section 3). Lookups of a name
//! that is being looked up wait for that one. At most 128 queries wait for an answer at a time; one
//! that has waited for 100 ms lets another be sent.

mod cache;
mod exchange;
mod message;

use self::cache::Cache;
use self::exchange::ask;
use self::message::{Family, Found};
use crate::ask::{Asked, JoinHandle};
use crate::bounded::Bounded;
use crate::host::unique::UniqueColor;
use crate::net::{Lookup, set_lookup};
use crate::sync::Mutex;
use crate::task::with_cx;
use crate::{Colored, Cx};
use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::time::Duration;

/// What a [`Resolver`] goes by. [`Config::system`] reads the system's; the default has no servers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Who is asked, the first one first.
    pub servers: Vec<SocketAddr>,
    /// Domains to append to a name. If it has fewer dots than `ndots`, they are tried before the
    /// name alone, else after it. A domain is skipped if the whole would be no host name, such as
    /// one that is too long.
    pub search: Vec<String>,
    /// See `search`; 1.
    pub ndots: usize,
    /// How long a server has for an answer, each time that it is asked; 5 s.
    pub timeout: Duration,
    /// How often all servers are asked in turn; 2.
    pub attempts: usize,
    /// Names that no server is asked for, as in `/etc/hosts`.
    pub hosts: Vec<(String, IpAddr)>,
    /// Whether only addresses of version 4 are asked for; false.
    pub no_aaaa: bool,
    /// The most answers that are kept, for as long as they hold; 10,000. Each has at most 32
    /// addresses.
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
            no_aaaa: false,
            cache_entries_max: 10_000,
            lookups_max: 1_000,
        }
    }
}

impl Config {
    /// Reads `/etc/resolv.conf` and `/etc/hosts`, as they are now. A file that does not exist is
    /// empty, and lines and options that are not understood are skipped. If no server is named,
    /// 127.0.0.1 is asked. A server on a link, such as `fe80::1%eth0`, is skipped if there is no
    /// such link.
    ///
    /// # Errors
    /// If a file cannot be read, with its path.
    pub fn system() -> io::Result<Config> {
        Ok(Config::of(&read("/etc/resolv.conf")?, &read("/etc/hosts")?))
    }

    fn of(resolv: &str, hosts_file: &str) -> Config {
        // As the system's resolver, which skips what it does not know.
        let (system, _errors) = resolv_conf::Config::parse_with_errors(resolv.as_bytes());
        Config {
            servers: servers(resolv),
            search: system.get_last_search_or_domain().cloned().collect(),
            ndots: system.ndots as usize,
            timeout: Duration::from_secs(system.timeout.max(1).into()),
            attempts: system.attempts.max(1) as usize,
            hosts: hosts(hosts_file),
            no_aaaa: system.no_aaaa,
            ..Config::default()
        }
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
            .map(with)
            .filter(|name| message::host_name(name).is_ok());
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

/// The servers that a `resolv.conf` names. resolv-conf takes no links with other characters than
/// letters and digits, `br-lan` for one.
fn servers(text: &str) -> Vec<SocketAddr> {
    let named = |line: &str| {
        let mut words = line.split([';', '#']).next()?.split_ascii_whitespace();
        words.next().filter(|&word| word == "nameserver")?;
        words.next().map(str::to_owned)
    };
    let named: Vec<String> = text.lines().filter_map(named).collect();
    if named.is_empty() {
        return vec![(Ipv4Addr::LOCALHOST, 53).into()];
    }
    named.iter().filter_map(|its| server(its)).collect()
}

fn server(text: &str) -> Option<SocketAddr> {
    let Some((ip, link)) = text.split_once('%') else {
        return Some((text.parse::<IpAddr>().ok()?, 53).into());
    };
    Some(SocketAddrV6::new(ip.parse().ok()?, 53, 0, link_index(link)?).into())
}

/// The index of a link, which is given by its name or as a number.
fn link_index(link: &str) -> Option<u32> {
    if link.contains('/') {
        return None;
    }
    match fs::read_to_string(format!("/sys/class/net/{link}/ifindex")) {
        Ok(index) => index.trim().parse().ok(),
        Err(_) => link.parse().ok(),
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
    /// Room for queries that are sent in a burst.
    burst: Bounded<()>,
    state: Mutex<ResolverState>,
}

#[derive(Default)]
struct ResolverState {
    cache: Cache,
    /// The names that are being looked up, and who waits for it.
    under_way: HashMap<String, Vec<Asked<Outcome>>>,
}

/// What a lookup comes to.
type Outcome = Result<Vec<IpAddr>, Failure>;

/// An error that several lookups can be told of.
#[derive(Clone, Debug)]
enum Failure {
    /// The runtime was asked to stop.
    Canceled,
    Told(ErrorKind, String),
}

impl Failure {
    /// The error of a lookup of `name`.
    fn error(self, name: impl fmt::Display) -> io::Error {
        match self {
            Failure::Canceled => crate::net::ending(),
            Failure::Told(kind, text) => io::Error::new(kind, format!("{name}: {text}")),
        }
    }
}

impl Resolver {
    /// Makes a resolver of the runtime of `cx`.
    pub fn new(cx: &Cx, config: Config) -> Resolver {
        let color = cx.unique_color();
        let burst = Colored::new(cx, color.color(), ()).bounded(exchange::BURST_QUERIES_MAX);
        Resolver {
            shared: Arc::new(Shared {
                config,
                color,
                burst,
                state: Mutex::default(),
            }),
        }
    }

    /// Looks up the addresses of `host`, at most 32 of each family, in the order in which they
    /// should be tried: those last that this machine has no route to. A name with a dot at its end
    /// is taken as it is; to others, [`Config::search`] is applied. Dropping the handle detaches
    /// the lookup, and `cancel` ends it.
    ///
    /// # Errors
    /// The handle's value, with the name. `NotFound`: a server says that there is no such name, or
    /// that it has no address. `TimedOut`: none has answered. Of another kind if the last server
    /// that was asked has failed; `InvalidInput` for what is no name; `WouldBlock` if
    /// [`Config::lookups_max`] names are being looked up. If [`Config::search`] is applied, it is
    /// the first error other than `NotFound`. `ECANCELED`, without the name, if the runtime is
    /// asked to stop meanwhile.
    pub fn resolve(
        &self,
        cx: &mut Cx,
        host: impl Into<String>,
    ) -> JoinHandle<io::Result<Vec<IpAddr>>> {
        let (shared, host) = (Arc::clone(&self.shared), host.into());
        cx.spawn(self.shared.color.color(), async move {
            let found = shared.look_up(&host).await;
            found.map_err(|failure| failure.error(&host))
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
                    let found =
                        found.map_err(|failure| failure.error(format_args!("{host}:{port}")));
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
                        return Err(Failure::Told(ErrorKind::WouldBlock, text));
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

    /// Tries one name after the other, until one has an address.
    async fn search(&self, host: &str) -> Outcome {
        let mut failed = None;
        for name in self.config.names(host) {
            match self.both(&name).await {
                Ok(addrs) if addrs.is_empty() => {}
                Err(Failure::Told(kind, text)) => {
                    failed.get_or_insert(Failure::Told(kind, text));
                }
                over => return over,
            }
        }
        let gone = || {
            let text = "no such host, or none with an address".to_owned();
            Failure::Told(ErrorKind::NotFound, text)
        };
        Err(failed.unwrap_or_else(gone))
    }

    /// The addresses of both families.
    async fn both(&self, name: &str) -> Outcome {
        let v4 = self.family(name, Family::V4);
        if self.config.no_aaaa {
            return v4.await;
        }
        // Each is short, and waits most of the time: in one task, one beside the other.
        match exchange::join(self.family(name, Family::V6), v4).await {
            // What is found is good, though the other family fails.
            (Ok(v6), Ok(v4)) => Ok(exchange::reachable_first(v6, v4)),
            (Ok(addrs), Err(_)) | (Err(_), Ok(addrs)) if !addrs.is_empty() => Ok(addrs),
            (Err(Failure::Canceled), _) | (_, Err(Failure::Canceled)) => Err(Failure::Canceled),
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
            let (found, seconds) = ask(&self.config, &self.burst, &at, family).await?;
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
        let text = "too many aliases".to_owned();
        Err(Failure::Told(ErrorKind::InvalidData, text))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn servers_of(resolv: &str) -> Vec<String> {
        let config = Config::of(resolv, "");
        config.servers.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn links_are_looked_up() {
        let text = "nameserver fe80::1%lo # this\nnameserver\t10.0.0.1\nnameserver fe80::2%77\n";
        let expected = ["[fe80::1%1]:53", "10.0.0.1:53", "[fe80::2%77]:53"];
        assert_eq!(servers_of(text), expected);
        // A link that is not there, or no address: 127.0.0.1 is not asked instead.
        for none in ["fe80::1%no-link", "fe80::1%../net/lo", "10.0.0.1%lo", "x"] {
            assert!(servers_of(&format!("nameserver {none}")).is_empty());
        }
        assert_eq!(
            servers_of("search a.test\n#nameserver ::1\n"),
            ["127.0.0.1:53"]
        );
    }

    #[test]
    fn lines_of_resolv_conf_that_are_understood_are_taken() {
        let text = "nameserver 10.0.0.1 extra\nno sense\nsearch a.test b.test\n\
                    options ndots:x timeout:7 no-sense no-aaaa attempts:3\nnameserver 1.2\n";
        let config = Config::of(text, "10.0.0.9 nine # ten\n");
        assert_eq!(config.servers, [SocketAddr::from(([10, 0, 0, 1], 53))]);
        assert_eq!(config.search, ["a.test", "b.test"]);
        assert_eq!((config.ndots, config.attempts), (1, 3));
        assert_eq!(config.timeout, Duration::from_secs(7));
        assert!(config.no_aaaa && !Config::of("", "").no_aaaa);
        let nine = [("nine".to_owned(), IpAddr::from([10, 0, 0, 9]))];
        assert_eq!(config.hosts, nine);
    }

    #[test]
    fn search_entries_that_make_no_name_are_skipped() {
        let config = Config {
            search: vec!["a..b".into(), "y.".repeat(126), "c.test.".into()],
            ..Config::default()
        };
        assert_eq!(config.names("host"), ["host.c.test", "host"]);
        assert_eq!(config.names("a.host"), ["a.host", "a.host.c.test"]);
        // The name itself is told of.
        assert_eq!(config.names("a..host"), ["a..host"]);
    }
}
