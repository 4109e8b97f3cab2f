//! The order in which the items of a shelf end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::mem;

/// When the item whose key has `hash` may end: not before `ends`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Node {
    pub(crate) ends: u64,
    pub(crate) hash: u64,
}

/// A heap with at least one node per stored item, whose time is never after the item's own.
///
/// Spending puts a bucket's end off, and its node is left where it is: whoever finds it at the top
/// moves it then. So a spend touches no heap, and the work at the top is at most one move per
/// spend. Nodes of items that are gone stay until they reach the top or outnumber the others.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Reverse<Node>>,
}

impl Queue {
    /// Adds a node. The heap grows by a quarter, so that little is allocated for nothing.
    pub(crate) fn push(&mut self, node: Node) {
        if self.heap.len() == self.heap.capacity() {
            self.heap.reserve_exact((self.heap.len() / 4).max(4));
        }
        self.heap.push(Reverse(node));
    }

    /// Returns the time before which no item ends, `u64::MAX` if there is none.
    pub(crate) fn first(&self) -> u64 {
        self.heap.peek().map_or(u64::MAX, |Reverse(node)| node.ends)
    }

    pub(crate) fn peek_mut(&mut self) -> Option<PeekMut<'_, Reverse<Node>>> {
        self.heap.peek_mut()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.heap.capacity()
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Replaces all nodes, keeping the allocation.
    pub(crate) fn rebuild(&mut self, nodes: impl Iterator<Item = Node>) {
        let mut heap = mem::take(&mut self.heap).into_vec();
        heap.clear();
        heap.extend(nodes.map(Reverse));
        self.heap = heap.into();
    }

    pub(crate) fn shrink_to(&mut self, capacity: usize) {
        self.heap.shrink_to(capacity);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.heap.capacity() * size_of::<Node>()
    }
}
