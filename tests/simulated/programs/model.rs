//! The reference: a map from color to FIFO, and for each event what had happened before its post.
//!
//! An event may begin if no other of its color runs, and if no event is still queued in its color
//! whose post happened before its own: through program order inside events, through posts, or
//! through succession in a color. A poster's events are in order by that alone.
//!
//! An event of several colors is one in each of them, all of which begin and end at once. Of those
//! that read, several of a color may run, and begin in any order.
//!
//! A hold has a *place*: that of the event that took it, and its own number behind that. The place
//! of an event through a hold, or of its last, is the hold's; that of any other event is empty. Of
//! the holds of a color the one with the first place is due, where a place comes after all that
//! begin with it.

use mely::Color;
use std::collections::BTreeMap;

/// The number of an event, in the order of posts.
pub(crate) type Id = usize;

/// The number of a hold, in the order in which they were made.
pub(crate) type HoldId = usize;

/// How an event comes to its color.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Posted,
    /// Posted too, and reads.
    Reads,
    /// Posted when it fires: in no order with posts.
    Timer,
    /// What a reply or blocking work gives: in no order with posts either.
    Result,
    /// Through a hold: before what waits.
    Through(HoldId),
    /// A hold's last.
    Last(HoldId),
    /// Ends a hold, if nothing else has.
    Deadline(HoldId),
}

/// State of a hold.
#[derive(Debug)]
struct Held {
    color: Color,
    place: Vec<HoldId>,
    /// It is out for sure.
    out: bool,
    /// It was dropped: at some moment since it is over.
    let_go: bool,
    /// Its deadline has ended it: its last event is dropped.
    ended_late: bool,
}

/// A set of events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known(Vec<u64>);

impl Known {
    fn insert(&mut self, id: Id) {
        if self.0.len() <= id / 64 {
            self.0.resize(id / 64 + 1, 0);
        }
        self.0[id / 64] |= 1 << (id % 64);
    }

    fn contains(&self, id: Id) -> bool {
        self.0
            .get(id / 64)
            .is_some_and(|word| word >> (id % 64) & 1 != 0)
    }

    fn join(&mut self, other: &Known) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (word, more) in self.0.iter_mut().zip(&other.0) {
            *word |= more;
        }
    }
}

/// How far an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// On its way into the runtime.
    Offered,
    /// Given back, or dropped by a post that panicked.
    Refused,
    Queued,
    Running,
    Ran,
    /// Dropped without having run.
    Dropped,
}

#[derive(Debug)]
struct Event {
    color: Color,
    /// What happened before: its post's, and once it runs, its own.
    known: Known,
    state: State,
    way: Way,
    /// By its own color, before it ran.
    canceled: bool,
    /// Canceled by somebody.
    may_not_fire: bool,
    /// The bound that counts it.
    bound: Option<usize>,
}

/// What is known of a bounded color.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) events_max: usize,
    pub(crate) depth_max: Option<usize>,
    /// Its events that were accepted and have not begun.
    queued: usize,
    pub(crate) shed: u64,
    pub(crate) refused: u64,
}

impl Bound {
    pub(crate) fn new(events_max: usize, depth_max: Option<usize>) -> Bound {
        Bound {
            events_max,
            depth_max,
            queued: 0,
            shed: 0,
            refused: 0,
        }
    }
}

/// See the module text.
#[derive(Debug, Default)]
pub(crate) struct Model {
    events: Vec<Event>,
    /// Accepted and not begun, in the order of posts.
    fifos: BTreeMap<Color, Vec<Id>>,
    /// What the latest event of a color that was no reader knew when it ended.
    ends: BTreeMap<Color, Known>,
    /// What the readers since then knew. The next reader need not know it: they may overlap.
    read_ends: BTreeMap<Color, Known>,
    running: BTreeMap<Color, Id>,
    reading: BTreeMap<Color, Vec<Id>>,
    /// All that were made.
    holds: Vec<Held>,
    /// Events of the runtime's own, at most, for those of several colors.
    pub(crate) for_several: u64,
    pub(crate) bounds: Vec<Bound>,
    outside: Known,
    pub(crate) panics: u64,
    /// The first event of the run, whose panic ends the run in any case; and whether it did.
    pub(crate) start: Option<Id>,
    pub(crate) start_panicked: bool,
    /// The program has asked for the end: timers need not fire.
    pub(crate) stopped: bool,
    /// The first promise that was not kept.
    pub(crate) broken: Option<String>,
}

