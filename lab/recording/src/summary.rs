//! What a recording comes to: for each handler, each core and each distance.

use crate::format::Ended;
use crate::model::{By, HandlerId, Recording, Relation};
use crate::table::{Table, percent, printable, time};
use mely::topology::Distance;
use std::collections::{BTreeMap, HashSet};
use std::fmt::{self, Display, Formatter};

/// What a recording comes to. With `{}` it is tables of at most 100 columns.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Summary {
    /// A line on the whole.
    pub title: String,
    /// From the first event to the last that is told, in ns.
    pub span_ns: u64,
    /// The handlers that ran, those first that took the most time in all.
    pub handlers: Vec<HandlerSummary>,
    /// Who posts what, the most frequent first.
    pub posts: Vec<PostSummary>,
    /// A core each.
    pub cores: Vec<CoreSummary>,
    /// Steals by distance, the nearest first.
    pub steals: Vec<StealSummary>,
    /// How long colors were held, in ns; of the holds that have ended.
    pub holds_ns: Quantiles,
}

/// What is known of one handler. Events that had to wait for a hold count once.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HandlerSummary {
    /// Which one.
    pub handler: HandlerId,
    /// Its name.
    pub name: String,
    /// Events that have begun.
    pub events: usize,
    /// Colors that they were of.
    pub colors: usize,
    /// Those that panicked.
    pub panicked: usize,
    /// What all of them took, in ns.
    pub total_ns: u64,
    /// What one took, in ns.
    pub took_ns: Quantiles,
    /// How long one waited from its post to its beginning, in ns.
    pub waited_ns: Quantiles,
    /// Posts of one, in the mean.
    pub posts: f64,
    /// Its annotation.
    pub working_set_bytes: Option<u64>,
}

/// Posts of one sort.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PostSummary {
    /// Who posts.
    pub by: PostedBy,
    /// What is posted.
    pub handler: HandlerId,
    /// Posts that were accepted.
    pub posts: usize,
    /// Posts that were refused.
    pub refused: usize,
    /// Accepted posts to the poster's own color.
    pub own: usize,
    /// To colors that nobody had named before.
    pub fresh: usize,
    /// Colors that were posted to.
    pub colors: usize,
}

/// Who posts, as far as a summary tells it apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PostedBy {
    /// Events of this handler.
    Handler(HandlerId),
    /// Cores, outside of events: the network, timers, signals.
    Cores,
    /// Threads that are no cores.
    Outside,
}

/// What one core did, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CoreSummary {
    /// Events that it began.
    pub events: usize,
    /// In events.
    pub busy_ns: u64,
    /// In steals that brought something.
    pub stealing_ns: u64,
    /// Asleep.
    pub asleep_ns: u64,
    /// Writing the recording.
    pub writing_ns: u64,
    /// Steals that brought something.
    pub steals: usize,
    /// Sleeps.
    pub sleeps: usize,
    /// Wake-ups of other cores.
    pub wakes: usize,
}

/// Steals over one distance.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StealSummary {
    /// Between thief and victim.
    pub distance: Distance,
    /// Steals that brought something.
    pub steals: usize,
    /// Those from a victim that was stuck.
    pub stuck: usize,
    /// Colors that they brought.
    pub colors: usize,
    /// Their events.
    pub events: u64,
    /// What one cost, in ns.
    pub cost_ns: Quantiles,
    /// What one brought: time that its events were expected to take, in ns.
    pub left_ns: Quantiles,
}

/// A distribution: how many there are, and their quantiles; all zero if there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quantiles {
    /// How many.
    pub count: usize,
    /// A tenth are at most this.
    pub p10: u64,
    /// The median.
    pub p50: u64,
    /// Nine tenths are at most this.
    pub p90: u64,
    /// 99 in a hundred are at most this.
    pub p99: u64,
    /// The largest.
    pub max: u64,
}

