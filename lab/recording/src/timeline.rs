//! A recording as a timeline: the JSON that Perfetto's and Chrome's viewers open.
//!
//! The format is Chrome's Trace Event Format. A core is two tracks, one with its events and one
//! with what its scheduler did: steals, sleep, wake-ups. A third has what was stolen from it, as a
//! slice of its own from which an arrow leads to the thief's: an arrow needs a slice at both ends,
//! and several may steal from a core at once.

use crate::model::{self, By, Event, EventId, Recording, Sleep, Steal};
use crate::table::time;
use std::fmt::Write as _;
use std::io::{self, Write};

/// What of a recording is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeline {
    /// Only what is not over by then, in ns since the beginning.
    pub from_ns: u64,
    /// Only what has begun by then.
    pub to_ns: u64,
    /// Also an arrow from each event to those that it posted: four times as large a file.
    pub posts: bool,
}

impl Default for Timeline {
    /// All of it, without arrows for posts.
    fn default() -> Timeline {
        Timeline {
            from_ns: 0,
            to_ns: u64::MAX,
            posts: false,
        }
    }
}

/// The process that all tracks are of.
const PROCESS: usize = 1;
/// Tracks of each core.
const TRACKS: usize = 3;
/// Most points of the line that shows how many events wait.
const POINTS_MAX: u64 = 10_000;
/// Most colors of a steal that are named.
const COLORS_TOLD: usize = 32;

/// The tracks of a core, in their order.
#[derive(Clone, Copy)]
enum Track {
    Events,
    Scheduler,
    StolenFrom,
}

impl Track {
    /// Its number: not that of the process, which would be its main thread's.
    fn of(self, core: usize) -> usize {
        1 + PROCESS + core * TRACKS + self as usize
    }
}

impl Recording {
    /// Writes the recording as a timeline.
    ///
    /// # Errors
    /// As writing does.
    pub fn timeline(&self, options: Timeline, out: &mut dyn Write) -> io::Result<()> {
        let recording = self;
        let mut drawing = Drawing {
            recording,
            options,
            json: Json { out, first: true },
            line: String::new(),
            events: recording.place_events(),
        };
        drawing.draw()
    }

    /// Where on the tracks the events are.
    fn place_events(&self) -> Vec<Span> {
        let mut free_ns = vec![0; self.header.cores];
        // Of an event whose end is not told, when the recording was over.
        let end_ns = |event: &Event| event.took_ns.map_or(self.last_ns, |_| event.end_ns());
        let events = self.events.iter();
        events
            .map(|event| Span::place(event.begin_ns, end_ns(event), &mut free_ns[event.core]))
            .collect()
    }
}

/// A slice's place on its track.
#[derive(Clone, Copy, Debug)]
struct Span {
    begin_ns: u64,
    end_ns: u64,
}

impl Span {
    /// Slices of one track may not overlap, and to one that takes no time no arrow leads: it begins
    /// when the track is free, and takes 1 ns at least.
    fn place(begin_ns: u64, end_ns: u64, free_ns: &mut u64) -> Span {
        let begin_ns = begin_ns.max(*free_ns);
        let end_ns = end_ns.max(begin_ns.saturating_add(1));
        *free_ns = end_ns;
        Span { begin_ns, end_ns }
    }

    /// The moment in it that is nearest to this one.
    fn nearest(self, at_ns: u64) -> u64 {
        at_ns.clamp(self.begin_ns, (self.end_ns - 1).max(self.begin_ns))
    }
}

struct Drawing<'a> {
    recording: &'a Recording,
    options: Timeline,
    json: Json<'a>,
    /// What is being made, to be used again.
    line: String,
    events: Vec<Span>,
}

