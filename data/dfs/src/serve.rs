//! Serves the connections of clients and of other nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::mpsc::TrySendError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eyas_files::BlockRunId;
use eyas_files::protocol::{
    ChangeEntry, ChunkPresence, ChunkSpec, FilesOrigin, LogPosition, MemoryAccount, NodeRequest,
    NodeResponse, RequestBody, ResponseBody, RunRequest, StoreFolder, Usage,
};
use eyas_ring::{Event, FileAnswer, FileOperation, Refusal};
use eyas_session::{Listener, Outbox, Session, SessionError, outbox};
use eyas_types::ObjectId;
use eyas_types::access::{Behalf, Principal};
use eyas_types::dfs::{FileName, NodeId};
use eyas_wire::Role;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::{JoinSet, block_in_place};

use crate::audit::holders;
use crate::change_log::{ChangeOrigin, LoggedChange};
use crate::chunks::{ChunkError, NodeChunks, failure};
use crate::incoming_audits::IncomingAudits;
use crate::links::ToPeer;
use crate::node_shared::NodeShared;
use crate::rights::{is_allowed, is_allowed_for};
use crate::ring_thread::RingInput;
use crate::runs;

/// Maximum number of unanswered requests of one client. Further ones are read when some are
/// answered.
const MAX_REQUESTS: usize = 1024;

/// Accepts peers that have the cluster's secret. When this task ends, all connections end.
pub(crate) async fn accept(shared: Arc<NodeShared>, listener: Listener) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let (greeting, shared) = (listener.next().await, shared.clone());
        connections.spawn(async move {
            let ended = match greeting.await {
                Ok((session, Role::Client)) => client(shared, session).await,
                Ok((session, Role::Node)) => peer(shared, session).await,
                Ok((_, role)) => {
                    return tracing::debug!(
                        ?role,
                        "refused a connection: only clients and nodes may connect"
                    );
                }
                Err(error) => Err(error),
            };
            if let Err(error) = ended {
                tracing::debug!("{error}");
            }
        });
    }
}

/// Reads messages of another node until the connection is closed.
async fn peer(shared: Arc<NodeShared>, session: Session) -> Result<(), SessionError> {
    let mut from = None;
    let ended = hear(&shared, session, &mut from).await;
    if let Some(node) = from {
        shared.tell(Event::Closed(node));
    }
    ended
}

async fn hear(
    shared: &Arc<NodeShared>,
    session: Session,
    said: &mut Option<NodeId>,
) -> Result<(), SessionError> {
    let Session { mut reader, mut trust, remote, .. } = session;
    if !matches!(trust.holder(), Principal::Key(_, role) if role.is_of_nodes()) {
        tracing::warn!(
            %remote, holder = %trust.holder(),
            "ignored a connection whose key is not that of a node"
        );
        return Ok(());
    }
    let mut audits = IncomingAudits::default();
    loop {
        let messages = tokio::select! {
            messages = reader.next::<ToPeer>() => messages?,
            // The peer connects again with its new key.
            _ = trust.ends() => return Ok(()),
        };
        let mut events = Vec::new();
        for message in messages {
            let from = *said;
            match (message, from) {
                (ToPeer::From(node, system), None) if system == shared.identity.system => {
                    *said = Some(node)
                }
                (ToPeer::Ring(message), Some(from)) => {
                    events.push(Event::Received { from, message: *message })
                }
                (ToPeer::Audit { name, objects }, Some(from)) => {
                    audits.add(shared, from, name, objects);
                }
                (ToPeer::Audited, Some(from)) => audits.end(shared, from),
                (ToPeer::AuditSoon, Some(_)) => shared.audit_soon.notify_one(),
                (ToPeer::Missing { name, objects }, Some(node)) => {
                    shared.tell(Event::BadReplicas { name, objects, node });
                }
                (ToPeer::Search { name, objects }, Some(from)) => {
                    // Reading chunks takes long, and the leader may send more messages.
                    tokio::spawn(search(shared.clone(), from, name, objects));
                }
                (ToPeer::Sync(files), Some(from)) => {
                    let shared = shared.clone();
                    tokio::spawn(async move {
                        let bad = shared.chunks.secure(files).await;
                        shared.send(from, ToPeer::Synced(bad));
                    });
                }
                (ToPeer::Synced(bad), Some(node)) => shared.tell(Event::Synced { node, bad }),
                (ToPeer::Found { name, objects }, Some(node)) => {
                    shared.tell(Event::GoodReplicas { name, objects, node });
                }
                (_, _) => {
                    tracing::warn!(
                        %remote,
                        "ignored a message that was not from a node of this file system"
                    )
                }
            }
        }
        shared.tell_all(events);
    }
}

