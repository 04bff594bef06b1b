//! The scheduler of mely, explored by loom, with seeded faults that must be found. Depends on mely
//! under `--cfg loom`; nothing depends on it.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --profile loom -p mely-loom-tests
//! ```
//!
//! takes some two minutes on two cores and prints the time of each model. `LOOM_MAX_PREEMPTIONS=4`
//! explores deeper than the bounds below, for hours. Without `--cfg loom` the crate has one test,
//! which fails and says so.
//!
//! # What runs
//!
//! The code that ships. `mely::model`, which exists under `--cfg loom` only, builds small worlds
//! out of the production types: cores with an event source that completes nothing and sleeps on a
//! condition variable, 16 color slots, a clock that stands still, no spinning. Cores are loom
//! threads that call the same `drive` as a core's thread, or are stepped by hand through the same
//! `step`. What differs in the scheduler under loom is in `mely`'s `sync.rs` and marked where it is
//! used:
//! - the core lock is loom's mutex, because a spin lock multiplies the states (it has a model of
//!   its own here, in which the lock is taken by a compare-and-swap instead of a swap: loom would
//!   let a failed swap be the last word over the unlock that came after it);
//! - compare-and-swap loops begin with a guess instead of a look;
//! - a panic of an event is not caught, since it is a finding;
//! - batches of nodes and the outbox are small; loops that wait for others tell loom so;
//! - the counts of the `Arc`s that only keep things alive are not modelled. That of a `Colored` is.
//!
//! # What is checked
//!
//! By an oracle that all models share:
//! - *exactly once*: each accepted event ran, once; no payload leaked or was dropped twice;
//! - *never two of a color*, and each sees what the one before wrote: each writes one loom cell of
//!   its color at its beginning and at its end, and every node and every private part of a color is
//!   a loom cell itself;
//! - *the order of each poster, and causal order*: each event knows the posts that happened before
//!   its own, through its poster's program order and through the events that ran in its poster's
//!   color; when it runs, all of these to its color must have run;
//! - *every list consistent*, in each critical section: a color is in the core-queue of its owner
//!   and of nobody else, in the band that it is marked with, and counted once in each;
//! - *everyone parked or done*: whoever waits for an event that does not come, or for a core that
//!   does not leave, is a deadlock, which loom reports. At the end no core sleeps, and no event,
//!   mail, poke or wish is left anywhere, except where a model ends its runtime by force.
//!
//! # The models, their bounds, and the faults that each must find
//!
//! At most four loom threads. Bounds are preemptions: switches away from a thread that could go on.
//! A fault is a line of `mely` that is skipped or weakened when a test asks for it by name.
//!
//! | protocol | model | bound | faults |
//! |---|---|---|---|
//! | core lock | `spin_lock::excludes_and_publishes`: the spin lock, two threads | 3 | `unlocked without a release` |
//! | mailbox push and drain, against a steal | `post_and_steal::foreign_post`: a foreign thread posts to a color that is being stolen | 3 | `poke forwarded to nobody` |
//! | owner publication, against a steal | `post_and_steal::own_post`: the victim posts to a color while it is stolen | 3 | `owner published after the unlock` |
//! | publication alone, against a steal | `post_and_steal::published_alone`: the victim publishes what it has posted, and a color of its checkout waits for its turn | 3 | `published past the checkout` |
//! | a walk, against a steal | `post_and_steal::walked_and_given_back`: a color of the checkout is walked, given back by a flush, and stolen | 3 | `walks outlive their turns` |
//! | checkout and return, against post and thief | `post_and_return::foreign_post`: mail for a color that is on its way back, its poke consumed by a thief | 3 | `mail of a running color forgotten`; `running mark ignored` |
//! | poke and forward, against a steal | `migration::poke`: the owner changes between a poster's look and its push; the old one never looks again | 3 | `second look after a steal skipped`; `owner not read again`; `poke forwarded to nobody` |
//! | pokes of several colors | `migration::pokes_of_two_colors`: a poster takes back pokes that are not its own | 2 | `pokes of other colors lost` |
//! | pokes sent at once | `migration::pokes_at_once`: the first of two colors is stolen meanwhile | 2 | `only the last owner read again` |
//! | a takeover, against a poke | `takeover::poke`: a color of a sleeper is taken over while a foreign thread posts to it; the sleeper never looks again | 3 | `second look after a takeover skipped` |
//! | a takeover, against the sleeper | `takeover::sleeper_rises`: the sleeper was woken, and posts to the color itself | 3 | `taken over while it is out` |
//! | placement | `migration::place`: a color is placed elsewhere while it gets mail | 2 | `placed without a poke` |
//! | | `migration::place_behind_a_poke`: from outside, while mail and its poke are under way | 3 | `mark only looked at` |
//! | placement, against the outbox | `causal_order::placed_with_posts_waiting`: a color leaves a core on which its posts are not published yet | 3 | `colors leave before their posts` |
//! | | `migration::place_and_hurry`: while another thread asks for its next turn | 3 | `wish written over another`; `wish without a poke` |
//! | | `migration::place_running`: while it runs, the poke taken by a thief | 2 | `mail of a running color forgotten` |
//! | each operation on a color against each other one | `pairs::STATE_OPERATION`: a post, a placement, a wish for the next turn, a steal, a hold, its end, a retirement, an event of several colors, a reader, a takeover; with the color idle, queued, due, running, running with its poke left for the owner, held, or its owner asleep | 1 | `hurried color not looked at again` (`pairs::deferred_place`) |
//! | placement, against a steal | `migration::place_and_steal`: the same while it is stolen, on three cores | 2 | `running mark ignored` |
//! | two thieves on one victim | `stealing::two_thieves`: three colors, and what one thief links the other may find | 2 | `left in the core-queue` |
//! | band membership, batch, share-out | `stealing::batch`: two of three colors are stolen while a foreign thread posts to all, and an onlooker walks the lists | 2 | `left in its band`; `band not counted` |
//! | share-out, against park | `waking::share_out`: a thief runs one of two stolen colors, which waits for the other; a third core sleeps | 1 | `stolen colors not shared out` |
//! | outbox order, causal FIFO | `causal_order::three_parties`: cause before effect over two cores and a foreign poster | 4 | `mailbox not drained before an append`; `outbox out of order` |
//! | | `causal_order::cause_and_effect`: the effect's poster is found by somebody else's poke | 3 | `last two posts swapped` |
//! | | `causal_order::lone_post`: the same as `three_parties`, when nothing is queued for the target | 3 | `mailbox not drained before an append` |
//! | posts to colors in the checkout | `causal_order::post_to_a_kept_color`: the target is there, and has mail | 3 | `post to a kept color overtakes mail` |
//! | self-post order | `causal_order::self_post`: a thief takes the mail of a running color that its own posts have caused | 3 | `running mark ignored` |
//! | doorbell and park, one waker | `parking::post_to_parked`: poke against park | 3 | `parked stored`; `doorbell not rung` |
//! | | `parking::hint_to_parked`: hint against a would-be sleeper | 2 | `waker's fence skipped`; `sleeper's fence skipped`; `second look before parking skipped` |
//! | | `parking::post_by_a_long_handler`: a short event, posted by a long handler, against a would-be sleeper | 2 | `long handler's fence skipped` |
//! | | `parking::published_before_a_long_handler`: a short event that was published alone, and a long one behind it, against a would-be sleeper | 2 | `what is published alone is not told` |
//! | | `parking::hint_rises_again`: the same when a thief has emptied the hint before | 2 | `waker's fence skipped` |
//! | doorbell and park, two wakers | `waking::two_pokers`: two foreign threads, who share one maker of events | 2 | `earlier pokes cut off` |
//! | | `waking::poke_and_hint`: a core and a foreign thread | 1 | `awake stored` |
//! | | `parking::look_left_to_another`: the same beside two cores, of which one may search | 1 | `look left to nobody` |
//! | doorbells, shared out | `ringing::shared_out`: an event posts to two cores that sleep, and the first may ring the second | 3 | `taken and not rung` |
//! | searches, against each other | `parking::two_groups`: two cores, counted apart, end their searches at once, while work is made known | 3 | `thief's fence skipped` |
//! | park, against a steal | `parking::thief_raises_hint`: a thief makes the hint rise by linking mail | 2 | `no look after the last search`; `thief's fence skipped` |
//! | | `parking::nudge`: a thief links mail of a victim that goes to sleep | 3 | `nudge forgotten` |
//! | | `parking::forwarded_poke`: a thief that finds nothing forwards a poke to a sleeper | 1 | `doorbells not rung after a search in vain` |
//! | park, against a long handler | `parking::rescue`: a post to a core that enters one | 1 | `nobody sent to the rescue`; `no look before a long handler`; `plain look before a long handler` |
//! | work, against the watchdog's sleep | `watchdog::becomes_busy`: a core becomes busy while the watchdog goes to sleep | 4 | `busy core's fence skipped`; `watchdog's fence skipped` |
//! | ring wake | `event_source::completion_and_poke`: a completion wakes a core, and a foreign post does | 2 | `awake stored` |
//! | timer wake | `event_source::timer_and_poke`: a timer does, and a foreign post | 2 | `awake stored` |
//! | ring, against the end | `event_source::end`: an operation is under way when nothing else is left | 3 | `event source not asked` |
//! | completion, against a long event | `sources::brought_out`: something completes for a core inside a long event, against a would-be sleeper, which has to visit | 2 | `no visits`; `sleeper has nobody watched`; `watched core's fence skipped` |
//! | visit, against a look | `sources::visited_first`: a visitor takes the first of two completions, and their core the second | 3 | `visit let go before published` |
//! | | `sources::looked_at_first`: the other way round | 3 | `let go before published` |
//! | shutdown | `shutdown::stop`: foreign posts against a request to stop | 3 | `stop not looked at`; `fence before waking all skipped` |
//! | | `shutdown::exit_when_idle`: foreign posts against an end by itself | 3 | `stopped without comparing` |
//! | drain | `shutdown::drain`: two cores post to each other while the end is decided | 3 | `rests while it runs` |
//! | | `shutdown::two_last_to_rest`: two of five cores are the last to rest | 3 | `resting core's fence skipped` |
//! | | `shutdown::last_to_rest`: the last of five cores begins to rest while a post wakes the first, which posts to the second | 3 | `one look at who rests` |
//! | | `shutdown::last_to_drain`: the last of five cores asks for the end, and the others rest since before that | 3 | `rests undrained` |
//! | | `shutdown::stop_and_rest`: the last of five cores begins to rest while another one asks for the end | 3 | `rests undrained` |
//! | stages of the end | `shutdown::two_end_a_stage`: two of five cores are the last to rest in a stage | 3 | `stage ended twice` |
//! | | `shutdown::follow_and_rest`: a stage begins while five cores rest, and one of them rests again before the others follow | 3 | `rests undrained` |
//! | | `shutdown::all_stages`: two cores go through all stages | 1 | `nobody woken at a stage` |
//! | | `shutdown::three_cores`: three cores do | 1 | `only one woken` |
//! | hold, against the end | `holds::resume_and_stop`: a hold and one taken through it are resumed by two threads while a third asks for the end | 2 | `hold not counted`; `nested hold behind the outer one` |
//! | holds, against each other | `holds::resume_in_the_opposite_order`: two holds of one event are resumed by two threads, the second first | 3 | `hold before its siblings`; `hold ends before its turn` |
//! | hold, against a steal | `holds::resume_and_steal`: a held color is posted to, stolen and resumed | 3 | `profiles not marked`; `new profile not marked` |
//! | | `holds::drop_and_hold_again`: dropped outside; the first that waited holds again | 2 | `put aside again behind the others` |
//! | wake, against a poll and the end | `tasks::wake_and_stop`: a task is woken by a foreign thread while it is polled and the end is asked for | 3 | `task not counted`; `wake during a poll forgotten`; `wake only looks` |
//! | wake, against a steal | `tasks::wake_and_steal`: the same while its color is stolen | 2 | `wake during a poll forgotten` |
//! | | `tasks::drop_and_wake`: canceled by one thread, woken by another | 2 | `cancel during a poll forgotten` |
//! | cancel, against settle and take | `joins::cancel_take_and_drop`: a handle is canceled, asked for its result and dropped, while the event begins | 3 | `canceled before the closure is dropped` |
//! | | `joins::cancel_joined`: two that are joined are canceled and waited for | 2 | `cancel forgets the waiter` |
//! | await, against settle | `joins::await_and_settle`: a task polls the handle on one core while the event settles it on another | 4 | `polled without a second look` |
//! | retirement, against a post | `working::retire_and_post`: a core is being retired while a foreign thread posts to its color | 3 | `passed on without a poke` |
//! | retirement, against a steal | `working::retire_and_steal`: the same while the color is stolen, and the core itself has posted to it | 2 | `owner published after the unlock` |
//! | retirement, against a search | `working::retire_and_search`: a core that searches is retired, and another one had gone to sleep because of its search | 1 | `who retires leaves its search to nobody` |
//! | work again, against park | `working::work_again`: a retired core is to work again while it goes to sleep | 2 | `sleeps through a change`; `nobody woken to work` |
//! | several colors at once | `together::opposite_orders`: two cores and a foreign thread post to the same two colors, in opposite orders | 2 | `places taken one by one`; `own mail not appended first` |
//! | | `together::posts_before`: an event of one of the colors posts to the other, and then both do | 2 | `mail left behind by the last` |
//! | readers, against each other | `readers::join_and_leave`: a state is read on one core while one more comes on the other, and a writer | 2 | `reader joins after the last`; `value kept by a reader that goes` |
//! | readers, against a writer | `readers::behind_a_writer`: a writer of two states that are read, and a reader behind it | 2 | `reader before who waits`; `reader beside a hold` |
//! | readers and a writer, against a steal | `readers::stolen`: a state is read, written and read again while its color is stolen | 1 | `reader before who waits` |
//! | an end that waits | `keep_alive::post_and_drop`: a foreign thread posts through the only keep-alive and drops it, while the end is asked for | 3 | `keep-alive not looked at`; `nobody woken at the end`; `last keep-alive decides nothing` |
//! | | `keep_alive::drop_against_stop`: the only keep-alive is dropped while another thread asks for the end | 3 | `last keep-alive's fence skipped`; `resting core's fence skipped` |
//! | | `keep_alive::drop_and_post`: a foreign thread drops the only one, and decides, while another one posts | 3 | `stopped without comparing` |
//! | | `keep_alive::made_outside`: a foreign thread makes one, and posts through it, while a runtime ends by itself | 3 | `kept without the lock` |
//! | | `keep_alive::made_inside`: an event on one core gives one to a foreign thread, while two cores drain | 2 | `keep-alive not looked at` |
//! | permits of a bounded color | `bounded::two_posters`: two foreign threads take the last one | 3 | `permit looked at and not taken` |
//! | the line for room, against a beginning | `bounded::wait_and_begin`: a foreign thread finds no room and waits, while the last event begins | 2 | `line not looked at`; `waits without a second look` |
//! | | `bounded::register_and_give_back`: an event registers, while a foreign thread gives a permit back | 3 | `line not looked at`; `waits without a second look` |
//! | | `bounded::leave_and_give_back`: one who waits gives up, while a permit is given to it; another one waits behind it | 3 | `permit of who has left is lost` |
//! | the line for room, against the end | `bounded::wait_and_stop`: a foreign thread waits while the end is asked for | 3 | `stop wakes nobody who waits for room` |
//! | | `bounded::wait_and_force`: a foreign thread waits while the run is cut short | 3 | `force wakes nobody who waits for room` |
//! | | `bounded::wait_and_end`: a foreign thread waits while the runtime ends by itself | 2 | `end wakes nobody who waits for room` |
//! | room, against the outbox | `bounded::post_and_give_back`: an event posts and the next one makes room, for which a foreign thread waits, and posts | 2 | `room before what was posted` |
//! | `Colored<T>`, last drop against a post | `colored::last_drop` | 2 | `state dropped in place` |
//! | slot reuse of unique colors | `unique_colors::slot_reuse`: given back, stolen and given out at once | 2 | `generation kept`; `given out twice` |
//! | nodes through the depot, one maker of several foreign threads | `nodes::through_the_depot`: a core spills while two foreign threads refill | 2 | `spilled and kept` |
//! | registration of handlers | `profiles::two_register`: two cores post under a handler new to both, a third thread lists | 2 | `registered anew`; `registered before it is there` |
//!
//! A model that cannot fail proves nothing: each fault is found by a test of its own, in a process
//! of its own, and that test passes only if the model fails, and with the right complaint. Each
//! model asserts how many executions it has explored. And a test compares this table, the faults in
//! `mely` and those that are asked for.
//!
//! # What is not modelled, and what covers it
//!
//! - More than three colors or a dozen events on the way, more than three cores at work, long
//!   batches, costs that change: the stress tests in mely's `tests/`.
//! - The kernel's side of the real event sources, and that a ring is never lost there: the contract
//!   suite in `src/io/tests/`. Here a condition variable stands for the kernel, and a model's
//!   thread for what completes. The return of receive buffers from other threads (`src/io/pool.rs`)
//!   is covered there too.
//! - The order of timers, connections and what completions become: tests of `net`.
//! - Panics, deadlines, `run` and the threads around it: tests of the public face.
//! - Raw pointers: loom sees the cells that they lead to, not their lifetimes; that is miri's. What
//!   a profile says is behind such a pointer, and no cell.
//! - Orders weaker than loom models: it treats `SeqCst` loads and stores as acquire and release (we
//!   have only fences), and does not know of consume or of out-of-thin-air values.
//! - Statistics, estimates and measured costs: `sync::relaxed`, no protocol.
//! - Preemption bounds make an exploration incomplete, and loom's reduction under a bound may miss
//!   executions within it: the seeded faults say what a bound is good for.
//!
//! # Mutations by hand
//!
//! Weaker orders of memory that a model must notice are patches in `checks/mutants/`, which its
//! `run` tries. Besides, these changes were tried once, each by itself, with most of the models,
//! the cheap ones first:
//!
//! | file | change | first model that failed |
//! |---|---|---|
//! | `mail.rs` | draining drops the poke's mark | `causal_order::lone_post` |
//! | `section.rs` | a grown color's time is not added to its core's | `migration::poke` |
//! | `section.rs` | the new head of the core-queue keeps its back link | `waking::share_out` |
//! | `steal.rs` | the victim's hint is not published after a steal | `parking::nudge` |
//! | `steal.rs` | who may not search stays counted as searching | `parking::thief_raises_hint` |
//! | `core.rs` | a hint that rises wakes nobody | `parking::hint_rises_again` |
//! | `sleepers.rs` | the bit of a sleeper stays set | `event_source::end` |
//! | `shared.rs` | a long handler is not announced | `parking::rescue` |
//! | `lock.rs` | the lock is taken without an acquire | `spin_lock::excludes_and_publishes` |

#[cfg(loom)]
mod explore;
#[cfg(loom)]
mod oracle;

#[cfg(loom)]
pub use explore::{Model, must_fail};
#[cfg(loom)]
pub use oracle::{Event, Oracle, Payload};
