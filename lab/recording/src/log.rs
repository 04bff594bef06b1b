//! What one log tells, record by record.

use crate::error::Error;
use crate::format::{Cause, Color, Definition, LogId, Record};
use crate::input::{Fault, Input};
use crate::model::{
    By, ColorId, Event, EventId, Handler, HandlerId, Post, Relation, Sleep, Steal, Stolen, Wake,
    Write,
};
use std::collections::{HashMap, HashSet};

/// What all logs name.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) handlers: Vec<Handler>,
    by_name: HashMap<(bool, String), HandlerId>,
    /// A profile has the same number in all logs.
    profiles: HashMap<u32, (Definition, HandlerId)>,
    pub(crate) colors: Vec<Color>,
    by_color: HashMap<Color, ColorId>,
}

impl Names {
    /// A log defines a profile. False: another one has defined it otherwise.
    fn define(&mut self, profile: u32, definition: Definition) -> bool {
        if let Some((known, _)) = self.profiles.get(&profile) {
            return *known == definition;
        }
        let key = (definition.is_handler, definition.name.clone());
        let id = *self.by_name.entry(key).or_insert_with(|| {
            self.handlers.push(Handler {
                name: definition.name.clone(),
                is_handler: definition.is_handler,
                annotated_ns: (definition.time_ns > 0).then_some(definition.time_ns),
                penalty: definition.penalty,
                working_set_bytes: definition.working_set_bytes,
            });
            HandlerId::at(self.handlers.len() - 1)
        });
        self.profiles.insert(profile, (definition, id));
        true
    }

    fn color(&mut self, color: Color) -> ColorId {
        *self.by_color.entry(color).or_insert_with(|| {
            self.colors.push(color);
            ColorId::at(self.colors.len() - 1)
        })
    }
}

/// What is posted or run, by the number that stands for its handler and closure type, and by its
/// post.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tag {
    pub(crate) profile: u32,
    pub(crate) cause: Cause,
}

/// A hold begins, or is over.
#[derive(Debug)]
pub(crate) struct HoldTold {
    pub(crate) id: u64,
    pub(crate) at_ns: u64,
}

/// See the module text. Places of events and of posts are those in this log.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) id: LogId,
    /// Cores of the run.
    cores: usize,
    /// The time so far.
    pub(crate) now_ns: u64,
    defined: HashSet<u32>,
    /// An event has begun and is not over.
    open: bool,
    /// What of its time went into writing the recording.
    wrote_ns: u64,
    pub(crate) events: Vec<(Event, Tag)>,
    pub(crate) posts: Vec<(Post, Tag)>,
    /// Of the event that runs, its posts whose times are told: place, and ns since it began.
    told: Vec<(usize, u64)>,
    pub(crate) steals: Vec<Steal>,
    /// Colors of the last steal that are not told yet.
    stolen_due: u64,
    pub(crate) sleeps: Vec<Sleep>,
    pub(crate) wakes: Vec<Wake>,
    pub(crate) writes: Vec<Write>,
    /// With the place of the event that made it, and whether it is shared.
    pub(crate) holds: Vec<(HoldTold, usize, bool)>,
    pub(crate) holds_over: Vec<HoldTold>,
}

impl Log {
    pub(crate) fn new(id: LogId, cores: usize) -> Log {
        Log {
            id,
            cores,
            now_ns: 0,
            defined: HashSet::new(),
            open: false,
            wrote_ns: 0,
            events: Vec::new(),
            posts: Vec::new(),
            told: Vec::new(),
            steals: Vec::new(),
            stolen_due: 0,
            sleeps: Vec::new(),
            wakes: Vec::new(),
            writes: Vec::new(),
            holds: Vec::new(),
            holds_over: Vec::new(),
        }
    }

