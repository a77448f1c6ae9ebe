//! Objects on their way to the store: those that this node fetches, a bounded number at a time, and
//! those that another process sends.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use eyas_types::{ObjectId, TaskId};

use crate::event::Effect;
use crate::overlap;
use crate::space::StoreAmount;

pub(crate) struct ObjectFetch {
    /// Tasks that wait for the object. The fetch uses the hints of the first one, and is counted
    /// as that task's read.
    pub tasks: Vec<TaskId>,
    pub size_bytes: u64,
    pub tries: u32,
    /// Whether the shell was told to fetch the object. If not, the fetch waits for its turn.
    under_way: bool,
    /// Whether the object has reached the store in another way meanwhile: as an output of a task.
    pub is_here: bool,
}

pub(crate) struct ObjectFetches {
    fetches: BTreeMap<ObjectId, ObjectFetch>,
    /// Objects to fetch when fewer than `max_fetches` fetches are under way.
    to_fetch: VecDeque<ObjectId>,
    /// Number of fetches under way, without those in `given`.
    under_way: usize,
    /// Fetches under way that another process delivers of its own accord.
    given: BTreeSet<ObjectId>,
    max_fetches: usize,
    /// Observed rate of one fetch; 0 before the first fetch.
    rate_bytes_per_s: u64,
}

impl ObjectFetches {
    pub fn new(max_fetches: usize) -> Self {
        ObjectFetches {
            fetches: BTreeMap::new(),
            to_fetch: VecDeque::new(),
            under_way: 0,
            given: BTreeSet::new(),
            max_fetches,
            rate_bytes_per_s: 0,
        }
    }

    pub fn rate_bytes_per_s(&self) -> u64 {
        self.rate_bytes_per_s
    }

    /// A fetch has taken this long.
    pub fn learn_rate(&mut self, size_bytes: u64, took_us: u64) {
        self.rate_bytes_per_s = overlap::learn_rate(self.rate_bytes_per_s, size_bytes, took_us);
    }

    pub fn get(&self, object: ObjectId) -> Option<&ObjectFetch> {
        self.fetches.get(&object)
    }

    /// Fetches an object for these tasks when it is its turn.
    pub fn add(&mut self, object: ObjectId, size_bytes: u64, tasks: Vec<TaskId>) {
        self.fetches.insert(
            object,
            ObjectFetch { tasks, size_bytes, tries: 0, under_way: false, is_here: false },
        );
        self.to_fetch.push_back(object);
    }

    /// Expects an object that another process sends. The transfer does not wait for its turn: a
    /// sender that sends to several nodes at once would wait for the slowest of them.
    pub fn expect(&mut self, object: ObjectId, size_bytes: u64) {
        let fetch = ObjectFetch {
            tasks: Vec::new(),
            size_bytes,
            tries: 0,
            under_way: true,
            is_here: false,
        };
        self.fetches.insert(object, fetch);
        self.given.insert(object);
    }

    /// A task waits for an object, if it is being fetched. Returns false if it is not.
    pub fn join(&mut self, object: ObjectId, task: TaskId) -> bool {
        let fetch = self.fetches.get_mut(&object);
        fetch.map(|fetch| fetch.tasks.push(task)).is_some()
    }

    /// A task no longer waits for an object that is being fetched. Returns whether no task waits
    /// for it, and its fetch has not begun.
    pub fn leave(&mut self, object: ObjectId, task: TaskId) -> Option<bool> {
        let fetch = self.fetches.get_mut(&object)?;
        fetch.tasks.retain(|other| *other != task);
        Some(fetch.tasks.is_empty() && !fetch.under_way)
    }

    /// Whether no task waits for an object that is being fetched, and its fetch has not begun;
    /// `None` if it is not being fetched.
    pub fn is_waived(&self, object: ObjectId) -> Option<bool> {
        self.fetches.get(&object).map(|fetch| fetch.tasks.is_empty() && !fetch.under_way)
    }

    /// Forgets a fetch that has not begun.
    pub fn cancel(&mut self, object: ObjectId) {
        self.fetches.remove(&object);
    }

    /// Starts fetches, as many as there may be.
    pub fn start(&mut self, effects: &mut Vec<Effect>) {
        while self.under_way < self.max_fetches {
            let Some(object) = self.to_fetch.pop_front() else { break };
            // If no task waits for the object any longer, its fetch was removed.
            let Some(fetch) = self.fetches.get_mut(&object).filter(|fetch| !fetch.under_way) else {
                continue;
            };
            fetch.under_way = true;
            fetch.tries += 1;
            self.under_way += 1;
            effects.push(Effect::Fetch { object, task: fetch.tasks.first().copied() });
        }
    }

    /// A fetch that was under way has ended.
    ///
    /// # Panics
    /// If there was none.
    pub fn ended(&mut self, object: ObjectId) -> ObjectFetch {
        let Some(fetch) = self.fetches.remove(&object) else {
            panic!("{object} was fetched without an order")
        };
        self.under_way -= 1;
        fetch
    }

    /// Fetches an object again that could not be fetched, when it is its turn.
    pub fn try_again(&mut self, object: ObjectId, fetch: ObjectFetch) {
        self.fetches.insert(object, ObjectFetch { under_way: false, ..fetch });
        self.to_fetch.push_back(object);
    }

    /// The transfer of an object from another process has ended. If the object is missing and tasks
    /// need it, too, this node fetches it for them, and the result is `Some(false)`. Otherwise it
    /// counts among the fetches under way from now on. `None` if no transfer was expected.
    pub fn given(&mut self, object: ObjectId, is_here: bool) -> Option<bool> {
        if !self.given.remove(&object) {
            return None;
        }
        if let Some(fetch) = self.fetches.get_mut(&object)
            && !is_here
            && !fetch.is_here
            && !fetch.tasks.is_empty()
        {
            fetch.under_way = false;
            self.to_fetch.push_back(object);
            return Some(false);
        }
        self.under_way += 1;
        Some(true)
    }

    /// A task has put an object into the store that was known already. Returns whether it was to be
    /// fetched, and the fetch has not begun: it counts among those under way from now on, and has
    /// ended.
    pub fn produced(&mut self, object: ObjectId) -> bool {
        let Some(fetch) = self.fetches.get_mut(&object) else { return false };
        // If its fetch is under way, the object stays in the store even if the fetch fails.
        fetch.is_here |= fetch.under_way;
        self.under_way += usize::from(!fetch.under_way);
        !fetch.under_way
    }

    /// The store has lost an object. Returns false if it is not being fetched.
    pub fn lost(&mut self, object: ObjectId) -> bool {
        self.fetches.get_mut(&object).map(|fetch| fetch.is_here = false).is_some()
    }

    /// The space for fetches that wait for their turn. The shell knows of those that are under way.
    pub fn waiting(&self) -> StoreAmount {
        let mut waiting = StoreAmount::default();
        for fetch in self.fetches.values().filter(|fetch| !fetch.under_way) {
            waiting.bytes = waiting.bytes.saturating_add(fetch.size_bytes);
            waiting.objects += 1;
        }
        waiting
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.fetches.len()
    }

    #[cfg(test)]
    pub fn validate(&self) {
        assert!(self.under_way <= self.max_fetches);
        let under_way = self.fetches.values().filter(|fetch| fetch.under_way).count();
        assert_eq!(self.under_way + self.given.len(), under_way);
    }
}