impl Model {
    pub(crate) fn fail(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    /// The event `by`, or somebody outside, is about to post.
    pub(crate) fn offer(&mut self, by: Option<Id>, color: Color, way: Way) -> Id {
        let known = match by {
            Some(by) => self.events[by].known.clone(),
            None => self.outside.clone(),
        };
        self.events.push(Event {
            color,
            known,
            state: State::Offered,
            way,
            canceled: false,
            may_not_fire: false,
            bound: None,
        });
        self.events.len() - 1
    }

    /// The post was accepted.
    pub(crate) fn accept(&mut self, by: Option<Id>, id: Id) {
        let event = &mut self.events[id];
        if event.state != State::Offered {
            let state = event.state;
            return self.fail(format!(
                "event {id} is {state:?} before its post has returned"
            ));
        }
        event.state = State::Queued;
        if !matches!(event.way, Way::Posted | Way::Reads) {
            return;
        }
        self.fifos.entry(event.color).or_default().push(id);
        match by {
            Some(by) => self.events[by].known.insert(id),
            None => self.outside.insert(id),
        }
    }

    /// The post was accepted by this bound.
    pub(crate) fn accept_bounded(&mut self, by: Option<Id>, id: Id, which: usize) {
        self.events[id].bound = Some(which);
        let bound = &mut self.bounds[which];
        bound.queued += 1;
        if bound.queued > bound.events_max {
            let (queued, max) = (bound.queued, bound.events_max);
            self.fail(format!("{queued} events wait where {max} may"));
        }
        self.accept(by, id);
    }

    /// The turn of an event comes, which is shed or not.
    fn judge_shed(&mut self, id: Id, shed: bool) {
        let Some(which) = self.events[id].bound else {
            return;
        };
        let bound = &mut self.bounds[which];
        bound.queued -= 1;
        bound.shed += u64::from(shed);
        let behind = bound.queued;
        if shed != bound.depth_max.is_some_and(|max| behind > max) {
            let what = if shed { "is" } else { "is not" };
            self.fail(format!("event {id} {what} shed with {behind} behind it"));
        }
    }

    /// The event is shed, in its turn.
    pub(crate) fn shed(&mut self, id: Id, color: Color) {
        self.judge_shed(id, true);
        self.events[id].bound = None;
        self.begin(id, color);
        self.end(id, false);
    }

    /// The event begins, in an event of this color.
    pub(crate) fn begin(&mut self, id: Id, color: Color) {
        let Event {
            color: its,
            state,
            way,
            canceled,
            ..
        } = self.events[id];
        self.judge_shed(id, false);
        if state != State::Queued {
            self.fail(format!("event {id} begins and is {state:?}"));
        }
        if its != color {
            self.fail(format!("event {id} of color {its} runs as color {color}"));
        }
        if canceled {
            self.fail(format!("{way:?} {id} runs though it was canceled"));
        }
        self.judge_hold(id, color, way);
        let alone = way != Way::Reads;
        let reading = self.reading.entry(color).or_default();
        let other = match reading.first() {
            Some(&reader) if alone => Some(reader),
            _ => self.running.get(&color).copied(),
        };
        if alone {
            self.running.insert(color, id);
        } else {
            reading.push(id);
        }
        if let Some(other) = other {
            self.fail(format!("events {other} and {id} of color {color} overlap"));
        }
        let fifo = self.fifos.entry(color).or_default();
        fifo.retain(|&queued| queued != id);
        let known = &self.events[id].known;
        let goes_first = |&&queued: &&Id| {
            known.contains(queued) && (alone || self.events[queued].way != Way::Reads)
        };
        if let Some(&before) = fifo.iter().find(goes_first)
            && matches!(way, Way::Posted | Way::Reads)
        {
            self.fail(format!(
                "event {id} of color {color} runs before event {before}, whose post came before its own"
            ));
        }
        if let Some(end) = self.ends.get(&color) {
            self.events[id].known.join(end);
        }
        if alone && let Some(end) = self.read_ends.remove(&color) {
            self.events[id].known.join(&end);
        }
        self.events[id].known.insert(id);
        self.events[id].state = State::Running;
    }

    /// The hold of a color that ends before all others that are out for sure.
    fn due(&self, color: Color) -> Option<HoldId> {
        let out = |&id: &HoldId| self.holds[id].out && self.holds[id].color == color;
        let key = |&id: &HoldId| {
            let place = self.holds[id].place.iter().copied();
            place.chain([HoldId::MAX]).collect::<Vec<_>>()
        };
        (0..self.holds.len()).filter(out).min_by_key(key)
    }

    /// Whether the event may begin though its color is held.
    fn judge_hold(&mut self, id: Id, color: Color, way: Way) {
        let due = self.due(color);
        let its = match way {
            Way::Posted | Way::Reads | Way::Timer | Way::Result => None,
            Way::Through(its) | Way::Last(its) | Way::Deadline(its) => Some(its),
        };
        let ends = matches!(way, Way::Last(_) | Way::Deadline(_));
        match its.map(|its| (its, &mut self.holds[its])) {
            Some((its, hold)) if hold.out => {
                hold.out = !ends;
                hold.ended_late = matches!(way, Way::Deadline(_));
                if let Some(due) = due.filter(|&due| due != its) {
                    self.fail(format!(
                        "event {id} through hold {its} begins before hold {due} is over"
                    ));
                }
            }
            Some((its, _)) if ends => {
                self.fail(format!("event {id} ends hold {its}, which is over"));
            }
            // Whether it is over is not known.
            Some((_, hold)) if hold.let_go => {}
            // Its hold was over before it came: it is an event like any other.
            _ => {
                if let Some(due) = due {
                    self.fail(format!(
                        "event {id} begins while hold {due} of color {color} is out"
                    ));
                }
            }
        }
    }

    /// The event, which runs in this color, holds it.
    pub(crate) fn hold(&mut self, by: Id, color: Color) -> HoldId {
        let id = self.holds.len();
        let mut place = match self.events[by].way {
            Way::Through(its) | Way::Last(its) | Way::Deadline(its) => {
                self.holds[its].place.clone()
            }
            _ => Vec::new(),
        };
        place.push(id);
        self.holds.push(Held {
            color,
            place,
            out: true,
            let_go: false,
            ended_late: false,
        });
        id
    }

    /// The hold is dropped: from some moment on it is out no more.
    pub(crate) fn let_go(&mut self, id: HoldId) {
        self.holds[id].out = false;
        self.holds[id].let_go = true;
    }

    /// Holds that were made.
    pub(crate) fn holds(&self) -> u64 {
        self.holds.len() as u64
    }

    /// The event ends, by a panic or not.
    pub(crate) fn end(&mut self, id: Id, panicked: bool) {
        let event = &mut self.events[id];
        event.state = State::Ran;
        self.panics += u64::from(panicked);
        self.start_panicked |= panicked && self.start == Some(id);
        let color = event.color;
        let known = event.known.clone();
        let reading = self.reading.entry(color).or_default();
        if let Some(at) = reading.iter().position(|&reader| reader == id) {
            reading.remove(at);
            return self.read_ends.entry(color).or_default().join(&known);
        }
        self.ends.insert(color, known);
        if self.running.remove(&color) != Some(id) {
            self.fail(format!("event {id} ends and was not the one that ran"));
        }
    }

    /// Of one event in several colors: what one of its parts knows, all know.
    pub(crate) fn share(&mut self, parts: &[Id]) {
        let mut known = Known::default();
        parts
            .iter()
            .for_each(|&id| known.join(&self.events[id].known));
        for &id in parts {
            self.events[id].known = known.clone();
        }
    }

    /// The color of an event.
    pub(crate) fn color(&self, id: Id) -> Color {
        self.events[id].color
    }

    /// The timer's own color cancels it, or somebody has canceled the work.
    pub(crate) fn cancel(&mut self, id: Id) {
        self.events[id].canceled = true;
    }

    /// Somebody cancels the timer.
    pub(crate) fn may_not_fire(&mut self, id: Id) {
        self.events[id].may_not_fire = true;
    }

    /// The event has published its posts, and now tells the outside, past the runtime, what it
    /// knows.
    pub(crate) fn signal(&mut self, id: Id) {
        let known = self.events[id].known.clone();
        self.outside.join(&known);
    }

    /// Events that are no posts, or were canceled.
    pub(crate) fn others(&self) -> u64 {
        let others = self.events.iter();
        let is_other = |event: &&Event| event.way != Way::Posted || event.may_not_fire;
        others.filter(is_other).count() as u64 + self.for_several
    }

    /// The event's closure is gone.
    pub(crate) fn dropped(&mut self, id: Id) {
        let event = &mut self.events[id];
        match event.state {
            State::Offered => event.state = State::Refused,
            State::Queued => {
                event.state = State::Dropped;
                let color = event.color;
                self.fifos
                    .entry(color)
                    .or_default()
                    .retain(|&queued| queued != id);
            }
            State::Ran => {}
            state => self.fail(format!("event {id} is dropped and is {state:?}")),
        }
    }

    /// Judges the whole run once everything is gone. `orderly`: it ended after draining. Returns
    /// the number of events that were accepted and not run.
    pub(crate) fn judge(&mut self, orderly: bool) -> u64 {
        let mut left = 0;
        for id in 0..self.events.len() {
            let Event {
                state,
                way,
                may_not_fire,
                canceled,
                ..
            } = self.events[id];
            match state {
                State::Ran | State::Refused => {}
                State::Dropped if way == Way::Timer && (may_not_fire || self.stopped) => {}
                State::Dropped if way == Way::Result && (canceled || may_not_fire) => {}
                State::Dropped if matches!(way, Way::Posted | Way::Through(_)) && may_not_fire => {}
                State::Dropped if matches!(way, Way::Timer | Way::Result) && !orderly => {}
                State::Dropped if matches!(way, Way::Deadline(_)) => {}
                State::Dropped if matches!(way, Way::Last(its) if self.holds[its].ended_late) => {}
                // Several of them may wait for one event.
                State::Dropped if way == Way::Reads && !orderly => {}
                State::Dropped if !orderly => left += 1,
                state => self.fail(format!("event {id} ({way:?}) is {state:?} at the end")),
            }
        }
        left
    }
}

/// Lies, one for each promise.
pub(crate) fn notices() {
    const SEVEN: Color = Color::new(7);
    const EIGHT: Color = Color::new(8);
    let two = || {
        let mut model = Model::default();
        let ids = [0, 1].map(|_| {
            let id = model.offer(None, SEVEN, Way::Posted);
            model.accept(None, id);
            id
        });
        (model, ids)
    };
    let broken = |model: Model| model.broken.expect("noticed");

    let (mut model, [_, second]) = two();
    model.begin(second, SEVEN);
    assert!(broken(model).contains("runs before event 0"));

    let (mut model, [first, second]) = two();
    model.begin(first, SEVEN);
    model.begin(second, SEVEN);
    assert!(broken(model).contains("overlap"));

    let read = |model: &mut Model| {
        let id = model.offer(None, SEVEN, Way::Reads);
        model.accept(None, id);
        id
    };
    let (mut model, [first, second]) = two();
    let readers = [read(&mut model), read(&mut model)];
    for id in [first, second] {
        model.begin(id, SEVEN);
        model.end(id, false);
    }
    model.begin(readers[1], SEVEN);
    model.begin(readers[0], SEVEN);
    assert!(model.broken.is_none(), "readers run together");
    model.end(readers[1], false);
    let writer = model.offer(None, SEVEN, Way::Posted);
    model.accept(None, writer);
    model.begin(writer, SEVEN);
    assert!(broken(model).contains("events 2 and 4 of color 7 overlap"));

    let (mut model, [first, _second]) = two();
    let reader = read(&mut model);
    model.begin(first, SEVEN);
    model.end(first, false);
    model.begin(reader, SEVEN);
    assert!(broken(model).contains("runs before event 1"));

    let (mut model, [first, _]) = two();
    model.begin(first, EIGHT);
    assert!(broken(model).contains("as color 8"));

    let (mut model, [first, _]) = two();
    model.begin(first, SEVEN);
    model.end(first, false);
    model.begin(first, SEVEN);
    assert!(broken(model).contains("is Ran"));

    let (mut model, [first, second]) = two();
    model.begin(first, SEVEN);
    model.end(first, false);
    model.dropped(second);
    assert_eq!(model.judge(false), 1);
    assert_eq!(model.judge(true), 0);
    assert!(broken(model).contains("is Dropped at the end"));

    // Cause and effect over a third color: 0 posts to 7, then to 8, whose event posts to 7.
    let mut model = Model::default();
    let cause = model.offer(None, SEVEN, Way::Posted);
    model.accept(None, cause);
    let relay = model.offer(None, EIGHT, Way::Posted);
    model.accept(None, relay);
    model.begin(relay, EIGHT);
    let effect = model.offer(Some(relay), SEVEN, Way::Posted);
    model.accept(Some(relay), effect);
    model.end(relay, false);
    model.begin(effect, SEVEN);
    assert!(broken(model).contains("runs before event 0"));

    let (mut model, [first, second]) = two();
    model.begin(first, SEVEN);
    model.hold(first, SEVEN);
    model.end(first, false);
    model.begin(second, SEVEN);
    assert!(broken(model).contains("while hold 0 of color 7 is out"));

    // An event that takes two holds, and one through the first that takes two more; and events
    // through all of them.
    let nested = || {
        let (mut model, [first, _]) = two();
        let offer = |model: &mut Model, way| {
            let id = model.offer(None, SEVEN, way);
            model.accept(None, id);
            id
        };
        model.begin(first, SEVEN);
        let [a, b] = [(); 2].map(|()| model.hold(first, SEVEN));
        model.end(first, false);
        let through = offer(&mut model, Way::Through(a));
        model.begin(through, SEVEN);
        let [c, d] = [(); 2].map(|()| model.hold(through, SEVEN));
        model.end(through, false);
        let lasts = [c, d, a, b].map(|hold| offer(&mut model, Way::Last(hold)));
        (model, lasts, a)
    };
    for early in 1..4 {
        let (mut model, lasts, _) = nested();
        for &id in lasts[..early - 1].iter().chain([&lasts[early]]) {
            model.begin(id, SEVEN);
            model.end(id, false);
        }
        assert!(broken(model).contains("before hold"));
    }
    let (mut model, lasts, a) = nested();
    for id in lasts {
        model.begin(id, SEVEN);
        if id == lasts[0] {
            // In its place.
            let again = model.hold(id, SEVEN);
            assert_eq!(model.due(SEVEN), Some(again));
            model.let_go(again);
        }
        model.end(id, false);
    }
    assert!(model.broken.is_none(), "they end in their order");
    let late = model.offer(None, SEVEN, Way::Deadline(a));
    model.accept(None, late);
    model.begin(late, SEVEN);
    assert!(broken(model).contains("ends hold 0, which is over"));

    let mut model = Model::default();
    let timer = model.offer(None, SEVEN, Way::Timer);
    model.accept(None, timer);
    model.cancel(timer);
    model.begin(timer, SEVEN);
    assert!(broken(model).contains("canceled"));

    let bounded = |events_max, depth_max| {
        let mut model = Model::default();
        model.bounds.push(Bound::new(events_max, depth_max));
        let ids = [0, 1].map(|_| {
            let id = model.offer(None, SEVEN, Way::Posted);
            model.accept_bounded(None, id, 0);
            id
        });
        (model, ids)
    };
    let (model, _) = bounded(1, None);
    assert!(broken(model).contains("2 events wait where 1 may"));

    let (mut model, [first, _]) = bounded(2, Some(1));
    model.shed(first, SEVEN);
    assert!(broken(model).contains("event 0 is shed with 1 behind it"));

    let (mut model, [first, _]) = bounded(2, Some(0));
    model.begin(first, SEVEN);
    assert!(broken(model).contains("event 0 is not shed with 1 behind it"));

    let (mut model, [_, second]) = bounded(2, None);
    model.begin(second, SEVEN);
    assert!(broken(model).contains("runs before event 0"));

    // Unlike a timer, a result comes also after the stop.
    let mut model = Model::default();
    let result = model.offer(None, SEVEN, Way::Result);
    model.accept(None, result);
    model.stopped = true;
    model.dropped(result);
    model.judge(true);
    assert!(broken(model).contains("is Dropped at the end"));
}
