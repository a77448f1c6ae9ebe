//! One connected executor.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use eyas_session::Outbox;
use eyas_types::matching::Labels;
use eyas_types::{CopyNews, ExecutorLoad, JobId, ObjectId, Reads, Resources, TaskId};
use eyas_wire::executor::{FromExecutor, Registration, ToExecutor, TransferAddress};
use eyas_wire::pool::NodeOrigin;

use crate::clock::Clock;
use crate::outgoing::OutgoingMessages;
use crate::sign_of_life::SignOfLife;

/// An executor that has joined: what it said of itself, and what it is sent.
pub(crate) struct ConnectedExecutor {
    pub name: String,
    /// The newest minor version of the protocol that both sides have.
    pub minor: u16,
    pub host: String,
    pub process: u32,
    pub incarnation: String,
    pub labels: Labels,
    pub accept: Option<String>,
    /// Bytes that its disk has for inputs and sandboxes, once it has reported them.
    pub free_disk_bytes: Option<u64>,
    pub capacity: Resources,
    pub store_bytes: u64,
    pub transfer: TransferAddress,
    /// Address of its node of the file system.
    pub files: Option<SocketAddr>,
    /// The request for which it was started, if it is a node of a pool.
    pub origin: Option<NodeOrigin>,
    /// When its batch system ends it, microseconds since 1970.
    pub until_us: Option<u64>,
    pub(super) outbox: Outbox<ToExecutor>,
    pub(super) outgoing: OutgoingMessages,
    pub sign_of_life: Arc<SignOfLife>,
    /// Whether it missed a message because it does not read its connection.
    pub is_deaf: bool,
    pub load: ExecutorLoad,
    /// Tasks that it has suspended.
    pub suspended: BTreeSet<TaskId>,
    pub ended: u64,
    pub reads: Reads,
    pub held: HashMap<ObjectId, u64>,
    pub held_bytes: u64,
    pub(super) templates: HashSet<(JobId, u16)>,
    /// Jobs whose token it has.
    pub(super) tokens: HashSet<JobId>,
}

impl ConnectedExecutor {
    pub fn new(
        name: String,
        (registration, minor): (&Registration, u16),
        outbox: Outbox<ToExecutor>,
        clock: Clock,
    ) -> Self {
        ConnectedExecutor {
            name,
            minor,
            host: registration.host.clone(),
            process: registration.process,
            incarnation: registration.incarnation.clone(),
            labels: registration.labels.clone(),
            accept: registration.accept.clone(),
            free_disk_bytes: None,
            capacity: registration.capacity.clone(),
            store_bytes: registration.store_bytes,
            transfer: registration.transfer,
            files: registration.files.map(|files| files.address),
            origin: registration.origin.clone(),
            until_us: registration
                .origin
                .as_ref()
                .and_then(|origin| Some(clock.now_us() + origin.left_us?)),
            outbox,
            outgoing: OutgoingMessages::default(),
            sign_of_life: Arc::new(SignOfLife::new(clock)),
            is_deaf: false,
            load: ExecutorLoad::default(),
            suspended: BTreeSet::new(),
            ended: 0,
            reads: Reads::default(),
            held: HashMap::new(),
            held_bytes: 0,
            templates: HashSet::new(),
            tokens: HashSet::new(),
        }
    }

    /// Keeps what the executor says of itself.
    pub fn note(&mut self, said: &FromExecutor) {
        match said {
            FromExecutor::Heartbeat { free_disk_bytes } => {
                self.free_disk_bytes = Some(*free_disk_bytes);
            }
            FromExecutor::Stored { object, size_bytes }
            | FromExecutor::Copy { object, news: CopyNews::Made { size_bytes, .. } } => {
                self.stored(*object, *size_bytes);
            }
            FromExecutor::Evicted { object } | FromExecutor::NotHeld { object, .. } => {
                self.evicted(*object);
            }
            FromExecutor::Load(load) => self.load = *load,
            FromExecutor::Suspended { task } => _ = self.suspended.insert(*task),
            FromExecutor::Resumed { task } => _ = self.suspended.remove(task),
            _ => {}
        }
    }

    /// What its tasks had at most: its capacity, and the processors that were lent.
    pub fn had(&self) -> Resources {
        let lent_milli = u32::try_from(self.load.lent_milli).unwrap_or(u32::MAX);
        let cpus_milli = self.capacity.cpus_milli.saturating_add(lent_milli);
        Resources { cpus_milli, ..self.capacity.clone() }
    }

    /// Whether the executor lacks a template. Afterwards the template counts as sent.
    pub fn lacks_template(&mut self, job: JobId, template: u16) -> bool {
        self.templates.insert((job, template))
    }

    pub fn stored(&mut self, object: ObjectId, size_bytes: u64) {
        self.evicted(object);
        self.held.insert(object, size_bytes);
        self.held_bytes += size_bytes;
    }

    fn evicted(&mut self, object: ObjectId) {
        self.held_bytes -= self.held.remove(&object).unwrap_or(0);
    }
}
