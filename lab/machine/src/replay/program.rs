//! From a recording to a program that can be run: nothing is averaged.

use super::taking::taking_ns;
use mely::runtime::Stealing;
use mely::{Color, Handler};
use mely_hardware::{Key, Machine};
use mely_recording::{By, ColorKind, EventId, Recording};
use std::collections::HashSet;
use std::ops::Range;
use std::time::Duration;

/// Most ns of an event: some days, so that sums of a few are far from what a clock can say.
const EVENT_NS_MAX: u64 = 1_000_000_000_000_000;
/// Most bytes that the events of all colors touch: each line of them takes some hundred bytes of
/// the simulation's own.
const DATA_BYTES_MAX: u64 = 256 << 20;
/// Where the data of colors seems to be: far from anything that an allocator gives out. Nobody
/// reads there.
const DATA_FROM: u64 = 1 << 60;
/// A color's data begins a page.
const PAGE_BYTES: u64 = 4096;
/// No chain, no event, no core.
const NONE: u32 = u32::MAX;
/// A run has at least so much virtual time before it is given up, and this many times what one core
/// would need.
const GIVE_UP_NS_MIN: u64 = 10_000_000_000;
const GIVE_UP_TIMES: u64 = 4;

/// See the module text. Events, posts and colors have the places that they have in the recording.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) handlers: Vec<&'static Handler>,
    pub(super) colors: Vec<ColorOf>,
    pub(super) events: Vec<Event>,
    pub(super) posts: Vec<Post>,
    /// In the order in which they came.
    pub(super) arrivals: Vec<Arrival>,
    /// Arrivals by the event that they answer: a range of these for each event.
    followers: Vec<u32>,
    followers_from: Vec<u32>,
    pub(super) recorded_cores: usize,
    pub(super) handlers_have: Has,
    has_penalties: bool,
}

/// Whether handlers that ran say which bytes they touch.
#[derive(Clone, Debug, Default)]
pub(super) struct Has {
    pub(super) touches: usize,
    /// By name, of those that do not.
    pub(super) silent: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ColorOf {
    pub(super) color: Color,
    /// The core to which what arrives in it comes is this one, modulo the cores of a run.
    pub(super) home: u32,
    /// Where its data seems to be.
    pub(super) data_at: usize,
    /// The most that an event of it touches.
    pub(super) data_bytes: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) handler: u32,
    pub(super) color: u32,
    /// All its work, in ns.
    pub(super) work_ns: u64,
    posts: (u32, u32),
    /// The arrival that it is of.
    pub(super) chain: u32,
    pub(super) working_set_bytes: usize,
}

impl Event {
    pub(super) fn posts(&self) -> Range<usize> {
        self.posts.0 as usize..self.posts.1 as usize
    }
}

/// One that has become an event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Post {
    pub(super) event: u32,
    /// The poster's work up to it, in ns.
    pub(super) after_ns: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) event: u32,
    /// When, in ns since the first one.
    pub(super) at_ns: u64,
    /// To which core it came; none if a thread that is no core brought it.
    pub(super) core: Option<u32>,
    /// What it cost the core to take it, in ns.
    pub(super) taking_ns: u64,
    /// The event that it answers, and the think time in ns.
    pub(super) answers: Option<(u32, u64)>,
}

