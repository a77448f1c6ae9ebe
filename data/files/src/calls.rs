//! Connections of a client to nodes: one connection to each node, on which requests are answered in
//! any order.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eyas_session::{Access, Outbox, Session, dial, outbox};
use eyas_types::access::{Behalf, Principal};
use eyas_wire::Role;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::error::{FilesError, FilesErrorKind};
use crate::protocol::{FilesOrigin, NodeRequest, NodeResponse, RequestBody, ResponseBody};

/// Timeout of answers of a node.
pub(crate) const ANSWER_DEADLINE: Duration = Duration::from_secs(5);

/// A node that does not answer a simple request within this time, while others wait, has stopped or
/// is cut off.
const PROBE_DEADLINE: Duration = Duration::from_secs(10);

/// Requests to nodes, by connections that all clients of a process share which are made of one.
pub(crate) struct Calls {
    connections: Arc<Connections>,
    /// The user for whom all requests are made, if there is one.
    behalf: Option<Behalf>,
}

/// Connections to nodes.
struct Connections {
    access: Access,
    door: Mutex<FilesOrigin>,
    /// At most one connection to each node.
    nodes: Mutex<HashMap<SocketAddr, Arc<tokio::sync::Mutex<Option<Call>>>>>,
    /// Number of times that connections were closed.
    kept: AtomicU64,
}

/// A connection.
#[derive(Clone)]
struct Call {
    outbox: Outbox<NodeRequest>,
    /// The newest minor version of the protocol that the node has, too.
    minor: u16,
    pending: Arc<Mutex<Pending>>,
}

#[derive(Default)]
struct Pending {
    next: u64,
    /// `None` once the connection has ended.
    replies: Option<HashMap<u64, mpsc::UnboundedSender<ResponseBody>>>,
}

/// What each request says of its client.
#[derive(Clone)]
struct RequestOrigin {
    door: FilesOrigin,
    behalf: Option<Behalf>,
}

/// The replies to a request, as they come.
pub(crate) struct Replies {
    address: SocketAddr,
    asking: RequestOrigin,
    number: u64,
    call: Call,
    replies: mpsc::UnboundedReceiver<ResponseBody>,
}

impl Calls {
    /// The holder of the key or token of this client.
    pub fn holder(&self) -> Principal {
        self.connections.access.credentials().holder()
    }

    pub fn new(access: Access) -> Self {
        let connections = Connections {
            access,
            door: Mutex::new(FilesOrigin::Dfs),
            nodes: Mutex::default(),
            kept: AtomicU64::new(0),
        };
        Calls { connections: Arc::new(connections), behalf: None }
    }

    /// The same connections, for requests on behalf of a user. `NotAllowed` if these calls permit
    /// less.
    pub fn on_behalf(&self, behalf: Behalf) -> Result<Self, FilesError> {
        match &self.behalf {
            Some(own) if !behalf.narrows(own) => Err(FilesError::new(
                FilesErrorKind::NotAllowed,
                format!("{own}: more, or what is for another user, needs a client of the key"),
            )),
            _ => Ok(Calls { connections: self.connections.clone(), behalf: Some(behalf) }),
        }
    }

    /// The user for whom all requests are made, if there is one.
    pub fn behalf(&self) -> Option<&Behalf> {
        self.behalf.as_ref()
    }

    /// All further requests come through this door.
    pub fn set_door(&self, door: FilesOrigin) {
        *lock(&self.connections.door) = door;
    }

    /// Sends a request to the node at `address`.
    pub async fn ask(&self, address: SocketAddr, what: RequestBody) -> Result<Replies, FilesError> {
        let call = lock(&self.connections.nodes).entry(address).or_default().clone();
        let mut call = call.lock().await;
        let connected = match call.as_ref().filter(|call| lock(&call.pending).replies.is_some()) {
            Some(connected) => connected.clone(),
            None => call.insert(self.connections.connect(address).await?).clone(),
        };
        drop(call);
        let (door, behalf) = (*lock(&self.connections.door), self.behalf.clone());
        connected.ask(address, RequestOrigin { door, behalf }, what).await
    }

    /// Sends a request that has one reply, and waits for it.
    pub async fn ask_once(
        &self,
        address: SocketAddr,
        what: RequestBody,
    ) -> Result<ResponseBody, FilesError> {
        let answered = async { self.ask(address, what).await?.next().await };
        match timeout(ANSWER_DEADLINE, answered).await {
            Ok(reply) => reply,
            Err(_) => {
                let why = format!("the file system's node at {address} does not answer");
                Err(FilesError::unreachable(why))
            }
        }
    }

