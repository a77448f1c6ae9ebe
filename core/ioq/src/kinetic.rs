//! Values that fall with time, each at its own rate, in the order of their places; the least of them, and the first that is
//! low enough (a kinetic search tree, after Basch, Guibas and Hershberger 1997).
//!
//! Two lines cross once at most, so it is known until when the least of two stays that. A node of the tree knows the least
//! of its subtree and until when nothing in there changes; when time passes, only subtrees whose time has come are looked
//! at. Whatever comes or goes, and each change of the least, is repaired along one path: logarithmic, over time.
//!
//! The tree is a treap: its shape is that of random insertions, by a hash of who is in it, so the same places make the same
//! tree. Time and values are whole numbers, so nothing is rounded.

use alloc::vec::Vec;

use crate::run::{Place, Seniority, Stream};

/// A value over time: what it is at time 0, and how much it falls in a microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub at_zero: i128,
    pub fall: i128,
}

impl Line {
    /// M * Tv of requests with so many bytes, and that sum of bytes times arrival: sum of bytes * (M - (now - arrival)).
    pub fn of(bytes: u64, bytes_us: u128, patience_us: u64) -> Self {
        let fall = i128::from(bytes);
        Line { at_zero: fall * i128::from(patience_us) + bytes_us as i128, fall }
    }

    pub fn at(&self, now_us: u64) -> i128 {
        self.at_zero - i128::from(now_us) * self.fall
    }

    /// When it is 0 or less: the first microsecond.
    pub fn zero_us(&self) -> u64 {
        let up = (self.at_zero + self.fall - 1).div_euclid(self.fall.max(1));
        u64::try_from(up.max(0)).unwrap_or(u64::MAX)
    }
}

/// A place in the arena.
type Index = u32;
const NOBODY: Index = Index::MAX;

struct Node {
    place: Place,
    seniority: Seniority,
    line: Line,
    left: Index,
    right: Index,
    /// Who has the least value in its subtree, and until when, exclusively, that holds for all of the subtree.
    least: Index,
    until_us: u64,
}

pub(crate) struct Kinetic {
    nodes: Vec<Node>,
    unused: Vec<Index>,
    root: Index,
    now_us: u64,
}

impl Kinetic {
    pub fn new() -> Self {
        Kinetic { nodes: Vec::new(), unused: Vec::new(), root: NOBODY, now_us: 0 }
    }

    pub fn insert(&mut self, place: Place, seniority: Seniority, line: Line) {
        let (left, right) = (NOBODY, NOBODY);
        let node = Node { place, seniority, line, left, right, least: NOBODY, until_us: 0 };
        let new = match self.unused.pop() {
            Some(index) => {
                self.nodes[index as usize] = node;
                index
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as Index - 1
            }
        };
        self.root = self.inserted(self.root, new);
    }

    pub fn remove(&mut self, place: &Place) {
        self.root = self.removed(self.root, place);
    }

    /// Lets time pass. It never goes back.
    pub fn advance(&mut self, now_us: u64) {
        self.now_us = self.now_us.max(now_us);
        self.repair(self.root);
    }

    /// The least value now, and where it is; of equals the most senior.
    pub fn least(&self) -> Option<(Place, i128)> {
        let root = self.nodes.get(self.root as usize)?;
        Some((self.node(root.least).place, self.value(root.least)))
    }

    /// The first place of a stream with a value of that at most, now.
    pub fn first_within(&self, stream: Stream, limit: i128) -> Option<Place> {
        self.first_of(self.root, stream, limit)
    }

    pub fn len(&self) -> usize {
        self.nodes.len() - self.unused.len()
    }

    fn node(&self, index: Index) -> &Node {
        &self.nodes[index as usize]
    }

    fn node_mut(&mut self, index: Index) -> &mut Node {
        &mut self.nodes[index as usize]
    }

    fn value(&self, index: Index) -> i128 {
        self.node(index).line.at(self.now_us)
    }

    fn first_of(&self, index: Index, stream: Stream, limit: i128) -> Option<Place> {
        if index == NOBODY || self.value(self.node(index).least) > limit {
            return None;
        }
        let node = self.node(index);
        let within_left = (node.place.stream >= stream).then(|| self.first_of(node.left, stream, limit)).flatten();
        let is_here = || node.place.stream == stream && node.line.at(self.now_us) <= limit;
        within_left
            .or_else(|| is_here().then_some(node.place))
            .or_else(|| (node.place.stream <= stream).then(|| self.first_of(node.right, stream, limit)).flatten())
    }

