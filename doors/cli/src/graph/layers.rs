//! The layer of each box, and the order of the boxes in a layer. An arrow leads from a layer to a
//! later one: the layer of a box is the length of the longest path to it. An arrow over several
//! layers has a waypoint in each layer between. The order follows barycentres: a box stands near
//! the average place of its neighbours, so that few arrows cross.

use std::collections::{BTreeMap, BTreeSet};

/// Sweeps over all layers that look for an order with fewer crossings.
const SWEEPS: usize = 8;
/// Waypoints of all arrows. Further arrows over several layers go straight.
const MAX_WAYPOINTS: usize = 4000;

/// What stands in a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LayerItem {
    /// The box of a template, by its index.
    Template(usize),
    /// A waypoint, by its number.
    Waypoint(usize),
}

/// Boxes and waypoints in layers, and the stops of each arrow.
pub(super) struct Layers {
    /// The stops of each layer, from top to bottom.
    pub layers: Vec<Vec<LayerItem>>,
    /// For each arrow, the stops from its first box to its last one.
    pub paths: Vec<Vec<LayerItem>>,
}

impl Layers {
    /// The layers of `boxes` boxes with these arrows, each from a box to a box.
    pub(super) fn of(boxes: usize, arrows: &[(usize, usize)]) -> Self {
        let depths = depths(boxes, arrows);
        let mut layers = vec![Vec::new(); depths.iter().max().map_or(0, |depth| depth + 1)];
        for (index, depth) in depths.iter().enumerate() {
            layers[*depth].push(LayerItem::Template(index));
        }
        let (mut paths, mut waypoints) = (Vec::new(), 0);
        for (from, to) in arrows {
            let mut path = vec![LayerItem::Template(*from)];
            let between = depths[*from] + 1..depths[*to];
            if waypoints + between.len() <= MAX_WAYPOINTS {
                for depth in between {
                    layers[depth].push(LayerItem::Waypoint(waypoints));
                    path.push(LayerItem::Waypoint(waypoints));
                    waypoints += 1;
                }
            }
            path.push(LayerItem::Template(*to));
            paths.push(path);
        }
        let mut found = Layers { layers, paths };
        found.order();
        found
    }

    /// Puts the stops of each layer in an order in which few arrows cross.
    fn order(&mut self) {
        let steps = Steps::of(&self.paths);
        let mut best = (steps.crossings(&self.layers), self.layers.clone());
        for sweep in 0..SWEEPS {
            let count = self.layers.len();
            let forward = sweep % 2 == 0;
            for step in 1..count {
                let at = if forward { step } else { count - 1 - step };
                let beside = if forward { at - 1 } else { at + 1 };
                let places = places_of(&self.layers[beside]);
                let neighbours = if forward { &steps.before } else { &steps.after };
                let mut keyed: Vec<(f64, LayerItem)> = Vec::new();
                for (place, stop) in self.layers[at].iter().enumerate() {
                    let around: Vec<usize> = neighbours
                        .get(stop)
                        .into_iter()
                        .flatten()
                        .filter_map(|neighbour| places.get(neighbour).copied())
                        .collect();
                    let average = around.iter().sum::<usize>() as f64 / around.len() as f64;
                    keyed.push((if around.is_empty() { place as f64 } else { average }, *stop));
                }
                keyed.sort_by(|(one, _), (other, _)| one.total_cmp(other));
                self.layers[at] = keyed.into_iter().map(|(_, stop)| stop).collect();
            }
            let crossings = steps.crossings(&self.layers);
            if crossings < best.0 {
                best = (crossings, self.layers.clone());
            }
        }
        self.layers = best.1;
    }
}

/// The neighbours of stops: one step of an arrow leads from a stop to the next one.
pub(super) struct Steps {
    /// The stops from which a step leads to a stop.
    pub before: BTreeMap<LayerItem, Vec<LayerItem>>,
    /// The stops to which a step leads from a stop.
    pub after: BTreeMap<LayerItem, Vec<LayerItem>>,
}

impl Steps {
    pub(super) fn of(paths: &[Vec<LayerItem>]) -> Self {
        let mut steps = Steps { before: BTreeMap::new(), after: BTreeMap::new() };
        for pair in paths.iter().flat_map(|path| path.windows(2)) {
            steps.after.entry(pair[0]).or_default().push(pair[1]);
            steps.before.entry(pair[1]).or_default().push(pair[0]);
        }
        steps
    }