    /// Its next page begins, at this time.
    pub(crate) fn begin_page(&mut self, from_ns: u64) -> Result<(), &'static str> {
        if from_ns < self.now_ns {
            return Err("a page begins before the page before it in its log is over");
        }
        self.now_ns = from_ns;
        Ok(())
    }

    /// Reads the records of a page.
    pub(crate) fn read(&mut self, names: &mut Names, mut records: Input<'_>) -> Result<(), Error> {
        while !records.is_empty() {
            let at = records.at;
            let record = match records.record() {
                Ok(record) => record,
                Err(Fault::Short) => unreachable!("a page's end is a fault of its own"),
                Err(Fault::Not(what)) => return Err(Error::Damaged { at, what }),
            };
            self.take(names, record).map_err(|wrong| match wrong {
                Wrong::Undefined(profile) => {
                    let log = self.id;
                    Error::UndefinedHandler { log, profile }
                }
                Wrong::Not(what) => Error::Damaged { at, what },
            })?;
        }
        if self.stolen_due > 0 {
            let (at, what) = (records.at, "a page ends inside a steal");
            return Err(Error::Damaged { at, what });
        }
        Ok(())
    }

    /// Time passes in the log; it is now so late.
    fn pass(&mut self, gap_ns: u64) -> u64 {
        self.now_ns = self.now_ns.saturating_add(gap_ns);
        self.now_ns
    }

    fn handler(&self, names: &Names, profile: u32) -> Result<HandlerId, Wrong> {
        if !self.defined.contains(&profile) {
            return Err(Wrong::Undefined(profile));
        }
        Ok(names.profiles[&profile].1)
    }

    /// The core that it is of.
    fn core(&self) -> Result<usize, Wrong> {
        let core = self.id.as_core();
        core.ok_or(Wrong::Not(
            "a log of threads outside tells what only cores do",
        ))
    }

    /// Another core of the run.
    fn other_core(&self, core: u64) -> Result<usize, Wrong> {
        let core = usize::try_from(core).ok().filter(|&core| core < self.cores);
        core.ok_or(Wrong::Not("a core is named that the run does not have"))
    }

    /// The place of the event that runs.
    fn running(&self) -> Result<usize, Wrong> {
        let place = self.events.len().checked_sub(1).filter(|_| self.open);
        place.ok_or(Wrong::Not("an event does something, and none had begun"))
    }

    /// What the next post of this log is, to its event.
    fn next_cause(&self) -> Cause {
        Cause::new(self.id, self.posts.len() as u64)
    }

    fn push_post(&mut self, post: Post, profile: u32) {
        let cause = self.next_cause();
        self.posts.push((post, Tag { profile, cause }));
    }

    fn take(&mut self, names: &mut Names, record: Record) -> Result<(), Wrong> {
        if self.stolen_due > 0 && !matches!(record, Record::Stolen { .. } | Record::Define { .. }) {
            return Err(Wrong::Not("a steal has brought fewer colors than it says"));
        }
        match record {
            Record::Define {
                profile,
                definition,
            } => {
                if !names.define(profile, definition) {
                    return Err(Wrong::Not("a handler is defined twice, and differently"));
                }
                self.defined.insert(profile);
            }
            Record::Begin {
                profile,
                color,
                cause,
                gap_ns,
            } => {
                let core = self.core()?;
                if self.open {
                    return Err(Wrong::Not("an event begins inside another"));
                }
                let posts = self.posts.len() as u32;
                let event = Event {
                    core,
                    handler: self.handler(names, profile)?,
                    color: names.color(color),
                    begin_ns: self.pass(gap_ns),
                    took_ns: None,
                    panicked: false,
                    waits: false,
                    cause: None,
                    posts: (posts, posts),
                };
                self.events.push((event, Tag { profile, cause }));
                self.open = true;
            }
            Record::End {
                took_ns,
                panicked,
                waits,
            } => {
                let place = self.running()?;
                let (event, _) = &self.events[place];
                self.now_ns = self.now_ns.max(event.begin_ns.saturating_add(took_ns));
                self.time_posts(place);
                let wrote_ns = std::mem::take(&mut self.wrote_ns);
                let (event, _) = &mut self.events[place];
                event.took_ns = Some(took_ns.saturating_sub(wrote_ns));
                (event.panicked, event.waits) = (panicked, waits);
                self.open = false;
            }
            Record::Post {
                profile,
                color,
                after_ns,
            } => {
                let place = self.running()?;
                let handler = self.handler(names, profile)?;
                let (event, _) = &mut self.events[place];
                let color = color.map_or(event.color, |color| names.color(color));
                let relation = if color == event.color {
                    Relation::Own
                } else {
                    Relation::Other
                };
                event.posts.1 += 1;
                let at_ns = event.begin_ns;
                if let Some(after_ns) = after_ns {
                    self.told.push((self.posts.len(), after_ns));
                }
                let by = By::Event(EventId::at(place));
                self.push_post(post(by, at_ns, handler, color, relation), profile);
            }
            Record::Arrival {
                profile,
                color,
                gap_ns,
            } => {
                if self.open {
                    return Err(Wrong::Not("something arrives inside an event"));
                }
                let at_ns = self.pass(gap_ns);
                let handler = self.handler(names, profile)?;
                let by = match self.id.as_core() {
                    Some(core) => By::Core(core),
                    None => By::Outside(self.id.as_outside()),
                };
                let color = names.color(color);
                self.push_post(post(by, at_ns, handler, color, Relation::Other), profile);
            }
            Record::Refused => match self.posts.last_mut() {
                Some((post, _)) => post.refused = true,
                None => return Err(Wrong::Not("a post is refused, and there was none")),
            },
            Record::Park { gap_ns } => {
                let core = self.core()?;
                if self
                    .sleeps
                    .last()
                    .is_some_and(|sleep| sleep.to_ns.is_none())
                {
                    return Err(Wrong::Not("a core goes to sleep that sleeps"));
                }
                let from_ns = self.pass(gap_ns);
                self.sleeps.push(Sleep {
                    core,
                    from_ns,
                    to_ns: None,
                });
            }
            Record::Rise { gap_ns } => {
                let now_ns = self.pass(gap_ns);
                match self.sleeps.last_mut() {
                    Some(sleep) if sleep.to_ns.is_none() => sleep.to_ns = Some(now_ns),
                    _ => return Err(Wrong::Not("a core wakes up that does not sleep")),
                }
            }
            Record::Wake { core, gap_ns } => {
                let (by, core) = (self.core()?, self.other_core(core)?);
                let at_ns = self.pass(gap_ns);
                self.wakes.push(Wake { by, core, at_ns });
            }
            Record::Steal {
                victim,
                distance,
                stuck,
                cost_ns,
                colors,
                gap_ns,
            } => {
                let steal = Steal {
                    thief: self.core()?,
                    victim: self.other_core(victim)?,
                    distance,
                    stuck,
                    begin_ns: self.pass(gap_ns),
                    cost_ns,
                    colors: Vec::new(),
                };
                self.pass(cost_ns);
                self.steals.push(steal);
                self.stolen_due = colors;
            }
            Record::Stolen {
                color,
                profile,
                events,
                left_ns,
            } => {
                let handler = self.handler(names, profile)?;
                let due = self.stolen_due.checked_sub(1);
                let (Some(due), Some(steal)) = (due, self.steals.last_mut()) else {
                    return Err(Wrong::Not("a steal has brought more colors than it says"));
                };
                self.stolen_due = due;
                steal.colors.push(Stolen {
                    color: names.color(color),
                    handler,
                    events,
                    left_ns,
                });
            }
            Record::Hold { id, shared, gap_ns } => {
                let place = self.running()?;
                let at_ns = self.pass(gap_ns);
                self.holds.push((HoldTold { id, at_ns }, place, shared));
            }
            Record::HoldOver { id, gap_ns } => {
                self.core()?;
                let at_ns = self.pass(gap_ns);
                self.holds_over.push(HoldTold { id, at_ns });
            }
            Record::Wrote { took_ns, gap_ns } => {
                let core = self.core()?;
                let begin_ns = self.pass(gap_ns);
                self.pass(took_ns);
                if self.open {
                    self.wrote_ns = self.wrote_ns.saturating_add(took_ns);
                }
                self.writes.push(Write {
                    core,
                    begin_ns,
                    took_ns,
                });
            }
        }
        Ok(())
    }

    /// Nothing more comes. What had begun took as long as the log tells of.
    pub(crate) fn finish(&mut self) {
        if let Ok(place) = self.running() {
            self.time_posts(place);
        }
    }

    /// Works out the times of an event's posts, from those that are told, and from its end.
    fn time_posts(&mut self, place: usize) {
        let (event, _) = &self.events[place];
        let (begin_ns, range) = (event.begin_ns, event.posts());
        let end_ns = self.now_ns.max(begin_ns);
        let mut told = std::mem::take(&mut self.told);
        told.push((range.end, end_ns - begin_ns));
        let (mut from, mut earliest_ns) = (range.start, begin_ns);
        for (to, after_ns) in told.drain(..) {
            let latest_ns = begin_ns.saturating_add(after_ns).clamp(earliest_ns, end_ns);
            let (parts, apart_ns) = ((to - from + 1) as u128, latest_ns - earliest_ns);
            for (i, (post, _)) in (1..).zip(&mut self.posts[from..to]) {
                (post.earliest_ns, post.latest_ns) = (earliest_ns, latest_ns);
                post.at_ns = earliest_ns + (u128::from(apart_ns) * i / parts) as u64;
            }
            if let Some((post, _)) = self.posts.get_mut(to).filter(|_| to < range.end) {
                (post.earliest_ns, post.latest_ns) = (latest_ns, latest_ns);
                post.at_ns = latest_ns;
            }
            (from, earliest_ns) = (to + 1, latest_ns);
        }
        self.told = told;
    }
}

fn post(by: By, at_ns: u64, handler: HandlerId, color: ColorId, relation: Relation) -> Post {
    Post {
        by,
        at_ns,
        earliest_ns: at_ns,
        latest_ns: at_ns,
        handler,
        color,
        relation,
        refused: false,
        event: None,
    }
}

/// Why a record cannot be where it is.
enum Wrong {
    /// It names this profile.
    Undefined(u32),
    Not(&'static str),
}
