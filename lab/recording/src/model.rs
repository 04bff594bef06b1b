//! What a recording says, put together: every event with what it was posted by and what it posted.

use crate::format::{Color, End, Header};
use mely::topology::Distance;
use std::ops::Range;

/// A recorded run, or the part of it that fitted into the file.
///
/// The fields refer to each other by their places: `recording[id]` is what an id stands for.
///
/// ```no_run
/// use mely_recording::Recording;
///
/// let recording = Recording::open("run.mely")?;
/// for event in &recording.events {
///     let handler = &recording[event.handler];
///     let posted = recording.posts_of(event).len();
///     println!("core {} {} posted {posted}", event.core, handler.name);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Recording {
    /// What the recording says of its run.
    pub header: Header,
    /// How it ended; none: it was cut short, and read all the same
    /// ([`Recording::read_what_is_there`]).
    pub end: Option<End>,
    /// Handlers, in the order in which the file names them first: one for each name, and one for
    /// each type of closures without a handler.
    pub handlers: Vec<Handler>,
    /// Colors, in the order in which the file names them first.
    pub colors: Vec<Color>,
    /// Events, in the order in which they began.
    pub events: Vec<Event>,
    /// Posts. Those of one event are side by side, in their order.
    pub posts: Vec<Post>,
    /// Steals, in the order of their beginnings.
    pub steals: Vec<Steal>,
    /// Sleeps of cores, in the order of their beginnings.
    pub sleeps: Vec<Sleep>,
    /// Wake-ups of cores by other cores, in their order.
    pub wakes: Vec<Wake>,
    /// Holds, in the order of their beginnings.
    pub holds: Vec<Hold>,
    /// Times in which cores wrote the recording itself, in their order: nobody else's.
    pub writes: Vec<Write>,
    /// When the last that is told was over, in ns since the beginning.
    pub last_ns: u64,
}

macro_rules! ids {
    ($($name:ident, $what:ident in $places:ident: $says:literal;)*) => {$(
        #[doc = $says]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub(crate) u32);

        impl $name {
            pub(crate) fn at(place: usize) -> $name {
                $name(place as u32)
            }

            /// Its place.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl std::ops::Index<$name> for Recording {
            type Output = $what;

            fn index(&self, id: $name) -> &$what {
                &self.$places[id.index()]
            }
        }
    )*};
}

ids! {
    HandlerId, Handler in handlers: "One of [`Recording::handlers`].";
    ColorId, Color in colors: "One of [`Recording::colors`].";
    EventId, Event in events: "One of [`Recording::events`].";
    PostId, Post in posts: "One of [`Recording::posts`].";
}

/// A handler, or closures of one type that were posted without a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Handler {
    /// The handler's name, or the closures' type.
    pub name: String,
    /// Whether it is a handler.
    pub is_handler: bool,
    /// Its annotation `time`, in ns.
    pub annotated_ns: Option<u64>,
    /// Its annotation `penalty`; 1 if none was given.
    pub penalty: u64,
    /// Its annotation `working_set_bytes`: what of its color's data one event reads and writes.
    pub working_set_bytes: Option<u64>,
}

/// An event that has begun.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Event {
    /// The core that ran it.
    pub core: usize,
    /// Its handler.
    pub handler: HandlerId,
    /// Its color.
    pub color: ColorId,
    /// When it began, in ns since the beginning.
    pub begin_ns: u64,
    /// What it took, in ns. None: the recording does not have its end.
    pub took_ns: Option<u64>,
    /// It panicked.
    pub panicked: bool,
    /// Its color was held by others: it has posted itself again, and done nothing else. mely does
    /// not count it as one that ran.
    pub waits: bool,
    /// The post that it is of. None: the recording does not have it, which can be of events that
    /// began when others had stopped recording.
    pub cause: Option<PostId>,
    pub(crate) posts: (u32, u32),
}

impl Event {
    /// Its posts, by their places in [`Recording::posts`].
    pub fn posts(&self) -> Range<usize> {
        self.posts.0 as usize..self.posts.1 as usize
    }

    /// When it was over; if that is not told, when it began.
    pub fn end_ns(&self) -> u64 {
        self.begin_ns.saturating_add(self.took_ns.unwrap_or(0))
    }
}