    // ---- who is the least, until when

    /// Whether one has a lesser value than another now, or the same and is the senior.
    fn is_before(&self, one: Index, other: Index) -> bool {
        (self.value(one), self.node(one).seniority) < (self.value(other), self.node(other).seniority)
    }

    /// When one who is not before another will be, if ever.
    fn overtakes_us(&self, one: Index, other: Index) -> u64 {
        let (one, other) = (self.node(one), self.node(other));
        let gains = one.line.fall - other.line.fall;
        if gains <= 0 {
            return u64::MAX;
        }
        let behind = one.line.at_zero - other.line.at_zero;
        // The first whole moment at which it is level, which is enough for a senior, or ahead.
        let us = match one.seniority < other.seniority {
            true => (behind + gains - 1).div_euclid(gains),
            false => behind.div_euclid(gains) + 1,
        };
        u64::try_from(us).unwrap_or(u64::MAX)
    }

    /// Works a node's knowledge out of its children's.
    fn pull(&mut self, index: Index) {
        let Node { left, right, .. } = *self.node(index);
        let (mut least, mut until_us) = (index, u64::MAX);
        for child in [left, right].into_iter().filter(|child| *child != NOBODY) {
            let child = self.node(child);
            until_us = until_us.min(child.until_us);
            if self.is_before(child.least, least) {
                least = child.least;
            }
        }
        let of_children = [left, right].map(|child| self.nodes.get(child as usize).map(|child| child.least));
        for rival in of_children.into_iter().flatten().chain([index]).filter(|rival| *rival != least) {
            until_us = until_us.min(self.overtakes_us(rival, least));
        }
        let node = self.node_mut(index);
        (node.least, node.until_us) = (least, until_us);
    }

    fn repair(&mut self, index: Index) {
        if index == NOBODY || self.now_us < self.node(index).until_us {
            return;
        }
        let Node { left, right, .. } = *self.node(index);
        self.repair(left);
        self.repair(right);
        self.pull(index);
    }

    // ---- the treap

    /// The root of a subtree with a new node in it.
    fn inserted(&mut self, root: Index, new: Index) -> Index {
        if root == NOBODY || self.priority(new) > self.priority(root) {
            let (left, right) = self.split(root, self.node(new).place);
            (self.node_mut(new).left, self.node_mut(new).right) = (left, right);
            self.pull(new);
            return new;
        }
        if self.node(new).place < self.node(root).place {
            self.node_mut(root).left = self.inserted(self.node(root).left, new);
        } else {
            self.node_mut(root).right = self.inserted(self.node(root).right, new);
        }
        self.pull(root);
        root
    }

    fn removed(&mut self, root: Index, place: &Place) -> Index {
        if root == NOBODY {
            return NOBODY;
        }
        let Node { left, right, place: here, .. } = *self.node(root);
        match place.cmp(&here) {
            core::cmp::Ordering::Less => self.node_mut(root).left = self.removed(left, place),
            core::cmp::Ordering::Greater => self.node_mut(root).right = self.removed(right, place),
            core::cmp::Ordering::Equal => {
                self.unused.push(root);
                return self.merge(left, right);
            }
        }
        self.pull(root);
        root
    }

    /// What of a subtree is before a place, and what is after it.
    fn split(&mut self, root: Index, place: Place) -> (Index, Index) {
        if root == NOBODY {
            return (NOBODY, NOBODY);
        }
        let is_before = self.node(root).place < place;
        let (before, after) = if is_before {
            let (before, after) = self.split(self.node(root).right, place);
            self.node_mut(root).right = before;
            (root, after)
        } else {
            let (before, after) = self.split(self.node(root).left, place);
            self.node_mut(root).left = after;
            (before, root)
        };
        self.pull(root);
        (before, after)
    }

    /// Two subtrees as one; all of the first is before all of the second.
    fn merge(&mut self, one: Index, other: Index) -> Index {
        if one == NOBODY || other == NOBODY {
            return if one == NOBODY { other } else { one };
        }
        let root = if self.priority(one) > self.priority(other) {
            self.node_mut(one).right = self.merge(self.node(one).right, other);
            one
        } else {
            self.node_mut(other).left = self.merge(one, self.node(other).left);
            other
        };
        self.pull(root);
        root
    }

    /// As good as random, and always the same (the last step of SplitMix64).
    fn priority(&self, index: Index) -> u64 {
        let mut z = self.node(index).place.request.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests;
