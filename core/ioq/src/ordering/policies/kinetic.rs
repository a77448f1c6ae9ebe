//! Values that fall with time, each at its own rate, sorted by key. The tree finds the least value,
//! and the first key with a value below a limit. It is a kinetic search tree, after Basch, Guibas
//! and Hershberger 1997.
//!
//! Two straight lines cross at most once, so the time until which the smaller of two values stays
//! the smaller is known. A node of the tree knows the least value of its subtree, and until when
//! nothing in the subtree changes. As time passes, only subtrees whose time has come are visited.
//! An insertion, a removal and each change of the least repair one path: their cost is logarithmic
//! on average.
//!
//! The tree is a treap whose priorities are a hash of the request number, so the same keys make the
//! same tree. Time and values are integers, so nothing is rounded.

use alloc::vec::Vec;

use eyas_types::random::SplitMix64;

use crate::ordering::run::{AgedBytes, QueueKey, Seniority, Stream};

/// Virtual size of a run as a line over time, multiplied by M to stay an integer: its value at time
/// 0, and how much it falls in a microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VirtualSize {
    pub at_zero: i128,
    pub fall_per_us: i128,
}

impl VirtualSize {
    /// M * Tv = sum of bytes * (M - (now - arrival)), from the sums in `size` (io-coordination
    /// formulas 2 and 3; `wsjf.rs`). For example, A1 in `wsjf.rs` has 20 bytes that arrived at 0
    /// and 5 that arrived at 15. The value is 25 * 30 + 5 * 15 = 825 at time 0, and 450 at 15,
    /// which is 30 * 15.
    pub fn of(size: AgedBytes, patience_us: u64) -> Self {
        let fall_per_us = i128::from(size.bytes);
        let at_zero = fall_per_us * i128::from(patience_us) + size.bytes_times_arrival_us as i128;
        VirtualSize { at_zero, fall_per_us }
    }

    pub fn at(&self, now_us: u64) -> i128 {
        self.at_zero - i128::from(now_us) * self.fall_per_us
    }

    /// First microsecond in which the value is 0 or less. For example, a value that is 825 at time
    /// 0 and falls by 25 gets to 0 at 33.
    pub fn zero_us(&self) -> u64 {
        let up = (self.at_zero + self.fall_per_us - 1).div_euclid(self.fall_per_us.max(1));
        u64::try_from(up.max(0)).unwrap_or(u64::MAX)
    }
}

/// An index into the arena.
type Index = u32;
const NO_NODE: Index = Index::MAX;

struct TreeNode {
    key: QueueKey,
    seniority: Seniority,
    size: VirtualSize,
    left: Index,
    right: Index,
    /// Node with the least value in this subtree, and the time, exclusive, until which this holds
    /// in the whole subtree.
    least: Index,
    until_us: u64,
}

pub(crate) struct KineticTree {
    nodes: Vec<TreeNode>,
    unused: Vec<Index>,
    root: Index,
    now_us: u64,
}

impl KineticTree {
    pub fn new() -> Self {
        KineticTree { nodes: Vec::new(), unused: Vec::new(), root: NO_NODE, now_us: 0 }
    }

