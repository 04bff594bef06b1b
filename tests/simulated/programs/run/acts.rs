//! What the events of a program do.

use super::{Body, LetGo, ON_PURPOSE, Running, Stage, TABLE};
use crate::programs::model::{HoldId, Id, Way};
use crate::programs::program::Act;
use mely::Reason;
use mely::sim::{self};
use mely::state::Permit;
use mely::task::{JoinError, sleep, with_cx, yield_now};
use mely::{Callback, Color, Colored, Cx, Hold, JoinHandle, Post, Rejected};
use std::panic;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

impl Body {
    pub(super) fn run(mut self, cx: &mut Cx) {
        let acts = std::mem::take(&mut self.acts);
        {
            let mut model = self.judge.model();
            match self.parts[..] {
                [] => model.begin(self.id, cx.color()),
                _ => self.each(|id| {
                    let color = model.color(id);
                    model.begin(id, color);
                }),
            }
            model.share(&self.parts);
        }
        let running = Running(&self);
        for act in acts {
            self.act(cx, act);
        }
        drop(running);
    }

    /// The same with room, which the first act takes.
    fn run_with(self, cx: &mut Cx, which: usize, room: Permit<()>) {
        *self.judge.room.lock().unwrap() = Some((which, room));
        self.run(cx);
    }

    /// It in each of its colors.
    pub(super) fn each(&self, mut f: impl FnMut(Id)) {
        match self.parts[..] {
            [] => f(self.id),
            _ => self.parts.iter().for_each(|&id| f(id)),
        }
    }

    /// Posts an event that has states of these colors, or reads them.
    fn together(&self, cx: &mut Cx, colors: Vec<u64>, reads: bool, acts: Vec<Act>) {
        let mut colors: Vec<Color> = colors.into_iter().map(Color::from).collect();
        colors.sort();
        colors.dedup();
        let way = if reads { Way::Reads } else { Way::Posted };
        let mut body = self.offer(colors[0], way, acts);
        let others = colors[1..].iter();
        let others = others.map(|&color| self.judge.model().offer(Some(self.id), color, way));
        body.parts = [body.id].into_iter().chain(others).collect();
        // In each color one that holds it, one that ends that, and one that drops the state; and
        // one that reads.
        self.judge.model().for_several += 4 * colors.len() as u64;
        let parts = body.parts.clone();
        // New ones: nobody has poisoned them.
        let states: Vec<_> = colors.iter().map(|&c| Colored::new(cx, c, ())).collect();
        let posted = if reads {
            let read = move |_: Vec<&()>, cx: &mut Cx| body.run(cx);
            cx.poster().try_read(states, read).map_err(drop)
        } else {
            let have = move |_: Vec<&mut ()>, cx: &mut Cx| body.run(cx);
            cx.poster().try_with_all(states, have).map_err(drop)
        };
        if posted.is_ok() {
            parts.into_iter().for_each(|id| self.accepted(id));
        }
    }

    fn offer(&self, color: Color, way: Way, acts: Vec<Act>) -> Body {
        self.judge.offer(Some(self.id), color, way, acts)
    }

    /// One of the holds that are out, if there are any.
    fn hold(&self, which: usize) -> Option<(HoldId, Hold)> {
        let mut holds = self.judge.holds.lock().unwrap();
        (!holds.is_empty()).then(|| {
            let at = which % holds.len();
            holds.swap_remove(at)
        })
    }

    fn accepted(&self, id: Id) {
        self.judge.model().accept(Some(self.id), id);
    }

    /// The result of blocking work comes, whatever it is.
    fn result_of(&self, cx: &Cx, color: Color, acts: Vec<Act>, work: JoinHandle<()>) {
        let body = self.offer(color, Way::Result, acts);
        self.accepted(body.id);
        let result = move |cx: &mut Cx, _| body.run(cx);
        work.then(cx, Callback::anonymous_value(color, result));
    }

    fn post(&self, cx: &mut Cx, handler: usize, color: Color, acts: Vec<Act>) {
        let body = self.offer(color, Way::Posted, acts);
        let id = body.id;
        let event = TABLE[handler].on(color, move |cx| body.run(cx));
        event.post(cx);
        self.accepted(id);
    }