impl Program {
    /// The program of a recording, for runs on this machine. Handlers are made for it, and stay
    /// until the process ends: some bytes each.
    ///
    /// # Errors
    /// A sentence: holds, events too long, too much data.
    pub(super) fn of(recording: &Recording, machine: &Machine) -> Result<Program, String> {
        refuse(recording)?;
        let colors = colors(recording)?;
        let post_ns = machine.ns(Key::Post).round() as u64;
        let chains = Chains::of(recording);
        let (mut events, mut posts) = (Vec::new(), Vec::new());
        for (place, event) in recording.events.iter().enumerate() {
            let from = posts.len() as u32;
            let its = recording.posts_of(event);
            let made = its.iter().filter(|post| post.event.is_some());
            let took_ns = event.took_ns.unwrap_or(0);
            let paid_ns = post_ns.saturating_mul(its.len() as u64);
            let work_ns = took_ns.saturating_sub(paid_ns);
            let mut before_ns = 0;
            for post in made {
                let passed_ns = post.at_ns.saturating_sub(event.begin_ns).min(took_ns);
                let share = u128::from(work_ns) * u128::from(passed_ns);
                let after_ns = share.checked_div(took_ns.into()).unwrap_or(0) as u64;
                // In their order, whatever the clocks say.
                before_ns = after_ns.max(before_ns);
                let event = post.event.map_or(NONE, |event| event.index() as u32);
                posts.push(Post {
                    event,
                    after_ns: before_ns,
                });
            }
            let touches = recording[event.handler].working_set_bytes.unwrap_or(0);
            events.push(Event {
                handler: event.handler.index() as u32,
                color: event.color.index() as u32,
                work_ns,
                posts: (from, posts.len() as u32),
                chain: chains.of_event[place],
                working_set_bytes: touches as usize,
            });
        }
        let (followers, followers_from) = followers(&chains.arrivals, events.len());
        Ok(Program {
            handlers: recording.handlers.iter().map(handler).collect(),
            colors: with_homes(colors, recording, &chains.arrivals),
            events,
            posts,
            arrivals: chains.arrivals,
            followers,
            followers_from,
            recorded_cores: recording.header.cores,
            handlers_have: has(recording),
            has_penalties: recording.handlers.iter().any(|of| of.penalty > 1),
        })
    }

    /// The arrivals that answer this event.
    pub(super) fn followers(&self, event: usize) -> &[u32] {
        let range = self.followers_from[event]..self.followers_from[event + 1];
        &self.followers[range.start as usize..range.end as usize]
    }

    /// To which of `cores` cores an arrival comes.
    pub(super) fn core_of(&self, arrival: &Arrival, cores: usize) -> usize {
        match arrival.core {
            Some(core) if cores == self.recorded_cores => core as usize,
            _ => {
                let color = self.events[arrival.event as usize].color;
                self.colors[color as usize].home as usize % cores
            }
        }
    }

    /// What a mode comes to: where no handler has a penalty, that heuristic changes nothing once
    /// the stealing-queue is kept for another.
    pub(super) fn is_run_as(&self, stealing: Stealing) -> Stealing {
        Stealing {
            penalty: stealing.penalty && (self.has_penalties || !stealing.time_left),
            ..stealing
        }
    }

    /// All work, in ns.
    pub(super) fn work_ns(&self) -> u64 {
        let all = self.events.iter().map(|event| event.work_ns);
        all.fold(0, u64::saturating_add)
    }

    /// The work of each color, in ns; of colors without events none.
    pub(super) fn work_by_color(&self) -> Vec<Option<u64>> {
        let mut by_color = vec![None; self.colors.len()];
        for event in &self.events {
            let work_ns = &mut by_color[event.color as usize];
            *work_ns = Some(event.work_ns.saturating_add(work_ns.unwrap_or(0)));
        }
        by_color
    }

    /// When each arrival would come, in ns, if no event took any time: ascending.
    pub(super) fn thought_ns(&self) -> Vec<u64> {
        let mut come_ns: Vec<u64> = Vec::with_capacity(self.arrivals.len());
        for arrival in &self.arrivals {
            come_ns.push(match arrival.answers {
                None => arrival.at_ns,
                Some((event, think_ns)) => {
                    let chain = self.events[event as usize].chain;
                    come_ns[chain as usize].saturating_add(think_ns)
                }
            });
        }
        come_ns.sort_unstable();
        come_ns
    }

    /// After how much virtual time a run is given up, unless somebody says.
    pub(super) fn give_up_ns(&self) -> u64 {
        let last_ns = self.arrivals.last().map_or(0, |arrival| arrival.at_ns);
        let thought_ns = self.thought_ns().last().copied().unwrap_or(0);
        let needs_ns = self.work_ns().saturating_add(thought_ns);
        needs_ns
            .saturating_add(last_ns)
            .saturating_mul(GIVE_UP_TIMES)
            .saturating_add(GIVE_UP_NS_MIN)
    }
}

