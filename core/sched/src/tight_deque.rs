//! Growth of queues by a quarter instead of to the double, so that little memory is unused: there
//! are many of them, and together they have an entry for each waiting task.

use alloc::collections::VecDeque;

/// Adds an entry at the back. For example a full list of 100 entries gets room for 129.
pub(crate) fn push_back<T>(list: &mut VecDeque<T>, entry: T) {
    if list.len() == list.capacity() {
        list.reserve_exact(list.len() / 4 + 4);
    }
    list.push_back(entry);
}