/// Searches this node for lost chunks of a file, and tells the leader those that are here.
async fn search(shared: Arc<NodeShared>, leader: NodeId, name: FileName, objects: Vec<ObjectId>) {
    let objects = shared.chunks.search(&objects).await;
    if !objects.is_empty() {
        shared.send(leader, ToPeer::Found { name, objects });
    }
}

async fn client(shared: Arc<NodeShared>, session: Session) -> Result<(), SessionError> {
    let Session { mut reader, writer, mut trust, .. } = session;
    let holder = trust.holder();
    let shown: Arc<str> = holder.to_string().into();
    let (outbox, send) = outbox::<NodeResponse>(writer);
    let mut serving = JoinSet::new();
    serving.spawn(async move { drop(send.await) });
    let requests = Arc::new(Semaphore::new(MAX_REQUESTS));
    let stored = Arc::new(StoredChunks(Mutex::new(Some(BTreeSet::new()))));
    let _leaves = LeavesChunks(shared.clone(), stored.clone());
    loop {
        let asked = tokio::select! {
            asked = reader.next() => asked?,
            _ = trust.ends() => return Ok(()),
        };
        for NodeRequest { number, door, behalf, what } in asked {
            while serving.try_join_next().is_some() {}
            if let Some(why) = refusal(&shared, holder, behalf.as_ref(), &what) {
                let reply = ResponseBody::Refused(why);
                let _ = outbox.put(vec![NodeResponse { number, reply }]).await;
                continue;
            }
            if let RequestBody::Tell { run, event } = what {
                // Passed on at once, so that a worker's events stay in order. Lost events are
                // repeated.
                let _ = shared.runs.try_send(runs::RunInput::Event { run, event });
                continue;
            }
            // The semaphore is never closed.
            let Ok(request) = requests.clone().acquire_owned().await else { return Ok(()) };
            let (shared, outbox) = (shared.clone(), outbox.clone());
            let client = Client {
                shared,
                outbox,
                number,
                door,
                behalf,
                holder: shown.clone(),
                stored: Arc::clone(&stored),
            };
            // Before a later request can discard them.
            named_chunks(&what)
                .into_iter()
                .for_each(|object| client.stored.add(object, &client.shared.chunks));
            let is_storing = stores_chunks(&what);
            let serve = async move {
                client.serve(what).await;
                drop(request);
            };
            if is_storing {
                // Continues if the client is gone: a chunk that arrives is recorded, and one that
                // does not releases its space in time.
                tokio::spawn(serve);
            } else {
                serving.spawn(serve);
            }
        }
    }
}

/// Whether a request stores chunks on this node.
fn stores_chunks(what: &RequestBody) -> bool {
    matches!(
        what,
        RequestBody::Store { .. }
            | RequestBody::StoreAll { .. }
            | RequestBody::Take { .. }
            | RequestBody::Derive { .. }
            | RequestBody::Cut(_)
    )
}

/// Why a request is not permitted, for a person; `None` if it is.
fn refusal(
    shared: &NodeShared,
    holder: Principal,
    behalf: Option<&Behalf>,
    what: &RequestBody,
) -> Option<String> {
    let may = match holder {
        Principal::Job(job) => is_allowed(holder, shared.credentials.trust().jobs.get(&job), what),
        holder => is_allowed(holder, None, what),
    };
    if !may {
        return Some(format!("{holder} is not permitted to do this with files of the cluster"));
    }
    let behalf = behalf.filter(|behalf| !is_allowed_for(behalf, what))?;
    Some(format!("{behalf}; the request came with {holder}"))
}

/// The chunks that a request stores for a file, as far as it names them.
fn named_chunks(what: &RequestBody) -> Vec<ObjectId> {
    match what {
        RequestBody::Store { object, .. } | RequestBody::Take { object, .. } => vec![*object],
        RequestBody::StoreAll { chunks, .. } => chunks.iter().map(|chunk| chunk.object).collect(),
        RequestBody::Derive { derived, is_for_file: true, .. } => {
            derived.iter().map(|(_, made)| made.object).collect()
        }
        _ => Vec::new(),
    }
}