impl Quantiles {
    /// Of these.
    pub fn of(mut values: Vec<u64>) -> Quantiles {
        values.sort_unstable();
        let count = values.len();
        // The smallest that this share of a hundred does not exceed.
        let at = |part: usize| {
            let rank = (count * part).div_ceil(100).saturating_sub(1);
            values.get(rank).copied().unwrap_or(0)
        };
        Quantiles {
            count,
            p10: at(10),
            p50: at(50),
            p90: at(90),
            p99: at(99),
            max: at(100),
        }
    }
}

#[derive(Default)]
struct OfHandler {
    events: usize,
    colors: HashSet<u32>,
    panicked: usize,
    took_ns: Vec<u64>,
    waited_ns: Vec<u64>,
    posts: usize,
}

#[derive(Default)]
struct OfPosts {
    posts: usize,
    refused: usize,
    own: usize,
    fresh: usize,
    colors: HashSet<u32>,
}

impl Recording {
    /// What the recording comes to.
    pub fn summary(&self) -> Summary {
        let mut of_handler: BTreeMap<HandlerId, OfHandler> = BTreeMap::new();
        for event in self.events.iter().filter(|event| !event.waits) {
            let of = of_handler.entry(event.handler).or_default();
            of.events += 1;
            of.colors.insert(event.color.0);
            of.panicked += usize::from(event.panicked);
            of.took_ns.extend(event.took_ns);
            of.waited_ns.extend(self.waited_ns(event));
            of.posts += event.posts().len();
        }
        let handlers = of_handler.into_iter().map(|(handler, of)| HandlerSummary {
            handler,
            name: self[handler].name.clone(),
            events: of.events,
            colors: of.colors.len(),
            panicked: of.panicked,
            total_ns: of.took_ns.iter().fold(0, |sum, &ns| sum.saturating_add(ns)),
            took_ns: Quantiles::of(of.took_ns),
            waited_ns: Quantiles::of(of.waited_ns),
            posts: of.posts as f64 / of.events as f64,
            working_set_bytes: self[handler].working_set_bytes,
        });
        let mut handlers: Vec<HandlerSummary> = handlers.collect();
        handlers.sort_by_key(|of| std::cmp::Reverse((of.total_ns, of.events)));
        Summary {
            title: self.title(),
            span_ns: self.span_ns(),
            handlers,
            posts: self.sum_posts(),
            cores: self.sum_cores(),
            steals: self.sum_steals(),
            holds_ns: Quantiles::of(
                (self.holds.iter())
                    .filter_map(|hold| Some(hold.to_ns? - hold.from_ns))
                    .collect(),
            ),
        }
    }

    fn title(&self) -> String {
        let header = &self.header;
        let end = match self.end.as_ref().map(|end| end.why) {
            Some(Ended::WithTheRun) => "complete",
            Some(Ended::AtTheLimit) => "ended at its limit",
            None => "cut short",
        };
        let simulated = if header.simulated { "simulated, " } else { "" };
        let (cores, stealing) = (header.cores, printable(&header.stealing));
        let span = time(self.span_ns());
        let (events, colors) = (self.events.len(), self.colors.len());
        format!(
            "{simulated}{cores} cores, stealing: {stealing}; {span}, {end}: {events} events in \
             {colors} colors"
        )
    }

    /// From the first event to the last that is told, in ns.
    pub fn span_ns(&self) -> u64 {
        let first_ns = self
            .events
            .first()
            .map_or(self.last_ns, |event| event.begin_ns);
        self.last_ns - first_ns
    }

    fn sum_posts(&self) -> Vec<PostSummary> {
        let mut of_posts: BTreeMap<(PostedBy, HandlerId), OfPosts> = BTreeMap::new();
        for post in &self.posts {
            let by = match post.by {
                By::Event(event) if self[event].waits => continue,
                By::Event(event) => PostedBy::Handler(self[event].handler),
                By::Core(_) => PostedBy::Cores,
                By::Outside(_) => PostedBy::Outside,
            };
            let of = of_posts.entry((by, post.handler)).or_default();
            if post.refused {
                of.refused += 1;
                continue;
            }
            of.posts += 1;
            of.own += usize::from(post.relation == Relation::Own);
            of.fresh += usize::from(post.relation == Relation::Fresh);
            of.colors.insert(post.color.0);
        }
        let mut posts: Vec<PostSummary> = of_posts
            .into_iter()
            .map(|((by, handler), of)| PostSummary {
                by,
                handler,
                posts: of.posts,
                refused: of.refused,
                own: of.own,
                fresh: of.fresh,
                colors: of.colors.len(),
            })
            .collect();
        posts.sort_by_key(|of| std::cmp::Reverse(of.posts));
        posts
    }

