//! The executors that have joined, as the dispatcher sees them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use eyas_session::{Outbox, OutboxError};
use eyas_types::{ExecutorId, JobId, ObjectId, Reads};
use eyas_wire::executor::{Registration, ToExecutor};

pub(crate) struct Executor {
    pub name: String,
    pub process: u32,
    pub store_bytes: u64,
    pub transfer: SocketAddr,
    pub outbox: Outbox<ToExecutor>,
    pub last_heard: Instant,
    /// It does not read what it is sent, and has missed something.
    pub is_deaf: bool,
    pub ended: u64,
    pub reads: Reads,
    pub held: HashMap<ObjectId, u64>,
    pub held_bytes: u64,
    templates: HashSet<(JobId, u16)>,
}

#[derive(Default)]
pub(crate) struct Executors {
    present: BTreeMap<ExecutorId, Executor>,
    joined: u32,
}

impl Executors {
    /// Enters an executor; its id is new.
    pub fn join(&mut self, registration: &Registration, outbox: Outbox<ToExecutor>) -> ExecutorId {
        let id = ExecutorId(self.joined);
        self.joined += 1;
        let same_name = self.present.values().filter(|other| other.name == registration.name).count();
        // Names are for people: two of the same are told apart by the id.
        let name = if same_name == 0 { registration.name.clone() } else { format!("{}-{id}", registration.name) };
        let executor = Executor {
            name,
            process: registration.process,
            store_bytes: registration.store_bytes,
            transfer: registration.transfer,
            outbox,
            last_heard: Instant::now(),
            is_deaf: false,
            ended: 0,
            reads: Reads::default(),
            held: HashMap::new(),
            held_bytes: 0,
            templates: HashSet::new(),
        };
        self.present.insert(id, executor);
        id
    }

    pub fn leave(&mut self, id: ExecutorId) -> Option<Executor> {
        self.present.remove(&id)
    }

    pub fn get(&self, id: ExecutorId) -> Option<&Executor> {
        self.present.get(&id)
    }

    pub fn get_mut(&mut self, id: ExecutorId) -> Option<&mut Executor> {
        self.present.get_mut(&id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (ExecutorId, &Executor)> {
        self.present.iter().map(|(id, executor)| (*id, executor))
    }

    pub fn len(&self) -> usize {
        self.present.len()
    }

    /// Does not count so much silence against anyone.
    pub fn forgive(&mut self, silence: Duration) {
        self.present.values_mut().for_each(|executor| executor.last_heard += silence);
    }

    /// The name, also of one that has left.
    pub fn name(&self, id: ExecutorId) -> String {
        self.get(id).map_or_else(|| id.to_string(), |executor| executor.name.clone())
    }

    /// A job is forgotten everywhere.
    pub fn forget_job(&mut self, job: JobId) {
        for executor in self.present.values_mut() {
            let before = executor.templates.len();
            executor.templates.retain(|(of, _)| *of != job);
            if executor.templates.len() < before {
                // One that does not read will be dropped soon.
                let _ = executor.outbox.post(ToExecutor::ForgetJob { job });
            }
        }
    }
}

impl Executor {
    /// Whether the template must still be sent; it is taken as sent afterwards.
    pub fn lacks_template(&mut self, job: JobId, template: u16) -> bool {
        self.templates.insert((job, template))
    }

    pub fn stored(&mut self, object: ObjectId, size_bytes: u64) {
        self.evicted(object);
        self.held.insert(object, size_bytes);
        self.held_bytes += size_bytes;
    }

    pub fn evicted(&mut self, object: ObjectId) {
        self.held_bytes -= self.held.remove(&object).unwrap_or(0);
    }

    pub fn send(&self, message: ToExecutor) -> Result<(), OutboxError> {
        self.outbox.post(message)
    }
}