fn refuse(recording: &Recording) -> Result<(), String> {
    let waiting = recording.events.iter().filter(|event| event.waits).count();
    if !recording.holds.is_empty() || waiting > 0 {
        return Err(format!(
            "a recording with {} holds, for which {waiting} events waited: holds cannot be replayed",
            recording.holds.len()
        ));
    }
    let too_long = |event: &&mely_recording::Event| {
        event.took_ns.unwrap_or(0) > EVENT_NS_MAX || event.begin_ns > EVENT_NS_MAX
    };
    if let Some(event) = recording.events.iter().find(too_long) {
        return Err(format!(
            "an event of handler {:?} ends {} ns after the beginning: more than {EVENT_NS_MAX} ns \
             cannot be replayed",
            recording[event.handler].name,
            event.end_ns()
        ));
    }
    Ok(())
}

/// Colors, without their homes.
fn colors(recording: &Recording) -> Result<Vec<ColorOf>, String> {
    let mut most_bytes = vec![0u64; recording.colors.len()];
    for event in &recording.events {
        let bytes = recording[event.handler].working_set_bytes.unwrap_or(0);
        let most = &mut most_bytes[event.color.index()];
        *most = bytes.max(*most);
    }
    let all_bytes = (most_bytes.iter()).fold(0, |sum: u64, &bytes| sum.saturating_add(bytes));
    if all_bytes > DATA_BYTES_MAX {
        return Err(format!(
            "the events of all colors touch {all_bytes} bytes: more than {DATA_BYTES_MAX} cannot \
             be simulated"
        ));
    }
    let given = |color: &&mely_recording::Color| color.kind == ColorKind::Given;
    let given: HashSet<u64> = (recording.colors.iter().filter(given))
        .map(|color| color.value)
        .collect();
    // Small, so that each has a slot of its own, as those of the runtime's own have.
    let mut free = (1..u64::MAX).filter(|value| !given.contains(value));
    let mut data_at = DATA_FROM;
    let colors = recording.colors.iter().zip(most_bytes);
    let colors = colors.map(|(color, bytes)| {
        let value = match color.kind {
            ColorKind::Given => color.value,
            ColorKind::Unique | ColorKind::Control => {
                free.next().expect("no recording has all values")
            }
        };
        let at = data_at;
        data_at += bytes.next_multiple_of(PAGE_BYTES);
        ColorOf {
            color: Color::from(value),
            home: 0,
            data_at: at as usize,
            data_bytes: bytes as usize,
        }
    });
    Ok(colors.collect())
}

/// Colors to which something comes have cores by turns.
fn with_homes(
    mut colors: Vec<ColorOf>,
    recording: &Recording,
    arrivals: &[Arrival],
) -> Vec<ColorOf> {
    let mut seen = vec![false; colors.len()];
    let mut homes = 0;
    for arrival in arrivals {
        let color = recording.events[arrival.event as usize].color.index();
        if !std::mem::replace(&mut seen[color], true) {
            colors[color].home = homes;
            homes += 1;
        }
    }
    colors
}

/// The same handler for this process.
fn handler(recorded: &mely_recording::Handler) -> &'static Handler {
    let name: &'static str = Box::leak(recorded.name.clone().into_boxed_str());
    let time = Duration::from_nanos(recorded.annotated_ns.unwrap_or(0));
    let penalty = u32::try_from(recorded.penalty).unwrap_or(u32::MAX);
    Box::leak(Box::new(Handler::new(name).time(time).penalty(penalty)))
}

fn has(recording: &Recording) -> Has {
    let mut ran = vec![false; recording.handlers.len()];
    for event in &recording.events {
        ran[event.handler.index()] = true;
    }
    let mut has = Has::default();
    let ran = recording.handlers.iter().zip(ran).filter(|(_, ran)| *ran);
    for (handler, _) in ran {
        match handler.working_set_bytes {
            Some(_) => has.touches += 1,
            None => has.silent.push(handler.name.clone()),
        }
    }
    has
}

/// Arrivals, and which of them each event is of.
struct Chains {
    arrivals: Vec<Arrival>,
    of_event: Vec<u32>,
}