    fn sum_cores(&self) -> Vec<CoreSummary> {
        let mut cores = vec![CoreSummary::default(); self.header.cores];
        let add = |sum: &mut u64, ns: u64| *sum = sum.saturating_add(ns);
        for event in &self.events {
            let core = &mut cores[event.core];
            core.events += usize::from(!event.waits);
            let took_ns = event.took_ns.unwrap_or(self.last_ns - event.begin_ns);
            add(&mut core.busy_ns, took_ns);
        }
        for steal in &self.steals {
            let core = &mut cores[steal.thief];
            core.steals += 1;
            add(&mut core.stealing_ns, steal.cost_ns);
        }
        for sleep in &self.sleeps {
            let core = &mut cores[sleep.core];
            core.sleeps += 1;
            let to_ns = sleep.to_ns.unwrap_or(self.last_ns);
            add(&mut core.asleep_ns, to_ns - sleep.from_ns);
        }
        for write in &self.writes {
            add(&mut cores[write.core].writing_ns, write.took_ns);
        }
        for wake in &self.wakes {
            cores[wake.by].wakes += 1;
        }
        cores
    }

    fn sum_steals(&self) -> Vec<StealSummary> {
        let of_distance = |distance: Distance| {
            let steals = self
                .steals
                .iter()
                .filter(|steal| steal.distance == distance);
            let steals: Vec<_> = steals.collect();
            (!steals.is_empty()).then(|| StealSummary {
                distance,
                steals: steals.len(),
                stuck: steals.iter().filter(|steal| steal.stuck).count(),
                colors: steals.iter().map(|steal| steal.colors.len()).sum(),
                events: steals
                    .iter()
                    .fold(0, |sum, of| of.events().saturating_add(sum)),
                cost_ns: Quantiles::of(steals.iter().map(|steal| steal.cost_ns).collect()),
                left_ns: Quantiles::of(steals.iter().map(|steal| steal.left_ns()).collect()),
            })
        };
        Distance::ALL.into_iter().filter_map(of_distance).collect()
    }
}

fn quantiles(of: &Quantiles) -> [String; 5] {
    match of.count {
        0 => [(); 5].map(|()| "-".to_owned()),
        _ => [of.p10, of.p50, of.p90, of.p99, of.max].map(time),
    }
}

/// Headings: these, and those of quantiles.
fn and_quantiles<'a>(headings: &[&'a str]) -> Vec<&'a str> {
    let quantiles = ["p10", "p50", "p90", "p99", "max"];
    headings.iter().copied().chain(quantiles).collect()
}

impl Display for Summary {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        self.fmt_handlers(f)?;
        self.fmt_posts(f)?;
        self.fmt_cores(f)?;
        self.fmt_steals(f)?;
        if self.holds_ns.count > 0 {
            let mut holds = Table::new(&["held"], &and_quantiles(&["holds"]));
            let count = self.holds_ns.count.to_string();
            let row = std::iter::once(count).chain(quantiles(&self.holds_ns));
            holds.row(&["colors"], row);
            write!(f, "\n{holds}")?;
        }
        Ok(())
    }
}

impl Summary {
    fn of_handler(&self, handler: HandlerId) -> Option<&HandlerSummary> {
        self.handlers.iter().find(|of| of.handler == handler)
    }

    fn name(&self, handler: HandlerId) -> &str {
        let of = self.of_handler(handler);
        of.map_or("(has not run)", |of| &of.name)
    }

