//! Places of boxes and waypoints: columns from left to right, each as wide as its widest box, and
//! in a column the order that `layers` has found. A box moves toward the average height of its
//! neighbours as far as the boxes beside it leave room.

use std::collections::BTreeMap;

use super::layers::{LayerItem, Layers, Steps};

/// Space between two columns, with the marks of arrows.
pub(super) const COLUMN_GAP: f64 = 130.0;
/// Space between two boxes of a column.
const ROW_GAP: f64 = 22.0;
/// Height of a waypoint.
const WAYPOINT_HEIGHT: f64 = 8.0;
/// Times that all columns are looked at.
const SWEEPS: usize = 6;

/// A rectangle: left, top, width and height.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct BoxPlace {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

impl BoxPlace {
    /// Half of its height.
    pub(super) fn middle(&self) -> f64 {
        self.y + self.height / 2.0
    }
}

/// Places of all stops, from 0 on in both directions, and width and height of all.
pub(super) struct BoxPlaces {
    pub of: BTreeMap<LayerItem, BoxPlace>,
    pub width: f64,
    pub height: f64,
}

impl BoxPlaces {
    /// Places of boxes with these widths and heights.
    pub(super) fn of(layers: &Layers, sizes: &[(f64, f64)]) -> Self {
        let mut of = BTreeMap::new();
        let mut x = 0.0;
        for layer in &layers.layers {
            let width_of = |stop: &LayerItem| match stop {
                LayerItem::Template(index) => sizes[*index].0,
                LayerItem::Waypoint(_) => 0.0,
            };
            let column = layer.iter().map(width_of).fold(0.0, f64::max);
            let mut y = 0.0;
            for stop in layer {
                let (width, height) = match stop {
                    LayerItem::Template(index) => (column, sizes[*index].1),
                    LayerItem::Waypoint(_) => (column, WAYPOINT_HEIGHT),
                };
                of.insert(*stop, BoxPlace { x, y, width, height });
                y += height + ROW_GAP;
            }
            x += column + COLUMN_GAP;
        }
        let mut places = BoxPlaces { of, width: (x - COLUMN_GAP).max(0.0), height: 0.0 };
        places.align(layers);
        places
    }

    /// Moves stops toward their neighbours, and begins at 0 again.
    fn align(&mut self, layers: &Layers) {
        let steps = Steps::of(&layers.paths);
        for sweep in 0..SWEEPS {
            let forward = sweep % 2 == 0;
            let neighbours = if forward { &steps.before } else { &steps.after };
            let count = layers.layers.len();
            for number in 0..count {
                let layer = &layers.layers[if forward { number } else { count - 1 - number }];
                self.align_column(layer, neighbours);
            }
        }
        let top = self.of.values().map(|place| place.y).fold(f64::INFINITY, f64::min);
        for place in self.of.values_mut() {
            place.y -= top;
            self.height = self.height.max(place.y + place.height);
        }
    }

    fn align_column(
        &mut self,
        layer: &[LayerItem],
        neighbours: &BTreeMap<LayerItem, Vec<LayerItem>>,
    ) {
        let wanted: Vec<f64> = layer
            .iter()
            .map(|stop| {
                let around = neighbours.get(stop).map_or(&[][..], |around| around);
                let middles: f64 = around.iter().map(|stop| self.of[stop].middle()).sum();
                match around.len() {
                    0 => self.of[stop].y,
                    count => middles / count as f64 - self.of[stop].height / 2.0,
                }
            })
            .collect();
        let (mut free, mut moved) = (f64::NEG_INFINITY, 0.0);
        let mut tops = Vec::new();
        for (stop, wanted) in layer.iter().zip(&wanted) {
            let top = wanted.max(free);
            moved += top - wanted;
            free = top + self.of[stop].height + ROW_GAP;
            tops.push(top);
        }
        // Boxes were only moved down: the column as a whole goes up by the average.
        let up = moved / layer.len().max(1) as f64;
        for (stop, top) in layer.iter().zip(tops) {
            if let Some(place) = self.of.get_mut(stop) {
                place.y = top - up;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_do_not_overlap_and_begin_at_the_corner() {
        let arrows = [(0, 3), (1, 3), (2, 3), (3, 4), (0, 4), (1, 5), (5, 6), (0, 6)];
        let layers = Layers::of(8, &arrows);
        let sizes: Vec<_> = (0..8).map(|n| (100.0 + f64::from(n), 40.0 + f64::from(n))).collect();
        let places = BoxPlaces::of(&layers, &sizes);
        let all: Vec<_> = places.of.values().collect();
        for (number, one) in all.iter().enumerate() {
            assert!(one.x >= 0.0 && one.y >= 0.0);
            assert!(one.x + one.width <= places.width && one.y + one.height <= places.height);
            for other in &all[number + 1..] {
                let apart = one.x + one.width < other.x
                    || other.x + other.width < one.x
                    || one.y + one.height < other.y
                    || other.y + other.height < one.y;
                assert!(apart, "{one:?} {other:?}");
            }
        }
        for (from, to) in arrows {
            assert!(
                places.of[&LayerItem::Template(from)].x < places.of[&LayerItem::Template(to)].x
            );
        }
    }

    #[test]
    fn a_reader_stands_beside_the_middle_of_what_it_reads() {
        let layers = Layers::of(4, &[(0, 3), (1, 3), (2, 3)]);
        let places = BoxPlaces::of(&layers, &[(100.0, 40.0); 4]);
        let middle = |index| places.of[&LayerItem::Template(index)].middle();
        assert!((middle(3) - middle(1)).abs() < 1.0, "{} {}", middle(3), middle(1));
    }
}