/// A post.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Post {
    /// Who posted.
    pub by: By,
    /// When. Of most posts of events only the event's time is known, and of its posts that some
    /// come between two whose times are: then they are taken to be as far apart as they can be.
    pub at_ns: u64,
    /// No earlier than this.
    pub earliest_ns: u64,
    /// No later than this.
    pub latest_ns: u64,
    /// The handler of the event posted.
    pub handler: HandlerId,
    /// Its color.
    pub color: ColorId,
    /// What that color is to the poster's.
    pub relation: Relation,
    /// It was refused: the runtime was full, or ending.
    pub refused: bool,
    /// The event. None: it was refused, or has not begun when the recording ended.
    pub event: Option<EventId>,
}

/// Who posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum By {
    /// An event.
    Event(EventId),
    /// A core, outside of events: what its network, its timers or its signals brought.
    Core(usize),
    /// A thread that is no core: the group of threads that it is one of.
    Outside(usize),
}

/// What a post's color is to its poster's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Relation {
    /// The same.
    Own,
    /// Another one, which nobody has named before.
    Fresh,
    /// Another one, which was there.
    Other,
}

/// A steal that brought something.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Steal {
    /// Who stole.
    pub thief: usize,
    /// From whom.
    pub victim: usize,
    /// How far apart they are.
    pub distance: Distance,
    /// The victim was in a long event: its colors were taken although they were not worth it.
    pub stuck: bool,
    /// When it began, in ns since the beginning.
    pub begin_ns: u64,
    /// What it took, in ns.
    pub cost_ns: u64,
    /// What it brought.
    pub colors: Vec<Stolen>,
}

impl Steal {
    /// When it was over, in ns since the beginning.
    pub fn end_ns(&self) -> u64 {
        self.begin_ns.saturating_add(self.cost_ns)
    }

    /// Events that it brought.
    pub fn events(&self) -> u64 {
        let events = self.colors.iter().map(|stolen| stolen.events);
        events.fold(0, u64::saturating_add)
    }

    /// What those were expected to take, in ns.
    pub fn left_ns(&self) -> u64 {
        let left = self.colors.iter().map(|stolen| stolen.left_ns);
        left.fold(0, u64::saturating_add)
    }
}

/// A color that was stolen.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stolen {
    /// The color of its first event.
    pub color: ColorId,
    /// The handler of that event.
    pub handler: HandlerId,
    /// Its events.
    pub events: u64,
    /// What they were expected to take, in ns.
    pub left_ns: u64,
}

/// A core slept.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Sleep {
    /// The core.
    pub core: usize,
    /// Since when, in ns since the beginning.
    pub from_ns: u64,
    /// Until when. None: the recording does not have its end.
    pub to_ns: Option<u64>,
}

/// A core woke another.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Wake {
    /// Who woke.
    pub by: usize,
    /// Who slept.
    pub core: usize,
    /// When, in ns since the beginning.
    pub at_ns: u64,
}

/// A color was held.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Hold {
    /// The color.
    pub color: ColorId,
    /// The event that held it.
    pub by: EventId,
    /// Whether others that read could run meanwhile.
    pub shared: bool,
    /// Since when, in ns since the beginning.
    pub from_ns: u64,
    /// Until when. None: the recording does not have its end.
    pub to_ns: Option<u64>,
}

/// A core wrote a page of the recording.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Write {
    /// The core.
    pub core: usize,
    /// When it began to, in ns since the beginning.
    pub begin_ns: u64,
    /// What it took, in ns.
    pub took_ns: u64,
}

impl Recording {
    /// The posts of an event.
    pub fn posts_of(&self, event: &Event) -> &[Post] {
        &self.posts[event.posts()]
    }

    /// Who posted an event, also if it has waited for a hold and posted itself again. None: its
    /// post is not in the recording.
    pub fn poster(&self, event: &Event) -> Option<By> {
        let mut by = self[event.cause?].by;
        while let By::Event(poster) = by
            && self[poster].waits
        {
            by = self[self[poster].cause?].by;
        }
        Some(by)
    }

    /// How long an event waited from its post to its beginning, in ns. None: its post is not in the
    /// recording.
    pub fn waited_ns(&self, event: &Event) -> Option<u64> {
        let post = &self[event.cause?];
        Some(event.begin_ns.saturating_sub(post.at_ns))
    }

    /// Whether the recording ended before its run did.
    pub fn is_whole(&self) -> bool {
        let whole = |end: &End| end.why == crate::format::Ended::WithTheRun && end.cores_left == 0;
        self.end.as_ref().is_some_and(whole)
    }
}