    fn act(&self, cx: &mut Cx, act: Act) {
        match act {
            Act::Post(handler, color, acts) => self.post(cx, handler, color.into(), acts),
            Act::PostOwn(acts) => {
                let own = cx.color();
                self.post(cx, 0, own, acts);
            }
            Act::TryPost(color, acts) => {
                let color = Color::from(color);
                let body = self.offer(color, Way::Posted, acts);
                let id = body.id;
                match cx.try_post(color, move |cx: &mut Cx| body.run(cx)) {
                    Ok(()) => self.accepted(id),
                    Err(Rejected {
                        reason: Reason::Full,
                        value: refused,
                    }) => drop(refused),
                    Err(error) => panic!("{error}"),
                }
            }
            Act::Many(count, handler, color, ns) => {
                for i in 0..u64::from(count) {
                    let color = Color::from(color.wrapping_add(i));
                    self.post(cx, handler, color, vec![Act::Work(ns)]);
                }
            }
            Act::Unique(acts) => {
                let unique = cx.unique_color();
                let color = unique.color();
                let body = self.offer(color, Way::Posted, acts);
                let id = body.id;
                cx.post(color, move |cx| {
                    body.run(cx);
                    drop(unique);
                });
                self.accepted(id);
            }
            Act::Work(ns) => sim::work(cx, Duration::from_nanos(ns.into())),
            Act::Pause => sim::pause(cx),
            Act::Flush => {
                cx.flush();
                // What is posted from outside after this is posted after all that this event knows
                // of.
                self.judge.model().signal(self.id);
            }
            Act::Place(color, core) => cx.place(Color::from(color), core % cx.cores()),
            Act::Hurry(color) => cx.hurry(Color::from(color)),
            Act::Working(cores) => {
                let cores = 1 + cores % cx.cores();
                cx.poster()
                    .set_working_cores(cores)
                    .expect("there are as many");
            }
            Act::Timer(ns, color, acts) => {
                let color = Color::from(color);
                let body = self.offer(color, Way::Timer, acts);
                let id = body.id;
                self.accepted(id);
                let due = cx.now() + Duration::from_nanos(ns.into());
                let callback = move |cx: &mut Cx| {
                    if cx.now() < due {
                        let early = due - cx.now();
                        body.judge.model().fail(format!("{early:?} early"));
                    }
                    body.run(cx);
                };
                let callback = Callback::anonymous(color, callback);
                let timer = cx.timer(Duration::from_nanos(ns.into()), callback);
                self.judge.timers.lock().unwrap().push((id, color, timer));
            }
            Act::Cancel(which) => self.cancel(cx, which),
            Act::Hold(count) => {
                for _ in 0..count {
                    let hold = cx.hold();
                    let id = self.judge.model().hold(self.id, cx.color());
                    self.judge.holds.lock().unwrap().push((id, hold));
                }
            }
            Act::Through(which, acts) => {
                if let Some((id, hold)) = self.hold(which) {
                    let body = self.offer(hold.color(), Way::Through(id), acts);
                    let event = body.id;
                    match hold.try_post(hold.color(), move |cx| body.run(cx)) {
                        Ok(()) => self.accepted(event),
                        Err(refused) => drop(refused),
                    }
                    self.judge.holds.lock().unwrap().push((id, hold));
                }
            }
            Act::Resume(which, acts) => {
                if let Some((id, hold)) = self.hold(which) {
                    let last = self.offer(hold.color(), Way::Last(id), acts);
                    self.accepted(last.id);
                    hold.resume(move |cx| last.run(cx));
                }
            }
            Act::Deadline(which, ns, acts) => {
                if let Some((id, mut hold)) = self.hold(which) {
                    let ends = self.offer(hold.color(), Way::Deadline(id), acts);
                    self.accepted(ends.id);
                    let after = Duration::from_nanos(ns.into());
                    hold.resume_after(cx, after, move |cx| ends.run(cx));
                    self.judge.holds.lock().unwrap().push((id, hold));
                }
            }
            Act::LetGo(which) => {
                if let Some((id, hold)) = self.hold(which) {
                    self.judge.model().let_go(id);
                    drop(hold);
                }
            }
            Act::Ask(color, to, acts) => {
                let (color, to) = (Color::from(color), Color::from(to));
                let body = self.offer(color, Way::Posted, acts);
                let id = body.id;
                let asked = cx.ask(color, move |cx| {
                    body.run(cx);
                    id
                });
                self.accepted(id);
                // It comes whatever becomes of the event.
                let told = self.offer(to, Way::Result, Vec::new());
                self.accepted(told.id);
                let callback = move |cx: &mut Cx, reply| {
                    if !(reply == Ok(id) || reply == Err(JoinError::Panicked)) {
                        let what = format!("event {id} has replied {reply:?}");
                        told.judge.model().fail(what);
                    }
                    told.run(cx);
                };
                asked.then(cx, Callback::anonymous_value(to, callback));
            }
            Act::Blocking(color, acts) => {
                let color = Color::from(color);
                match cx.try_blocking(|| ()) {
                    Ok(work) if color.value().is_multiple_of(2) => {
                        self.judge.works.lock().unwrap().push((color, acts, work));
                    }
                    Ok(work) => self.result_of(cx, color, acts, work),
                    Err(Rejected {
                        reason: Reason::BlockingFull,
                        ..
                    }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            Act::CancelBlocking(which) => {
                let mut works = self.judge.works.lock().unwrap();
                if works.is_empty() {
                    return;
                }
                let at = which % works.len();
                let (color, acts, work) = works.swap_remove(at);
                drop(works);
                work.cancel();
                // Canceled or not, it comes.
                self.result_of(cx, color, acts, work);
            }
            Act::Spawn(color, stages) => {
                let color = Color::from(color);
                let (stage, future) = self.task(color, Way::Posted, Way::Result, stages);
                let id = *stage.id.lock().unwrap();
                let task = cx.spawn(color, future).cancel_on_drop();
                self.accepted(id);
                self.judge.tasks.lock().unwrap().push((stage, task));
            }
            Act::Until(stages) => {
                let hold = cx.hold();
                let id = self.judge.model().hold(self.id, cx.color());
                let way = Way::Through(id);
                let (stage, future) = self.task(cx.color(), way, way, stages);
                let over = LetGo(self.judge.clone(), id);
                self.accepted(*stage.id.lock().unwrap());
                let task = hold.until(async move {
                    future.await;
                    drop(over);
                });
                let task = task.cancel_on_drop();
                self.judge.tasks.lock().unwrap().push((stage, task));
            }
            Act::DropTask(which) => {
                let mut tasks = self.judge.tasks.lock().unwrap();
                if !tasks.is_empty() {
                    let at = which % tasks.len();
                    let (stage, task) = tasks.swap_remove(at);
                    drop(tasks);
                    stage.canceled.store(true, Ordering::Relaxed);
                    let id = *stage.id.lock().unwrap();
                    self.judge.model().may_not_fire(id);
                    drop(task);
                }
            }
            Act::Together(colors, reads, acts) => self.together(cx, colors, reads, acts),
            Act::TryBounded(which, acts) => {
                self.judge
                    .try_bounded((Some(self.id), cx), which, None, acts);
            }
            Act::OnRoom(which, color, acts) => {
                let Some(bounded) = self.judge.bounds.get(which) else {
                    return;
                };
                let color = Color::from(color);
                let body = self.offer(color, Way::Result, vec![Act::UseRoom(acts)]);
                let id = body.id;
                let on_room = move |cx: &mut Cx, room| body.run_with(cx, which, room);
                self.accepted(id);
                let joined = bounded.on_room(cx, Callback::anonymous_value(color, on_room));
                if let Err(Rejected {
                    reason: Reason::NoRoom,
                    ..
                }) = joined
                {
                    let what = format!("the line of bound {which} is said to be full");
                    self.judge.model().fail(what);
                }
            }
            Act::Reserve(which, color, acts) => {
                let Some(bounded) = self.judge.bounds.get(which).cloned() else {
                    return;
                };
                let color = Color::from(color);
                let first = self.offer(color, Way::Posted, Vec::new());
                let last = self.offer(color, Way::Result, vec![Act::UseRoom(acts)]);
                let ids = (first.id, last.id);
                let task = async move {
                    with_cx(|cx| first.run(cx));
                    let room = bounded.reserve().await;
                    with_cx(|cx| last.run_with(cx, which, room));
                };
                cx.spawn(color, task);
                self.accepted(ids.0);
                self.accepted(ids.1);
            }
            Act::UseRoom(acts) => {
                let room = self.judge.room.lock().unwrap().take();
                let (which, room) = room.expect("given to this event");
                let by = (Some(self.id), &*cx);
                self.judge.try_bounded(by, which, Some(room), acts);
            }
            Act::Poster => self.judge.kept.lock().unwrap().push(cx.strong_poster()),
            Act::Panic => panic::panic_any(ON_PURPOSE),
            Act::Stop => {
                self.judge.model().stopped = true;
                cx.stop();
            }
        }
    }

    /// A task in this color, whose polls are events of the model's. The first is offered.
    fn task(
        &self,
        color: Color,
        first: Way,
        next: Way,
        stages: Vec<(u32, Vec<Act>)>,
    ) -> (Stage, impl Future<Output = ()> + Send + 'static) {
        let mut stages = stages.into_iter();
        let acts = stages.next().map_or(Vec::new(), |(_, acts)| acts);
        let mut body = self.offer(color, first, acts);
        let stage = Stage {
            id: Arc::new(Mutex::new(body.id)),
            canceled: Arc::default(),
        };
        let (its, judge) = (stage.clone(), self.judge.clone());
        let future = async move {
            loop {
                let id = body.id;
                with_cx(|cx| body.run(cx));
                let Some((gap_ns, acts)) = stages.next() else {
                    return;
                };
                body = judge.offer(Some(id), color, next, acts);
                judge.model().accept(Some(id), body.id);
                *its.id.lock().unwrap() = body.id;
                if its.canceled.load(Ordering::Relaxed) {
                    judge.model().may_not_fire(body.id);
                }
                match gap_ns {
                    0 => yield_now().await,
                    ns => sleep(Duration::from_nanos(ns.into())).await,
                }
            }
        };
        (stage, future)
    }

    fn cancel(&self, cx: &mut Cx, which: usize) {
        let mut timers = self.judge.timers.lock().unwrap();
        if timers.is_empty() {
            return;
        }
        let at = which % timers.len();
        let (id, color, timer) = timers.swap_remove(at);
        drop(timers);
        timer.cancel(cx);
        self.judge.model().may_not_fire(id);
        if color == cx.color() {
            self.judge.model().cancel(id);
        }
    }
}