    fn fmt_handlers(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let all = self.handlers.iter();
        let total_ns = all.fold(0u64, |sum, of| sum.saturating_add(of.total_ns));
        let mut took = Table::new(&["handler"], &and_quantiles(&["events", "colors", "time"]));
        let waited = "waited from post to beginning";
        let mut waited = Table::new(&[waited], &and_quantiles(&["events"]));
        for of in &self.handlers {
            let (events, colors) = (of.events.to_string(), of.colors.to_string());
            let numbers = [events, colors, percent(of.total_ns, total_ns)];
            took.row(
                &[&of.name],
                numbers.into_iter().chain(quantiles(&of.took_ns)),
            );
            let events = std::iter::once(of.waited_ns.count.to_string());
            waited.row(&[&of.name], events.chain(quantiles(&of.waited_ns)));
        }
        write!(f, "\n{took}")?;
        for of in &self.handlers {
            let name = printable(&of.name);
            if let Some(bytes) = of.working_set_bytes {
                writeln!(f, "{name} has a working set of {bytes} bytes")?;
            }
            if of.panicked > 0 {
                writeln!(f, "{name} panicked {} times", of.panicked)?;
            }
        }
        write!(f, "\n{waited}")
    }

    fn fmt_posts(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let numbers = [
            "posts", "an event", "own", "fresh", "other", "colors", "refused",
        ];
        let mut posts = Table::new(&["posted by", "to"], &numbers);
        for of in &self.posts {
            let (by, an_event) = match of.by {
                PostedBy::Handler(handler) => {
                    let events = self.of_handler(handler).map_or(1, |of| of.events.max(1));
                    let an_event = of.posts as f64 / events as f64;
                    (self.name(handler), format!("{an_event:.2}"))
                }
                PostedBy::Cores => ("(network, timers)", "-".to_owned()),
                PostedBy::Outside => ("(other threads)", "-".to_owned()),
            };
            let share = |part: usize| percent(part as u64, of.posts as u64);
            let numbers = [
                of.posts.to_string(),
                an_event,
                share(of.own),
                share(of.fresh),
                share(of.posts - of.own - of.fresh),
                of.colors.to_string(),
                of.refused.to_string(),
            ];
            posts.row(&[by, self.name(of.handler)], numbers);
        }
        write!(f, "\n{posts}")
    }

    fn fmt_cores(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let numbers = [
            "events", "busy", "stealing", "asleep", "writing", "else", "steals", "sleeps", "wakes",
        ];
        let mut cores = Table::new(&["core"], &numbers);
        for (number, of) in self.cores.iter().enumerate() {
            let parts = [of.busy_ns, of.stealing_ns, of.asleep_ns, of.writing_ns];
            let told_ns = parts.iter().fold(0u64, |sum, &ns| sum.saturating_add(ns));
            let else_ns = self.span_ns.saturating_sub(told_ns);
            let shares = parts.into_iter().chain([else_ns]);
            let shares = shares.map(|ns| percent(ns, self.span_ns));
            let counts = [of.steals, of.sleeps, of.wakes].map(|n| n.to_string());
            let row = std::iter::once(of.events.to_string())
                .chain(shares)
                .chain(counts);
            cores.row(&[&number.to_string()], row);
        }
        write!(f, "\n{cores}")
    }

    fn fmt_steals(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.steals.is_empty() {
            return Ok(());
        }
        let counts = ["steals", "stuck", "colors", "events"];
        let times = ["cost p50", "p99", "brought p50", "p99"];
        let numbers: Vec<&str> = counts.into_iter().chain(times).collect();
        let mut steals = Table::new(&["distance"], &numbers);
        for of in &self.steals {
            let counts = [
                of.steals as u64,
                of.stuck as u64,
                of.colors as u64,
                of.events,
            ];
            let times = [
                of.cost_ns.p50,
                of.cost_ns.p99,
                of.left_ns.p50,
                of.left_ns.p99,
            ];
            let counts = counts.map(|n| n.to_string());
            steals.row(
                &[&of.distance.to_string()],
                counts.into_iter().chain(times.map(time)),
            );
        }
        write!(f, "\n{steals}")
    }
}