/// A request of a client.
struct Client {
    shared: Arc<NodeShared>,
    outbox: Outbox<NodeResponse>,
    number: u64,
    door: FilesOrigin,
    /// The user for whom the client asks.
    behalf: Option<Behalf>,
    /// The key or the job of the session, for the audit log.
    holder: Arc<str>,
    stored: Arc<StoredChunks>,
}

/// Chunks that were stored over a connection, as far as no file is known to have them; `None` after
/// the connection has ended. Only their client may discard them.
struct StoredChunks(Mutex<Option<BTreeSet<ObjectId>>>);

/// After the connection of a client has ended, no node can learn to which file the client's chunks
/// belong.
struct LeavesChunks(Arc<NodeShared>, Arc<StoredChunks>);

impl Drop for LeavesChunks {
    fn drop(&mut self) {
        self.0.chunks.left(self.1.lock().take().unwrap_or_default());
    }
}

/// Maximum number of chunks of a connection that can be discarded. When it is reached, all of them
/// are forgotten: those that belong to no file are deleted after a day.
const MAX_DISCARDABLE: usize = 1 << 16;

impl StoredChunks {
    /// A chunk is about to be stored, unless it is here: a file or another client has it then. The
    /// request may be carried out after the connection has ended.
    fn add(&self, object: ObjectId, chunks: &NodeChunks) {
        if chunks.is_own(object) {
            return;
        }
        match &mut *self.lock() {
            Some(stored) => {
                if stored.len() >= MAX_DISCARDABLE {
                    stored.clear();
                }
                stored.insert(object);
            }
            None => chunks.left([object]),
        }
    }

    /// The client still needs chunks, which may have come over another connection. Returns, for
    /// each, whether it is here. Those of files count, too.
    fn renew(&self, objects: &[ObjectId], chunks: &NodeChunks) -> Vec<bool> {
        let mut stored = self.lock();
        let here = chunks.renew_all(objects);
        let renewed = objects.iter().zip(&here).filter(|(_, is_here)| **is_here);
        let renewed = renewed.map(|(object, _)| *object);
        match &mut *stored {
            Some(stored) => {
                if stored.len() >= MAX_DISCARDABLE {
                    stored.clear();
                }
                stored.extend(renewed);
            }
            None => chunks.left(renewed),
        }
        here
    }