impl Drawing<'_> {
    fn draw(&mut self) -> io::Result<()> {
        self.json.begin()?;
        self.name_tracks()?;
        let recording = self.recording;
        for (place, event) in recording.events.iter().enumerate() {
            if self.is_in(self.events[place]) {
                self.event(EventId::at(place), event)?;
            }
        }
        let arrows_ns = self.stolen_from()?;
        self.scheduler(&arrows_ns)?;
        self.holds()?;
        self.waiting()?;
        self.json.end()
    }

    /// Whether something is drawn.
    fn is_in(&self, span: Span) -> bool {
        span.begin_ns <= self.options.to_ns && span.end_ns >= self.options.from_ns
    }

    /// The same for a steal, whose arrow has both its ends or neither.
    fn is_steal_in(&self, steal: &Steal) -> bool {
        let (begin_ns, end_ns) = (steal.begin_ns, steal.end_ns());
        self.is_in(Span { begin_ns, end_ns })
    }

    fn name_tracks(&mut self) -> io::Result<()> {
        let simulated = if self.recording.header.simulated {
            " (simulated)"
        } else {
            ""
        };
        let name = format!("mely{simulated}");
        self.json
            .metadata(0, "process_name", "name", &quoted(&name))?;
        for core in 0..self.recording.header.cores {
            let stolen_from = self
                .recording
                .steals
                .iter()
                .any(|steal| steal.victim == core);
            for (track, what, is_there) in [
                (Track::Events, "", true),
                (Track::Scheduler, ": scheduler", true),
                (Track::StolenFrom, ": stolen from", stolen_from),
            ] {
                if is_there {
                    let (track, name) = (track.of(core), format!("core {core}{what}"));
                    self.json
                        .metadata(track, "thread_name", "name", &quoted(&name))?;
                    let place = track.to_string();
                    self.json
                        .metadata(track, "thread_sort_index", "sort_index", &place)?;
                }
            }
        }
        Ok(())
    }

    fn event(&mut self, id: EventId, event: &Event) -> io::Result<()> {
        let recording = self.recording;
        let track = Track::Events.of(event.core);
        let handler = &recording[event.handler];
        let mut args = std::mem::take(&mut self.line);
        args.clear();
        push(
            &mut args,
            "color",
            &quoted(&recording[event.color].to_string()),
        );
        if let Some(waited_ns) = recording.waited_ns(event) {
            push(&mut args, "waited", &quoted(&time(waited_ns)));
        }
        push(&mut args, "posted by", &quoted(&self.poster(event)));
        push(&mut args, "posts", &event.posts().len().to_string());
        if let Some(bytes) = handler.working_set_bytes {
            push(&mut args, "working set bytes", &bytes.to_string());
        }
        if event.panicked {
            push(&mut args, "panicked", "true");
        }
        if event.waits {
            push(&mut args, "waits for a hold", "true");
        }
        if event.took_ns.is_none() {
            push(&mut args, "not over", "true");
        }
        let span = self.events[id.index()];
        self.json
            .slice(track, span, &handler.name, "event", &args)?;
        self.line = args;
        if self.options.posts {
            self.arrows(id, event)?;
        }
        Ok(())
    }

    /// Who posted an event, in words.
    fn poster(&self, event: &Event) -> String {
        match self.recording.poster(event) {
            Some(By::Event(id)) => {
                let by = &self.recording[id];
                let (name, color) = (&self.recording[by.handler].name, self.recording[by.color]);
                format!("{name} in color {color} on core {}", by.core)
            }
            Some(By::Core(core)) => format!("network or timer of core {core}"),
            Some(By::Outside(n)) => format!("a thread outside ({n})"),
            None => "(not recorded)".to_owned(),
        }
    }

    /// From the event that posted this one.
    fn arrows(&mut self, id: EventId, event: &Event) -> io::Result<()> {
        let Some(post) = event.cause.map(|cause| &self.recording[cause]) else {
            return Ok(());
        };
        if let By::Event(by) = post.by {
            // After those of the steals.
            let number = self.recording.steals.len() + id.index();
            let (from, to) = (self.events[by.index()], self.events[id.index()]);
            let by = Track::Events.of(self.recording[by].core);
            let from_ns = from.nearest(post.at_ns);
            // Clocks are not exactly alike, and nothing leads back in time.
            if from_ns <= to.begin_ns && self.is_in(from) {
                self.json.arrow("s", number, by, from_ns, "post")?;
                let of = Track::Events.of(event.core);
                self.json.arrow("f", number, of, to.begin_ns, "post")?;
            }
        }
        Ok(())
    }

    /// What a steal cost and brought.
    fn loot(&self, steal: &Steal) -> String {
        let mut args = String::new();
        push(&mut args, "cost", &quoted(&time(steal.cost_ns)));
        push(&mut args, "distance", &quoted(&steal.distance.to_string()));
        push(&mut args, "victim was stuck", &steal.stuck.to_string());
        push(&mut args, "colors", &steal.colors.len().to_string());
        push(&mut args, "events", &steal.events().to_string());
        push(
            &mut args,
            "expected to take",
            &quoted(&time(steal.left_ns())),
        );
        let mut brought = String::new();
        for stolen in steal.colors.iter().take(COLORS_TOLD) {
            let (color, handler) = (
                self.recording[stolen.color],
                &self.recording[stolen.handler],
            );
            let separator = if brought.is_empty() { "" } else { "; " };
            let (events, name) = (stolen.events, &handler.name);
            // To a string this never fails.
            let _ = write!(brought, "{separator}color {color}: {events} from {name} on");
        }
        push(&mut args, "brought", &quoted(&brought));
        args
    }

    /// The victims' sides of steals, with the beginnings of the arrows. Returns when each of those
    /// is.
    fn stolen_from(&mut self) -> io::Result<Vec<u64>> {
        let recording = self.recording;
        let cores = recording.header.cores;
        // Several may steal from a core at a time: each until the next one does.
        let mut next_ns = vec![u64::MAX; cores];
        let steals = recording.steals.iter().rev();
        let until = |steal: &Steal| {
            let next_ns = std::mem::replace(&mut next_ns[steal.victim], steal.begin_ns);
            next_ns.min(steal.end_ns())
        };
        let mut ends_ns: Vec<u64> = steals.map(until).collect();
        ends_ns.reverse();
        let mut free_ns = vec![0; cores];
        let mut arrows_ns = Vec::new();
        for (number, (steal, end_ns)) in recording.steals.iter().zip(ends_ns).enumerate() {
            let span = Span::place(steal.begin_ns, end_ns, &mut free_ns[steal.victim]);
            arrows_ns.push(span.begin_ns);
            if self.is_steal_in(steal) {
                let name = format!("core {} steals", steal.thief);
                let (track, args) = (Track::StolenFrom.of(steal.victim), self.loot(steal));
                self.json.slice(track, span, &name, "steal", &args)?;
                self.json
                    .arrow("s", number, track, span.begin_ns, "steal")?;
            }
        }
        Ok(arrows_ns)
    }

    /// What cores do besides events: steals, with the ends of the arrows, sleeps and wake-ups, and
    /// writing the recording.
    fn scheduler(&mut self, arrows_ns: &[u64]) -> io::Result<()> {
        let recording = self.recording;
        let steals = recording.steals.iter().enumerate();
        // In a simulation several begin at one moment: then no earlier than the arrow.
        let steals = steals
            .map(|(number, of)| (of.begin_ns.max(arrows_ns[number]), Does::Steal(number, of)));
        let sleeps = recording
            .sleeps
            .iter()
            .map(|of| (of.from_ns, Does::Sleep(of)));
        let writes = recording
            .writes
            .iter()
            .map(|of| (of.begin_ns, Does::Write(of)));
        let mut all: Vec<_> = steals.chain(sleeps).chain(writes).collect();
        all.sort_by_key(|&(begin_ns, _)| begin_ns);
        let mut free_ns = vec![0; recording.header.cores];
        for (begin_ns, does) in all {
            let (core, end_ns) = match does {
                Does::Steal(_, steal) => (steal.thief, steal.end_ns()),
                Does::Sleep(sleep) => (sleep.core, sleep.to_ns.unwrap_or(recording.last_ns)),
                Does::Write(write) => (write.core, begin_ns.saturating_add(write.took_ns)),
            };
            let span = Span::place(begin_ns, end_ns, &mut free_ns[core]);
            let is_in = match does {
                Does::Steal(_, steal) => self.is_steal_in(steal),
                Does::Sleep(_) | Does::Write(_) => self.is_in(span),
            };
            if !is_in {
                continue;
            }
            let track = Track::Scheduler.of(core);
            match does {
                Does::Steal(number, steal) => {
                    let name = format!("steals from core {}", steal.victim);
                    let args = self.loot(steal);
                    self.json.slice(track, span, &name, "steal", &args)?;
                    let at_ns = span.nearest(arrows_ns[number]);
                    self.json.arrow("f", number, track, at_ns, "steal")?;
                }
                Does::Sleep(sleep) => {
                    let mut args = String::new();
                    push(&mut args, "woken by", &quoted(&self.waker(sleep)));
                    self.json.slice(track, span, "sleeps", "sleep", &args)?;
                }
                Does::Write(_) => {
                    self.json
                        .slice(track, span, "writes the recording", "write", "")?;
                }
            }
        }
        for wake in &recording.wakes {
            if (self.options.from_ns..=self.options.to_ns).contains(&wake.at_ns) {
                let name = format!("wakes core {}", wake.core);
                self.json
                    .instant(Track::Scheduler.of(wake.by), wake.at_ns, &name)?;
            }
        }
        Ok(())
    }

    /// What ended a sleep: the last wake-up of the core by then, unless that was before.
    fn waker(&self, sleep: &Sleep) -> String {
        let wakes = &self.recording.wakes;
        let to_ns = sleep.to_ns.unwrap_or(self.recording.last_ns);
        let before = wakes.partition_point(|wake| wake.at_ns <= to_ns);
        let during = wakes[..before].iter().rev();
        let mut during = during.take_while(|wake| wake.at_ns >= sleep.from_ns);
        let waker = during.find(|wake| wake.core == sleep.core);
        waker.map_or("network, timer or a thread outside".to_owned(), |wake| {
            format!("core {}", wake.by)
        })
    }

    fn holds(&mut self) -> io::Result<()> {
        let recording = self.recording;
        for (number, hold) in recording.holds.iter().enumerate() {
            let to_ns = hold.to_ns.unwrap_or(recording.last_ns).max(hold.from_ns);
            let span = Span {
                begin_ns: hold.from_ns,
                end_ns: to_ns,
            };
            if !self.is_in(span) {
                continue;
            }
            let name = format!("color {} is held", recording[hold.color]);
            let mut args = String::new();
            let by = &recording[recording[hold.by].handler].name;
            push(&mut args, "by", &quoted(by));
            push(&mut args, "readers may run", &hold.shared.to_string());
            self.json.wide("b", number, hold.from_ns, &name, &args)?;
            self.json.wide("e", number, to_ns, &name, "")?;
        }
        Ok(())
    }

    /// A line that shows how many events wait, from post to beginning.
    fn waiting(&mut self) -> io::Result<()> {
        let recording = self.recording;
        let mut changes: Vec<(u64, i64)> = Vec::new();
        for post in recording.posts.iter().filter(|post| !post.refused) {
            changes.push((post.at_ns, 1));
            if let Some(event) = post.event {
                changes.push((recording[event].begin_ns.max(post.at_ns), -1));
            }
        }
        changes.sort_unstable();
        let to_ns = self.options.to_ns.min(recording.last_ns);
        let apart_ns = to_ns.saturating_sub(self.options.from_ns) / POINTS_MAX;
        let (mut waiting, mut next_ns) = (0, self.options.from_ns);
        for (i, &(at_ns, change)) in changes.iter().enumerate() {
            waiting += change;
            let is_last = changes.get(i + 1).is_none_or(|&(next, _)| next > at_ns);
            if is_last && at_ns >= next_ns && at_ns <= to_ns {
                self.json.counter(at_ns, waiting)?;
                next_ns = at_ns.saturating_add(apart_ns.max(1));
            }
        }
        Ok(())
    }
}