    /// How often steps between neighbouring layers cross.
    fn crossings(&self, layers: &[Vec<LayerItem>]) -> usize {
        let mut crossings = 0;
        for pair in layers.windows(2) {
            let places = places_of(&pair[1]);
            // Ends of the steps in the order of their beginnings; each inversion is a crossing.
            let mut ends: Vec<usize> = Vec::new();
            for stop in &pair[0] {
                let next = self.after.get(stop).into_iter().flatten();
                let mut here: Vec<usize> =
                    next.filter_map(|next| places.get(next).copied()).collect();
                here.sort_unstable();
                ends.extend(here);
            }
            crossings += inversions(&ends, pair[1].len());
        }
        crossings
    }
}

fn places_of(layer: &[LayerItem]) -> BTreeMap<LayerItem, usize> {
    layer.iter().enumerate().map(|(place, stop)| (*stop, place)).collect()
}

/// The number of pairs of which the first is larger. `[2, 0, 1]` has two.
fn inversions(values: &[usize], bound: usize) -> usize {
    // Counts of the values so far, in a binary indexed tree.
    let mut tree = vec![0; bound + 1];
    let mut found = 0;
    for (seen, value) in values.iter().enumerate() {
        let (mut at, mut not_larger) = (value + 1, 0);
        while at > 0 {
            not_larger += tree[at];
            at &= at - 1;
        }
        found += seen - not_larger;
        let mut at = value + 1;
        while at <= bound {
            tree[at] += 1;
            at += at & at.wrapping_neg();
        }
    }
    found
}

/// The layer of each box: the length of the longest path to it. A circle of boxes is cut at the box
/// with the smallest index. A box that reads nothing stands one layer before its first reader.
fn depths(boxes: usize, arrows: &[(usize, usize)]) -> Vec<usize> {
    let (mut before, mut after) = (vec![Vec::new(); boxes], vec![Vec::new(); boxes]);
    for (from, to) in arrows.iter().filter(|(from, to)| from != to) {
        after[*from].push(*to);
        before[*to].push(*from);
    }
    let mut missing: Vec<usize> = before.iter().map(Vec::len).collect();
    let mut left: BTreeSet<usize> = (0..boxes).collect();
    let mut ready: BTreeSet<usize> = (0..boxes).filter(|index| missing[*index] == 0).collect();
    let mut depths = vec![0; boxes];
    while let Some(next) = ready.pop_first().or_else(|| left.first().copied()) {
        if !left.remove(&next) {
            continue;
        }
        let placed = before[next].iter().filter(|producer| !left.contains(*producer));
        depths[next] = placed.map(|producer| depths[*producer] + 1).max().unwrap_or(0);
        for reader in &after[next] {
            missing[*reader] -= 1;
            if missing[*reader] == 0 {
                ready.insert(*reader);
            }
        }
    }
    for index in (0..boxes).filter(|index| before[*index].is_empty()) {
        if let Some(first) = after[index].iter().map(|reader| depths[*reader]).min() {
            depths[index] = usize::saturating_sub(first, 1);
        }
    }
    depths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_longest_paths() {
        // 0 → 1 → 2 → 3, 0 → 3, 4 → 3 alone.
        assert_eq!(depths(5, &[(0, 1), (1, 2), (2, 3), (0, 3), (4, 3)]), [0, 1, 2, 3, 2]);
        assert_eq!(depths(3, &[]), [0, 0, 0]);
        assert_eq!(depths(2, &[(0, 0), (0, 1)]), [0, 1], "a template may read of itself");
        assert_eq!(depths(3, &[(0, 1), (1, 2), (2, 0)]), [0, 1, 2], "circles are cut");
    }

    #[test]
    fn arrows_over_several_layers_have_waypoints() {
        let layers = Layers::of(4, &[(0, 1), (1, 2), (2, 3), (0, 3)]);
        assert_eq!(layers.layers.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2, 2, 1]);
        assert_eq!(
            layers.paths[3],
            [
                LayerItem::Template(0),
                LayerItem::Waypoint(0),
                LayerItem::Waypoint(1),
                LayerItem::Template(3)
            ]
        );
        let boxes = 300;
        let all: Vec<_> = (0..boxes).flat_map(|to| (0..to).map(move |from| (from, to))).collect();
        let dense = Layers::of(boxes, &all[..1500.min(all.len())]);
        let waypoints = dense.layers.iter().flatten();
        let waypoints = waypoints.filter(|stop| matches!(stop, LayerItem::Waypoint(_))).count();
        assert!(waypoints <= MAX_WAYPOINTS, "{waypoints}");
    }

    #[test]
    fn the_order_avoids_crossings() {
        assert_eq!(inversions(&[2, 0, 1], 3), 2);
        assert_eq!(inversions(&[], 0), 0);
        // Boxes 0 to 2 are read by 5, 4 and 3: as they come, all arrows cross.
        let layers = Layers::of(6, &[(0, 5), (1, 4), (2, 3)]);
        let steps = Steps::of(&layers.paths);
        assert_eq!(steps.crossings(&layers.layers), 0);
    }
}