    pub fn insert(&mut self, key: QueueKey, seniority: Seniority, size: VirtualSize) {
        let (left, right) = (NO_NODE, NO_NODE);
        let node = TreeNode { key, seniority, size, left, right, least: NO_NODE, until_us: 0 };
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

    pub fn remove(&mut self, key: &QueueKey) {
        self.root = self.removed(self.root, key);
    }

    /// Advances the time. It never decreases.
    pub fn advance(&mut self, now_us: u64) {
        self.now_us = self.now_us.max(now_us);
        self.repair(self.root);
    }

    /// The least value now and its key; the most senior among equals.
    pub fn least(&self) -> Option<(QueueKey, i128)> {
        let root = self.nodes.get(self.root as usize)?;
        Some((self.node(root.least).key, self.value(root.least)))
    }

    /// The first key of a stream with a value of at most `limit` now.
    pub fn first_within(&self, stream: Stream, limit: i128) -> Option<QueueKey> {
        self.first_of(self.root, stream, limit)
    }

    pub fn len(&self) -> usize {
        self.nodes.len() - self.unused.len()
    }

    fn node(&self, index: Index) -> &TreeNode {
        &self.nodes[index as usize]
    }

    fn node_mut(&mut self, index: Index) -> &mut TreeNode {
        &mut self.nodes[index as usize]
    }

    fn value(&self, index: Index) -> i128 {
        self.node(index).size.at(self.now_us)
    }

    fn first_of(&self, index: Index, stream: Stream, limit: i128) -> Option<QueueKey> {
        if index == NO_NODE || self.value(self.node(index).least) > limit {
            return None;
        }
        let node = self.node(index);
        let within_left =
            (node.key.stream >= stream).then(|| self.first_of(node.left, stream, limit)).flatten();
        let is_here = || node.key.stream == stream && node.size.at(self.now_us) <= limit;
        within_left.or_else(|| is_here().then_some(node.key)).or_else(|| {
            (node.key.stream <= stream).then(|| self.first_of(node.right, stream, limit)).flatten()
        })
    }

    // ---- the least value, and until when

    /// Whether `one` has a smaller value than `other` now, or an equal one and is more senior.
    fn is_before(&self, one: Index, other: Index) -> bool {
        (self.value(one), self.node(one).seniority)
            < (self.value(other), self.node(other).seniority)
    }

    /// When `one`, which is not before `other` now, will be. `u64::MAX`: never. For example 600 -
    /// 20 t is as small as 350 - 10 t at t = 25, and smaller from 26 on.
    fn overtakes_us(&self, one: Index, other: Index) -> u64 {
        let (one, other) = (self.node(one), self.node(other));
        let gains = one.size.fall_per_us - other.size.fall_per_us;
        if gains <= 0 {
            return u64::MAX;
        }
        let behind = one.size.at_zero - other.size.at_zero;
        // The first microsecond in which both are equal, if `one` is more senior; else the first in
        // which `one` is smaller.
        let us = if one.seniority < other.seniority {
            (behind + gains - 1).div_euclid(gains)
        } else {
            behind.div_euclid(gains) + 1
        };
        u64::try_from(us).unwrap_or(u64::MAX)
    }

    /// Computes what a node knows from its children.
    fn pull(&mut self, index: Index) {
        let TreeNode { left, right, .. } = *self.node(index);
        let (mut least, mut until_us) = (index, u64::MAX);
        for child in [left, right].into_iter().filter(|child| *child != NO_NODE) {
            let child = self.node(child);
            until_us = until_us.min(child.until_us);
            if self.is_before(child.least, least) {
                least = child.least;
            }
        }
        let of_children =
            [left, right].map(|child| self.nodes.get(child as usize).map(|child| child.least));
        for rival in
            of_children.into_iter().flatten().chain([index]).filter(|rival| *rival != least)
        {
            until_us = until_us.min(self.overtakes_us(rival, least));
        }
        let node = self.node_mut(index);
        (node.least, node.until_us) = (least, until_us);
    }

    fn repair(&mut self, index: Index) {
        if index == NO_NODE || self.now_us < self.node(index).until_us {
            return;
        }
        let TreeNode { left, right, .. } = *self.node(index);
        self.repair(left);
        self.repair(right);
        self.pull(index);
    }

    // ---- the treap

    /// Root of a subtree after the insertion of `new`.
    fn inserted(&mut self, root: Index, new: Index) -> Index {
        if root == NO_NODE || self.priority(new) > self.priority(root) {
            let (left, right) = self.split(root, self.node(new).key);
            (self.node_mut(new).left, self.node_mut(new).right) = (left, right);
            self.pull(new);
            return new;
        }
        if self.node(new).key < self.node(root).key {
            self.node_mut(root).left = self.inserted(self.node(root).left, new);
        } else {
            self.node_mut(root).right = self.inserted(self.node(root).right, new);
        }
        self.pull(root);
        root
    }

    fn removed(&mut self, root: Index, key: &QueueKey) -> Index {
        if root == NO_NODE {
            return NO_NODE;
        }
        let TreeNode { left, right, key: here, .. } = *self.node(root);
        match key.cmp(&here) {
            core::cmp::Ordering::Less => self.node_mut(root).left = self.removed(left, key),
            core::cmp::Ordering::Greater => self.node_mut(root).right = self.removed(right, key),
            core::cmp::Ordering::Equal => {
                self.unused.push(root);
                return self.merge(left, right);
            }
        }
        self.pull(root);
        root
    }

    /// The parts of a subtree before and after a key.
    fn split(&mut self, root: Index, key: QueueKey) -> (Index, Index) {
        if root == NO_NODE {
            return (NO_NODE, NO_NODE);
        }
        let is_before = self.node(root).key < key;
        let (before, after) = if is_before {
            let (before, after) = self.split(self.node(root).right, key);
            self.node_mut(root).right = before;
            (root, after)
        } else {
            let (before, after) = self.split(self.node(root).left, key);
            self.node_mut(root).left = after;
            (before, root)
        };
        self.pull(root);
        (before, after)
    }

    /// Joins two subtrees; all keys of the first are before all keys of the second.
    fn merge(&mut self, one: Index, other: Index) -> Index {
        if one == NO_NODE || other == NO_NODE {
            return if one == NO_NODE { other } else { one };
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

    /// Pseudo-random and reproducible.
    fn priority(&self, index: Index) -> u64 {
        SplitMix64::mix(self.node(index).key.request.0)
    }
}

#[cfg(test)]
mod tests;