impl Chains {
    fn of(recording: &Recording) -> Chains {
        let mut arrivals = arrivals(recording);
        let mut of_event = vec![NONE; recording.events.len()];
        for (place, arrival) in arrivals.iter().enumerate() {
            of_event[arrival.event as usize] = place as u32;
        }
        // A poster may seem to begin after what it posted, so each goes up to who is known.
        let mut way = Vec::new();
        for place in 0..of_event.len() {
            let mut at = place;
            while of_event[at] == NONE {
                way.push(at);
                at = poster(recording, at)
                    .expect("else it is an arrival")
                    .index();
            }
            let chain = of_event[at];
            way.drain(..).for_each(|at| of_event[at] = chain);
        }
        let mut chains = Chains {
            arrivals: Vec::new(),
            of_event,
        };
        chains.find_answered(recording, &mut arrivals);
        chains.arrivals = arrivals;
        chains
    }

    /// Finds out which event each arrival answers. Never one of a later chain, so that whoever goes
    /// from arrival to event and from event to arrival comes to an end.
    fn find_answered(&self, recording: &Recording, arrivals: &mut [Arrival]) {
        let first_ns = arrivals.first().map_or(0, |arrival| arrival.at_ns);
        // By the color in which the chain began, and of all.
        let mut last = vec![NONE; recording.colors.len()];
        let mut last_of_all = NONE;
        let mut events = recording.events.iter().enumerate().peekable();
        let color_of: Vec<usize> = (arrivals.iter())
            .map(|arrival| recording.events[arrival.event as usize].color.index())
            .collect();
        for place in 0..arrivals.len() {
            let at_ns = arrivals[place].at_ns;
            while let Some((event, _)) = events.next_if(|(_, event)| event.begin_ns < at_ns) {
                let chain = self.of_event[event] as usize;
                if chain < place {
                    last[color_of[chain]] = event as u32;
                    last_of_all = event as u32;
                }
            }
            let arrival = &mut arrivals[place];
            let answered = match last[color_of[place]] {
                NONE => last_of_all,
                answered => answered,
            };
            if answered != NONE {
                let end_ns = recording.events[answered as usize].end_ns();
                arrival.answers = Some((answered, at_ns.saturating_sub(end_ns)));
            }
            arrival.at_ns -= first_ns;
        }
    }
}

/// The event that has posted this one.
fn poster(recording: &Recording, event: usize) -> Option<EventId> {
    match recording[recording.events[event].cause?].by {
        By::Event(poster) => Some(poster),
        By::Core(_) | By::Outside(_) => None,
    }
}

/// In their order, with the times of the recording.
fn arrivals(recording: &Recording) -> Vec<Arrival> {
    let taking_ns = taking_ns(recording);
    let arrival = |(place, event): (usize, &mely_recording::Event)| {
        // Of an event whose post is not in the recording, its beginning is all that is known.
        let (at_ns, core) = match event.cause.map(|cause| &recording[cause]) {
            None => (event.begin_ns, Some(event.core as u32)),
            Some(post) => match post.by {
                By::Event(_) => return None,
                By::Core(core) => (post.at_ns, Some(core as u32)),
                By::Outside(_) => (post.at_ns, None),
            },
        };
        Some(Arrival {
            event: place as u32,
            at_ns,
            core,
            taking_ns: event.cause.map_or(0, |cause| taking_ns[cause.index()]),
            answers: None,
        })
    };
    let events = recording.events.iter().enumerate();
    let mut arrivals: Vec<Arrival> = events.filter_map(arrival).collect();
    arrivals.sort_by_key(|arrival| arrival.at_ns);
    arrivals
}

/// Arrivals by the event that they answer, and where those of each event begin.
fn followers(arrivals: &[Arrival], events: usize) -> (Vec<u32>, Vec<u32>) {
    let answer = |place: usize| Some((arrivals[place].answers?.0, place as u32));
    let mut pairs: Vec<(u32, u32)> = (0..arrivals.len()).filter_map(answer).collect();
    pairs.sort_unstable();
    let mut from = Vec::with_capacity(events + 1);
    let mut at = 0;
    for event in 0..=events as u32 {
        while pairs.get(at).is_some_and(|&(its, _)| its < event) {
            at += 1;
        }
        from.push(at as u32);
    }
    (
        pairs.into_iter().map(|(_, arrival)| arrival).collect(),
        from,
    )
}
