//! Circles: modules that lead to each other, and the arrows that close a circle.

use crate::house::Arrows;
use std::collections::{BTreeMap, BTreeSet};

/// Modules by their layer, 0 the lowest.
pub(crate) type Layers = BTreeMap<String, usize>;

/// The modules that a module leads to, over any number of arrows.
pub(crate) fn reached(arrows: &Arrows, from: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from.to_owned()];
    while let Some(module) = open.pop() {
        for (_, to) in arrows.keys().filter(|(from, _)| *from == module) {
            if reached.insert(to.clone()) {
                open.push(to.clone());
            }
        }
    }
    reached
}

/// The circles, largest first: the strongly connected components of more than one module.
pub(crate) fn circles(arrows: &Arrows) -> Vec<BTreeSet<String>> {
    let modules = arrows.keys().map(|(from, _)| from).collect::<BTreeSet<_>>();
    let circles = modules.into_iter().map(|module| {
        let mut circle = reached(arrows, module);
        circle.retain(|other| reached(arrows, other).contains(module));
        circle
    });
    let circles = circles.filter(|circle| circle.len() > 1);
    let mut circles = circles
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect::<Vec<_>>();
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

/// The arrows that close a circle: those that go up in an order of its modules, lowest first. The
/// layers give the order. Within a layer the next module is the one that names the rest in the
/// fewest places, minus the places where the rest names it.
pub(crate) fn closing(circle: &BTreeSet<String>, arrows: &Arrows, layers: &Layers) -> Arrows {
    let mut inside = arrows.clone();
    inside.retain(|(from, to), _| circle.contains(from) && circle.contains(to));
    let mut order = Vec::new();
    let mut left = circle.clone();
    while let Some(lowest) = left.iter().min_by_key(|module| {
        let places = inside.iter().map(|((from, to), places)| {
            let other_left = left.contains(from) && left.contains(to);
            let sign = i64::from(from == *module) - i64::from(to == *module);
            if other_left {
                sign * places.len() as i64
            } else {
                0
            }
        });
        (layers.get(*module), places.sum::<i64>())
    }) {
        let lowest = lowest.clone();
        left.remove(&lowest);
        order.push(lowest);
    }
    let rank = |module: &String| order.iter().position(|other| other == module);
    inside.retain(|(from, to), _| rank(from) < rank(to));
    inside
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::Place;

    /// Arrows like "a b 3": from a to b, in 3 places.
    fn arrows(lines: &[&str]) -> Arrows {
        let arrows = lines.iter().map(|line| {
            let parts = line.split(' ').collect::<Vec<_>>();
            let place = |line| Place {
                file: parts[0].to_owned(),
                line,
            };
            let places = (1..=parts[2].parse().unwrap()).map(place).collect();
            ((parts[0].to_owned(), parts[1].to_owned()), places)
        });
        arrows.collect()
    }

    fn names(arrows: &Arrows) -> Vec<String> {
        arrows
            .keys()
            .map(|(from, to)| format!("{from} {to}"))
            .collect()
    }

    #[test]
    fn circles_are_found_and_what_hangs_on_them_is_not_in_them() {
        let arrows = arrows(&[
            "a b 1", "b c 1", "c a 1", "c d 1", "d e 1", "e d 1", "x a 1", "e y 1",
        ]);
        let found = circles(&arrows);
        let found = found
            .iter()
            .map(|circle| circle.iter().cloned().collect::<String>());
        assert_eq!(found.collect::<Vec<_>>(), ["abc", "de"]);
    }

    #[test]
    fn the_arrow_with_the_fewest_places_closes_a_circle_unless_layers_say_else() {
        let arrows = arrows(&["a b 3", "b c 3", "c a 1", "c d 1"]);
        let circle = &circles(&arrows)[0];
        assert_eq!(names(&closing(circle, &arrows, &Layers::new())), ["c a"]);
        let layers = Layers::from([("a".into(), 0), ("c".into(), 1), ("b".into(), 2)]);
        assert_eq!(names(&closing(circle, &arrows, &layers)), ["a b"]);
    }
}