/// What a core does besides events.
enum Does<'a> {
    Steal(usize, &'a Steal),
    Sleep(&'a Sleep),
    Write(&'a model::Write),
}

/// Appends a field.
fn push(args: &mut String, name: &str, value: &str) {
    let separator = if args.is_empty() { "" } else { "," };
    // To a string this never fails.
    let _ = write!(args, "{separator}\"{name}\":{value}");
}

/// A string as JSON has it.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", c as u32);
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// ns as us, which the format has.
struct Us(u64);

impl std::fmt::Display for Us {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}

/// Writes the entries.
struct Json<'a> {
    out: &'a mut dyn Write,
    first: bool,
}

impl Json<'_> {
    fn begin(&mut self) -> io::Result<()> {
        self.out
            .write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")
    }

    fn end(&mut self) -> io::Result<()> {
        self.out.write_all(b"\n]}\n")
    }

    fn next(&mut self) -> io::Result<()> {
        let separator = if std::mem::take(&mut self.first) {
            "\n"
        } else {
            ",\n"
        };
        self.out.write_all(separator.as_bytes())
    }

    fn metadata(&mut self, track: usize, what: &str, field: &str, value: &str) -> io::Result<()> {
        self.next()?;
        write!(
            self.out,
            "{{\"ph\":\"M\",\"pid\":{PROCESS},\"tid\":{track},\"name\":\"{what}\",\
             \"args\":{{\"{field}\":{value}}}}}"
        )
    }

    fn slice(
        &mut self,
        track: usize,
        span: Span,
        name: &str,
        category: &str,
        args: &str,
    ) -> io::Result<()> {
        self.next()?;
        let (begin, took) = (Us(span.begin_ns), Us(span.end_ns - span.begin_ns));
        let name = quoted(name);
        write!(
            self.out,
            "{{\"ph\":\"X\",\"pid\":{PROCESS},\"tid\":{track},\"ts\":{begin},\"dur\":{took},\
             \"name\":{name},\"cat\":\"{category}\",\"args\":{{{args}}}}}"
        )
    }

    fn instant(&mut self, track: usize, at_ns: u64, name: &str) -> io::Result<()> {
        self.next()?;
        let (at, name) = (Us(at_ns), quoted(name));
        write!(
            self.out,
            "{{\"ph\":\"i\",\"s\":\"t\",\"pid\":{PROCESS},\"tid\":{track},\"ts\":{at},\
             \"name\":{name},\"cat\":\"wake\"}}"
        )
    }

    /// The beginning or the end of what is on no core's track.
    fn wide(
        &mut self,
        what: &str,
        id: usize,
        at_ns: u64,
        name: &str,
        args: &str,
    ) -> io::Result<()> {
        self.next()?;
        let (at, name) = (Us(at_ns), quoted(name));
        write!(
            self.out,
            "{{\"ph\":\"{what}\",\"pid\":{PROCESS},\"tid\":0,\"id2\":{{\"local\":\"{id:#x}\"}},\
             \"ts\":{at},\
             \"name\":{name},\"cat\":\"hold\",\"args\":{{{args}}}}}"
        )
    }

    /// An end of an arrow.
    fn arrow(
        &mut self,
        end: &str,
        id: usize,
        track: usize,
        at_ns: u64,
        name: &str,
    ) -> io::Result<()> {
        self.next()?;
        let at = Us(at_ns);
        write!(
            self.out,
            "{{\"ph\":\"{end}\",\"bp\":\"e\",\"pid\":{PROCESS},\"tid\":{track},\"ts\":{at},\
             \"id\":{id},\"name\":\"{name}\",\"cat\":\"{name}\"}}"
        )
    }

    fn counter(&mut self, at_ns: u64, waiting: i64) -> io::Result<()> {
        self.next()?;
        let at = Us(at_ns);
        write!(
            self.out,
            "{{\"ph\":\"C\",\"pid\":{PROCESS},\"tid\":0,\"ts\":{at},\"name\":\"events that wait\",\
             \"args\":{{\"events\":{waiting}}}}}"
        )
    }
}
