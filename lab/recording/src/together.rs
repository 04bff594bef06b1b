//! Several logs become one recording: in which order events ran, and which post each is of.

use crate::error::Error;
use crate::format::{Cause, End, Header};
use crate::log::{Log, Names, Tag};
use crate::model::{By, ColorId, Event, EventId, Hold, Post, PostId, Recording, Relation};
use crate::table::printable;
use std::collections::HashMap;

/// An event may begin so much before its post by the clocks, in ns: processors' clocks are not
/// exactly alike.
const CLOCKS_APART_NS: u64 = 100_000;

/// See the module text. `whole`: nothing is missing.
pub(crate) fn put_together(
    header: Header,
    end: Option<End>,
    names: Names,
    mut logs: Vec<Log>,
    whole: bool,
) -> Result<Recording, Error> {
    logs.iter_mut().for_each(Log::finish);
    let ids = ids(&logs);
    let mut recording = Recording {
        header,
        end,
        handlers: names.handlers,
        colors: names.colors,
        events: Vec::new(),
        posts: Vec::new(),
        steals: Vec::new(),
        sleeps: Vec::new(),
        wakes: Vec::new(),
        holds: holds(&logs, &ids)?,
        writes: Vec::new(),
        last_ns: logs.iter().map(|log| log.now_ns).max().unwrap_or(0),
    };
    let (mut events, mut post_tags) = (Vec::new(), Vec::new());
    for (log, ids) in logs.into_iter().zip(&ids) {
        let before = recording.posts.len() as u32;
        events.extend(log.events.into_iter().map(|(mut event, tag)| {
            event.posts = (event.posts.0 + before, event.posts.1 + before);
            (event, tag)
        }));
        for (mut post, tag) in log.posts {
            if let By::Event(event) = &mut post.by {
                *event = ids[event.index()];
            }
            recording.posts.push(post);
            post_tags.push(tag);
        }
        recording.steals.extend(log.steals);
        recording.sleeps.extend(log.sleeps);
        recording.wakes.extend(log.wakes);
        recording.writes.extend(log.writes);
    }
    // As in `ids`: in the order of the logs where times are equal.
    events.sort_by_key(|(event, _)| event.begin_ns);
    let (events, event_tags): (Vec<Event>, Vec<Tag>) = events.into_iter().unzip();
    recording.events = events;
    recording.steals.sort_by_key(|steal| steal.begin_ns);
    recording.sleeps.sort_by_key(|sleep| sleep.from_ns);
    recording.wakes.sort_by_key(|wake| wake.at_ns);
    recording.writes.sort_by_key(|write| write.begin_ns);
    bind(&mut recording, &event_tags, &post_tags, whole)?;
    look_for_circles(&recording)?;
    look_at_clocks(&recording)?;
    find_fresh(&mut recording);
    Ok(recording)
}

/// What each log's events are called among all, which is by the order of their beginnings.
fn ids(logs: &[Log]) -> Vec<Vec<EventId>> {
    let mut order = Vec::new();
    for (of, log) in logs.iter().enumerate() {
        order.extend((0..log.events.len()).map(|place| (of, place)));
    }
    order.sort_by_key(|&(of, place)| logs[of].events[place].0.begin_ns);
    let none = |log: &Log| vec![EventId::at(0); log.events.len()];
    let mut ids: Vec<Vec<EventId>> = logs.iter().map(none).collect();
    for (id, (of, place)) in order.into_iter().enumerate() {
        ids[of][place] = EventId::at(id);
    }
    ids
}

/// Holds with their ends, which other logs may tell.
fn holds(logs: &[Log], ids: &[Vec<EventId>]) -> Result<Vec<Hold>, Error> {
    let mut holds = Vec::new();
    let mut place_of = HashMap::new();
    for (log, ids) in logs.iter().zip(ids) {
        for (told, event, shared) in &log.holds {
            if place_of.insert(told.id, holds.len()).is_some() {
                return Err(Error::Contradiction("two holds have one number"));
            }
            holds.push(Hold {
                color: log.events[*event].0.color,
                by: ids[*event],
                shared: *shared,
                from_ns: told.at_ns,
                to_ns: None,
            });
        }
    }
    for told in logs.iter().flat_map(|log| &log.holds_over) {
        // One of which the beginning is missing is of no use.
        if let Some(&place) = place_of.get(&told.id) {
            let hold: &mut Hold = &mut holds[place];
            if hold.to_ns.replace(told.at_ns.max(hold.from_ns)).is_some() {
                return Err(Error::Contradiction("a hold is over twice"));
            }
        }
    }
    holds.sort_by_key(|hold| hold.from_ns);
    Ok(holds)
}