    fn take(&self, objects: Vec<ObjectId>) -> Vec<ObjectId> {
        let mut stored = self.lock();
        objects
            .into_iter()
            .filter(|object| stored.as_mut().is_some_and(|stored| stored.remove(object)))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Option<BTreeSet<ObjectId>>> {
        // No change of the set panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Client {
    async fn serve(&self, what: RequestBody) {
        let reply = match what {
            RequestBody::Membership => {
                ResponseBody::Membership(self.shared.node, self.shared.membership())
            }
            RequestBody::Operate(operation) => {
                let answer = self.operate(vec![operation]).await.pop();
                ResponseBody::Operated(answer.expect("each operation has an answer"))
            }
            RequestBody::OperateAll(operations) => {
                ResponseBody::OperatedAll(self.operate(operations).await)
            }
            RequestBody::Store { object, size_bytes, checksum, from, is_durable } => {
                let stored = self.store(ChunkSpec { object, size_bytes, checksum }, from).await;
                self.stored_one(object, stored, is_durable)
            }
            RequestBody::Take { number, object, size_bytes, checksum, is_durable } => {
                let wanted = ChunkSpec { object, size_bytes, checksum };
                let taken = self.shared.chunks.take_over(number, wanted).await;
                self.stored_one(object, taken, is_durable)
            }
            RequestBody::StoreAll { chunks, is_durable } => {
                let stored = self.shared.chunks.store_all(&chunks, is_durable).await;
                ResponseBody::StoredAll(stored.into_iter().map(Result::err).collect())
            }
            RequestBody::Discard { objects } => {
                self.shared.chunks.discard(&self.stored.take(objects));
                ResponseBody::Discarded
            }
            RequestBody::Derive { derived, .. } => {
                let derived = self.shared.chunks.derive_all(&derived).await;
                ResponseBody::Derived(derived.into_iter().map(Result::err).collect())
            }
            RequestBody::StoreFolder => {
                ResponseBody::StoreFolder(StoreFolder::of(self.shared.chunks.store_folder()).ok())
            }
            RequestBody::Cut(request) => {
                let store = |object| self.stored.add(object, &self.shared.chunks);
                let cut = self.shared.chunks.cut(&request, store).await;
                cut.map_or_else(ResponseBody::NotCut, ResponseBody::Cut)
            }
            RequestBody::Sync { objects } => {
                let failure = self.shared.chunks.sync(&objects).await.err();
                ResponseBody::Synced { failure: failure.map(|error| error.to_string()) }
            }
            RequestBody::Changes { folder, since_us, from } => {
                self.changes(&folder, since_us, from)
            }
            RequestBody::Contents { objects } => {
                ResponseBody::Contents(block_in_place(|| self.shared.chunks.contents(&objects)))
            }
            RequestBody::Bad { name, objects, node } => {
                return self.shared.tell(Event::BadReplicas { name, objects, node });
            }
            RequestBody::Run { run, request } => return self.run(run, request).await,
            RequestBody::Tell { .. } => unreachable!("it was handled before"),
            RequestBody::Check { objects, thoroughly } => {
                ResponseBody::Has(self.check(objects, thoroughly).await)
            }
            RequestBody::Usage => ResponseBody::Usage(self.usage()),
            RequestBody::Loads => ResponseBody::Loads(self.shared.loads().into_iter().collect()),
            RequestBody::OpenMemory(account) => self.open_memory(account),
            RequestBody::KeepInMemory { account, objects } => self.keep(account, &objects),
            RequestBody::ReleaseMemory { account } => self.release(account),
            // A client that may not was refused before.
            RequestBody::MayWrite { .. } => ResponseBody::MayWrite,
            RequestBody::Renew { objects } => self.renew(&objects),
        };
        self.reply(reply).await;
    }

    /// Opens an account of memory, or renews it.
    fn open_memory(&self, account: MemoryAccount) -> ResponseBody {
        ResponseBody::Memory(self.shared.chunks.locked().open(account))
    }

    /// Keeps chunks in memory.
    fn keep(&self, account: u128, objects: &[ObjectId]) -> ResponseBody {
        block_in_place(|| self.shared.chunks.keep_in_memory(account, objects));
        ResponseBody::MemoryTold
    }

    /// Releases the memory of an account.
    fn release(&self, account: u128) -> ResponseBody {
        self.shared.chunks.locked().release(account);
        ResponseBody::MemoryTold
    }

    /// Keeps chunks that the client still needs. Says which of them are here.
    fn renew(&self, objects: &[ObjectId]) -> ResponseBody {
        let presence = |is_here| match is_here {
            true => ChunkPresence::Whole,
            false => ChunkPresence::Nothing,
        };
        let here = self.stored.renew(objects, &self.shared.chunks);
        ResponseBody::Has(here.into_iter().map(presence).collect())
    }

    /// Entries of the audit log. A user does not see the names to which others have moved files out
    /// of the user's folder.
    fn changes(&self, folder: &str, since_us: u64, from: Option<LogPosition>) -> ResponseBody {
        let read = block_in_place(|| self.shared.changes.read(folder, since_us, from));
        let (mut entries, next) = match read {
            Ok(read) => read,
            Err(error) => return ResponseBody::NoChanges(error.to_string()),
        };
        if let Some(behalf) = &self.behalf {
            for ChangeEntry { name, to, .. } in &mut entries {
                name.take_if(|name| !behalf.reads(name));
                to.take_if(|to| !behalf.reads(to));
            }
        }
        ResponseBody::Changes(entries, next)
    }

    fn usage(&self) -> Usage {
        let (chunks, bytes) = self.shared.chunks.count();
        let is_settled = self.shared.state.borrow().is_settled;
        let (damaged, damaged_bytes) = self.shared.chunks.damaged();
        Usage {
            chunks,
            bytes,
            free_bytes: self.shared.room.free_bytes(),
            damaged,
            damaged_bytes,
            is_settled,
        }
    }

    /// Has the ring's thread carry out operations. Returns one answer for each of them.
    async fn operate(&self, operations: Vec<FileOperation>) -> Vec<Result<FileAnswer, Refusal>> {
        if operations.is_empty() {
            return Vec::new();
        }
        let (count, (all, answered)) = (operations.len(), oneshot::channel());
        let changes: Vec<_> = operations.iter().map(LoggedChange::of).collect();
        let claims: Vec<_> = operations.iter().map(claim).collect();
        let refusal = match self.shared.ring_inputs.try_send(RingInput::Asked(operations, all)) {
            // If there is no answer, the thread has ended meanwhile.
            Ok(()) => Refusal::Unknown,
            Err(TrySendError::Full(_)) => Refusal::Busy,
            // The node has left the file system; other nodes lead in another view.
            Err(TrySendError::Disconnected(_)) => Refusal::OtherView { view: 0 },
        };
        match answered.await {
            Ok(answers) => {
                let done = changes.into_iter().zip(&answers).filter(|(_, answer)| answer.is_ok());
                for (claim, _) in
                    claims.into_iter().zip(&answers).filter(|(_, answer)| answer.is_ok())
                {
                    if let Some((name, holders)) = claim {
                        self.claim(&name, holders).await;
                    }
                }
                for change in done.filter_map(|(change, _)| change) {
                    let principal = self.behalf.as_ref().map(Behalf::principal);
                    let origin = ChangeOrigin { holder: &self.holder, principal, door: self.door };
                    self.shared.changes.add(origin, change);
                }
                answers
            }
            Err(_) => vec![Err(refusal); count],
        }
    }

    /// Tells the nodes of a file's chunks that a file has them. A lost message does no harm: the
    /// next audit says so.
    async fn claim(&self, name: &FileName, holders: BTreeMap<NodeId, Vec<ObjectId>>) {
        for (node, objects) in holders {
            if node == self.shared.node {
                self.shared.chunks.audited(&objects).await;
            } else {
                self.shared.send(node, ToPeer::Audit { name: name.clone(), objects });
            }
        }
    }

    /// Stores a chunk. Sends `Ready` when its space is reserved.
    async fn store(&self, wanted: ChunkSpec, from: Option<SocketAddr>) -> Result<(), ChunkError> {
        let Some(place) = self.shared.chunks.prepare(wanted).await? else { return Ok(()) };
        match from {
            Some(peer) => {
                self.reply(ResponseBody::Ready).await;
                place.fetch(&[peer], true).await
            }
            None => {
                let bringing = place.expect_push()?;
                self.reply(ResponseBody::Ready).await;
                bringing.stored().await
            }
        }
    }

    /// The answer to a request to store one chunk. A chunk that is to be durable begins to be
    /// written to the disk.
    fn stored_one(
        &self,
        object: ObjectId,
        stored: Result<(), ChunkError>,
        is_durable: bool,
    ) -> ResponseBody {
        if stored.is_ok() && is_durable {
            block_in_place(|| self.shared.chunks.start_writing(object));
        }
        ResponseBody::Stored { failure: stored.err().map(|error| failure(&error)) }
    }

    /// Forwards the answers of the run's thread. If the thread is overloaded, the client asks
    /// again.
    async fn run(&self, run: BlockRunId, request: RunRequest) {
        let (replies, mut answers) = mpsc::channel(runs::MAX_WAITING_REPLIES);
        let _ = self.shared.runs.try_send(runs::RunInput::Asked { run, request, replies });
        while let Some(reply) = answers.recv().await {
            if !self.reply(ResponseBody::Run(reply)).await {
                return;
            }
        }
    }

    /// Chunks that cannot be read at the moment are not reported as bad.
    async fn check(&self, objects: Vec<ObjectId>, thoroughly: bool) -> Vec<ChunkPresence> {
        let shared = self.shared.clone();
        let has = move |object: &ObjectId| {
            shared.chunks.held(*object, thoroughly).unwrap_or(ChunkPresence::Whole)
        };
        let check = move || objects.iter().map(has).collect();
        tokio::task::spawn_blocking(check).await.unwrap_or_default()
    }

    /// Sends an answer. Returns whether the client is still connected.
    async fn reply(&self, reply: ResponseBody) -> bool {
        self.outbox.put(vec![NodeResponse { number: self.number, reply }]).await.is_ok()
    }
}

/// The nodes of the chunks that a file has after an operation, if that gives it new ones.
fn claim(operation: &FileOperation) -> Option<(FileName, BTreeMap<NodeId, Vec<ObjectId>>)> {
    match operation {
        FileOperation::Create { name, record } | FileOperation::Replace { name, record, .. } => {
            Some((name.clone(), holders(record)))
        }
        _ => None,
    }
}