    /// Closes all connections except to these addresses.
    pub fn keep(&self, addresses: &BTreeSet<SocketAddr>) {
        lock(&self.connections.nodes).retain(|address, _| addresses.contains(address));
        self.connections.kept.fetch_add(1, Ordering::AcqRel);
    }

    /// Number of times that connections were closed: other nodes may be known since.
    pub fn kept(&self) -> u64 {
        self.connections.kept.load(Ordering::Acquire)
    }

    /// Whether there is a connection to this address, or was one since the others were closed.
    pub fn knows(&self, address: SocketAddr) -> bool {
        lock(&self.connections.nodes).contains_key(&address)
    }
}

impl Connections {
    async fn connect(&self, address: SocketAddr) -> Result<Call, FilesError> {
        let access = self.access.of_node(address);
        let session = dial(&access, Role::Client)
            .await
            .map_err(|error| FilesError::unreachable(error.to_string()))?;
        let Session { mut reader, writer, minor, .. } = session;
        let (outbox, send) = outbox(writer);
        let pending = Arc::new(Mutex::new(Pending { next: 0, replies: Some(HashMap::new()) }));
        let sending = tokio::spawn(send);
        tokio::spawn({
            let pending = pending.clone();
            async move {
                while let Ok(answers) = reader.next::<NodeResponse>().await {
                    let mut pending = lock(&pending);
                    // The node was silent for too long.
                    let Some(waiting) = pending.replies.as_mut() else { break };
                    for NodeResponse { number, reply } in answers {
                        if let Some(waiting) = waiting.get(&number) {
                            // The caller may no longer be waiting.
                            let _ = waiting.send(reply);
                        }
                    }
                }
                // Callers that wait notice that their channel is closed.
                lock(&pending).replies = None;
                sending.abort();
            }
        });
        Ok(Call { outbox, minor, pending })
    }
}

impl Call {
    async fn ask(
        self,
        address: SocketAddr,
        asking: RequestOrigin,
        what: RequestBody,
    ) -> Result<Replies, FilesError> {
        if what.since() > self.minor {
            return Err(FilesError::invalid(format!(
                "the file system's node at {address} is of an earlier version of eyas, which does \
                 not know this request: use the same version on all nodes"
            )));
        }
        let (reply, replies) = mpsc::unbounded_channel();
        let number = {
            let mut pending = lock(&self.pending);
            let number = pending.next;
            pending.next += 1;
            let waiting = pending.replies.as_mut().ok_or_else(|| gone(address))?;
            waiting.insert(number, reply);
            number
        };
        let RequestOrigin { door, behalf } = asking.clone();
        let asked = vec![NodeRequest { number, door, behalf, what }];
        let replies = Replies { address, asking, number, call: self, replies };
        replies.call.outbox.put(asked).await.map_err(|_| gone(address))?;
        Ok(replies)
    }

    /// Ends all requests on this connection if the node does not answer a simple one.
    async fn check(&self, address: SocketAddr, asking: RequestOrigin) {
        let answered = async {
            let mut probe = self.clone().ask(address, asking, RequestBody::Membership).await?;
            Ok::<_, FilesError>(probe.replies.recv().await)
        };
        if timeout(PROBE_DEADLINE, answered).await.is_err() {
            lock(&self.pending).replies = None;
        }
    }
}

impl Replies {
    /// The next reply. Fails if the node has stopped or is cut off, however long the request may
    /// take.
    pub async fn next(&mut self) -> Result<ResponseBody, FilesError> {
        let reply = loop {
            match timeout(ANSWER_DEADLINE, self.replies.recv()).await {
                Ok(reply) => break reply,
                Err(_) => self.call.check(self.address, self.asking.clone()).await,
            }
        };
        match reply.ok_or_else(|| gone(self.address))? {
            ResponseBody::Refused(why) => Err(FilesError::new(FilesErrorKind::NotAllowed, why)),
            reply => Ok(reply),
        }
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        if let Some(waiting) = &mut lock(&self.call.pending).replies {
            waiting.remove(&self.number);
        }
    }
}

fn gone(address: SocketAddr) -> FilesError {
    FilesError::unreachable(format!("the file system's node at {address} has ended the connection"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No update of the values behind these locks can panic half-way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_to_departed_nodes_are_forgotten() {
        let [kept, gone] = ["127.0.0.1:1", "127.0.0.1:2"].map(|address| address.parse().unwrap());
        let calls = Calls::new(Access::create("test", "127.0.0.1:1"));
        for address in [kept, gone] {
            assert!(calls.ask_once(address, RequestBody::Usage).await.is_err());
        }
        calls.keep(&[kept].into());
        assert_eq!(lock(&calls.connections.nodes).keys().collect::<Vec<_>>(), [&kept]);
    }
}