/// Finds out which event is of which post. Posts that are alike are in one *row*: of one log, of
/// one handler and closure type, to one color, with one number modulo [`Cause::POSTS`]. Their
/// events run in their order: the first event is of the first post, and so on.
fn bind(
    recording: &mut Recording,
    event_tags: &[Tag],
    post_tags: &[Tag],
    whole: bool,
) -> Result<(), Error> {
    let row = |color: ColorId, tag: &Tag| (color, tag.profile, tag.cause.bits());
    let posts = recording.posts.iter().zip(post_tags).enumerate();
    let posts = posts.filter(|(_, (post, _))| !post.refused);
    let mut posts: Vec<_> = posts
        .map(|(place, (post, tag))| (row(post.color, tag), place as u32))
        .collect();
    posts.sort_unstable();
    let events = recording.events.iter().zip(event_tags).enumerate();
    let events = events.filter(|(_, (_, tag))| tag.cause != Cause::NONE);
    let mut events: Vec<_> = events
        .map(|(place, (event, tag))| (row(event.color, tag), place as u32))
        .collect();
    events.sort_unstable();
    let mut posts = posts.into_iter().peekable();
    for (row, event) in events {
        // Those before are of events that have not begun.
        while posts.next_if(|&(its, _)| its < row).is_some() {}
        let (event, id) = (event as usize, EventId::at(event as usize));
        if let Some((_, post)) = posts.next_if(|&(its, _)| its == row) {
            let begin_ns = recording.events[event].begin_ns;
            let its = &mut recording.posts[post as usize];
            its.event = Some(id);
            // It was posted by then.
            its.latest_ns = its.latest_ns.min(begin_ns).max(its.earliest_ns);
            its.at_ns = its.at_ns.min(its.latest_ns);
            recording.events[event].cause = Some(PostId::at(post as usize));
        } else if whole {
            let (handler, color) = named(recording, id);
            let begin_ns = recording.events[event].begin_ns;
            return Err(Error::NeverPosted {
                handler,
                color,
                begin_ns,
            });
        }
    }
    Ok(())
}

/// What an event is called.
fn named(recording: &Recording, event: EventId) -> (String, String) {
    let event = &recording[event];
    let handler = printable(&recording[event.handler].name);
    (handler, recording[event.color].to_string())
}

/// The event that posted this one.
fn parent(recording: &Recording, event: &Event) -> Option<EventId> {
    match recording[event.cause?].by {
        By::Event(parent) => Some(parent),
        By::Core(_) | By::Outside(_) => None,
    }
}

/// Whoever goes from an event to the one that posted it comes to an end.
fn look_for_circles(recording: &Recording) -> Result<(), Error> {
    // The walk that came by, from 1.
    let mut seen = vec![0u32; recording.events.len()];
    for walk in 1..=recording.events.len() as u32 {
        let mut next = Some(EventId::at(walk as usize - 1));
        while let Some(id) = next {
            let before = std::mem::replace(&mut seen[id.index()], walk);
            if before == walk {
                let (handler, color) = named(recording, id);
                return Err(Error::Circle { handler, color });
            }
            if before != 0 {
                break;
            }
            next = parent(recording, &recording[id]);
        }
    }
    Ok(())
}

fn look_at_clocks(recording: &Recording) -> Result<(), Error> {
    for (place, event) in recording.events.iter().enumerate() {
        let Some(cause) = event.cause else { continue };
        let by_ns = recording[cause].earliest_ns.saturating_sub(event.begin_ns);
        if by_ns > CLOCKS_APART_NS {
            let (handler, color) = named(recording, EventId::at(place));
            return Err(Error::BeforeItsPost {
                handler,
                color,
                by_ns,
            });
        }
    }
    Ok(())
}

/// Marks the posts that name their color first.
fn find_fresh(recording: &mut Recording) {
    let mut known = vec![false; recording.colors.len()];
    let mut order: Vec<u32> = (0..recording.posts.len() as u32).collect();
    order.sort_by_key(|&place| recording.posts[place as usize].at_ns);
    for place in order {
        let post: &mut Post = &mut recording.posts[place as usize];
        let before = std::mem::replace(&mut known[post.color.index()], true);
        if !before && post.relation == Relation::Other {
            post.relation = Relation::Fresh;
        }
    }
}
