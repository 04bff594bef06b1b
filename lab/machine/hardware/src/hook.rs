//! What mely tells a machine of the running core, handed to the world of the run.

use crate::costs::{Ps, ps};
use crate::memory::Kind;
use crate::run::{CHARGES, charge, look};
use crate::world::{Flow, OUTSIDE, World};
use mely::sim::machine::charge::{Access, Hook, Part};

/// The run of this thread, if there is one.
#[derive(Debug)]
pub(crate) struct ThisThread;

impl Hook for ThisThread {
    #[inline]
    fn is_charged(&self) -> bool {
        CHARGES.get()
    }

    fn set_charged(&self, charged: bool) -> bool {
        CHARGES.replace(charged)
    }

    #[inline]
    fn access(&self, address: usize, access: Access) {
        let kind = match access {
            Access::Load => Kind::Load,
            Access::Reach => Kind::Reach,
            Access::Follow => Kind::Follow,
            Access::Store => Kind::Store,
            Access::Rmw => Kind::Rmw,
        };
        charge(|world| world.access(address, kind));
    }

    fn prefetch(&self, address: usize, to_write: bool) {
        charge(|world| world.prefetch(address, to_write));
    }

    fn fence(&self) {
        charge(World::fence);
    }

    fn unlock(&self, address: usize, release: &mut dyn FnMut()) {
        charge(|world| {
            let flow = world.unlock(address);
            if flow != Flow::Again {
                release();
            }
            flow
        });
    }

    fn wait_for_lock(&self, address: usize, asleep: bool, is_free: &dyn Fn() -> bool) {
        if !CHARGES.get() {
            return;
        }
        assert!(
            !std::thread::panicking(),
            "a core that unwinds waits for a lock, and cannot be left"
        );
        // It may have been released since the caller looked, who would then wait for nobody.
        charge(|world| {
            if is_free() {
                Flow::Go
            } else {
                world.wait_for_lock(address, asleep)
            }
        });
    }

    fn spend(&self, on: Part) {
        charge(|world| {
            let takes = takes(world, on);
            world.spend(takes)
        });
    }

    fn work(&self, ns: f64) {
        charge(|world| world.work(ps(ns)));
    }

    fn read_clock(&self) {
        charge(World::read_clock);
    }

    fn now_ns(&self) -> Option<u64> {
        look(|world| world.now_of(world.current) / 1000)
    }

    fn pause(&self, pauses: u32) {
        charge(|world| world.pause(pauses));
    }

    fn idle(&self, pauses: u32, at_hand: [usize; 2], until_ns: u64) {
        charge(|world| world.idle(pauses, &at_hand, until_ns.saturating_mul(1000)));
    }

    fn sleep(&self, until_ns: Option<u64>) {
        charge(|world| world.sleep(until_ns.map(|ns| ns.saturating_mul(1000))));
    }

    fn wake(&self, core: usize) {
        if CHARGES.get() {
            charge(|world| world.wake(core));
        } else {
            let _ = look(|world| {
                let flow = world.wake(core);
                debug_assert!(world.current != OUTSIDE || flow == Flow::Go);
            });
        }
    }

    fn announce(&self, core: usize, at_ns: u64) {
        look(|world| world.announce(core, at_ns.saturating_mul(1000)));
    }

    fn name(&self, address: usize, bytes: usize, region: &str, index: Option<usize>) {
        look(|world| {
            let index = match index {
                Some(index) => index as u32,
                None => world.names.next_index(region),
            };
            world.names.name(address, bytes, region, index);
            let lines = world.names.len();
            world.memory.grow(lines);
        });
    }
}

fn takes(world: &World, on: Part) -> Ps {
    let costs = &world.memory.costs;
    match on {
        Part::Post => costs.post,
        Part::Run => costs.run,
        Part::Send => costs.send,
        Part::Turn => costs.turn,
        Part::Queue => costs.queue,
        Part::Step => costs.step,
    }
}
